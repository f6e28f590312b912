//! Executes `atoll pod`.

use super::arguments::PodArguments;

/// Runs the command.
///
/// # Errors
/// Always, in this build.
pub fn run(_arguments: &PodArguments) -> anyhow::Result<()> {
    anyhow::bail!("`atoll pod` is not in this build")
}
