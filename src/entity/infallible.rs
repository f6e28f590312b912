//! The future of a handler that cannot fail, as that of one whose error does not exist.
//!
//! Called by the code that `#[atoll::protocol]` makes. An `async` block would do the same with twice the memory: it
//! keeps the future once as a capture and once as what it awaits.
#![allow(unsafe_code)]

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::wire::never::Never;

/// Answers `Ok` with whatever `F` gives.
pub struct Infallible<F>(F);

impl<F> Infallible<F> {
    /// Wraps a future.
    #[inline(always)]
    pub fn new(future: F) -> Infallible<F> {
        Infallible(future)
    }
}

impl<F: Future> Future for Infallible<F> {
    type Output = Result<F::Output, Never>;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the field is pinned when the whole is: it is never moved out, the type has no `Drop`, and it is
        // `Unpin` only if the field is.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(context).map(Ok)
    }
}
