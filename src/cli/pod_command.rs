//! Executes `atoll pod`: a pod with the reference services.

use super::arguments::PodArguments;
use super::{check, logging};
use crate::entity::EntityOptions;
use crate::pod::Pod;
use crate::services::echo::EchoEntity;
use crate::services::guild::GuildEntity;

/// Runs a pod until a signal ends it.
///
/// # Errors
/// If the configuration is wrong, the machine is unfit, or the pod cannot start.
pub fn run(arguments: &PodArguments) -> anyhow::Result<()> {
    let config = arguments.config.load()?.config;
    logging::start(&config.log)?;
    check::refuse(&check::run(&config))?;
    let dev = config.pod.dev;
    let pod = Pod::builder()
        .config(config)
        .entity::<EchoEntity>(EntityOptions::default())
        .entity::<GuildEntity>(EntityOptions::default())
        .start()?;
    greet(&pod, dev);
    pod.wait()?;
    eprintln!("stopped");
    Ok(())
}

fn greet(pod: &Pod, dev: bool) {
    let cores = pod.cores();
    let address = pod.address();
    let pods = if address.port() == 7400 { String::new() } else { format!(" --pods {address}") };
    eprintln!("atoll pod {} serves at {address} on {cores} core{}", pod.uid(), if cores == 1 { "" } else { "s" });
    if dev {
        eprintln!("development mode: nothing is pinned, nothing spins, nothing is kept over a restart");
    }
    eprintln!("try, in another terminal:");
    eprintln!("  atoll call guild g1 join '{{\"user\":\"ann\"}}'{pods}     a message to an entity");
    eprintln!("  atoll ctl entities guild{pods}                    what runs now");
    eprintln!("  atoll-bench{pods}                                 the load test");
    eprintln!("Ctrl-C stops it.");
}
