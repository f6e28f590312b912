//! How the messages of a type with an interceptor are handled.
//!
//! The macro makes a second table of methods, whose `start` goes through the interceptor; `hosting` takes it when a type
//! has one, so that the others pay nothing, not even a branch. Invariant: a type whose methods come from here has an
//! interceptor of its own protocol.
#![allow(unsafe_code)]

use core::future::Future;
use core::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::call::Call;
use super::dispatch::{Answer, Method, Started, start};
use super::host::Host;
use super::interceptor::{AroundEntity, EntityContext, EntityInterceptor, Next, Within, run_within, wrong_outcome};
use super::lifecycle::Entity;
use super::message::{HandledExclusive, HandledShared, Message};
use super::slot::{SlotHeader, state_pointer};

/// The interceptor of a type, as `ErasedOptions` keep it.
pub(super) type Interceptor<P> = Arc<dyn EntityInterceptor<P>>;

impl Method {
    /// The same method of a type with an interceptor, with a `&mut self` handler. The message is always decoded.
    #[must_use]
    pub const fn exclusive_intercepted<S: Entity, M: HandledExclusive<S>>(mut self) -> Method {
        self.start = start_exclusive::<S, M>;
        self.in_place = None;
        self
    }

    /// The same method of a type with an interceptor, with a `&self` handler. The message is always decoded.
    #[must_use]
    pub const fn shared_intercepted<S: Entity, M: HandledShared<S>>(mut self) -> Method {
        self.start = start_shared::<S, M>;
        self.in_place = None;
        self
    }
}

unsafe fn start_exclusive<S: Entity, M: HandledExclusive<S>>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    message: *mut (),
    call: Call,
    out: *mut (),
) -> Started {
    // SAFETY: the message is initialised and ours; the slot has a state of type `S`; the gate was entered for writing,
    // so until the future is dropped nobody else refers to the state.
    let (message, state) = unsafe { (message.cast::<M>().read(), &mut *state_pointer::<S>(slot)) };
    start_intercepted(host, slot, method, call, out, message, move |message: M| message.handle(state))
}

unsafe fn start_shared<S: Entity, M: HandledShared<S>>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    message: *mut (),
    call: Call,
    out: *mut (),
) -> Started {
    // SAFETY: as in `start_exclusive`; the gate was entered for reading, so there is no writer.
    let (message, state) = unsafe { (message.cast::<M>().read(), &*state_pointer::<S>(slot)) };
    start_intercepted(host, slot, method, call, out, message, move |message: M| message.handle(state))
}

fn start_intercepted<M, H, F>(
    host: &Host,
    slot: NonNull<SlotHeader>,
    method: &'static Method,
    call: Call,
    out: *mut (),
    message: M,
    handle: H,
) -> Started
where
    M: Message,
    H: FnOnce(M) -> F,
    F: Future<Output = Answer<M>>,
{
    // SAFETY: slots are alive as long as the host.
    let header = unsafe { slot.as_ref() };
    let kind = &host.types()[usize::from(header.type_index)];
    let interceptor = kind.interceptor::<M::Protocol>();
    let (around, id) = (header.around(), header.id().clone());
    start::<M, _>(host, slot, method, call, out, move || {
        Within::new(around, async move {
            let next = Next::handler(id, message, handle);
            let outcome = interceptor.around_message(next).await;
            M::answer(outcome).unwrap_or_else(|| wrong_outcome(M::NAME))
        })
    })
}

/// Makes what lies around an entity.
pub(super) type MakeAround = Box<dyn Fn(&EntityContext<'_>) -> Box<dyn AroundEntity>>;

impl Host {
    /// What lies around an entity that is about to start, if anything does.
    ///
    /// # Errors
    /// If it panicked: the entity must not start.
    pub(super) fn begin_around(&self, slot: NonNull<SlotHeader>) -> Result<Option<Rc<dyn AroundEntity>>, ()> {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let kind = &self.types()[usize::from(header.type_index)];
        let Some(make) = kind.make_around() else { return Ok(None) };
        let context = EntityContext::new(kind.name, header.id());
        let made = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| make(&context)));
        match made {
            Ok(around) => {
                let around: Rc<dyn AroundEntity> = around.into();
                header.with_extras(|extras| extras.around = Some(Rc::clone(&around)));
                Ok(Some(around))
            }
            Err(panic) => {
                self.log_defect(slot, "the interceptor's around_entity", &*panic);
                Err(())
            }
        }
    }
}

impl SlotHeader {
    /// What lies around the entity.
    pub(super) fn around(&self) -> Option<Rc<dyn AroundEntity>> {
        self.extras.borrow().as_ref().and_then(|extras| extras.around.clone())
    }

    /// Runs the finalizers, newest first, and ends what lies around the entity.
    pub(super) fn run_finalizers(&self) {
        let around = self.around();
        loop {
            let finalizer = self.extras.borrow_mut().as_mut().and_then(|extras| extras.finalizers.pop());
            let Some(finalizer) = finalizer else { break };
            let run = || run_within(around.as_deref(), finalizer);
            if std::panic::catch_unwind(core::panic::AssertUnwindSafe(run)).is_err() {
                tracing::error!(id = %self.id(), "a finalizer panicked");
            }
        }
        let last = self.extras.borrow_mut().as_mut().and_then(|extras| extras.around.take());
        let end = || drop((around, last));
        if std::panic::catch_unwind(core::panic::AssertUnwindSafe(end)).is_err() {
            tracing::error!(id = %self.id(), "what an interceptor put around an entity panicked while it was dropped");
        }
    }
}
