//! How other threads reach the streams of a core: wake-ups of islands and jobs.
//!
//! Any thread pushes, the host's turn takes. A wake-up is queued once for each island, whatever the number of wakers;
//! jobs are bounded. After each push the core is rung, if it sleeps.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_queue::SegQueue;

use super::StreamHost;
use crate::stream::interpreter::IslandWake;
use std::rc::Rc;

/// Jobs that may wait for a core: islands on their way to it.
const JOBS_MAX: usize = 1 << 16;
/// Entries taken in one turn.
const TAKE_MAX: usize = 1024;

/// Something that a core does with its streams.
pub type HostJob = Box<dyn FnOnce(&Rc<StreamHost>) + Send>;

/// The inbox of one core's streams.
#[derive(Default)]
pub struct HostInbox {
    /// Index and generation of islands.
    woken: SegQueue<(u32, u32)>,
    jobs: SegQueue<HostJob>,
    jobs_waiting: AtomicUsize,
    closed: AtomicBool,
    bell: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl HostInbox {
    /// An inbox that rings nobody yet.
    #[must_use]
    pub fn new() -> Arc<HostInbox> {
        Arc::default()
    }

    /// What wakes the core if it sleeps. Set once.
    pub fn set_bell(&self, bell: impl Fn() + Send + Sync + 'static) {
        let _ = self.bell.set(Box::new(bell));
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    /// Has a job run on the core. False if it never will.
    pub fn send(&self, job: HostJob) -> bool {
        if self.closed.load(Ordering::Acquire) || self.jobs_waiting.fetch_add(1, Ordering::Relaxed) >= JOBS_MAX {
            return false;
        }
        self.jobs.push(job);
        self.ring();
        true
    }

    pub(super) fn take(&self, mut wake: impl FnMut(u32, u32), mut run: impl FnMut(HostJob)) {
        for _ in 0..TAKE_MAX {
            if self.woken.is_empty() {
                break;
            }
            let Some((index, generation)) = self.woken.pop() else { break };
            wake(index, generation);
        }
        for _ in 0..TAKE_MAX {
            if self.jobs.is_empty() {
                break;
            }
            let Some(job) = self.jobs.pop() else { break };
            self.jobs_waiting.fetch_sub(1, Ordering::Relaxed);
            run(job);
        }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.woken.is_empty() && self.jobs.is_empty()
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        while self.woken.pop().is_some() {}
        while self.jobs.pop().is_some() {}
    }
}

/// Wakes one island.
pub(super) struct HostWake {
    inbox: Arc<HostInbox>,
    pub index: u32,
    pub generation: u32,
    /// It is in the ready queue, or on its way there.
    queued: AtomicBool,
}

impl HostWake {
    /// For an island that is put into the ready queue at once.
    pub fn new(inbox: &Arc<HostInbox>, index: u32, generation: u32) -> Arc<HostWake> {
        Arc::new(HostWake { inbox: Arc::clone(inbox), index, generation, queued: AtomicBool::new(true) })
    }

    /// True for the one who has to queue the island.
    pub fn claim(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// The island leaves the queue, and runs after this.
    pub fn release(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }
}

impl IslandWake for HostWake {
    fn wake(&self) {
        // Always a swap, never only a load: it is what makes the run that follows see the cause of this wake-up.
        if self.claim() {
            self.inbox.woken.push((self.index, self.generation));
            self.inbox.ring();
        }
    }
}
