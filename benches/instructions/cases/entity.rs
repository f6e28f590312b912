//! Messages to entities of the asker's own core, without a loop.

use atoll::EntityOptions;
use atoll::services::echo::{EchoEntity, EchoRef};

use crate::host::Core;
use crate::meter::Meter;

const TIMES: u64 = 500;
/// Entities that are started to warm up: the tables of the core have just grown, and have room for [`STARTS`] more.
const STARTED: u64 = 1_100;
const STARTS: u64 = 200;

fn core() -> Core {
    Core::new().with::<EchoEntity>(EntityOptions::default()).ready()
}

/// Counts messages that one task of the core sends to one entity, each after the answer to the one before.
fn messages<F: Future<Output = ()> + 'static>(meter: &mut Meter, send: impl Fn(EchoRef) -> F + Copy + 'static) {
    let core = core();
    let echo = core.messenger::<EchoRef>();
    let spawn = || {
        core.host().spawn(async move {
            for _ in 0..TIMES {
                send(echo.entity("e1")).await;
            }
        });
    };
    spawn();
    core.run();
    spawn();
    meter.count(TIMES, || core.run());
}

pub fn ask(meter: &mut Meter) {
    messages(meter, |echo| async move {
        echo.add(1).await.expect("it is here");
    });
}

pub fn ask_that_yields(meter: &mut Meter) {
    messages(meter, |echo| async move {
        echo.yields(1).await.expect("it is here");
    });
}

pub fn tell(meter: &mut Meter) {
    messages(meter, |echo| async move {
        echo.tell(1).discard().await.expect("it is here");
    });
}

/// The first ask to an entity, which starts it.
pub fn start(meter: &mut Meter) {
    let core = core();
    let echo = core.messenger::<EchoRef>();
    let spawn = |ids: Vec<String>| {
        core.host().spawn(async move {
            for id in &ids {
                echo.entity(id).add(1).await.expect("it starts");
            }
        });
    };
    let ids = |from, to| (from..to).map(|at| format!("entity-{at:06}")).collect();
    spawn(ids(0, STARTED));
    core.run();
    spawn(ids(STARTED, STARTED + STARTS));
    meter.count(STARTS, || core.run());
}
