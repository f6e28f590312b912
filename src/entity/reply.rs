//! A value that somebody on this core will hand over later, under a key: answers to control messages.
//!
//! Uses the table of waiting asks, so that such an answer has a correlation and a timeout like any other. Called by
//! `engine` and `client`, on the core that awaits it.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::future::Future;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use super::call::PendingKey;
use super::dispatch::AnswerVtable;
use super::host::{Host, TimerKey};
use super::pending::{Location, State};
use crate::base::{ClusterError, LinkId};
use crate::wire::codec::CodecError;

/// The future of a value. Dropping it forgets the key, and cancels what the value is awaited from.
pub(crate) struct Reply<T> {
    node: u32,
    key: PendingKey,
    done: bool,
    // Belongs to one core.
    value: PhantomData<*const T>,
}

struct Vtable<T>(PhantomData<T>);

impl<T: 'static> Vtable<T> {
    const ANSWER: &'static AnswerVtable = &AnswerVtable {
        layout: Layout::new::<T>(),
        // SAFETY: the callers have an initialised value there that they give up.
        drop: |value| unsafe { value.cast::<T>().drop_in_place() },
        decode: |_, _| Err(CodecError::Malformed),
        type_id: core::any::TypeId::of::<T>,
    };
}

impl<T: 'static> Reply<T> {
    /// A place for a value on the core of `host`.
    pub(crate) fn new(host: &Host, timeout: Duration) -> Reply<T> {
        let key = host.pending.insert(Vtable::<T>::ANSWER, None);
        let timer = host.arm(host.now() + timeout, TimerKey::Ask(key));
        host.pending.set_timer(key, timer);
        Reply { node: host.node(), key, done: false, value: PhantomData }
    }

    /// The question went over that link: only it can bring the answer, and its end ends the waiting.
    pub(crate) fn is_behind(&self, link: LinkId) {
        Host::with_current(|host| {
            if let Some(host) = host.filter(|host| host.node() == self.node) {
                host.pending.set_location(self.key, Location::Link(link));
            }
        });
    }

    /// The key under which it is handed over.
    pub(crate) fn key(&self) -> PendingKey {
        self.key
    }
}

/// Hands a value over; it is dropped if nobody waits, or waits for another type.
pub(crate) fn hand_over<T: 'static>(host: &Host, key: PendingKey, value: T) {
    let awaited = host.pending.answer_type(key);
    if awaited.is_some_and(|awaited| (awaited.type_id)() == core::any::TypeId::of::<T>()) {
        let mut value = ManuallyDrop::new(value);
        // SAFETY: the value is initialised, of the type of its vtable, and moved out.
        unsafe { host.complete_moved(key, Vtable::<T>::ANSWER, (&raw mut value).cast()) };
    }
}

impl<T: 'static> Future for Reply<T> {
    type Output = Result<T, ClusterError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Host::with_current(|host| {
            let Some(host) = host.filter(|host| host.node() == self.node && !self.done) else {
                return Poll::Ready(Err(ClusterError::Stopped));
            };
            match host.pending.check(self.key) {
                Some(State::Waiting) => {
                    host.pending.set_waker(host, self.key, context.waker());
                    Poll::Pending
                }
                Some(State::Answered(block)) => {
                    self.done = true;
                    host.disarm(host.pending.remove_taken(self.key));
                    // SAFETY: the block holds a `T`, which moves out of it.
                    let value = unsafe {
                        let value = block.cast::<T>().read();
                        host.pool().give(block, Layout::new::<T>());
                        value
                    };
                    Poll::Ready(Ok(value))
                }
                Some(State::Failed(error)) => Poll::Ready(Err(error)),
                _ => Poll::Ready(Err(ClusterError::Transport)),
            }
        })
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        Host::with_current(|host| {
            if let Some(host) = host.filter(|host| host.node() == self.node && !self.done) {
                if host.pending.is_waiting(self.key) {
                    host.abandon(self.key);
                }
                host.disarm(host.pending.remove(self.key, host.pool()));
            }
        });
    }
}
