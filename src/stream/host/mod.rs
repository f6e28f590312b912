//! The islands of one core: who is ready, who waits for a time, who starts.
//!
//! One [`StreamHost`] for each core, driven by the core's loop (or by a runtime of its own): [`StreamHost::run_one`]
//! while there is budget, [`StreamHost::next_deadline`] for the sleep. Wake-ups come from any thread by way of
//! [`HostInbox`]. Invariants: an island lies in the ready queue at most once, runs to a budget and goes to the end of
//! the queue, so none starves another; no borrow is held while an island runs, because stages may start islands (but not
//! run them: that an island is run inside of a run of another one would let neither come to its end).

pub mod current;
mod inbox;

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use inbox::HostWake;
pub use inbox::{HostInbox, HostJob};

use crate::base::Nanos;
use crate::stream::interpreter::snapshot::IslandSnapshot;
use crate::stream::interpreter::{EVENTS_PER_RUN, Island, RunState};
use crate::stream::materializer::Phases;

/// Most islands of one core: bounds what a stream that starts streams can take.
pub const ISLANDS_MAX: usize = 1 << 20;

/// Too many streams run on this core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the core runs {ISLANDS_MAX} islands already; end some streams first")]
pub struct TooManyIslands;

type CoreOfShard = Box<dyn Fn(u32) -> u16>;

struct Entry {
    generation: u32,
    /// Out while it runs.
    island: Option<Box<Island>>,
    wake: Option<Arc<HostWake>>,
    started: bool,
    /// The earliest deadline that was put on the heap for it.
    armed: Nanos,
}

/// The islands of one core.
pub struct StreamHost {
    entries: RefCell<Vec<Entry>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<(u32, u32)>>,
    deadlines: RefCell<BinaryHeap<Reverse<(Nanos, u32, u32)>>>,
    inbox: Arc<HostInbox>,
    cores: RefCell<Vec<Arc<HostInbox>>>,
    own_core: Cell<u16>,
    next_core: Cell<u16>,
    now: Cell<Nanos>,
    islands: Cell<usize>,
    events_per_run: Cell<u32>,
    aborted: Cell<bool>,
    /// An island runs: its stages may start islands, but not run or stop them.
    runs: Cell<bool>,
    phases: OnceCell<Rc<Phases<'static>>>,
    core_of_shard: RefCell<Option<CoreOfShard>>,
}

impl StreamHost {
    /// A host without islands, woken by way of this inbox.
    #[must_use]
    pub fn new(inbox: Arc<HostInbox>) -> Rc<StreamHost> {
        Rc::new(StreamHost {
            entries: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            deadlines: RefCell::default(),
            cores: RefCell::new(vec![Arc::clone(&inbox)]),
            inbox,
            own_core: Cell::new(0),
            next_core: Cell::new(0),
            now: Cell::new(Nanos::ZERO),
            islands: Cell::new(0),
            events_per_run: Cell::new(EVENTS_PER_RUN),
            aborted: Cell::new(false),
            runs: Cell::new(false),
            phases: OnceCell::new(),
            core_of_shard: RefCell::new(None),
        })
    }

    /// Tells the host which cores there are, itself included, so that islands can be placed.
    pub fn set_cores(&self, own_core: u16, cores: Vec<Arc<HostInbox>>) {
        self.own_core.set(own_core);
        *self.cores.borrow_mut() = cores;
    }

    /// Number of cores that islands can be placed on.
    #[must_use]
    pub fn number_of_cores(&self) -> u16 {
        self.cores.borrow().len() as u16
    }

    /// The core of this host.
    #[must_use]
    pub fn own_core(&self) -> u16 {
        self.own_core.get()
    }

    /// The next core for an island that may run anywhere: the others in turn, and this one if there is no other.
    pub(crate) fn any_core(&self) -> u16 {
        let cores = self.number_of_cores();
        if cores <= 1 {
            return self.own_core.get();
        }
        let mut core = (self.next_core.get() + 1) % cores;
        if core == self.own_core.get() {
            core = (core + 1) % cores;
        }
        self.next_core.set(core);
        core
    }

