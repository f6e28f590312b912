//! Floor of entity starts: a hash map from string ids takes a new id and its state, growing as it must. The id comes
//! as borrowed text, as it does out of a frame, so the map's copy of it is part of the work.

use std::io;
use std::time::Instant;

use super::ids::{ById, write_id};
use super::{Measured, mark_here};
use crate::child::Child;
use crate::measure::{Clock, Latencies, resident_bytes};

/// Starts between two looks at the clock: a pause is found to within this many starts.
const BATCH: u32 = 64;

/// Starts `entities` entities in an empty map.
pub fn start(entities: u32) -> io::Result<Measured> {
    let clock = Clock::get();
    let (mut latencies, mut longest_pause_ns) = (Latencies::new(), 0);
    let mark = mark_here()?;
    let start = Instant::now();
    let mut batch_start = clock.ticks();
    let mut directory: ById<u64> = ById::default();
    let mut id = String::with_capacity(16);
    for index in 0..entities {
        write_id(index, &mut id);
        directory.insert(id.as_str().to_owned(), u64::from(index));
        if index % BATCH == BATCH - 1 {
            let now = clock.ticks();
            let batch_ns = clock.ns(now.saturating_sub(batch_start));
            latencies.record_many(batch_ns / u64::from(BATCH), u64::from(BATCH));
            longest_pause_ns = longest_pause_ns.max(batch_ns);
            batch_start = now;
        }
    }
    core::hint::black_box(&directory);
    let elapsed = start.elapsed();
    let usage = mark.until(&mark_here()?);
    Ok(Measured {
        operations: u64::from(entities),
        elapsed,
        latencies,
        longest_pause_ns: Some(longest_pause_ns),
        usage,
    })
}

/// Memory of one started entity, measured in a fresh process: (resident after − before) / entities.
pub fn bytes_per_entity(entities: u32) -> anyhow::Result<f64> {
    let mut child = Child::start(["floor-entity-memory", "--entities", &entities.to_string()])?;
    let bytes = child.line()?.parse()?;
    child.wait()?;
    Ok(bytes)
}

/// What the fresh process does: prints bytes per entity.
pub fn print_memory(entities: u32) -> anyhow::Result<()> {
    let before = resident_bytes()?;
    let mut directory: ById<u64> = ById::default();
    let mut id = String::with_capacity(16);
    for index in 0..entities {
        write_id(index, &mut id);
        directory.insert(id.as_str().to_owned(), u64::from(index));
    }
    let after = resident_bytes()?;
    core::hint::black_box(&directory);
    println!("{}", after.saturating_sub(before) as f64 / f64::from(entities.max(1)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entity_is_started_and_the_longest_pause_is_at_least_the_mean() {
        let measured = start(10_000).unwrap();
        assert_eq!(measured.operations, 10_000);
        let mean = measured.elapsed.as_nanos() as u64 / 10_000;
        assert!(measured.longest_pause_ns.unwrap() >= mean);
    }
}
