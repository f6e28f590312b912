//! The clock of a process: cheap enough to read several times per turn.
#![allow(unsafe_code)]

use std::time::Instant;

use crate::base::Nanos;

/// A monotonic clock. Copies share their origin, so the times of all cores compare.
///
/// Reads the time stamp counter where it is invariant, in about 10 ns; else the clock of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// Nanoseconds = ticks since the origin × multiplier / 2³².
    #[cfg(target_arch = "x86_64")]
    Counter {
        origin: u64,
        multiplier: u64,
    },
    System {
        origin: Instant,
    },
}

impl Clock {
    /// Starts a clock at zero. Takes about 10 ms where it calibrates the counter.
    #[must_use]
    pub fn new() -> Clock {
        #[cfg(target_arch = "x86_64")]
        if counter::is_invariant()
            && let Some(multiplier) = counter::calibrate()
        {
            return Clock { source: Source::Counter { origin: counter::read(), multiplier } };
        }
        Clock::system()
    }

    /// A clock that asks the operating system.
    #[must_use]
    pub fn system() -> Clock {
        Clock { source: Source::System { origin: Instant::now() } }
    }

    /// Time since the origin.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Counter { origin, multiplier } => {
                let ticks = counter::read().saturating_sub(origin);
                Nanos(((u128::from(ticks) * u128::from(multiplier)) >> 32) as u64)
            }
            Source::System { origin } => Nanos(origin.elapsed().as_nanos() as u64),
        }
    }

    /// Does it read the counter of the processor?
    #[must_use]
    pub fn is_counter(&self) -> bool {
        !matches!(self.source, Source::System { .. })
    }
}

impl Default for Clock {
    fn default() -> Self {
        Clock::new()
    }
}

/// Time since the machine was booted, also while it was suspended (`CLOCK_BOOTTIME`): what leases are counted with. The
/// time stamp counter and the monotonic clock may stand still in a suspend, and a lease would seem to last longer.
#[must_use]
pub fn boot_time() -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clock exists in every Linux that has io_uring.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    debug_assert_eq!(failed, 0, "the clock exists");
    // Neither is negative.
    Nanos((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::time::{Duration, Instant};

    /// How long the counter is compared with the system's clock. The error is about 100 ns in this time: 10 ppm.
    const CALIBRATION: Duration = Duration::from_millis(10);

    #[inline]
    pub fn read() -> u64 {
        // SAFETY: every x86-64 processor has the instruction, and Linux lets user code run it unless a process forbids it to
        // itself, which ours never does.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// Does it tick at one rate in all states of the processor? (Leaf 8000_0007h, EDX bit 8.)
    pub fn is_invariant() -> bool {
        #[allow(unused_unsafe, reason = "safe in newer versions of the standard library only")]
        // SAFETY: every x86-64 processor has the instruction; the leaf is read only if the processor says it has it.
        unsafe {
            use core::arch::x86_64::__cpuid;
            __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & 1 << 8 != 0
        }
    }

    /// Nanoseconds per tick × 2³², or `None` if the counter does not behave.
    pub fn calibrate() -> Option<u64> {
        let (started, first) = pair();
        while started.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (ended, last) = pair();
        let ticks = last.checked_sub(first).filter(|ticks| *ticks > 0)?;
        let nanos = ended.duration_since(started).as_nanos();
        let multiplier = u64::try_from((nanos << 32) / u128::from(ticks)).ok()?;
        // Outside of 100 MHz to 20 GHz something is wrong.
        ((1 << 32) / 20..(1 << 32) * 10).contains(&multiplier).then_some(multiplier)
    }

    /// Both clocks at one moment: the tightest of some attempts.
    fn pair() -> (Instant, u64) {
        let mut best = (u64::MAX, Instant::now(), 0);
        for _ in 0..16 {
            let before = read();
            let now = Instant::now();
            let after = read();
            let width = after.wrapping_sub(before);
            if width < best.0 {
                best = (width, now, before.wrapping_add(width / 2));
            }
        }
        (best.1, best.2)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn agrees(clock: Clock) {
        let (wall, started) = (Instant::now(), clock.now());
        std::thread::sleep(Duration::from_millis(50));
        let (passed, real) = (clock.now().since(started), wall.elapsed());
        let difference = passed.abs_diff(real);
        assert!(difference < real / 10, "{passed:?} against {real:?}");
    }

    #[test]
    fn both_sources_agree_with_the_system() {
        agrees(Clock::new());
        agrees(Clock::system());
    }

    #[test]
    fn boot_time_passes_as_the_system_says() {
        let (wall, started) = (Instant::now(), boot_time());
        std::thread::sleep(Duration::from_millis(50));
        let (passed, real) = (boot_time().since(started), wall.elapsed());
        assert!(passed.abs_diff(real) < real / 10, "{passed:?} against {real:?}");
    }

    #[test]
    fn it_never_goes_back_and_threads_share_the_origin() {
        let clock = Clock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let other = std::thread::spawn(move || clock.now()).join().unwrap();
        assert!(other >= last);
    }
}
