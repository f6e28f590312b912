//! What an entity knows of its place: the address that it keeps.
//!
//! A [`Scope`] is a number pair that is looked up on use, so it may outlive its entity: then everything fails with
//! [`Gone`]. Called by user code inside entities.
#![allow(unsafe_code)]

use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};
use core::time::Duration;

use super::call::PendingKey;
use super::cell::for_the_core;
use super::dispatch::AnswerVtable;
use super::host::{Host, TimerKey};
use super::lifecycle::{Entity, StopReason};
use super::message::{EntityRef, Protocol};
use super::messenger::Messenger;
use super::pending::State;
use super::slot::{Phase, SlotHeader, state_pointer};
use crate::base::{EntityId, Token};

/// The entity has stopped, or the scope is used outside of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the entity has stopped, or its scope was used on another core")]
pub struct Gone;

/// Why there is no fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FenceError {
    /// The pod's lease may have lapsed, so that another pod may own the shard.
    #[error("the pod may not serve now, since its lease could not be renewed in time; write nothing")]
    Frozen,
    /// The entity has stopped, or its shard belongs to another pod.
    #[error("the entity has stopped, or its shard belongs to another pod")]
    Gone,
}

impl From<Gone> for FenceError {
    fn from(_: Gone) -> FenceError {
        FenceError::Gone
    }
}

/// The address of a running entity, for the entity itself: identity, timers, other entities, its own end.
pub struct Scope<S> {
    node: u32,
    core: u16,
    generation: u32,
    slot: NonNull<SlotHeader>,
    entity: PhantomData<*const S>,
}

impl<S> Clone for Scope<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Scope<S> {}

impl<S: Entity> Scope<S> {
    pub(super) fn new(host: &Host, slot: NonNull<SlotHeader>) -> Scope<S> {
        // SAFETY: slots are alive as long as the host.
        let generation = unsafe { slot.as_ref() }.generation.get();
        Scope { node: host.node(), core: host.core().0, generation, slot, entity: PhantomData }
    }

    /// Runs `with` if the entity still lives and this is its core.
    fn with<R>(&self, with: impl FnOnce(&Host, &SlotHeader) -> R) -> Result<R, Gone> {
        Host::with_current(|host| {
            let host = host.filter(|host| host.node() == self.node && host.core().0 == self.core).ok_or(Gone)?;
            // SAFETY: a scope is not `Send` and node numbers are not used again, so this is the host that made the
            // scope, and its slots are alive.
            let header = unsafe { self.slot.as_ref() };
            if header.generation.get() != self.generation || header.phase.get() == Phase::Free {
                return Err(Gone);
            }
            Ok(with(host, header))
        })
    }

    /// The id of the entity.
    ///
    /// # Errors
    /// After its stop.
    pub fn id(&self) -> Result<EntityId, Gone> {
        self.with(|_, header| header.id().clone())
    }

    /// Stops the entity after the messages that it has received; the next message starts it again.
    ///
    /// # Errors
    /// After its stop.
    pub fn stop(&self) -> Result<(), Gone> {
        self.with(|host, _| {
            host.request_stop(self.slot, StopReason::Requested);
        })
    }

    /// The fencing token of the entity's shard, if the pod may serve at this moment.
    ///
    /// Ask for it right before each write to a store and pass it along. A store that keeps the largest token it has
    /// seen for a record, and refuses a write with a smaller one, is safe from a former owner of the shard that was
    /// cut off or paused: a later owner has a larger token. The pod may lose its right between this call and the write
    /// (a paused machine), which only the store can see.
    ///
    /// # Errors
    /// [`FenceError::Frozen`] when the pod's lease may have lapsed: write nothing. [`FenceError::Gone`] after the stop,
    /// or when this pod does not own the shard any more.
    pub fn fence(&self) -> Result<Token, FenceError> {
        self.with(|host, header| {
            if host.has_lapsed() {
                return Err(FenceError::Frozen);
            }
            host.owned_token(header.shard.get()).ok_or(FenceError::Gone)
        })?
    }

    /// Sends messages to entities of another type (or this one).
    ///
    /// # Errors
    /// After the stop.
    pub fn messenger<R: EntityRef>(&self) -> Result<Messenger<R>, Gone> {
        self.with(|host, _| {
            Messenger::new(host.node(), host.type_index(<R::Protocol as Protocol>::NAME), host.hash_seed())
        })
    }

