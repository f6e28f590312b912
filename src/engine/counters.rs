//! Counters of one core's links and queues: written by the core, read by anyone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one core's links and queues, written by the core and read by anyone.
#[derive(Default)]
pub struct EngineCounters {
    /// Requests sent over links.
    pub requests_sent: AtomicU64,
    /// Requests received over links.
    pub requests_received: AtomicU64,
    /// Requests that had to be sent again.
    pub resends: AtomicU64,
    /// Requests that were refused since their shard is elsewhere.
    pub moved_answers: AtomicU64,
    /// Replies that came from a former owner and were dropped.
    pub stale_replies: AtomicU64,
    /// How often the core was frozen, since the pod's lease was not renewed in time.
    pub freezes: AtomicU64,
    /// Links that are open.
    pub links_open: AtomicU64,
    /// Messages sent to other cores.
    pub parcels_sent: AtomicU64,
    /// Calls in JSON that came and are not answered.
    pub json_calls_open: AtomicU64,
    /// Links closed because of what the peer sent, by reason.
    pub refusals: std::sync::Mutex<HashMap<&'static str, u64>>,
}

impl EngineCounters {
    pub(super) fn add(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Counts a link that was closed because of what its peer sent.
    pub(super) fn refuse(&self, reason: &'static str) {
        let mut refusals = self.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *refusals.entry(reason).or_default() += 1;
    }
}
