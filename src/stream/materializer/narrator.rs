//! The debug switch: who listens is told each step of materializing, in the words of the island tracking.

use std::fmt;

/// Takes the narration, one line at a time.
pub trait Narrator {
    /// One line, without line break.
    fn line(&mut self, line: fmt::Arguments<'_>);
}

/// Collects the lines, for tests and tools.
impl Narrator for Vec<String> {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        self.push(line.to_string());
    }
}

/// Emits each line as `tracing` event at the level `debug`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingNarrator;

impl Narrator for TracingNarrator {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        tracing::debug!(target: "atoll::stream::materializer", "{line}");
    }
}

/// Tells the narrator a line if there is one; formats nothing otherwise.
macro_rules! narrate {
    ($narrator:expr, $($line:tt)+) => {
        if let Some(narrator) = &mut $narrator {
            narrator.line(format_args!($($line)+));
        }
    };
}
pub(super) use narrate;
