//! The progress line on standard error: rewritten in place on a terminal, else a plain line at most once a second.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a plain line is written where there is no terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(1);

/// Where progress goes.
#[derive(Debug)]
pub struct ProgressLine {
    terminal: bool,
    last_plain: Option<Instant>,
    drawn: bool,
}

impl ProgressLine {
    /// Progress on standard error.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last_plain: None, drawn: false }
    }

    /// Shows `text` now, or leaves it out if the last plain line is too young.
    pub fn show(&mut self, text: &str) {
        let mut out = std::io::stderr().lock();
        if self.terminal {
            // Return, the text, erase to the end of the line.
            let _ = write!(out, "\r{text}\x1b[K");
            let _ = out.flush();
            self.drawn = true;
        } else if self.last_plain.is_none_or(|last| last.elapsed() >= PLAIN_INTERVAL) {
            let _ = writeln!(out, "{text}");
            self.last_plain = Some(Instant::now());
        }
    }

    /// Removes the line, before other output.
    pub fn clear(&mut self) {
        if self.drawn {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            self.drawn = false;
        }
    }
}

impl Default for ProgressLine {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}
