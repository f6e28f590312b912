//! What crosses from one core to another of the same pod.
//!
//! A message of up to [`INLINE_BYTES`] lies in the queue's slot itself; a larger one lies in a block that moves with it.
//! The block of a message goes home with an answer ([`HomeBlock`]), so asks with large messages take turns with a few
//! blocks; that of an answer ends in the receiver's pool. Called by `routes` and `core`. Invariant: a parcel owns its message or answer; one
//! that is dropped drops it.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;

use std::sync::Arc;

use crate::base::{ClusterError, EntityId};
use crate::entity::pool::{BlockPool, release_foreign};
use crate::entity::{AnswerVtable, CallChain, Host, MessageVtable, PendingKey};
use crate::sharding::ShardTable;

/// Largest message or answer that needs no block.
pub const INLINE_BYTES: usize = 48;

/// A value without its type, in place or in a block.
#[repr(C)]
pub struct Payload {
    words: [MaybeUninit<u64>; INLINE_BYTES / 8],
}

fn is_inline(layout: Layout) -> bool {
    layout.size() <= INLINE_BYTES && layout.align() <= align_of::<Payload>()
}

impl Payload {
    /// Moves a value in.
    ///
    /// # Safety
    /// `value` is initialised and has this layout; the caller gives it up.
    #[inline]
    unsafe fn new(value: *const (), layout: Layout, pool: &BlockPool) -> Payload {
        let mut payload = Payload { words: [MaybeUninit::uninit(); INLINE_BYTES / 8] };
        // SAFETY: either the words have room for the value, or the block has, and the words have room for its address.
        unsafe {
            if is_inline(layout) {
                let into = payload.words.as_mut_ptr().cast::<u8>();
                core::ptr::copy_nonoverlapping(value.cast::<u8>(), into, layout.size());
            } else {
                let block = pool.take(layout);
                core::ptr::copy_nonoverlapping(value.cast::<u8>(), block.as_ptr(), layout.size());
                payload.words.as_mut_ptr().cast::<NonNull<u8>>().write(block);
            }
        }
        payload
    }

    /// Where the value lies.
    ///
    /// # Safety
    /// The payload was made with this layout.
    #[inline]
    unsafe fn pointer(&mut self, layout: Layout) -> *mut () {
        // SAFETY: see `new`.
        unsafe {
            if is_inline(layout) {
                self.words.as_mut_ptr().cast()
            } else {
                self.words.as_ptr().cast::<NonNull<u8>>().read().as_ptr().cast()
            }
        }
    }

    /// The block, if there is one, for its way home; the value is gone.
    ///
    /// # Safety
    /// The payload was made with this layout and is not used again.
    #[inline]
    unsafe fn take_block(&mut self, layout: Layout) -> Option<HomeBlock> {
        // SAFETY: see `new`.
        let block = |words: *const MaybeUninit<u64>| unsafe { words.cast::<NonNull<u8>>().read() };
        (!is_inline(layout)).then(|| HomeBlock { block: block(self.words.as_ptr()), layout })
    }

    /// Releases the block, if there is one; the value is gone.
    ///
    /// # Safety
    /// The payload was made with this layout and is not used again.
    #[inline]
    unsafe fn release(&mut self, layout: Layout, pool: Option<&BlockPool>) {
        if is_inline(layout) {
            return;
        }
        // SAFETY: see `new`.
        unsafe {
            let block = self.words.as_ptr().cast::<NonNull<u8>>().read();
            match pool {
                Some(pool) => pool.give(block, layout),
                None => release_foreign(block, layout),
            }
        }
    }
}

/// An empty block on its way to the pool that it was taken from. One that does not arrive is freed.
pub(super) struct HomeBlock {
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it is memory without a value, owned by this, and may be freed on any thread.
unsafe impl Send for HomeBlock {}

impl HomeBlock {
    /// Gives the block to a pool.
    pub fn arrive(self, pool: &BlockPool) {
        let home = ManuallyDrop::new(self);
        // SAFETY: the block was taken with this layout from a pool, holds no value, and is given away here.
        unsafe { pool.give(home.block, home.layout) };
    }
}

impl Drop for HomeBlock {
    fn drop(&mut self) {
        // SAFETY: as in `arrive`.
        unsafe { release_foreign(self.block, self.layout) };
    }
}

/// A message for an entity of another core.
pub struct CallParcel {
    /// Wants only to know that it is in the mailbox.
    pub discard: bool,
    /// Position of the entity's type, the same on every core of a pod.
    pub type_index: u16,
    message_type: &'static MessageVtable,
    /// Hash of the id.
    pub hash: u64,
    /// The id.
    pub id: EntityId,
    /// Who waits, on the sending core.
    pub key: u64,
    /// The calls that wait for this one. A message that no handler sent has none, and so needs no box.
    pub chain: Option<Box<CallChain>>,
    message: Payload,
}

// SAFETY: messages are `Send` (a bound of `Wire`), and everything else in a parcel is too.
unsafe impl Send for CallParcel {}

/// Where a message goes, and who waits for it.
pub(super) struct CallAddress {
    pub discard: bool,
    pub type_index: u16,
    pub hash: u64,
    pub id: EntityId,
    pub key: u64,
    pub chain: CallChain,
}

impl CallParcel {
    /// # Safety
    /// `message` is initialised, of the given type, and moves in.
    pub(super) unsafe fn new(
        address: CallAddress,
        message_type: &'static MessageVtable,
        message: *const (),
        pool: &BlockPool,
    ) -> CallParcel {
        CallParcel {
            discard: address.discard,
            type_index: address.type_index,
            message_type,
            hash: address.hash,
            id: address.id,
            key: address.key,
            chain: (!address.chain.is_empty()).then(|| Box::new(address.chain)),
            // SAFETY: passed on.
            message: unsafe { Payload::new(message, message_type.layout, pool) },
        }
    }

