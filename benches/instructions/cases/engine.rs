//! Asks from one core to another, with all that their state machines do: between cores of a pod, and over a link. Nothing
//! sleeps, and bytes are carried by this program.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use atoll::base::{CoreIndex, Epoch, Nanos, PodIndex, PodUid, Token};
use atoll::engine::{Core, CoreParts, CoreQueues, Identity, LinkLimits};
use atoll::entity::foreign::next_node_number;
use atoll::entity::{EntityDefaults, HostOptions, TypeHost, WakeTarget};
use atoll::mesh::{Bell, Doorbell, ForeignInbox, channel};
use atoll::services::echo::{EchoEntity, EchoRef};
use atoll::sharding::{Owner, PodRecord, ShardTable, TableParts};
use atoll::{EntityOptions, Messenger};

use crate::meter::Meter;
use crate::wire::Wire;

const TIMES: u64 = 500;
const NOW: Nanos = Nanos(1);
const ROLE: &str = "default";
const POD: PodUid = PodUid(2);
const SHARDS: u32 = 8;
const HASH_SEED: u64 = 3;

struct NoBell;

impl Bell for NoBell {
    fn ring(&self) {}
}

/// Two cores of a pod, the second of which owns all shards.
fn two_cores() -> [Core; 2] {
    let doorbells = [Arc::new(Doorbell::new(NoBell)), Arc::new(Doorbell::new(NoBell))];
    let (there, from_first) = channel(64);
    let (back, from_second) = channel(64);
    let first = (vec![None, Some((there, Arc::clone(&doorbells[1])))], vec![None, Some(from_second)]);
    let second = (vec![Some((back, Arc::clone(&doorbells[0]))), None], vec![Some(from_first), None]);
    let node = next_node_number();
    let mut core = 0;
    [first, second].map(|(to, from)| {
        let own = Arc::clone(&doorbells[usize::from(core)]);
        let made = Core::new(CoreParts {
            identity: Identity {
                uid: POD,
                core: CoreIndex(core),
                cores: 2,
                cluster_name: "counted".to_owned(),
                role: ROLE.to_owned(),
                version: "1".to_owned(),
                is_pod: true,
            },
            host: HostOptions {
                node,
                core: CoreIndex(core),
                hash_seed: HASH_SEED,
                number_of_shards: SHARDS,
                call_id_base: u64::from(core) * 1_000_000 + 1,
                defaults: EntityDefaults::default(),
                wake_target: WakeTarget::new(Arc::clone(&own)),
            },
            limits: LinkLimits::default(),
            queues: CoreQueues { to, from, foreign: Arc::new(ForeignInbox::new(16, own)) },
            types: vec![TypeHost::new::<EchoEntity>(0, EntityOptions::default(), &EntityDefaults::default())],
            inspector: None,
            bootstrap: Vec::new(),
            validity: Arc::new(AtomicU64::new(u64::MAX)),
            clock: Arc::new(|| NOW),
            released: Arc::new(|_, _| ()),
            streams: Vec::new(),
        });
        made.set_table(table());
        core += 1;
        made
    })
}

fn table() -> Arc<ShardTable> {
    let pod = PodRecord {
        uid: POD,
        address: "memory:1".to_owned(),
        cores: 2,
        version: "1".to_owned(),
        role: ROLE.to_owned(),
    };
    let owner = Owner { token: Token(7), pod: PodIndex(0), core: CoreIndex(1) };
    let parts = TableParts {
        role: ROLE.to_owned(),
        epoch: Epoch(1),
        hash_seed: HASH_SEED,
        number_of_shards: SHARDS,
        pods: vec![pod],
        owners: vec![owner; SHARDS as usize],
    };
    Arc::new(ShardTable::from_parts(parts).expect("the table is sound"))
}

/// A turn of a core, as the loop makes it; true if it did anything.
fn turn(core: &Core) -> bool {
    let mut busy = false;
    if core.has_work() {
        busy |= core.inboxes(NOW);
        if core.has_work() {
            busy |= core.work(NOW, NOW + Duration::from_secs(1), &|| NOW, &|| false);
        }
    }
    core.flush_peers();
    busy
}

async fn asks(echo: Messenger<EchoRef>, done: Rc<Cell<u64>>, times: u64) {
    for _ in 0..times {
        echo.entity("e1").add(1).await.expect("it is there");
        done.set(done.get() + 1);
    }
}

/// One ask after another from core to core: two hops and two turns each.
pub fn ask_across_cores(meter: &mut Meter) {
    let cores = two_cores();
    let done = Rc::new(Cell::new(0));
    let run = || while turn(&cores[0]) | turn(&cores[1]) {};
    let spawn = || cores[0].host().spawn(asks(cores[0].host().messenger(), Rc::clone(&done), TIMES));
    run();
    spawn();
    run();
    spawn();
    meter.count(TIMES, run);
    assert_eq!(done.get(), 2 * TIMES, "all were answered");
}

/// Asks of so many tasks of a client to a pod. Each turn carries the bytes of all of them.
fn over_link(meter: &mut Meter, tasks: u64) {
    let wire = Wire::new::<EchoEntity>(EntityOptions::default());
    let done = Rc::new(Cell::new(0));
    let each = TIMES.div_ceil(tasks);
    let spawn = || {
        for _ in 0..tasks {
            wire.client.host().spawn(asks(wire.client.host().messenger(), Rc::clone(&done), each));
        }
    };
    spawn();
    wire.run();
    spawn();
    meter.count(tasks * each, || wire.run());
    assert_eq!(done.get(), 2 * tasks * each, "all were answered");
}

pub fn ask_over_link(meter: &mut Meter) {
    over_link(meter, 1);
}

pub fn ask_over_link_in_64(meter: &mut Meter) {
    over_link(meter, 64);
}
