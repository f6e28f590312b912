//! An allocator that costs the same on every machine.
//!
//! The system's allocator changes with the version of libc, and that of a pod with the C compiler and, because it gives
//! memory back by the clock, from run to run. Here a block comes from the free list of its size class, or from the end
//! of the present chunk: a few instructions for each allocation, enough to see one more or one less. Nothing is given
//! back to the system. Each thread has lists of its own; a block that another thread frees joins that thread's lists.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;

/// 16 bytes.
const SMALLEST_BITS: u32 = 4;
/// Classes are the powers of two up to 1 MiB; what is larger comes from the system.
const CLASSES: usize = 17;
const LARGEST: usize = 1 << (SMALLEST_BITS + CLASSES as u32 - 1);
/// Also what every block can be aligned to.
const CHUNK_BYTES: usize = 2 * LARGEST;

struct Lists {
    /// The first free block of each class, which holds the address of the next one.
    free: [Cell<*mut u8>; CLASSES],
    /// What is left of the present chunk.
    next: Cell<*mut u8>,
    left: Cell<usize>,
}

thread_local! {
    static LISTS: Lists = const {
        Lists { free: [const { Cell::new(null_mut()) }; CLASSES], next: Cell::new(null_mut()), left: Cell::new(0) }
    };
}

/// See the [module](self).
pub struct SizeClasses;

/// The class of a layout, whose blocks have its size and are aligned to it; `None` if it is too large.
fn class(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST_BITS);
    (bytes <= LARGEST).then(|| (bytes.next_power_of_two().trailing_zeros() - SMALLEST_BITS) as usize)
}

impl Lists {
    /// A new block of so many bytes, a power of two, aligned to its size; null if there is no memory.
    #[cold]
    fn carve(&self, bytes: usize) -> *mut u8 {
        let skipped = self.next.get().align_offset(bytes);
        if self.next.get().is_null() || self.left.get() < skipped.saturating_add(bytes) {
            let Ok(chunk) = Layout::from_size_align(CHUNK_BYTES, LARGEST) else { return null_mut() };
            // SAFETY: the size is not zero.
            let chunk = unsafe { System.alloc(chunk) };
            self.next.set(chunk);
            self.left.set(if chunk.is_null() { 0 } else { CHUNK_BYTES });
            return if chunk.is_null() { chunk } else { self.carve(bytes) };
        }
        let block = self.next.get().wrapping_add(skipped);
        self.next.set(block.wrapping_add(bytes));
        self.left.set(self.left.get() - skipped - bytes);
        block
    }
}

// SAFETY: a block has the size of its class, which is at least that of the layout, and is aligned to it: carved blocks
// are, and a free list holds only blocks of its class. A block is in a free list only between its `dealloc` and its next
// `alloc`, and carved blocks do not overlap, so nobody else has it. The thread's lists have no destructor and are made
// without allocation.
unsafe impl GlobalAlloc for SizeClasses {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of `alloc`, which are the same there.
        let Some(class) = class(layout) else { return unsafe { System.alloc(layout) } };
        LISTS.with(|lists| {
            let block = lists.free[class].get();
            if block.is_null() {
                return lists.carve(1 << (class as u32 + SMALLEST_BITS));
            }
            // SAFETY: a free block holds the address of the next one, or null; see `dealloc`.
            lists.free[class].set(unsafe { block.cast::<*mut u8>().read() });
            block
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: what is too large for a class came from the system.
        let Some(class) = class(layout) else { return unsafe { System.dealloc(block, layout) } };
        LISTS.with(|lists| {
            // SAFETY: the caller gives up the block, which has at least 16 bytes and is aligned to them.
            unsafe { block.cast::<*mut u8>().write(lists.free[class].get()) };
            lists.free[class].set(block);
        });
    }
}
