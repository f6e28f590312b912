//! Floor of many local asks and of tells: per-entity mailboxes, a run queue and reply cells with wakers, on one thread.
//! Each message finds its entity by its string id. The askers are ordinary asynchronous tasks.
//!
//! Fast because: entities lie in one array, the first message of a mailbox lies in the entity, reply cells belong to
//! the askers and are reused, a wake is one push to a thread-local list. Nothing is allocated per message.
#![allow(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use super::ids::{ById, ids};
use super::{Measured, mark_here};
use crate::measure::{Clock, Latencies, RoundLength, Sampler};

/// Operations between two looks at the clock.
const BATCH: u64 = 1_024;
/// Tells that the producer sends before the entities run: what one turn of a loop takes in.
const TELLS_PER_TURN: u64 = 256;
/// The asker of a message that wants no reply.
const NOBODY: u32 = u32::MAX;

/// A message that can be asked and comes back as its own reply.
pub trait Message: Clone + 'static {
    /// Something of the message that the handler looks at.
    fn number(&self) -> u64;
}

impl Message for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl Message for Vec<u8> {
    fn number(&self) -> u64 {
        self.first().copied().unwrap_or(0).into()
    }
}

struct Envelope<M> {
    message: M,
    asker: u32,
}

struct Entity<M> {
    first: Option<Envelope<M>>,
    rest: VecDeque<Envelope<M>>,
    queued: bool,
    handled: u64,
}

struct ReplyCell<M> {
    reply: Option<M>,
    waker: Waker,
}

/// All entities of the thread, and what runs them.
struct Core<M> {
    directory: ById<u32>,
    entities: Vec<Entity<M>>,
    run_queue: VecDeque<u32>,
    replies: Vec<ReplyCell<M>>,
    handled: u64,
}

impl<M: Message> Core<M> {
    fn new(ids: &[String], askers: u32) -> Self {
        let entity = |_| Entity { first: None, rest: VecDeque::new(), queued: false, handled: 0 };
        Self {
            directory: ids.iter().zip(0..).map(|(id, index)| (id.clone(), index)).collect(),
            entities: ids.iter().map(entity).collect(),
            run_queue: VecDeque::with_capacity(ids.len()),
            replies: (0..askers).map(|_| ReplyCell { reply: None, waker: Waker::noop().clone() }).collect(),
            handled: 0,
        }
    }

    #[inline]
    fn send(&mut self, id: &str, envelope: Envelope<M>) -> bool {
        let Some(&index) = self.directory.get(id) else { return false };
        let entity = &mut self.entities[index as usize];
        if entity.first.is_none() && entity.rest.is_empty() {
            entity.first = Some(envelope);
        } else {
            entity.rest.push_back(envelope);
        }
        if !entity.queued {
            entity.queued = true;
            self.run_queue.push_back(index);
        }
        true
    }

    /// Runs every entity that has messages.
    #[inline]
    fn run_entities(&mut self) {
        while let Some(index) = self.run_queue.pop_front() {
            let entity = &mut self.entities[index as usize];
            while let Some(Envelope { message, asker }) = entity.first.take().or_else(|| entity.rest.pop_front()) {
                entity.handled = entity.handled.wrapping_add(message.number());
                self.handled += 1;
                if let Some(cell) = self.replies.get_mut(asker as usize) {
                    cell.reply = Some(message);
                    cell.waker.wake_by_ref();
                }
            }
            entity.queued = false;
        }
    }
}

/// Waits for the reply in the asker's cell.
struct Reply<'a, M> {
    core: &'a RefCell<Core<M>>,
    asker: u32,
}

impl<M: Message> Future for Reply<'_, M> {
    type Output = M;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<M> {
        let mut core = self.core.borrow_mut();
        let cell = &mut core.replies[self.asker as usize];
        if let Some(reply) = cell.reply.take() {
            return Poll::Ready(reply);
        }
        if !cell.waker.will_wake(context.waker()) {
            cell.waker = context.waker().clone();
        }
        Poll::Pending
    }
}

