//! Resolves flag > environment > file > default. Pure: texts in, configuration and origins out.

use core::fmt;
use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::keys::{Config, Key};
use super::problem::{ConfigError, Place, Problem};
use super::setting::Given;
use super::suggest::nearest;

/// Prefix of every environment variable of the configuration.
const PREFIX: &str = "ATOLL_";
/// Variables with the prefix that are no keys: read by the command line itself, or by the load test.
const OTHER_VARIABLES: [&str; 2] = ["ATOLL_CONFIG", "ATOLL_PODS"];
const OTHER_PREFIX: &str = "ATOLL_BENCH_";

/// A configuration file.
#[derive(Clone, Copy, Debug)]
pub struct FileText<'a> {
    /// Its path, for messages.
    pub path: &'a str,
    /// What it says.
    pub text: &'a str,
}

/// One value given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The flag as the user knows it, such as `--listen`.
    pub name: String,
    /// The key, as `section.name`.
    pub key: String,
    /// The value.
    pub value: String,
}

/// Everything that a configuration is made from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// The file, if there is one.
    pub file: Option<FileText<'a>>,
    /// The environment; names that do not start with `ATOLL_` are not looked at.
    pub environment: &'a [(String, String)],
    /// The command line; of two flags for one key the later counts.
    pub flags: &'a [Flag],
    /// Cores that the process may run on; `None` does not compare `pod.cores` with it.
    pub cores_available: Option<usize>,
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// Nobody set it, and `pod.dev` changed its default.
    Development,
    /// It was set there.
    Set(Place),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Development => f.write_str("default of --dev"),
            Origin::Set(place) => place.fmt(f),
        }
    }
}

/// A configuration and where its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// For each key that was set, by `section.name`, the place that counted.
    pub(super) places: BTreeMap<String, Place>,
}

impl Loaded {
    /// Where the value of `section.name` came from.
    #[must_use]
    pub fn origin(&self, path: &str) -> Origin {
        if let Some(place) = self.places.get(path) {
            return Origin::Set(place.clone());
        }
        let changed = |key: &Key| (key.get)(&Config::default()) != (key.get)(&Config::dev());
        let development = self.config.pod.dev && Config::KEYS.iter().any(|key| key.path() == path && changed(key));
        if development { Origin::Development } else { Origin::Default }
    }
}

impl Config {
    /// Makes a configuration from its sources: flag > environment > file > default.
    ///
    /// # Errors
    /// Everything that is wrong with them, each with its place and what to do.
    pub fn resolve(sources: &Sources<'_>) -> Result<Loaded, ConfigError> {
        let mut resolved = Resolution::new(Config::default(), sources);
        if resolved.config.pod.dev {
            // Only now it is known which defaults apply; what was set explicitly is applied again over them.
            resolved = Resolution::new(Config::dev(), sources);
        }
        let Resolution { config, places, mut problems } = resolved;
        for (path, message) in config.problems(sources.cores_available) {
            let place = places.get(path).cloned().unwrap_or(Place::Default);
            problems.push(Problem { place, message: format!("`{path}` {message}") });
        }
        if problems.is_empty() { Ok(Loaded { config, places }) } else { Err(ConfigError { problems }) }
    }
}

struct Resolution {
    config: Config,
    places: BTreeMap<String, Place>,
    problems: Vec<Problem>,
}

impl Resolution {
    fn new(base: Config, sources: &Sources<'_>) -> Resolution {
        let mut this = Resolution { config: base, places: BTreeMap::new(), problems: Vec::new() };
        if let Some(file) = sources.file {
            this.file(file);
        }
        for (name, value) in sources.environment {
            this.variable(name, value);
        }
        for flag in sources.flags {
            let place = Place::Flag(flag.name.clone());
            match Config::KEYS.iter().find(|key| key.path() == flag.key) {
                Some(key) => this.set(key, Given::Text(&flag.value), place),
                None => {
                    let message = format!("there is no key `{}`{}", flag.key, path_suggestion(&flag.key));
                    this.problems.push(Problem { place, message });
                }
            }
        }
        this
    }

    fn set(&mut self, key: &Key, given: Given<'_>, place: Place) {
        match (key.set)(&mut self.config, given) {
            Ok(()) => {
                self.places.insert(key.path(), place);
            }
            Err(message) => self.problems.push(Problem { place, message: format!("`{}` {message}", key.path()) }),
        }
    }

