//! Messages that wait at an entity.
//!
//! Two queues in order of arrival: messages that need a permit, and `#[concurrent]` ones that need only the borrow. A
//! message lies in a block of the core's pool and is linked in place, so that a sender who stops waiting removes it in
//! constant time. Called by `host`.
//!
//! Invariants: a [`Waiting`] is in exactly one queue from [`Mailbox::push`] to [`Mailbox::unlink`]; its payload is
//! initialised until somebody takes it; sequence numbers of one mailbox grow.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::NonNull;

use super::dispatch::{Call, Method};
use super::message::Access;
use super::pool::BlockPool;
use super::slot::SlotHeader;

use crate::base::LinkId;
use crate::wire::Lane;

/// One message that waits; the payload follows in the same block.
#[repr(C, align(16))]
pub struct Waiting {
    previous: Cell<Option<NonNull<Waiting>>>,
    next: Cell<Option<NonNull<Waiting>>>,
    pub(super) slot: NonNull<SlotHeader>,
    pub(super) method: &'static Method,
    pub(super) sequence: u32,
    /// Length of the body that the payload is, or [`VALUE`].
    body_bytes: u32,
    pub(super) call: Cell<Call>,
    /// What it counts against while it waits.
    pub(super) charged: Cell<Option<Charge>>,
}

/// The lane of a link whose bound a message counts against, and its bytes.
pub(super) type Charge = (LinkId, Lane, u32);

/// The payload is a value of the message type, not a body. (A body is shorter, see `BODY_BYTES_MAX`.)
const VALUE: u32 = u32::MAX;

/// Where the payload starts within the block.
const fn payload_offset(method: &Method) -> usize {
    let align = method.message.layout.align();
    size_of::<Waiting>().next_multiple_of(if align > 16 { align } else { 16 })
}

fn block_layout(method: &Method, body_bytes: u32) -> Layout {
    let align = method.message.layout.align().max(align_of::<Waiting>());
    let payload = if body_bytes == VALUE { method.message.layout.size() } else { body_bytes as usize };
    // A message is at most a few kilobytes of Rust value and a body at most what one frame or a bulk lane carries, far from overflowing a layout.
    Layout::from_size_align(payload_offset(method) + payload, align)
        .unwrap_or_else(|_| unreachable!("a message is larger than memory"))
}

impl Waiting {
    /// Moves a message into a block.
    ///
    /// # Safety
    /// `message` points to an initialised message of the method's type, which is moved out of it.
    pub(super) unsafe fn new(
        pool: &BlockPool,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        sequence: u32,
        call: Call,
        message: *const (),
    ) -> NonNull<Waiting> {
        let header = Waiting::header(slot, method, sequence, VALUE, call);
        // SAFETY: passed on.
        unsafe { Waiting::write(pool, header, message.cast(), method.message.layout.size()) }
    }

    /// Moves a message into a block, still as the body in which it came.
    ///
    /// # Safety
    /// `body` was validated as a message of the method's type, and the method reads in place.
    pub(super) unsafe fn with_body(
        pool: &BlockPool,
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        sequence: u32,
        call: Call,
        body: &[u8],
    ) -> NonNull<Waiting> {
        let header = Waiting::header(slot, method, sequence, body.len() as u32, call);
        // SAFETY: passed on.
        unsafe { Waiting::write(pool, header, body.as_ptr(), body.len()) }
    }

    fn header(
        slot: NonNull<SlotHeader>,
        method: &'static Method,
        sequence: u32,
        body_bytes: u32,
        call: Call,
    ) -> Waiting {
        Waiting {
            previous: Cell::new(None),
            next: Cell::new(None),
            slot,
            method,
            sequence,
            body_bytes,
            call: Cell::new(call),
            charged: Cell::new(None),
        }
    }

    /// # Safety
    /// `payload` has `length` bytes, which is what the header says.
    unsafe fn write(pool: &BlockPool, header: Waiting, payload: *const u8, length: usize) -> NonNull<Waiting> {
        let offset = payload_offset(header.method);
        let block = pool.take(block_layout(header.method, header.body_bytes));
        let waiting = block.cast::<Waiting>();
        // SAFETY: the block is large and aligned enough for the header and, at its offset, the payload.
        unsafe {
            waiting.write(header);
            core::ptr::copy_nonoverlapping(payload, block.as_ptr().add(offset), length);
        }
        waiting
    }

    /// The body, if the message came as one.
    ///
    /// # Safety
    /// `waiting` is alive for `'a`, with its payload.
    pub(super) unsafe fn body<'a>(waiting: NonNull<Waiting>) -> Option<&'a [u8]> {
        // SAFETY: the payload is so many initialised bytes, which nothing changes before the block is released.
        unsafe {
            let length = waiting.as_ref().body_bytes;
            (length != VALUE)
                .then(|| core::slice::from_raw_parts(Waiting::payload(waiting).cast::<u8>(), length as usize))
        }
    }