/// Counters that the askers share with the loop.
struct Shared<M> {
    core: RefCell<Core<M>>,
    ids: Vec<String>,
    next_id: Cell<usize>,
    operations: Cell<u64>,
    /// Operations that started before contain the pause at the end of the warm-up.
    measured_from: Cell<u64>,
    sampler: Cell<Sampler>,
    latencies: RefCell<Latencies>,
}

impl<M> Shared<M> {
    #[inline]
    fn next_id(&self) -> &str {
        let index = self.next_id.get();
        self.next_id.set(if index + 1 == self.ids.len() { 0 } else { index + 1 });
        &self.ids[index]
    }

    #[inline]
    fn pick(&self) -> bool {
        let mut sampler = self.sampler.get();
        let pick = sampler.pick();
        self.sampler.set(sampler);
        pick
    }
}

async fn asker<M: Message>(shared: Rc<Shared<M>>, asker: u32, message: M) {
    let clock = Clock::get();
    loop {
        let before = shared.pick().then(|| clock.ticks());
        if !shared.core.borrow_mut().send(shared.next_id(), Envelope { message: message.clone(), asker }) {
            return;
        }
        core::hint::black_box(Reply { core: &shared.core, asker }.await);
        if let Some(before) = before.filter(|before| *before >= shared.measured_from.get()) {
            shared.latencies.borrow_mut().record(clock.since(before));
        }
        shared.operations.set(shared.operations.get() + 1);
    }
}

/// Asks `entities` entities in turn, with `outstanding` asks in flight.
pub fn ask(entities: u32, outstanding: u32, payload_bytes: u32, length: RoundLength) -> io::Result<Measured> {
    if payload_bytes == 0 {
        ask_with(entities, outstanding, 1_u64, length)
    } else {
        ask_with(entities, outstanding, vec![0x5a_u8; payload_bytes as usize], length)
    }
}

fn ask_with<M: Message>(entities: u32, outstanding: u32, message: M, length: RoundLength) -> io::Result<Measured> {
    let ids = ids(entities.max(1));
    let outstanding = outstanding.max(1);
    let shared = Rc::new(Shared {
        core: RefCell::new(Core::new(&ids, outstanding)),
        ids,
        next_id: Cell::new(0),
        operations: Cell::new(0),
        measured_from: Cell::new(0),
        sampler: Cell::new(Sampler::for_local(outstanding)),
        latencies: RefCell::new(Latencies::new()),
    });
    let mut tasks: Vec<_> =
        (0..outstanding).map(|index| Box::pin(asker(shared.clone(), index, message.clone()))).collect();
    let wakers: Vec<Waker> = (0..outstanding).map(waker_of).collect();
    let mut ready: Vec<u32> = (0..outstanding).collect();
    READY.with_borrow_mut(Vec::clear);
    let (mut measuring, mut look_at) = (false, BATCH);
    let (mut start, mut mark) = (Instant::now(), mark_here()?);
    loop {
        for task in ready.drain(..) {
            let context = &mut Context::from_waker(&wakers[task as usize]);
            let _ = tasks[task as usize].as_mut().poll(context);
        }
        shared.core.borrow_mut().run_entities();
        READY.with_borrow_mut(|woken| core::mem::swap(woken, &mut ready));
        let operations = shared.operations.get();
        if operations < look_at {
            continue;
        }
        look_at = operations + BATCH;
        let elapsed = start.elapsed();
        if !measuring && elapsed >= length.warm_up {
            (measuring, look_at) = (true, BATCH);
            shared.operations.set(0);
            shared.latencies.borrow_mut().clear();
            mark = mark_here()?;
            shared.measured_from.set(Clock::get().ticks());
            start = Instant::now();
        } else if measuring && elapsed >= length.duration {
            let usage = mark.until(&mark_here()?);
            let latencies = shared.latencies.take();
            return Ok(Measured { operations, elapsed, latencies, longest_pause_ns: None, usage });
        }
    }
}

