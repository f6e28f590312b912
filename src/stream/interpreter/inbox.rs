//! What reaches an island from outside: asynchronous callbacks, from its own core, other cores and plain threads.
//!
//! Filled by [`AsyncCallback`]s, emptied by the island's turn. Invariants: callbacks of one caller run in order, at most
//! once; one that cannot run any more (stage or island ended) is dropped, and whoever waits for it is told
//! [`Detached`](crate::stream::error::Detached); none is left waiting.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::SegQueue;

use super::context::Context;
use crate::stream::stage::Logic;

/// Callbacks that may wait for one island. A caller that is so far ahead of a core is not going to be served.
pub(crate) const CALLBACKS_MAX: usize = 1 << 16;

/// Makes the host of an island look at it soon.
pub trait IslandWake: Send + Sync {
    /// The island has something to do. From any thread; never waits.
    fn wake(&self);
}

type Callback = Box<dyn FnOnce(&mut dyn Logic, &mut Context) + Send>;

struct Entry {
    stage: u32,
    callback: Callback,
}

/// The inbox of one island.
#[derive(Default)]
pub(crate) struct IslandInbox {
    entries: SegQueue<Entry>,
    waiting: AtomicUsize,
    closed: AtomicBool,
    wake: OnceLock<Arc<dyn IslandWake>>,
}

impl IslandInbox {
    /// From now on callbacks wake the island through this.
    pub fn attach(&self, wake: Arc<dyn IslandWake>) {
        // An island has one host for its whole life.
        let _ = self.wake.set(wake);
    }

    /// Has a callback run in the island. False if it never will: the island has ended, or too many wait.
    pub fn push(&self, stage: u32, callback: Callback) -> bool {
        if self.closed.load(Ordering::Relaxed) || self.waiting.load(Ordering::Relaxed) >= CALLBACKS_MAX {
            return false;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.entries.push(Entry { stage, callback });
        // Either the closing side sees the entry, or we see that it has closed.
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) {
            self.drop_entries();
            return true;
        }
        self.wake();
        true
    }

    /// Has the host look at the island.
    pub fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            wake.wake();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn pop(&self) -> Option<Entry> {
        let entry = self.entries.pop()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(entry)
    }

    fn drop_entries(&self) {
        while self.pop().is_some() {}
    }

    /// Nothing runs any more; what waits is dropped.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.drop_entries();
    }
}

impl Context {
    /// Runs up to so many callbacks. True if there was one.
    pub(crate) fn run_callbacks(&mut self, limit: u32) -> bool {
        let mut ran = false;
        for _ in 0..limit {
            let Some(entry) = self.inbox.pop() else { break };
            ran = true;
            self.call_guarded(entry.stage, entry.callback);
        }
        ran
    }
}