    fn variable(&mut self, name: &str, value: &str) {
        if !name.starts_with(PREFIX) || OTHER_VARIABLES.contains(&name) || name.starts_with(OTHER_PREFIX) {
            return;
        }
        let place = Place::Environment(name.to_owned());
        if let Some(key) = Config::KEYS.iter().find(|key| key.variable() == name) {
            return self.set(key, Given::Text(value), place);
        }
        let known: Vec<String> =
            Config::KEYS.iter().map(Key::variable).chain(OTHER_VARIABLES.map(str::to_owned)).collect();
        let suggestion = match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("did you mean {near}?"),
            None => "unset it, or see `atoll config reference` for the names there are".to_owned(),
        };
        self.problems.push(Problem { place, message: format!("no such setting; {suggestion}") });
    }

    fn file(&mut self, file: FileText<'_>) {
        let place = |offset: usize| Place::File { path: file.path.to_owned(), line: Some(line_of(file.text, offset)) };
        let table = match DeTable::parse(file.text) {
            Ok(table) => table.into_inner(),
            Err(error) => {
                let offset = error.span().map_or(0, |span| span.start);
                let message = format!("this is not TOML: {}", error.message().lines().next().unwrap_or("syntax error"));
                return self.problems.push(Problem { place: place(offset), message });
            }
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let section = name.get_ref().as_ref();
            let at = place(name.span().start);
            let known = Config::SECTIONS.iter().any(|info| info.name == section);
            match value.get_ref() {
                DeValue::Table(keys) if known => self.section(section, keys, &place),
                _ if known => {
                    let message = format!("`{section}` is a section; write its keys below a line `[{section}]`");
                    self.problems.push(Problem { place: at, message });
                }
                DeValue::Table(_) => {
                    let message = format!("there is no section [{section}]{}", section_suggestion(section));
                    self.problems.push(Problem { place: at, message });
                }
                _ => {
                    let message = format!("`{section}` stands outside of any section{}", key_suggestion("", section));
                    self.problems.push(Problem { place: at, message });
                }
            }
        }
    }

    fn section(&mut self, section: &str, keys: &DeTable<'_>, place: &dyn Fn(usize) -> Place) {
        let mut entries: Vec<_> = keys.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let at = place(name.span().start);
            let name = name.get_ref().as_ref();
            match Config::KEYS.iter().find(|key| key.section == section && key.name == name) {
                Some(key) => self.set(key, given(value.get_ref()), at),
                None => {
                    let message = format!("there is no key `{name}` in [{section}]{}", key_suggestion(section, name));
                    self.problems.push(Problem { place: at, message });
                }
            }
        }
    }
}

fn given<'a>(value: &'a DeValue<'_>) -> Given<'a> {
    match value {
        DeValue::String(text) => Given::String(text),
        DeValue::Boolean(yes) => Given::Boolean(*yes),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Given::Integer(number),
            Err(_) => Given::Other("integer of more than 64 bits"),
        },
        other => Given::Other(other.type_str()),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

fn section_suggestion(section: &str) -> String {
    match nearest(section, Config::SECTIONS.iter().map(|info| info.name)) {
        Some(near) => format!("; did you mean [{near}]?"),
        None => {
            let names: Vec<&str> = Config::SECTIONS.iter().map(|info| info.name).collect();
            format!("; remove it, the sections are {}", names.join(", "))
        }
    }
}

/// The same section first, then the same name elsewhere, then a similar name anywhere.
fn key_suggestion(section: &str, name: &str) -> String {
    let here = Config::KEYS.iter().filter(|key| key.section == section).map(|key| key.name);
    if let Some(near) = nearest(name, here) {
        return format!("; did you mean `{near}`?");
    }
    let everywhere = || Config::KEYS.iter();
    let elsewhere =
        nearest(name, everywhere().map(|key| key.name)).and_then(|near| everywhere().find(|key| key.name == near));
    match elsewhere {
        Some(key) if key.name == name => format!("; move it below the line [{}]", key.section),
        Some(key) => format!("; did you mean `{}` in [{}]?", key.name, key.section),
        None => "; remove it, or see `atoll config reference` for the keys there are".to_owned(),
    }
}

fn path_suggestion(path: &str) -> String {
    let known: Vec<String> = Config::KEYS.iter().map(Key::path).collect();
    if let Some(near) = nearest(path, known.iter().map(String::as_str)) {
        return format!("; did you mean `{near}`?");
    }
    let (section, name) = path.split_once('.').unwrap_or(("", path));
    key_suggestion(section, name)
}
