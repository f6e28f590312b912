//! Executes `atoll pod`: a pod with the reference services.

use std::net::SocketAddr;

use super::arguments::PodArguments;
use super::{Commands, check, logging, say};
use crate::entity::EntityOptions;
use crate::pod::config::{MANAGER_PORT, Store};
use crate::pod::{Pod, StartError, open_state};
use crate::services::account::{AccountEntity, use_store};
use crate::services::echo::EchoEntity;
use crate::services::guild::GuildEntity;
use crate::stores::OpenError;

/// Runs a pod until a signal ends it.
///
/// # Errors
/// If the configuration is wrong, the machine is unfit, or the pod cannot start.
pub fn run(arguments: &PodArguments) -> anyhow::Result<()> {
    let config = arguments.config.load()?.config;
    logging::start(&config.log)?;
    check::refuse(&check::run(&config))?;
    let (dev, listen) = (config.pod.dev, config.pod.listen);
    let kept = config.pod.data_dir.is_some() || config.control.store != Store::Embedded;
    let state = open_state(&config).map_err(|error| with_commands(error.into(), listen))?;
    // Fails only if this process runs a second pod, whose accounts then use the first one's store.
    let _ = use_store(state);
    let started = Pod::builder()
        .config(config)
        .entity::<AccountEntity>(EntityOptions::default())
        .entity::<EchoEntity>(EntityOptions::default())
        .entity::<GuildEntity>(EntityOptions::default())
        .start();
    let pod = started.map_err(|error| with_commands(error, listen))?;
    greet(&pod, dev, kept);
    pod.wait()?;
    say("stopped");
    Ok(())
}

/// Says how several pods share a data directory that one alone was started on.
fn with_commands(error: StartError, listen: SocketAddr) -> anyhow::Error {
    let StartError::Store(OpenError::InUse { directory }) = &error else { return error.into() };
    let manager = SocketAddr::from(([127, 0, 0, 1], MANAGER_PORT));
    let commands = vec![
        format!("atoll manager --listen {manager} --data-directory {}", directory.display()),
        format!("atoll pod --store {manager} --listen {listen}"),
    ];
    let message = format!("{error}; for several pods on it, stop it and run (each pod with its own --listen)");
    Commands { message, commands }.into()
}

fn greet(pod: &Pod, dev: bool, kept: bool) {
    let cores = pod.cores();
    let address = pod.address();
    let pods = if address.port() == 7400 { String::new() } else { format!(" --pods {address}") };
    say(&format!("atoll pod {} serves at {address} on {cores} core{}", pod.uid(), if cores == 1 { "" } else { "s" }));
    if dev {
        say("development mode: nothing is pinned, nothing spins");
    }
    if !kept {
        say("nothing is kept over a restart; --data-dir DIR keeps it");
    }
    say("try, in another terminal:");
    for (command, meaning) in [
        ("atoll call guild g1 join '{\"user\":\"ann\"}'", "a message to an entity"),
        ("atoll ctl entities guild", "what runs now"),
        ("atoll-bench", "the load test"),
    ] {
        say(&format!("  {:width$}  {meaning}", format!("{command}{pods}"), width = 42 + pods.len()));
    }
    say("Ctrl-C stops it.");
}
