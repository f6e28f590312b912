//! Memory blocks of one core, kept in free lists by size.
//!
//! Handler futures, queued messages and results live in blocks, so that a warm core allocates nothing for a message.
//! Called by `cell`, `mailbox` and `pending`. Invariants: a block is at least as large and as aligned as asked for; it
//! is allocated with the global allocator and the layout of its class, so any thread may release it for good
//! ([`release_foreign`]) even after the pool is gone; a free list holds at most [`FREE_BLOCKS_MAX`] blocks.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::cell::{Cell, UnsafeCell};
use core::ptr::NonNull;

/// Block sizes; a larger value gets a block of its own that is not kept.
const CLASS_BYTES: [usize; 12] = [64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192];
/// Alignment of every pooled block.
const BLOCK_ALIGN: usize = 16;
/// Blocks of one class that are kept for later; more go back to the allocator, so that a burst is not kept for ever.
const FREE_BLOCKS_MAX: usize = 16_384;

/// Which free list a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(u8);

/// Class of blocks that are too large or too aligned for a free list; they remember their layout elsewhere.
const UNPOOLED: u8 = u8::MAX;

impl Class {
    /// The smallest class for a layout.
    #[inline(always)]
    pub const fn of(layout: Layout) -> Class {
        if layout.align() > BLOCK_ALIGN {
            return Class(UNPOOLED);
        }
        let mut class = 0;
        while class < CLASS_BYTES.len() {
            if layout.size() <= CLASS_BYTES[class] {
                return Class(class as u8);
            }
            class += 1;
        }
        Class(UNPOOLED)
    }

    /// The layout with which a block of this class was allocated; `wanted` is what the caller asked for.
    #[inline]
    fn layout(self, wanted: Layout) -> Layout {
        match CLASS_BYTES.get(self.0 as usize) {
            // SAFETY: the alignment is a power of two and no class size overflows when rounded up to it.
            Some(size) => unsafe { Layout::from_size_align_unchecked(*size, BLOCK_ALIGN) },
            // SAFETY: an alignment is a power of two, and as a size it does not overflow when rounded up to itself.
            None if wanted.size() == 0 => unsafe { Layout::from_size_align_unchecked(wanted.align(), wanted.align()) },
            None => wanted,
        }
    }
}

/// The free lists of one core. Not `Sync`: only its core takes from it and gives to it.
pub struct BlockPool {
    free: [UnsafeCell<Vec<NonNull<u8>>>; CLASS_BYTES.len()],
    outstanding: Cell<usize>,
}

impl Default for BlockPool {
    fn default() -> Self {
        BlockPool { free: [const { UnsafeCell::new(Vec::new()) }; CLASS_BYTES.len()], outstanding: Cell::new(0) }
    }
}

impl BlockPool {
    /// A block for `layout`: uninitialised, owned by the caller until it is given back with the same layout.
    #[inline]
    pub fn take(&self, layout: Layout) -> NonNull<u8> {
        let class = Class::of(layout);
        // A block may end in the pool of another core: the counts are right only as their sum.
        self.outstanding.set(self.outstanding.get().wrapping_add(1));
        if let Some(list) = self.free.get(class.0 as usize) {
            // SAFETY: `BlockPool` is not `Sync` and no reference into a list leaves these methods, so this is the
            // only reference to it.
            if let Some(block) = unsafe { &mut *list.get() }.pop() {
                return block;
            }
        }
        allocate(class.layout(layout))
    }

    /// Gives a block back.
    ///
    /// # Safety
    /// `block` came from [`BlockPool::take`] of any pool with the same `layout`, and nobody uses it any more.
    #[inline]
    pub unsafe fn give(&self, block: NonNull<u8>, layout: Layout) {
        let class = Class::of(layout);
        self.outstanding.set(self.outstanding.get().wrapping_sub(1));
        if let Some(list) = self.free.get(class.0 as usize) {
            // SAFETY: as in `take`.
            let list = unsafe { &mut *list.get() };
            if list.len() < FREE_BLOCKS_MAX {
                list.push(block);
                return;
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { release_foreign(block, layout) };
    }

    /// Blocks taken and not given back, modulo the width of the number: those that came from other cores count
    /// against it. For tests of leaks on one core.
    pub fn outstanding(&self) -> usize {
        self.outstanding.get()
    }
}

impl Drop for BlockPool {
    fn drop(&mut self) {
        for (class, list) in self.free.iter_mut().enumerate() {
            let class = Class(class as u8);
            for block in list.get_mut().drain(..) {
                // SAFETY: blocks in a free list were allocated with the layout of its class and are used by nobody.
                unsafe { std::alloc::dealloc(block.as_ptr(), class.layout(Layout::new::<()>())) };
            }
        }
    }
}

/// Releases a block without its pool; works on every thread.
///
/// # Safety
/// As for [`BlockPool::give`].
pub unsafe fn release_foreign(block: NonNull<u8>, layout: Layout) {
    // SAFETY: every block was allocated with the layout of its class.
    unsafe { std::alloc::dealloc(block.as_ptr(), Class::of(layout).layout(layout)) };
}

#[cold]
fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: no layout here has size zero: classes are not empty, and an empty unpooled one is widened.
    let block = unsafe { std::alloc::alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_large_and_aligned_enough_and_come_again() {
        let pool = BlockPool::default();
        for size in [0, 1, 64, 65, 200, 5000, 8192, 8193, 100_000] {
            for align in [1, 8, 16, 64] {
                let layout = Layout::from_size_align(size, align).unwrap();
                let block = pool.take(layout);
                assert_eq!(block.as_ptr() as usize % align, 0);
                // SAFETY: the block has at least `size` bytes.
                unsafe { block.as_ptr().write_bytes(7, size) };
                // SAFETY: it came from this pool with this layout.
                unsafe { pool.give(block, layout) };
            }
        }
        assert_eq!(pool.outstanding(), 0);
        let layout = Layout::new::<[u8; 100]>();
        let first = pool.take(layout);
        // SAFETY: it came from this pool with this layout.
        unsafe { pool.give(first, layout) };
        assert_eq!(pool.take(layout), first);
        // SAFETY: it came from this pool with this layout.
        unsafe { release_foreign(first, layout) };
    }
}
