//! Is this machine fit for a pod? Each finding says what is, what should be, and the command that changes it.
//!
//! Called by `atoll check`, and by `atoll pod` before it starts ([`run`], then [`refuse`]). `facts` and `ring` look at
//! the machine and judge nothing; `judge` compares facts with a configuration and looks at nothing, so that every
//! verdict is tested without the machine that deserves it.

mod facts;
mod judge;
mod ring;

use core::fmt::Write as _;
use std::process::ExitCode;

use serde::Serialize;

use super::arguments::CheckArguments;
use super::{FAILED, print};
use crate::pod::config::Config;

pub use facts::{HostFacts, Limit};
pub use judge::judge;
pub use ring::RingFacts;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Nothing to compare with; shown because it explains measurements.
    Information,
    /// The pod runs, slower or with less room.
    Warning,
    /// The pod cannot run.
    Fatal,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is.
    pub found: String,
    /// What should be.
    pub required: String,
    /// What to do: a command first; `None` where nothing is to be done.
    pub fix: Option<String>,
}

/// Looks at this machine with the eyes of a configuration.
#[must_use]
pub fn run(config: &Config) -> Vec<Finding> {
    judge(&HostFacts::gather(), config)
}

/// Refuses to start on fatal findings.
///
/// # Errors
/// One line for each fatal finding, with what to do.
pub fn refuse(findings: &[Finding]) -> anyhow::Result<()> {
    let fatal: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Fatal)
        .map(|finding| {
            let fix = finding.fix.as_deref().map(|fix| format!("; {fix}")).unwrap_or_default();
            format!("{}: {}, needed is {}{fix}", finding.name, finding.found, finding.required)
        })
        .collect();
    if fatal.is_empty() { Ok(()) } else { Err(anyhow::anyhow!(fatal.join("\n"))) }
}

/// Runs `atoll check`.
///
/// # Errors
/// If the configuration is wrong, or standard output cannot be written.
pub fn command(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let loaded = Config::load_for(arguments.config.config.as_deref(), &arguments.config.flags(), None)?;
    let findings = run(&loaded.config);
    print(&if arguments.json { json(&findings) } else { table(&findings) })?;
    Ok(if fit(&findings) { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

fn fit(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.severity != Severity::Fatal)
}

fn json(findings: &[Finding]) -> String {
    format!("{:#}\n", serde_json::json!({ "fit": fit(findings), "findings": findings }))
}

fn table(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let label = match finding.severity {
            Severity::Ok => "ok",
            Severity::Information => "info",
            Severity::Warning => "WARNING",
            Severity::Fatal => "FATAL",
        };
        let _ = write!(text, "{label:7}  {:width$}  {}", finding.name, finding.found);
        let _ = match finding.severity {
            Severity::Ok | Severity::Information if finding.required.is_empty() => writeln!(text),
            Severity::Ok | Severity::Information => writeln!(text, " ({})", finding.required),
            Severity::Warning | Severity::Fatal => writeln!(text, "; should be {}", finding.required),
        };
        if let Some(fix) = &finding.fix {
            let _ = writeln!(text, "{:7}  {:width$}  -> {fix}", "", "");
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (fatal, warnings) = (count(Severity::Fatal), count(Severity::Warning));
    let verdict = if fatal == 0 { "a pod can run here" } else { "a pod cannot run here" };
    let _ = writeln!(text, "\n{verdict}: {fatal} fatal, {warnings} to improve");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity) -> Finding {
        let fix = (severity > Severity::Information).then(|| "do it".to_owned());
        Finding { name: "thing", severity, found: "this".to_owned(), required: "that".to_owned(), fix }
    }

    #[test]
    fn only_fatal_findings_refuse_the_start() {
        assert!(refuse(&[finding(Severity::Ok), finding(Severity::Warning)]).is_ok());
        let error = refuse(&[finding(Severity::Warning), finding(Severity::Fatal)]).unwrap_err();
        assert_eq!(error.to_string(), "thing: this, needed is that; do it");
    }

    #[test]
    fn the_table_says_what_to_do() {
        let text = table(&[finding(Severity::Ok), finding(Severity::Fatal)]);
        assert!(text.contains("FATAL    thing  this; should be that\n                -> do it\n"), "{text}");
        assert!(text.ends_with("a pod cannot run here: 1 fatal, 0 to improve\n"), "{text}");
    }
}
