//! Timers, queues and tables: operations of a few dozen instructions.

use std::hint::black_box;
use std::time::Duration;

use atoll::base::hash::entity_hash;
use atoll::base::timers::TimerWheel;
use atoll::base::{CoreIndex, Epoch, Nanos, PodIndex, PodUid, Token};
use atoll::engine::Parcel;
use atoll::mesh::channel;
use atoll::sharding::{Owner, PodRecord, ShardTable, TableParts};

use crate::meter::Meter;

/// A timeout of an ask, as most timers are, among those of a thousand others.
const TIMEOUT: Duration = Duration::from_secs(5);
const OTHERS: u64 = 1_000;

fn wheel() -> TimerWheel<u64> {
    let mut wheel = TimerWheel::with_capacity(2 * OTHERS as usize);
    for at in 0..OTHERS {
        wheel.insert(Nanos(at * 1_000_000) + TIMEOUT, at);
    }
    wheel
}

pub fn timer_arm_cancel(meter: &mut Meter) {
    let (mut wheel, mut now) = (wheel(), Nanos::ZERO);
    meter.repeat(1_000, || {
        now = now + Duration::from_micros(100);
        let id = wheel.insert(now + TIMEOUT, 1);
        wheel.cancel(black_box(id))
    });
}

/// Time passes in turns of 100 µs, each of which arms one timer and fires what is due: one on average.
pub fn timer_arm_fire(meter: &mut Meter) {
    let mut wheel = TimerWheel::with_capacity(2 * OTHERS as usize);
    let mut now = Nanos::ZERO;
    // Turns until as many fire as are armed.
    let delay = Duration::from_millis(50);
    meter.repeat(2_000, || {
        now = now + Duration::from_micros(100);
        wheel.insert(now + delay, 1_u64);
        let mut fired = 0;
        while let Some(key) = wheel.pop_expired(now) {
            fired += key;
        }
        fired
    });
}

/// What one core pushes and another pops, on one thread.
pub fn parcel_hop(meter: &mut Meter) {
    let (mut producer, mut consumer) = channel::<Parcel>(64);
    let mut key = 0;
    meter.repeat(1_000, || {
        key += 1;
        let pushed = producer.push(black_box(Parcel::cancel(key))).is_ok();
        (pushed, consumer.pop_with(|parcel| _ = black_box(parcel)).is_some())
    });
}

fn table() -> ShardTable {
    let pods = (0..8).map(|at| PodRecord {
        uid: PodUid(at + 1),
        address: format!("10.0.0.{at}:7400"),
        cores: 4,
        version: "1".to_owned(),
        role: "default".to_owned(),
    });
    let owners = (0..1_024).map(|shard: u16| Owner {
        token: Token(u64::from(shard) + 1),
        pod: PodIndex(shard % 8),
        core: CoreIndex(shard / 8 % 4),
    });
    let parts = TableParts {
        role: "default".to_owned(),
        epoch: Epoch(1),
        hash_seed: 3,
        number_of_shards: 1_024,
        pods: pods.collect(),
        owners: owners.collect(),
    };
    ShardTable::from_parts(parts).expect("the table is sound")
}

/// Where the entity with an id of 20 bytes lives.
pub fn hash_and_lookup(meter: &mut Meter) {
    let table = table();
    let id = "account-0123456789ab";
    meter.repeat(1_000, || {
        let hash = entity_hash(table.hash_seed(), black_box(id).as_bytes());
        let owner = table.owner(table.shard_of(hash))?;
        Some((owner, table.pod(owner.pod)?.uid))
    });
}
