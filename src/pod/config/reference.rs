//! The configuration as text: the reference with every key and its default, and an effective one with its origins.

use core::fmt::Write as _;

use super::keys::{Config, Key};
use super::sources::Loaded;

const HEAD: &str = "\
# Every key of atoll with its default. Made by `atoll config reference`; do not edit.
#
# A flag counts before an environment variable, a variable before the file, the file before the default.
# Durations have a unit (ns, us, ms, s, m, h, d), sizes have one (B, KiB, MiB, GiB). Unknown keys are errors.
";

/// Every key with its explanation, its variable and its default, as a TOML file that means the defaults.
#[must_use]
pub fn reference() -> String {
    let defaults = Config::default();
    let mut text = HEAD.to_owned();
    for section in Config::SECTIONS {
        text.push('\n');
        comment(&mut text, section.documentation);
        let _ = writeln!(text, "[{}]", section.name);
        for key in keys_of(section.name) {
            text.push('\n');
            comment(&mut text, key.documentation);
            let _ = writeln!(text, "# Write {}. Variable: {}", key.expected, key.variable());
            let _ = writeln!(text, "{} = {}", key.name, (key.get)(&defaults));
        }
    }
    text
}

/// The effective configuration, as TOML with the origin of each value beside it.
#[must_use]
pub fn show(loaded: &Loaded) -> String {
    let mut text = String::new();
    for section in Config::SECTIONS {
        let _ = writeln!(text, "{}[{}]", if text.is_empty() { "" } else { "\n" }, section.name);
        let lines: Vec<(String, String)> = keys_of(section.name)
            .map(|key| {
                (format!("{} = {}", key.name, (key.get)(&loaded.config)), loaded.origin(&key.path()).to_string())
            })
            .collect();
        let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0);
        for (line, origin) in lines {
            let _ = writeln!(text, "{line:width$}  # {origin}");
        }
    }
    text
}

/// The effective configuration as JSON: for each section and key its `value` and `origin`.
#[must_use]
pub fn show_json(loaded: &Loaded) -> serde_json::Value {
    let mut sections = serde_json::to_value(&loaded.config).unwrap_or_default();
    for key in Config::KEYS {
        if let Some(value) = sections.get_mut(key.section).and_then(|section| section.get_mut(key.name)) {
            let origin = loaded.origin(&key.path()).to_string();
            *value = serde_json::json!({ "value": value.take(), "origin": origin });
        }
    }
    sections
}

fn keys_of(section: &str) -> impl Iterator<Item = &'static Key> {
    Config::KEYS.iter().filter(move |key| key.section == section)
}

fn comment(text: &mut String, lines: &[&str]) {
    for line in lines {
        let _ = writeln!(text, "# {}", line.trim());
    }
}