    /// Runs `finalizer` when the entity ends, after its last message and its `stop`, also after a panic. The newest
    /// runs first.
    ///
    /// # Errors
    /// After the stop.
    pub fn on_close(&self, finalizer: impl FnOnce() + 'static) -> Result<(), Gone> {
        self.with(|_, header| header.with_extras(|extras| extras.finalizers.push(Box::new(finalizer))))
    }

    /// Waits; the timers of a core have a resolution of about 0.1 ms.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        sleep(duration)
    }

    /// Changes the state from outside of a handler, as soon as no handler borrows it.
    ///
    /// A handler of the same entity that holds `&mut self` must not await this: it would wait for itself.
    ///
    /// # Errors
    /// After the stop.
    pub async fn update<R>(&self, change: impl FnOnce(&mut S) -> R) -> Result<R, Gone> {
        let mut change = Some(change);
        core::future::poll_fn(|context| {
            self.with(|host, header| {
                if !matches!(header.phase.get(), Phase::Running | Phase::Stopping) {
                    return if header.phase.get() == Phase::Starting { wait(header, context) } else { Some(Err(Gone)) };
                }
                if !header.gate.borrow_is_free() {
                    return wait(header, context);
                }
                let change = change.take()?;
                header.gate.enter(super::message::Access::Exclusive);
                let _leave = LeaveOnDrop { host, slot: self.slot };
                // SAFETY: the slot is of type `S` and has its state; the gate was entered for writing.
                Some(Ok(change(unsafe { &mut *state_pointer::<S>(self.slot) })))
            })
            .unwrap_or(Some(Err(Gone)))
            .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn wait<R>(header: &SlotHeader, context: &Context<'_>) -> Option<R> {
    header.with_extras(|extras| extras.update_waiters.push(context.waker().clone()));
    header.attention.set(true);
    None
}

/// Gives the borrow back, also when `change` panics.
struct LeaveOnDrop<'a> {
    host: &'a Host,
    slot: NonNull<SlotHeader>,
}

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.host.after_handler(self.slot, super::message::Access::Exclusive);
    }
}

/// Runs a future on the core of the calling code (a handler, a task) until it ends or the core stops.
///
/// # Errors
/// On a thread that is no core; use `Pod::spawn_on` there.
pub fn spawn(future: impl Future<Output = ()> + 'static) -> Result<(), Gone> {
    Host::with_current(|host| host.map(|host| host.spawn(future)).ok_or(Gone))
}

/// Waits on the core that polls it first.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { duration, waiting: None, not_send: PhantomData }
}

/// The future of [`sleep`]. Ready at once on a thread that is no core.
#[must_use = "a sleep does nothing until it is awaited"]
pub struct Sleep {
    duration: Duration,
    waiting: Option<(u32, PendingKey)>,
    // Its timer lives on one core.
    not_send: PhantomData<*const ()>,
}

const NOTHING: &AnswerVtable = &AnswerVtable {
    layout: core::alloc::Layout::new::<()>(),
    drop: |_| {},
    decode: |_, _| Ok(()),
    type_id: core::any::TypeId::of::<()>,
};

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Host::with_current(|host| {
            let Some(host) = host else { return Poll::Ready(()) };
            match self.waiting {
                None => {
                    let key = host.pending.insert(NOTHING, Some(for_the_core(host, context.waker())));
                    let timer = host.arm(host.now() + self.duration, TimerKey::Sleep(key));
                    host.pending.set_timer(key, timer);
                    self.waiting = Some((host.node(), key));
                    Poll::Pending
                }
                Some((node, key)) if node == host.node() => match host.pending.check(key) {
                    Some(State::Waiting) => {
                        host.pending.set_waker(host, key, context.waker());
                        Poll::Pending
                    }
                    _ => {
                        host.pending.remove(key, host.pool());
                        self.waiting = None;
                        Poll::Ready(())
                    }
                },
                Some(_) => Poll::Ready(()),
            }
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some((node, key)) = self.waiting else { return };
        Host::with_current(|host| {
            if let Some(host) = host.filter(|host| host.node() == node) {
                host.disarm(host.pending.remove(key, host.pool()));
            }
        });
    }
}