    /// The phases of islands that this host knows.
    pub(crate) fn phases(self: &Rc<Self>) -> Rc<Phases<'static>> {
        Rc::clone(self.phases.get_or_init(|| Rc::new(crate::stream::fused::phases(self))))
    }

    /// Tells the host how shards lie on cores. Until then they are spread evenly.
    pub fn set_core_of_shard(&self, core_of_shard: impl Fn(u32) -> u16 + 'static) {
        *self.core_of_shard.borrow_mut() = Some(Box::new(core_of_shard));
    }

    /// The core of a shard.
    pub(crate) fn core_of_shard(&self, shard: u32) -> u16 {
        let cores = self.number_of_cores().max(1);
        let known = self.core_of_shard.borrow().as_ref().map(|core_of_shard| core_of_shard(shard));
        known.filter(|core| *core < cores).unwrap_or((shard % u32::from(cores)) as u16)
    }

    /// Has a job run on another core, or on this one, in its next turn.
    pub(crate) fn send(&self, core: u16, job: HostJob) -> bool {
        let inbox = self.cores.borrow().get(usize::from(core)).cloned();
        inbox.is_some_and(|inbox| inbox.send(job))
    }

    /// Where wake-ups and jobs for this core go.
    #[must_use]
    pub fn inbox(&self) -> &Arc<HostInbox> {
        &self.inbox
    }

    /// How many events an island may process in a run.
    pub fn set_events_per_run(&self, events: u32) {
        self.events_per_run.set(events.max(1));
    }

    /// The time of the last turn.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now.get()
    }

    /// Takes over an island; it starts in the next turn.
    ///
    /// # Errors
    /// Too many run already.
    pub fn spawn(&self, mut island: Box<Island>) -> Result<(), TooManyIslands> {
        if self.islands.get() >= ISLANDS_MAX || self.aborted.get() {
            return Err(TooManyIslands);
        }
        self.islands.set(self.islands.get() + 1);
        let mut entries = self.entries.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let (generation, armed) = (0, Nanos::NEVER);
            entries.push(Entry { generation, island: None, wake: None, started: false, armed });
            entries.len() as u32 - 1
        });
        let entry = &mut entries[index as usize];
        let wake = HostWake::new(&self.inbox, index, entry.generation);
        island.attach(wake.clone());
        entry.island = Some(island);
        entry.wake = Some(wake);
        entry.started = false;
        entry.armed = Nanos::NEVER;
        self.ready.borrow_mut().push_back((index, entry.generation));
        Ok(())
    }

    /// Takes what woke up or was sent, and what is due. True if an island is ready.
    pub fn take_events(self: &Rc<Self>, now: Nanos) -> bool {
        self.now.set(now);
        self.inbox.take(|index, generation| self.make_ready(index, generation), |job| job(self));
        self.expire(now);
        self.has_work()
    }

    fn make_ready(&self, index: u32, generation: u32) {
        let is_alive = self.entries.borrow().get(index as usize).is_some_and(|entry| entry.generation == generation);
        if is_alive {
            self.ready.borrow_mut().push_back((index, generation));
        }
    }

    fn expire(&self, now: Nanos) {
        loop {
            let (index, generation) = match self.deadlines.borrow_mut().peek_mut() {
                Some(top) if top.0.0 <= now => {
                    let Reverse((_, index, generation)) = std::collections::binary_heap::PeekMut::pop(top);
                    (index, generation)
                }
                _ => return,
            };
            let wake = {
                let mut entries = self.entries.borrow_mut();
                let Some(entry) = entries.get_mut(index as usize).filter(|entry| entry.generation == generation) else {
                    continue;
                };
                entry.armed = Nanos::NEVER;
                entry.wake.clone()
            };
            // By the same flag as every wake-up, so the island is queued once.
            if let Some(wake) = wake
                && wake.claim()
            {
                self.make_ready(index, generation);
            }
        }
    }

    /// Runs the island that has been ready for longest. False if there is none, or if it is called by a stage: the island
    /// of the stage is being run already.
    pub fn run_one(self: &Rc<Self>, now: Nanos) -> bool {
        if self.runs.replace(true) {
            return false;
        }
        let _runs = Runs(&self.runs);
        self.now.set(now);
        let Some((index, generation)) = self.ready.borrow_mut().pop_front() else { return false };
        let taken = {
            let mut entries = self.entries.borrow_mut();
            entries.get_mut(index as usize).filter(|entry| entry.generation == generation).and_then(|entry| {
                let started = std::mem::replace(&mut entry.started, true);
                Some((entry.island.take()?, entry.wake.clone()?, started))
            })
        };
        let Some((mut island, wake, started)) = taken else { return true };
        wake.release();
        let state = {
            let _entered = current::enter(self);
            if !started {
                island.start(now);
            }
            let events = self.events_per_run.get();
            let state = island.run(now, events);
            let is_alone = || self.ready.borrow().is_empty() && self.inbox.is_empty();
            if state == RunState::Suspended { island.look_while(events, is_alone) } else { state }
        };
        if state == RunState::Completed {
            self.remove(index, generation);
            let _entered = current::enter(self);
            drop(island);
            return true;
        }
        if self.entries.borrow()[index as usize].generation != generation {
            // A stage has stopped the host while it ran.
            let _entered = current::enter(self);
            drop(island);
            return true;
        }
        let deadline = island.next_deadline();
        {
            let mut entries = self.entries.borrow_mut();
            let entry = &mut entries[index as usize];
            if deadline < entry.armed {
                entry.armed = deadline;
                self.deadlines.borrow_mut().push(Reverse((deadline, index, generation)));
            }
            entry.island = Some(island);
        }
        if state == RunState::Suspended && wake.claim() {
            self.ready.borrow_mut().push_back((index, generation));
        }
        true
    }

    /// Nothing if it was removed before.
    fn remove(&self, index: u32, generation: u32) {
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[index as usize];
        if entry.generation != generation {
            return;
        }
        entry.generation = entry.generation.wrapping_add(1);
        entry.wake = None;
        self.free.borrow_mut().push(index);
        self.islands.set(self.islands.get() - 1);
    }

    /// Whether an island is ready.
    #[inline]
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// Whether an island is ready, or something came from outside.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.inbox.is_empty()
    }

    /// When the next timer of an island is due.
    #[must_use]
    pub fn next_deadline(&self) -> Nanos {
        self.deadlines.borrow().peek().map_or(Nanos::NEVER, |Reverse((at, _, _))| *at)
    }

    /// Islands that run.
    #[must_use]
    pub fn islands(&self) -> usize {
        self.islands.get()
    }

    /// Stages that run, of the islands that are not being run right now: for leak tests and views.
    #[must_use]
    pub fn running_stages(&self) -> usize {
        let entries = self.entries.borrow();
        entries.iter().filter_map(|entry| entry.island.as_ref()).map(|island| island.running_stages()).sum()
    }

    /// What the islands are doing that are not being run right now; see
    /// [`draw_dot`](crate::stream::interpreter::snapshot::draw_dot).
    #[must_use]
    pub fn snapshots(&self) -> Vec<IslandSnapshot> {
        let entries = self.entries.borrow();
        entries.iter().filter_map(|entry| entry.island.as_ref()).map(|island| island.snapshot()).collect()
    }

    /// Stops all streams now. None can be started any more. If a stage calls it, its own island stops when its run ends.
    pub fn abort(self: &Rc<Self>) {
        self.aborted.set(true);
        let islands: Vec<Box<Island>> = {
            let mut entries = self.entries.borrow_mut();
            entries.iter_mut().filter_map(|entry| entry.island.take()).collect()
        };
        let _entered = current::enter(self);
        for island in islands {
            drop(island);
        }
        let entries = self.entries.borrow().len() as u32;
        for index in 0..entries {
            let alive = {
                let entries = self.entries.borrow();
                let entry = &entries[index as usize];
                entry.wake.is_some().then_some(entry.generation)
            };
            if let Some(generation) = alive {
                self.remove(index, generation);
            }
        }
        self.ready.borrow_mut().clear();
        self.deadlines.borrow_mut().clear();
    }
}

/// Says that no island runs any more, however the run ended.
struct Runs<'a>(&'a Cell<bool>);

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Drop for StreamHost {
    fn drop(&mut self) {
        self.inbox.close();
    }
}