    /// Where the message lies.
    ///
    /// # Safety
    /// `waiting` is alive.
    pub(super) unsafe fn payload(waiting: NonNull<Waiting>) -> *mut () {
        // SAFETY: the payload lies in the same block, after the header.
        unsafe { waiting.as_ptr().cast::<u8>().add(payload_offset(waiting.as_ref().method)).cast() }
    }

    /// Releases the block; the payload was taken or dropped before.
    ///
    /// # Safety
    /// `waiting` is in no queue and nobody uses it any more.
    pub(super) unsafe fn release(waiting: NonNull<Waiting>, pool: &BlockPool) {
        // SAFETY: the header needs no drop but its call, which is plain data; the block has the layout of its method.
        unsafe {
            let layout = block_layout(waiting.as_ref().method, waiting.as_ref().body_bytes);
            pool.give(waiting.cast(), layout);
        }
    }

    /// Drops the payload and releases the block.
    ///
    /// # Safety
    /// As for [`Waiting::release`], with the payload still there.
    pub(super) unsafe fn discard(waiting: NonNull<Waiting>, pool: &BlockPool) {
        // SAFETY: the payload is initialised and of the method's type, or a body, which needs no drop.
        unsafe {
            let method = waiting.as_ref().method;
            if waiting.as_ref().body_bytes == VALUE {
                (method.message.drop)(Waiting::payload(waiting));
            }
            Waiting::release(waiting, pool);
        }
    }
}

#[derive(Default)]
struct Queue {
    first: Cell<Option<NonNull<Waiting>>>,
    last: Cell<Option<NonNull<Waiting>>>,
}

/// The messages that wait at one entity.
#[derive(Default)]
pub struct Mailbox {
    turn: Queue,
    concurrent: Queue,
    length: Cell<u32>,
    sequence: Cell<u32>,
}

impl Mailbox {
    fn queue(&self, access: Access) -> &Queue {
        if access == Access::Concurrent { &self.concurrent } else { &self.turn }
    }

    /// How many wait.
    #[inline]
    pub fn length(&self) -> u32 {
        self.length.get()
    }

    /// The sequence number that the next message gets.
    pub fn next_sequence(&self) -> u32 {
        self.sequence.get()
    }

    /// Takes the next sequence number.
    pub fn take_sequence(&self) -> u32 {
        let sequence = self.sequence.get();
        self.sequence.set(sequence.wrapping_add(1));
        sequence
    }

    /// Whether `left` arrived before `right`, also when the numbers have wrapped.
    pub fn is_before(left: u32, right: u32) -> bool {
        left.wrapping_sub(right) > u32::MAX / 2
    }

    /// The first message that needs a permit.
    #[inline]
    pub(super) fn turn_head(&self) -> Option<NonNull<Waiting>> {
        self.turn.first.get()
    }

    /// The first concurrent message.
    #[inline]
    pub(super) fn concurrent_head(&self) -> Option<NonNull<Waiting>> {
        self.concurrent.first.get()
    }

    /// # Safety
    /// `waiting` is alive, in no queue, and its slot owns this mailbox.
    pub(super) unsafe fn push(&self, waiting: NonNull<Waiting>) {
        // SAFETY: messages in the queue are alive until they are unlinked.
        unsafe {
            let queue = self.queue(waiting.as_ref().method.access);
            waiting.as_ref().previous.set(queue.last.get());
            waiting.as_ref().next.set(None);
            match queue.last.replace(Some(waiting)) {
                Some(last) => last.as_ref().next.set(Some(waiting)),
                None => queue.first.set(Some(waiting)),
            }
        }
        self.length.set(self.length.get() + 1);
    }

    /// # Safety
    /// `waiting` is in this mailbox.
    pub(super) unsafe fn unlink(&self, waiting: NonNull<Waiting>) {
        // SAFETY: messages in the queue are alive.
        unsafe {
            let queue = self.queue(waiting.as_ref().method.access);
            let (previous, next) = (waiting.as_ref().previous.take(), waiting.as_ref().next.take());
            match previous {
                Some(previous) => previous.as_ref().next.set(next),
                None => queue.first.set(next),
            }
            match next {
                Some(next) => next.as_ref().previous.set(previous),
                None => queue.last.set(previous),
            }
        }
        self.length.set(self.length.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::Mailbox;

    #[test]
    fn sequence_numbers_may_wrap() {
        assert!(Mailbox::is_before(1, 2));
        assert!(!Mailbox::is_before(2, 1));
        assert!(!Mailbox::is_before(2, 2));
        assert!(Mailbox::is_before(u32::MAX, 0));
        assert!(!Mailbox::is_before(0, u32::MAX));
    }
}
