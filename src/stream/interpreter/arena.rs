//! The memory of one island: stages and connections, side by side, freed together.
//!
//! Called by the island builder. Values are written once and stay where they are; whoever placed a value drops it. The
//! first block has the size that the blueprint asks for, so a well-described island is one allocation.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Alignment of blocks and of connections: one cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Smallest block. A block that is too small costs another allocation, one that is too large costs memory.
const BLOCK_BYTES_MIN: usize = 512;

pub(crate) struct Arena {
    blocks: Vec<(NonNull<u8>, Layout)>,
    next: *mut u8,
    left: usize,
}

impl Arena {
    /// An arena with room for so many bytes before it grows.
    pub fn new(bytes: usize) -> Arena {
        let mut arena = Arena { blocks: Vec::with_capacity(1), next: std::ptr::null_mut(), left: 0 };
        arena.grow(bytes);
        arena
    }

    fn grow(&mut self, bytes: usize) {
        let size = bytes.max(BLOCK_BYTES_MIN).next_multiple_of(LINE_BYTES);
        let layout = Layout::from_size_align(size, LINE_BYTES).unwrap_or_else(|_| panic!("an island of {bytes} bytes"));
        // SAFETY: the size of the layout is at least `BLOCK_BYTES_MIN`.
        let block = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        self.blocks.push((block, layout));
        self.next = block.as_ptr();
        self.left = size;
    }

    /// Moves a value in. It is not dropped with the arena.
    pub fn place<T>(&mut self, value: T) -> NonNull<T> {
        let layout = Layout::new::<T>();
        loop {
            let padding = self.next.align_offset(layout.align());
            if padding.checked_add(layout.size()).is_some_and(|needed| needed <= self.left) {
                // SAFETY: `padding + size` bytes are left in the block, so all of this stays inside of it; the place is
                // aligned, unused, and large enough for a `T`.
                let place = unsafe {
                    let place = self.next.add(padding);
                    self.next = place.add(layout.size());
                    place.cast::<T>().write(value);
                    NonNull::new_unchecked(place.cast::<T>())
                };
                self.left -= padding + layout.size();
                return place;
            }
            let last = self.blocks.last().map_or(0, |(_, layout)| layout.size());
            self.grow((layout.size() + layout.align()).max(last * 2));
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (block, layout) in &self.blocks {
            // SAFETY: allocated in `grow` with this layout, and freed only here.
            unsafe { dealloc(block.as_ptr(), *layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_and_stay() {
        let mut arena = Arena::new(0);
        let places: Vec<NonNull<u64>> = (0..1000).map(|value| arena.place(value)).collect();
        let byte = arena.place(7_u8);
        let large = arena.place([3_u64; 500]);
        for (value, place) in (0..).zip(&places) {
            assert_eq!(place.as_ptr().align_offset(align_of::<u64>()), 0);
            // SAFETY: placed above, the arena lives.
            assert_eq!(unsafe { place.read() }, value);
        }
        // SAFETY: as above.
        unsafe {
            assert_eq!(byte.read(), 7);
            assert_eq!(large.read(), [3_u64; 500]);
        }
    }
}