/// Tells `entities` entities in turn.
pub fn tell(entities: u32, payload_bytes: u32, length: RoundLength) -> io::Result<Measured> {
    if payload_bytes == 0 {
        tell_with(entities, 1_u64, length)
    } else {
        tell_with(entities, vec![0x5a_u8; payload_bytes as usize], length)
    }
}

fn tell_with<M: Message>(entities: u32, message: M, length: RoundLength) -> io::Result<Measured> {
    let ids = ids(entities.max(1));
    let mut core = Core::new(&ids, 0);
    let mut next = ids.iter().cycle();
    let (mut measuring, mut look_at) = (false, BATCH);
    let (mut start, mut mark) = (Instant::now(), mark_here()?);
    loop {
        for id in next.by_ref().take(TELLS_PER_TURN as usize) {
            core.send(core::hint::black_box(id), Envelope { message: message.clone(), asker: NOBODY });
        }
        core.run_entities();
        if core.handled < look_at {
            continue;
        }
        look_at = core.handled + BATCH;
        let elapsed = start.elapsed();
        if !measuring && elapsed >= length.warm_up {
            (measuring, look_at) = (true, BATCH);
            core.handled = 0;
            mark = mark_here()?;
            start = Instant::now();
        } else if measuring && elapsed >= length.duration {
            core::hint::black_box(&core.entities);
            let usage = mark.until(&mark_here()?);
            let latencies = Latencies::new();
            return Ok(Measured { operations: core.handled, elapsed, latencies, longest_pause_ns: None, usage });
        }
    }
}

thread_local! {
    /// Tasks of this thread that were woken.
    static READY: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

const VTABLE: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| {});

fn wake(data: *const ()) {
    READY.with_borrow_mut(|ready| ready.push(data.addr() as u32));
}

/// Wakes task `index` of the thread that calls it.
fn waker_of(index: u32) -> Waker {
    // SAFETY: the data is a number and no pointer: no function of VTABLE reads through it, cloning and dropping do
    // nothing, and waking touches a list of the calling thread only. So every clone may be used at any time on any
    // thread; on a foreign one it would wake a task there, which is useless and harmless.
    unsafe { Waker::from_raw(RawWaker::new(core::ptr::without_provenance(index as usize), &VTABLE)) }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    const LENGTH: RoundLength = RoundLength { warm_up: Duration::from_millis(1), duration: Duration::from_millis(5) };

    #[test]
    fn messages_of_one_entity_are_handled_in_order_and_each_asker_gets_its_own_reply() {
        let ids = ids(3);
        let mut core = Core::new(&ids, 4);
        for (asker, message) in [(0, 10_u64), (1, 11), (2, 12)] {
            assert!(core.send(&ids[1], Envelope { message, asker }));
        }
        assert!(core.send(&ids[2], Envelope { message: 13, asker: 3 }));
        assert!(!core.send("nobody", Envelope { message: 14, asker: 3 }));
        assert_eq!(core.run_queue.len(), 2, "an entity waits in the run queue once");
        core.run_entities();
        let replies: Vec<_> = core.replies.iter_mut().map(|cell| cell.reply.take()).collect();
        assert_eq!(replies, [Some(10), Some(11), Some(12), Some(13)]);
        assert_eq!((core.entities[1].handled, core.handled), (33, 4));
    }

    #[test]
    fn a_reply_wakes_its_asker() {
        READY.with_borrow_mut(Vec::clear);
        let waker = waker_of(7);
        let clone = waker.clone();
        waker.wake_by_ref();
        clone.wake();
        assert_eq!(READY.take(), [7, 7]);
        assert!(waker.will_wake(&waker_of(7)) && !waker.will_wake(&waker_of(8)));
    }

    #[test]
    fn rounds_count_operations() {
        for (outstanding, payload_bytes) in [(1, 0), (64, 0), (64, 16)] {
            let measured = ask(10, outstanding, payload_bytes, LENGTH).unwrap();
            assert!(measured.operations > 0 && measured.latencies.count() > 0);
        }
        assert!(tell(10, 0, LENGTH).unwrap().operations > 0);
        assert!(tell(1, 64, LENGTH).unwrap().operations > 0);
    }
}
