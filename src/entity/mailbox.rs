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

use super::dispatch::{Call, Kept, Method};
use super::incoming::BodyBlock;
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

/// Where a value starts within the block.
const fn value_offset(method: &Method) -> usize {
    let align = method.message.layout.align();
    size_of::<Waiting>().next_multiple_of(if align > 16 { align } else { 16 })
}

/// The block of a message that waits as a value.
fn value_layout(method: &Method) -> Layout {
    let align = method.message.layout.align().max(align_of::<Waiting>());
    // A message is at most a few kilobytes of Rust value, far from overflowing a layout.
    Layout::from_size_align(value_offset(method) + method.message.layout.size(), align)
        .unwrap_or_else(|_| unreachable!("a message is larger than memory"))
}

// A body has no alignment: it lies right behind the header.
const _: () = assert!(align_of::<Waiting>() <= BodyBlock::ALIGN);

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
        let block = pool.take(value_layout(method));
        let waiting = block.cast::<Waiting>();
        // SAFETY: the block is large and aligned enough for the header and, at its offset, the message.
        unsafe {
            waiting.write(Waiting::header(slot, method, sequence, VALUE, call));
            let into = block.as_ptr().add(value_offset(method));
            core::ptr::copy_nonoverlapping(message.cast::<u8>(), into, method.message.layout.size());
        }
        waiting
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
        let block = BodyBlock::copied(pool, size_of::<Waiting>(), body);
        let waiting = block.start().cast::<Waiting>();
        // SAFETY: the block has room for the header before the body, and is aligned for it.
        unsafe { waiting.write(Waiting::header(slot, method, sequence, body.len() as u32, call)) };
        waiting
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

    /// The block with the body, if the message came as one: whoever has both may use only one of them from then on.
    ///
    /// # Safety
    /// `waiting` is alive.
    pub(super) unsafe fn body(waiting: NonNull<Waiting>) -> Option<BodyBlock> {
        // SAFETY: passed on.
        let length = unsafe { waiting.as_ref() }.body_bytes;
        // SAFETY: `with_body` took the block with these numbers and put the body there.
        (length != VALUE).then(|| unsafe { BodyBlock::at(waiting.cast(), size_of::<Waiting>(), length as usize) })
    }

    /// Where the message lies, if it came as a value.
    ///
    /// # Safety
    /// `waiting` is alive, and has no body.
    pub(super) unsafe fn value(waiting: NonNull<Waiting>) -> *mut () {
        // SAFETY: the value lies in the same block, after the header.
        unsafe { waiting.as_ptr().cast::<u8>().add(value_offset(waiting.as_ref().method)).cast() }
    }

    /// Releases the block of a value, which was taken or dropped before.
    ///
    /// # Safety
    /// `waiting` has no body, is in no queue and nobody uses it any more.
    pub(super) unsafe fn release(waiting: NonNull<Waiting>, pool: &BlockPool) {
        // SAFETY: the header needs no drop: it is plain data; the block has the layout of its method.
        unsafe { pool.give(waiting.cast(), value_layout(waiting.as_ref().method)) };
    }

    /// Drops the message and releases the block.
    ///
    /// # Safety
    /// `waiting` is in no queue and nobody uses it any more; its message is still there.
    pub(super) unsafe fn discard(waiting: NonNull<Waiting>, pool: &BlockPool) {
        // SAFETY: a value is initialised and of the method's type; a body needs no drop, and neither does the header.
        unsafe {
            if let Some(block) = Waiting::body(waiting) {
                return block.release(pool);
            }
            (waiting.as_ref().method.message.drop)(Waiting::value(waiting));
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
