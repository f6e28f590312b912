//! Where a file comes from: the head of each JSON object that the harness writes, and of each page. `compare` reads it
//! back before it looks at anything else.

use core::fmt;
use core::time::Duration;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The version of the JSON objects. It grows when a field that `compare` reads changes its name or its meaning;
/// fields that are added leave it as it is. Objects without one were written before there was a number.
pub const SCHEMA_VERSION: u64 = 1;

/// What a JSON object reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// Scenarios, each beside its floor.
    Scenarios,
    /// Floors alone.
    Floors,
    /// Rows of the stream engine.
    Streams,
    /// A cluster under load.
    Cluster,
}

impl fmt::Display for ReportKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Scenarios => "scenarios",
            Self::Floors => "floors",
            Self::Streams => "the stream engine",
            Self::Cluster => "a cluster",
        })
    }
}

/// Where a file comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u64,
    /// What is reported.
    pub kind: ReportKind,
    /// When the file was made, in UTC, as in `2026-11-30T23:20:00Z`.
    pub measured_at: String,
    /// The command line that made it, without the folder of the program.
    pub command_line: String,
}

impl Provenance {
    /// This process, now.
    pub fn here(kind: ReportKind) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
        Self {
            schema_version: SCHEMA_VERSION,
            kind,
            measured_at: utc(now.as_secs()),
            command_line: command_line(arguments),
        }
    }
}

/// The command line as it can be pasted into a shell.
fn command_line(arguments: impl Iterator<Item = String>) -> String {
    let plain = |character: char| character.is_alphanumeric() || "-_=+./:,@%".contains(character);
    let quoted = |argument: String| {
        let is_plain = !argument.is_empty() && argument.chars().all(plain);
        if is_plain { argument } else { format!("'{}'", argument.replace('\'', r"'\''")) }
    };
    core::iter::once("atoll-bench".to_owned()).chain(arguments.map(quoted)).collect::<Vec<_>>().join(" ")
}

/// Seconds since 1970 as a date and a time of day.
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Counted from a 1 March, so that the day that leap years add is the last of its year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", time / 3_600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        let arguments = ["ask", "--pods", "10.0.0.1:7000,b", "--json", "my file.json", "it's", ""];
        let line = command_line(arguments.into_iter().map(str::to_owned));
        assert_eq!(line, r"atoll-bench ask --pods 10.0.0.1:7000,b --json 'my file.json' 'it'\''s' ''");
    }

    #[test]
    fn a_file_says_when_and_how_it_was_made() {
        let json = serde_json::to_value(Provenance::here(ReportKind::Floors)).unwrap();
        assert_eq!((json["schema_version"].as_u64(), json["kind"].as_str()), (Some(SCHEMA_VERSION), Some("floors")));
        assert!(json["command_line"].as_str().unwrap().starts_with("atoll-bench"), "{json}");
        assert_eq!(json["measured_at"].as_str().unwrap().len(), "2026-11-30T23:20:00Z".len());
    }
}
