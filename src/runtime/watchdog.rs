//! Finds handlers that never return: each core says what it polls, one thread looks at all of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::Nanos;

use super::clock::Clock;

/// How often the thread looks.
const PERIOD: Duration = Duration::from_millis(100);

/// What a core polls at the moment, and since when. Written by the core, read by the watchdog.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Activity {
    since: AtomicU64,
    what: AtomicU64,
}

impl Activity {
    /// The core begins to poll something with this id (not 0).
    #[inline]
    pub fn begin(&self, what: u64, now: Nanos) {
        self.what.store(what, Ordering::Relaxed);
        self.since.store(now.0.max(1), Ordering::Release);
    }

    /// It returned.
    #[inline]
    pub fn end(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// Id and begin of what is polled, if anything is.
    #[must_use]
    pub fn current(&self) -> Option<(u64, Nanos)> {
        let since = self.since.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Relaxed);
        // When it changed meanwhile, the pair may not belong together: then nothing hangs.
        let same = self.since.load(Ordering::Acquire) == since;
        (since != 0 && same).then_some((what, Nanos(since)))
    }
}

/// Decides which stalls are new.
#[derive(Debug)]
struct StallDetector {
    limit: Duration,
    reported: Vec<u64>,
}

impl StallDetector {
    fn new(cores: usize, limit: Duration) -> StallDetector {
        StallDetector { limit, reported: vec![0; cores] }
    }

    /// The id and age of a stall, once per stall.
    fn check(&mut self, core: usize, current: Option<(u64, Nanos)>, now: Nanos) -> Option<(u64, Duration)> {
        let (what, since) = current?;
        let age = now.since(since);
        if age < self.limit || self.reported[core] == since.0 {
            return None;
        }
        self.reported[core] = since.0;
        Some((what, age))
    }
}

/// The thread that looks. Ends when dropped.
#[derive(Debug)]
pub struct Watchdog {
    stop: Arc<(Mutex<bool>, Condvar)>,
    stalls: Arc<AtomicU64>,
    alive: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread. It logs once per stall that is longer than `limit`, with the name that `name` gives to its id.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(
        activities: Vec<Arc<Activity>>,
        clock: Clock,
        limit: Duration,
        name: impl Fn(u64) -> String + Send + 'static,
    ) -> std::io::Result<Watchdog> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (stalls, alive) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let (stop_seen, counted, running) = (Arc::clone(&stop), Arc::clone(&stalls), Arc::clone(&alive));
        let thread = std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || {
            let mut detector = StallDetector::new(activities.len(), limit);
            while !wait(&stop_seen) {
                for (core, activity) in activities.iter().enumerate() {
                    if let Some((what, age)) = detector.check(core, activity.current(), clock.now()) {
                        counted.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(
                            core,
                            what = name(what),
                            stalled_ms = age.as_millis() as u64,
                            "a handler does not return"
                        );
                    }
                }
            }
            running.store(false, Ordering::Relaxed);
        })?;
        Ok(Watchdog { stop, stalls, alive, thread: Some(thread) })
    }

    /// Stalls seen so far.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }

    /// Is the thread still looking?
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }
}

/// Waits one period; true when it is time to stop.
fn wait(stop: &(Mutex<bool>, Condvar)) -> bool {
    let guard = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    if *guard {
        return true;
    }
    match stop.1.wait_timeout_while(guard, PERIOD, |stop| !*stop) {
        Ok((guard, _)) => *guard,
        Err(_) => true,
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_told_once_and_a_new_one_again() {
        let limit = Duration::from_nanos(100);
        let mut detector = StallDetector::new(2, limit);
        let activity = Activity::default();
        assert_eq!(detector.check(0, activity.current(), Nanos(1000)), None, "idle");
        activity.begin(7, Nanos(10));
        assert_eq!(detector.check(0, activity.current(), Nanos(109)), None, "not long enough");
        assert_eq!(detector.check(0, activity.current(), Nanos(110)), Some((7, limit)));
        assert_eq!(detector.check(0, activity.current(), Nanos(500)), None, "told already");
        activity.end();
        assert_eq!(detector.check(0, activity.current(), Nanos(900)), None);
        activity.begin(8, Nanos(1000));
        assert_eq!(detector.check(1, None, Nanos(2000)), None, "another core");
        assert_eq!(detector.check(0, activity.current(), Nanos(2000)), Some((8, Duration::from_nanos(1000))));
    }

    #[test]
    fn the_thread_counts_a_stall_and_ends() {
        let clock = Clock::system();
        let activity = Arc::new(Activity::default());
        activity.begin(3, clock.now());
        let name = |what: u64| format!("handler {what}");
        let watchdog = Watchdog::start(vec![Arc::clone(&activity)], clock, Duration::from_millis(1), name).unwrap();
        while watchdog.stalls() == 0 {
            std::thread::yield_now();
        }
        let alive = Arc::clone(&watchdog.alive);
        drop(watchdog);
        assert!(!alive.load(Ordering::Relaxed));
    }
}
