//! Executes `atoll manager`: serves the store of several pods.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::arguments::ManagerArguments;
use super::{UsageError, logging, say};
use crate::pod::config::LogSection;
use crate::runtime::boot_time;
use crate::stores::served::{ServerOptions, StoreServer};

/// Serves until a signal ends it.
///
/// # Errors
/// If the folder or the address cannot be used, or the disk fails.
pub fn run(arguments: &ManagerArguments) -> anyhow::Result<()> {
    let log = LogSection { level: arguments.log_level.clone(), ..LogSection::default() };
    logging::start(&log).map_err(|error| {
        UsageError(format!("the log level is not understood ({error}); write one such as \"info\" or \"debug\""))
    })?;
    let options = ServerOptions::new(arguments.listen, arguments.data_directory.clone(), Arc::new(boot_time));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before anybody is told that it runs: a signal that comes at once stops it cleanly, too.
    let (mut terminate, mut interrupt) = {
        let _context = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let mut server = StoreServer::start(options)?;
    greet(&server, arguments);
    let failed = runtime.block_on(async {
        tokio::select! {
            error = server.failed() => Some(error),
            _ = terminate.recv() => None,
            _ = interrupt.recv() => None,
        }
    });
    server.stop();
    if let Some(error) = failed {
        return Err(error.into());
    }
    say("stopped");
    Ok(())
}

fn greet(server: &StoreServer, arguments: &ManagerArguments) {
    let address = server.address();
    say(&format!("atoll manager serves {} at {address}", arguments.data_directory.display()));
    say("try, each in another terminal:");
    for listen in ["127.0.0.1:7401", "127.0.0.1:7402"] {
        say(&format!("  atoll pod --dev --store {address} --listen {listen}"));
    }
    say("Ctrl-C stops it; its pods go on for the rest of their leases, and find it again after a restart.");
}
