//! The command line of `atoll`.
//!
//! `arguments` turns the command line into plain structs; each `…_command` module executes one of them; [`main`] prints
//! their errors. Invariants: results go to standard output, logs and errors to standard error; an error is one sentence
//! that starts with `error:` and says what to do; exit codes are 0, 1 (failed), 2 (wrong usage or
//! configuration) and 3 (an entity answered with an error that its message declares).

pub mod arguments;
pub mod call_command;
pub mod check;
pub mod config_command;
pub mod ctl_command;
pub mod logging;
pub mod manager_command;
pub mod pod_command;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

use crate::pod::config::ConfigError;
use arguments::{Arguments, Command};

/// Exit code of a command that failed.
pub const FAILED: u8 = 1;
/// Exit code of wrong usage and wrong configuration, as clap has it too.
pub const WRONG_USAGE: u8 = 2;
/// Exit code of a call that an entity answered with an error that its message declares.
pub const DECLARED_ERROR: u8 = 3;

/// A mistake in the arguments that only shows after they were parsed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// An error whose fix is a list of commands, printed below it as they are to be typed.
#[derive(Debug, thiserror::Error)]
#[error("{message}:")]
pub struct Commands {
    /// What happened, and when the commands help.
    pub message: String,
    /// The commands.
    pub commands: Vec<String>,
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Pod(arguments) => pod_command::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Manager(arguments) => manager_command::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Call(arguments) => call_command::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Ctl(arguments) => ctl_command::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => check::command(&arguments),
        Command::Config(arguments) => config_command::run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        // An error about several lines of a file has one line for each.
        for line in sentence(&error).lines() {
            say(&format!("error: {line}"));
        }
        if let Some(Commands { commands, .. }) = error.downcast_ref() {
            commands.iter().for_each(|command| say(&format!("  {command}")));
        }
        ExitCode::from(exit_code(&error))
    })
}

/// An error with its causes, each once: the messages of many errors contain their cause already.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match () {
        () if text.is_empty() => cause,
        () if text.contains(&cause) => text,
        () => format!("{text}: {cause}"),
    })
}

fn exit_code(error: &anyhow::Error) -> u8 {
    let usage = error.chain().any(|cause| cause.is::<ConfigError>() || cause.is::<UsageError>());
    match () {
        () if usage => WRONG_USAGE,
        () if error.is::<call_command::DeclaredError>() => DECLARED_ERROR,
        () => FAILED,
    }
}

/// Writes a result to standard output. A reader that went away (`atoll … | head`) is no error.
///
/// # Errors
/// If standard output cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a line for people to standard error. One that nobody reads (a closed pipe, a full disk) is lost: `eprintln!`
/// would end the pod for it.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_each_cause_once() {
        let cause = || io::Error::other("the disk is full");
        let apart = anyhow::Error::new(cause()).context("saving failed");
        assert_eq!(sentence(&apart), "saving failed: the disk is full");
        let contained = anyhow::Error::new(cause()).context("saving failed (the disk is full); make room");
        assert_eq!(sentence(&contained), "saving failed (the disk is full); make room");
    }
}
