//! The shared-memory primitives of the mesh: the real ones, or those of the model checker under `cfg(loom)`.
//!
//! Called by the other modules of the mesh and by their tests. Invariant: both versions have the same interface and,
//! apart from what the checker records, the same meaning.

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence},
    },
};

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::Arc;

/// [`core::cell::UnsafeCell`] with the interface of the model checker: each access is a closure over the pointer, so
/// that the checker can see where it begins and ends.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Wraps a value.
    #[inline]
    pub const fn new(value: T) -> Self {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Hands out the pointer for reading; nobody may write meanwhile.
    #[inline]
    pub fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
        access(self.0.get())
    }

    /// Hands out the pointer for writing; nobody else may read or write meanwhile.
    #[inline]
    pub fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
        access(self.0.get())
    }
}

/// The value of an atomic that nobody else can reach any more.
#[cfg(not(loom))]
#[inline]
pub fn newest(atomic: &mut AtomicU64) -> u64 {
    *atomic.get_mut()
}

/// The value of an atomic that nobody else can reach any more. The checker knows only a part of the order in which an
/// atomic was modified: a load or swap might give it an older value of two that were written at the same time.
#[cfg(loom)]
pub fn newest(atomic: &mut AtomicU64) -> u64 {
    atomic.with_mut(|value| *value)
}