    /// Position of the message among the methods of its protocol.
    pub(super) fn method_index(&self) -> usize {
        usize::from(self.message_type.index)
    }

    /// Gives the message back to the ask that sent it, on its core. False if that does not wait any more.
    pub(super) fn give_back(self, host: &Host) -> bool {
        self.open(host.pool(), |parcel, message| {
            // SAFETY: the message is initialised, of its type, and given away; the key is that of the ask which sent it.
            unsafe { host.give_back(PendingKey::from_number(parcel.key), parcel.message_type, message) }
        })
    }

    /// Hands the message to `take`, which consumes it, with the rest of the parcel beside it.
    pub(super) fn open<R>(self, pool: &BlockPool, take: impl FnOnce(&CallParcel, *mut ()) -> R) -> R {
        let (result, block) = self.open_keeping_block(take);
        if let Some(block) = block {
            block.arrive(pool);
        }
        result
    }

    /// As [`CallParcel::open`]; the block of the message, if it has one, is left to the caller.
    pub(super) fn open_keeping_block<R>(self, take: impl FnOnce(&CallParcel, *mut ()) -> R) -> (R, Option<HomeBlock>) {
        let mut parcel = ManuallyDrop::new(self);
        let layout = parcel.message_type.layout;
        // SAFETY: the payload was made with this layout; the message is consumed by `take`, and what else the parcel
        // owns is dropped once, field by field.
        unsafe {
            let message = parcel.message.pointer(layout);
            let result = take(&parcel, message);
            let block = parcel.message.take_block(layout);
            core::ptr::drop_in_place(&raw mut parcel.id);
            core::ptr::drop_in_place(&raw mut parcel.chain);
            (result, block)
        }
    }
}

impl Drop for CallParcel {
    fn drop(&mut self) {
        let layout = self.message_type.layout;
        // SAFETY: the message is still there; on which thread a parcel is lost is unknown, so no pool is used.
        unsafe {
            (self.message_type.drop)(self.message.pointer(layout));
            self.message.release(layout, None);
        }
    }
}

/// An answer for an ask of another core.
pub struct AnswerParcel {
    /// Who waits.
    pub key: u64,
    answer_type: &'static AnswerVtable,
    answer: Payload,
    /// A block of the receiver's.
    home: Option<HomeBlock>,
}

// SAFETY: answers are `Send` (a bound of `Wire`).
unsafe impl Send for AnswerParcel {}

impl AnswerParcel {
    /// # Safety
    /// `answer` is initialised, of the given type, and moves in.
    pub(super) unsafe fn new(
        key: u64,
        answer_type: &'static AnswerVtable,
        answer: *const (),
        pool: &BlockPool,
        home: Option<HomeBlock>,
    ) -> AnswerParcel {
        // SAFETY: passed on.
        AnswerParcel { key, answer_type, answer: unsafe { Payload::new(answer, answer_type.layout, pool) }, home }
    }

    /// Hands the answer to `take`, which consumes it.
    pub(super) fn open(self, pool: &BlockPool, take: impl FnOnce(u64, &'static AnswerVtable, *mut ())) {
        let mut parcel = ManuallyDrop::new(self);
        if let Some(block) = parcel.home.take() {
            block.arrive(pool);
        }
        let layout = parcel.answer_type.layout;
        // SAFETY: the payload was made with this layout; the answer is consumed by `take`, and the rest needs no drop.
        unsafe {
            let answer = parcel.answer.pointer(layout);
            take(parcel.key, parcel.answer_type, answer);
            parcel.answer.release(layout, Some(pool));
        }
    }
}

impl Drop for AnswerParcel {
    fn drop(&mut self) {
        let layout = self.answer_type.layout;
        // SAFETY: the answer is still there.
        unsafe {
            (self.answer_type.drop)(self.answer.pointer(layout));
            self.answer.release(layout, None);
        }
    }
}

/// A connection that was accepted by another core.
pub struct AcceptedSocket {
    /// Its hello, already checked.
    pub hello: crate::wire::Hello,
    /// The descriptor.
    pub descriptor: i32,
}

/// What crosses between cores.
pub enum Parcel {
    /// A message for an entity.
    Call(CallParcel),
    /// The answer to an ask.
    Answer(AnswerParcel),
    /// A discard is in the mailbox.
    Acknowledged {
        /// Who waits.
        key: u64,
        /// A block of the receiver's.
        #[allow(private_interfaces)]
        home: Option<HomeBlock>,
    },
    /// An ask failed.
    Failed {
        /// Who waits.
        key: u64,
        /// Why.
        error: ClusterError,
    },
    /// The sender of an ask stopped waiting.
    Cancel {
        /// Who waited.
        key: u64,
    },
    /// A connection for this core.
    Socket(Box<AcceptedSocket>),
    /// A message comes back: its shard is not on the core that it was sent to.
    Returned(Box<CallParcel>),
    /// The table of the sending core, which may be newer.
    Table(Arc<ShardTable>),
}

// A slot of a queue is a sequence number and a parcel in two cache lines.
const _: () = assert!(size_of::<Parcel>() <= 120);
