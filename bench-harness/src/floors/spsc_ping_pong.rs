//! Floor of a cross-core ask: two pinned threads that spin, one cache line each way. The line carries the value and the
//! sequence number that publishes it, so a round trip moves two lines and nothing else.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::measure::{Clock, Latencies, Mark, RoundLength, Sample, Sampler, Watch, pin_to};

/// Round trips between two looks at the clock.
const BATCH: u64 = 1_024;
/// Looks at a line before the processor is told that this is a spin loop: the hint itself costs some 20 ns, and inside
/// a virtual machine it can end in the host.
const LOOKS_BEFORE_HINT: u32 = 1_024;
/// The sequence number that ends the answering thread.
const STOP: u64 = u64::MAX;

/// One slot of a queue: alone in its cache line and in the line that the processor fetches beside it.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Line {
    sequence: AtomicU64,
    value: AtomicU64,
}

impl Line {
    #[inline]
    fn publish(&self, sequence: u64, value: u64) {
        self.value.store(value, Ordering::Relaxed);
        self.sequence.store(sequence, Ordering::Release);
    }

    /// Waits until the sequence number is no longer `last`.
    #[inline]
    fn await_after(&self, last: u64) -> (u64, u64) {
        let mut looks = 0;
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence != last {
                return (sequence, self.value.load(Ordering::Relaxed));
            }
            looks += 1;
            if looks > LOOKS_BEFORE_HINT {
                core::hint::spin_loop();
            }
        }
    }
}

/// The asking end; the answering thread lives as long as this.
#[derive(Debug)]
pub struct Pair {
    lines: Arc<[Line; 2]>,
    sequence: u64,
    server: Option<JoinHandle<()>>,
}

impl Pair {
    /// Starts the answering thread, pinned to `server_cpu`.
    pub fn start(server_cpu: usize) -> std::io::Result<Self> {
        let lines: Arc<[Line; 2]> = Arc::default();
        let theirs = lines.clone();
        let server = std::thread::Builder::new().name("floor-answers".into()).spawn(move || {
            // Unpinned it is slower, not wrong; the caller has checked the processor.
            let _ = pin_to(server_cpu);
            let [requests, replies] = &*theirs;
            let mut last = 0;
            loop {
                let (sequence, value) = requests.await_after(last);
                if sequence == STOP {
                    return;
                }
                replies.publish(sequence, value.wrapping_add(1));
                last = sequence;
            }
        })?;
        Ok(Self { lines, sequence: 0, server: Some(server) })
    }

    /// Sends a value and spins for the answer, which is the value plus one.
    #[inline]
    pub fn round_trip(&mut self, value: u64) -> u64 {
        let [requests, replies] = &*self.lines;
        requests.publish(self.sequence + 1, value);
        let (sequence, answer) = replies.await_after(self.sequence);
        self.sequence = sequence;
        answer
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.lines[0].publish(STOP, 0);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// One round between `cpus[0]`, which answers, and `cpus[1]`, which asks.
pub fn round(cpus: [usize; 2], length: RoundLength) -> anyhow::Result<Sample> {
    let work = move || -> std::io::Result<Sample> {
        pin_to(cpus[1])?;
        measure(&mut Pair::start(cpus[0])?, &cpus, length)
    };
    let asking = std::thread::Builder::new().name("floor-asks".into()).spawn(work)?;
    Ok(asking.join().map_err(|_| anyhow::anyhow!("the floor panicked; its message is above"))??)
}

fn measure(pair: &mut Pair, cpus: &[usize], length: RoundLength) -> std::io::Result<Sample> {
    let clock = Clock::get();
    let watch = Watch { processes: Vec::new(), processors: cpus.to_vec() };
    let (mut latencies, mut sampler) = (Latencies::new(), Sampler::for_local(1));
    let (mut operations, mut measuring) = (0, false);
    let (mut start, mut mark) = (Instant::now(), Mark::now(&watch)?);
    loop {
        for value in 0..BATCH {
            if sampler.pick() {
                let before = clock.ticks();
                core::hint::black_box(pair.round_trip(value));
                latencies.record(clock.since(before));
            } else {
                core::hint::black_box(pair.round_trip(value));
            }
        }
        operations += BATCH;
        let elapsed = start.elapsed();
        if !measuring && elapsed >= length.warm_up {
            (measuring, operations) = (true, 0);
            latencies.clear();
            mark = Mark::now(&watch)?;
            start = Instant::now();
        } else if measuring && elapsed >= length.duration {
            let usage = mark.until(&Mark::now(&watch)?);
            return Ok(Sample::new(operations, elapsed, latencies, usage));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_comes_back_plus_one() {
        let mut pair = Pair::start(0).unwrap();
        for value in 0..1_000 {
            assert_eq!(pair.round_trip(value), value + 1);
        }
    }
}
