//! A value that is owned where it lies.
//!
//! A slot of a queue is worth two cache lines, and what is moved out of it whole is read whole, and copied. An
//! [`InPlace`] is the ownership of the value without the move: whoever has it reads what it needs, and moves out what it
//! keeps. Made by [`Consumer::pop_with`](super::Consumer::pop_with); used by the engine. Invariant: the value is dropped,
//! moved out or given away exactly once.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// Owns a `T` that lies in memory of somebody else.
pub struct InPlace<'a, T> {
    value: NonNull<T>,
    memory: PhantomData<(&'a mut ManuallyDrop<T>, T)>,
}

impl<'a, T> InPlace<'a, T> {
    /// Takes over a value.
    ///
    /// # Safety
    /// `value` leads to an initialised value that this owns from here on; its memory is nobody else's during `'a`.
    #[inline]
    pub unsafe fn new(value: *mut T) -> InPlace<'a, T> {
        // SAFETY: a pointer to a value is not null.
        InPlace { value: unsafe { NonNull::new_unchecked(value) }, memory: PhantomData }
    }

    /// Hands a value over where it lies on this stack.
    #[inline]
    pub fn lend<R>(value: T, take: impl FnOnce(InPlace<'_, T>) -> R) -> R {
        let mut value = ManuallyDrop::new(value);
        // SAFETY: the value is not used here again, and outlives the call.
        take(unsafe { InPlace::new(&raw mut *value) })
    }

    /// Moves the value out.
    #[inline]
    #[must_use]
    pub fn into_inner(self) -> T {
        // SAFETY: the value is initialised and owned by this, which gives it up.
        unsafe { self.give_away().read() }
    }

    /// Gives up the value, which is not dropped here.
    #[inline]
    pub fn give_away(self) -> NonNull<T> {
        ManuallyDrop::new(self).value
    }
}

impl<T> Deref for InPlace<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is initialised, and borrowed as this is.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for InPlace<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for InPlace<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the value is initialised, owned by this, and not used again.
        unsafe { self.value.drop_in_place() };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn the_value_has_one_owner() {
        let value = Rc::new(());
        InPlace::lend(Rc::clone(&value), |lent| assert_eq!(Rc::strong_count(&lent), 2));
        assert_eq!(Rc::strong_count(&value), 1);
        let kept = InPlace::lend(Rc::clone(&value), |lent| lent.into_inner());
        assert_eq!(Rc::strong_count(&kept), 2);
        let mut other = Rc::clone(&value);
        InPlace::lend(kept, |mut lent| std::mem::swap(&mut *lent, &mut other));
        assert_eq!(Rc::strong_count(&value), 2);
    }
}
