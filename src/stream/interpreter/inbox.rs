//! What reaches an island from outside: asynchronous callbacks, from its own core, other cores and plain threads.
//!
//! Filled by [`AsyncCallback`]s, emptied by the island's turn. Invariants: callbacks of one caller run in order, at most
//! once; one that cannot run any more (stage or island ended) is dropped, and whoever waits for it is told
//! [`Detached`](crate::stream::error::Detached); none is left waiting.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

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

enum Entry {
    Callback { stage: u32, callback: Callback },
    Wake(Arc<StageWake>),
}

/// The waker of a stage: however often it is woken, its stage is called once.
pub(crate) struct StageWake {
    inbox: Arc<IslandInbox>,
    stage: u32,
    queued: AtomicBool,
}

impl StageWake {
    pub fn waker(inbox: &Arc<IslandInbox>, stage: u32) -> Waker {
        Waker::from(Arc::new(StageWake { inbox: Arc::clone(inbox), stage, queued: AtomicBool::new(false) }))
    }
}

impl Wake for StageWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The owner clears the flag before it calls the stage, so a wake-up that finds it set is seen by that call.
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.inbox.push_wake(Arc::clone(self));
        }
    }
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
        self.push_entry(Entry::Callback { stage, callback });
        true
    }

    /// Bounded by the number of wakers: each is queued at most once.
    fn push_wake(&self, wake: Arc<StageWake>) {
        if !self.closed.load(Ordering::Relaxed) {
            self.push_entry(Entry::Wake(wake));
        }
    }

    fn push_entry(&self, entry: Entry) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.entries.push(entry);
        // Either the closing side sees the entry, or we see that it has closed.
        fence(Ordering::SeqCst);
        if self.closed.load(Ordering::Relaxed) {
            self.drop_entries();
            return;
        }
        self.wake();
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
    /// A waker that has `on_wake` of the current stage called. Keep it: each call makes a new one.
    #[must_use]
    pub fn waker(&self) -> Waker {
        StageWake::waker(&self.inbox, self.current)
    }

    /// Has `on_run_end` of the current stage called when this run of the island ends.
    pub fn call_at_run_end(&mut self) {
        if self.run_end.last() != Some(&self.current) {
            self.run_end.push(self.current);
        }
    }

    /// Has `on_look` of the current stage called in the next run of the island, which follows soon even if nothing wakes
    /// it. The core does not sleep before: for a stage that expects news within microseconds, and that bounds how often.
    /// Not to be called again before `on_look` was.
    #[doc(hidden)]
    pub fn look_again(&mut self) {
        self.looking.push(self.current);
    }

    /// Calls the stages that look again.
    pub(crate) fn look(&mut self) {
        let count = self.looking.len();
        for at in 0..count {
            self.call_guarded(self.looking[at], |logic, context| logic.on_look(context));
        }
        self.looking.drain(..count);
    }

    pub(crate) fn end_run(&mut self) {
        while let Some(stage) = self.run_end.pop() {
            self.call_guarded(stage, |logic, context| logic.on_run_end(context));
        }
    }

    /// Runs up to so many callbacks. True if there was one.
    pub(crate) fn run_callbacks(&mut self, limit: u32) -> bool {
        let mut ran = false;
        for _ in 0..limit {
            let Some(entry) = self.inbox.pop() else { break };
            ran = true;
            match entry {
                Entry::Callback { stage, callback } => self.call_guarded(stage, callback),
                Entry::Wake(wake) => {
                    wake.queued.swap(false, Ordering::AcqRel);
                    self.call_guarded(wake.stage, |logic, context| logic.on_wake(context));
                }
            }
        }
        ran
    }
}
