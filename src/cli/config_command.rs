//! Executes `atoll config`: reference, effective values with their origins, and the check of a file.

use super::arguments::{ConfigCommand, ConfigCommandArguments};
use super::print;
use crate::pod::config::{Config, reference, show, show_json};

/// Runs the command.
///
/// # Errors
/// If the configuration is wrong, or standard output cannot be written.
pub fn run(arguments: &ConfigCommandArguments) -> anyhow::Result<()> {
    match &arguments.command {
        ConfigCommand::Reference => print(&reference())?,
        ConfigCommand::Show { json, config } => {
            let loaded = config.load()?;
            let text = if *json { format!("{:#}\n", show_json(&loaded)) } else { show(&loaded) };
            print(&text)?;
        }
        ConfigCommand::Check { file } => {
            Config::load_file(file)?;
            print(&format!("{}: ok\n", file.display()))?;
        }
    }
    Ok(())
}
