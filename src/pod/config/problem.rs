//! What is wrong with a configuration, and where.

use core::fmt;

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a file.
    File {
        /// Its path, as given.
        path: String,
        /// The line, from 1; `None` for the file as a whole.
        line: Option<usize>,
    },
    /// In an environment variable.
    Environment(String),
    /// In a flag of the command line.
    Flag(String),
    /// Nowhere: a default, or a value set by code.
    Default,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File { path, line: Some(line) } => write!(f, "{path}:{line}"),
            Place::File { path, line: None } => f.write_str(path),
            Place::Environment(name) => write!(f, "environment variable {name}"),
            Place::Flag(name) => write!(f, "flag {name}"),
            Place::Default => f.write_str("configuration"),
        }
    }
}

/// One thing that is wrong, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What, and what to do about it.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A configuration that cannot be used. Displays one line for each problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Everything that is wrong; at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl core::error::Error for ConfigError {}
