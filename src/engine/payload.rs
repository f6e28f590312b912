//! A message or an answer without its type, on its way between cores.
//!
//! A value of up to [`INLINE_BYTES`] lies in the payload itself; a larger one lies in a block that moves with it. The block
//! of a message goes home with an answer ([`HomeBlock`]), so asks with large messages take turns with a few blocks; that of
//! an answer ends in the receiver's pool. Called by `parcel`. Invariant: whoever has a payload knows its layout.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;

use crate::entity::pool::{BlockPool, release_foreign};

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
    /// Moves a value into the payload at `payload`, of which no more is written than the value needs.
    ///
    /// # Safety
    /// `payload` may be written; `value` is initialised and has this layout, and the caller gives it up.
    #[inline]
    pub unsafe fn write(payload: *mut Payload, value: *const (), layout: Layout, pool: &BlockPool) {
        // SAFETY: either the words have room for the value, or the block has, and the words have room for its address. Words
        // that stay as they were may hold anything.
        unsafe {
            if is_inline(layout) {
                core::ptr::copy_nonoverlapping(value.cast::<u8>(), payload.cast::<u8>(), layout.size());
            } else {
                let block = pool.take(layout);
                core::ptr::copy_nonoverlapping(value.cast::<u8>(), block.as_ptr(), layout.size());
                payload.cast::<NonNull<u8>>().write(block);
            }
        }
    }

    /// Where the value lies.
    ///
    /// # Safety
    /// The payload was made with this layout.
    #[inline]
    pub unsafe fn pointer(&mut self, layout: Layout) -> *mut () {
        // SAFETY: see `write`.
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
    pub unsafe fn take_block(&mut self, layout: Layout) -> Option<HomeBlock> {
        // SAFETY: see `write`.
        let block = |words: *const MaybeUninit<u64>| unsafe { words.cast::<NonNull<u8>>().read() };
        (!is_inline(layout)).then(|| HomeBlock { block: block(self.words.as_ptr()), layout })
    }

    /// Releases the block, if there is one; the value is gone.
    ///
    /// # Safety
    /// The payload was made with this layout and is not used again.
    #[inline]
    pub unsafe fn release(&mut self, layout: Layout, pool: Option<&BlockPool>) {
        if is_inline(layout) {
            return;
        }
        // SAFETY: see `write`.
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
