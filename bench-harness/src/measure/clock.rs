//! A clock that costs a few nanoseconds to read: the time stamp counter where it runs at a constant rate, else the
//! kernel's. `Instant::now` costs about 25 ns, a third of what the fastest scenario measures.
#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the calibration runs; an error of a microsecond in it is 0.005 %.
const CALIBRATION: Duration = Duration::from_millis(20);

/// The calibrated clock; one per process, see [`Clock::get`].
#[derive(Debug)]
pub struct Clock {
    counter: bool,
    ns_per_tick: f64,
    origin: Instant,
    read_cost_ns: f64,
}

impl Clock {
    /// The clock of this process; the first call calibrates it, which takes 20 ms.
    pub fn get() -> &'static Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(Self::calibrate)
    }

    fn calibrate() -> Self {
        let mut clock =
            Self { counter: counter_is_constant(), ns_per_tick: 1.0, origin: Instant::now(), read_cost_ns: 0.0 };
        if clock.counter {
            let (start, first) = (Instant::now(), clock.ticks());
            while start.elapsed() < CALIBRATION {
                core::hint::spin_loop();
            }
            let (elapsed, ticks) = (start.elapsed(), clock.ticks() - first);
            clock.ns_per_tick = elapsed.as_nanos() as f64 / ticks as f64;
        }
        const READS: u32 = 100_000;
        let start = clock.ticks();
        for _ in 0..READS {
            core::hint::black_box(clock.ticks());
        }
        clock.read_cost_ns = clock.ns(clock.ticks() - start) as f64 / f64::from(READS);
        clock
    }

    /// Now, in ticks since some origin.
    #[inline]
    pub fn ticks(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if self.counter {
            // SAFETY: every x86-64 processor has RDTSC, and Linux leaves it enabled for user mode (a process would
            // have to disable it for itself through prctl(PR_SET_TSC), which nothing here does).
            return unsafe { core::arch::x86_64::_rdtsc() };
        }
        self.origin.elapsed().as_nanos() as u64
    }

    /// Ticks as nanoseconds.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick) as u64
    }

    /// A duration as ticks.
    #[inline]
    pub fn ticks_in(&self, duration: Duration) -> u64 {
        (duration.as_nanos() as f64 / self.ns_per_tick) as u64
    }

    /// Nanoseconds from `earlier` to now, 0 if another core's counter is a little behind.
    #[inline]
    pub fn since(&self, earlier: u64) -> u64 {
        self.ns(self.ticks().saturating_sub(earlier))
    }

    /// What one reading costs; a latency contains about one of them.
    pub fn read_cost_ns(&self) -> f64 {
        self.read_cost_ns
    }
}

/// Whether the counter exists and neither changes its rate nor stops.
fn counter_is_constant() -> bool {
    cfg!(target_arch = "x86_64")
        && std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| {
            text.lines()
                .find(|line| line.starts_with("flags"))
                .is_some_and(|flags| flags.contains(" constant_tsc") && flags.contains(" nonstop_tsc"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_kernel_clock() {
        let clock = Clock::get();
        let (start, ticks) = (Instant::now(), clock.ticks());
        while start.elapsed() < Duration::from_millis(5) {}
        let (ours, theirs) = (clock.since(ticks) as f64, start.elapsed().as_nanos() as f64);
        // A clock in the wrong unit is off by factors; a preempted test by less than that in total.
        assert!(ours > 4e6 && ours < theirs * 2.0, "ours {ours}, the kernel's {theirs}");
        assert_eq!(
            clock.ns(clock.ticks_in(Duration::from_millis(1))) / 1_000,
            999 + u64::from(clock.ns(clock.ticks_in(Duration::from_millis(1))) >= 1_000_000)
        );
    }
}
