//! Executes `atoll ctl`.

use super::arguments::CtlArguments;

/// Runs the command.
///
/// # Errors
/// Always, in this build.
pub fn run(_arguments: &CtlArguments) -> anyhow::Result<()> {
    anyhow::bail!("`atoll ctl` is not in this build")
}
