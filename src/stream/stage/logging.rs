//! One line for each failure of a stage, at the level that its attributes say.

use crate::stream::attributes::{Attributes, LogLevels};
use crate::stream::error::StreamError;
use crate::stream::interpreter::Context;

impl Context<'_> {
    /// Fails the current stage and logs it: for failures that begin in it.
    pub(crate) fn fail_and_log(&mut self, error: StreamError) {
        self.log_failure(self.current, &error);
        self.fail_stage(error);
    }
}

pub(crate) fn log_failure(attributes: &Attributes, stage: &str, error: &StreamError) {
    let level = attributes.get::<LogLevels>().map_or(Some(tracing::Level::ERROR), |levels| levels.on_failure);
    match level {
        None => {}
        Some(tracing::Level::ERROR) => tracing::error!(stage, %error, "error in a stage"),
        Some(tracing::Level::WARN) => tracing::warn!(stage, %error, "error in a stage"),
        Some(tracing::Level::INFO) => tracing::info!(stage, %error, "error in a stage"),
        Some(_) => tracing::debug!(stage, %error, "error in a stage"),
    }
}
