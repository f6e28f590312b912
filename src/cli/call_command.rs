//! Executes `atoll call`.

use super::arguments::CallArguments;

/// Runs the command.
///
/// # Errors
/// Always, in this build.
pub fn run(_arguments: &CallArguments) -> anyhow::Result<()> {
    anyhow::bail!("`atoll call` is not in this build")
}
