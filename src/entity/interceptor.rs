//! Code of the user around the entities of a type and around each message, as for logs, timing or tracing.
//!
//! An [`EntityInterceptor`] is set in the options of a type, an [`AnyInterceptor`] for all types of a pod. Types without
//! one run as if there were none: which functions handle the messages is decided when a type is registered
//! (`intercepted.rs`). Called by `dispatch`, `hosting` and `options`.
//!
//! Invariant: what an interceptor returns for a message is the outcome of exactly this message; another is a defect.
#![allow(unsafe_code)]

use core::any::Any;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::rc::Rc;
use std::sync::Arc;

use super::dispatch::Answer;
use super::message::{Message, Outcome, Protocol};
use crate::base::EntityId;

/// What an interceptor returns: a future on the entity's core.
pub type Intercepted<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Which entity is meant.
#[derive(Clone, Copy, Debug)]
pub struct EntityContext<'a> {
    entity_type: &'static str,
    id: &'a EntityId,
}

impl<'a> EntityContext<'a> {
    pub(super) fn new(entity_type: &'static str, id: &'a EntityId) -> EntityContext<'a> {
        EntityContext { entity_type, id }
    }

    /// The name of its type.
    #[must_use]
    pub fn entity_type(&self) -> &'static str {
        self.entity_type
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &'a EntityId {
        self.id
    }
}

/// What lies around the whole life of one entity: made before its start, dropped after its last finalizer.
pub trait AroundEntity {
    /// Calls `run`, which runs a piece of the entity: its start, a handler or its stop until it is done or waits, or a
    /// finalizer. For example within a span: `self.span.in_scope(|| run())`. Reply streams run outside.
    fn enter(&self, run: &mut dyn FnMut());
}

/// Nothing.
impl AroundEntity for () {
    fn enter(&self, run: &mut dyn FnMut()) {
        run();
    }
}

/// Wraps the entities of one type and their messages. Set it with
/// [`EntityOptions::interceptor`](super::EntityOptions::interceptor).
///
/// ```
/// # #[atoll::protocol]
/// # trait Guild { async fn join(&mut self, user: String) -> u32; }
/// use atoll::entity::{EntityInterceptor, Intercepted, Next};
///
/// struct LogJoins;
///
/// impl EntityInterceptor<GuildProtocol> for LogJoins {
///     fn around_message<'a>(&'a self, next: Next<'a, GuildProtocol>) -> Intercepted<'a, GuildOutcome> {
///         Box::pin(async move {
///             let GuildMessage::Join(guild::Join { user }) = next.message();
///             let user = user.clone();
///             let outcome = next.run().await;
///             if let GuildOutcome::Join(Ok(members)) = &outcome {
///                 println!("{user} joined, {members} members");
///             }
///             outcome
///         })
///     }
/// }
/// ```
pub trait EntityInterceptor<P: Protocol>: Send + Sync + 'static {
    /// Called when an entity starts, before its own start. If it panics, that is like a start that fails.
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        let _ = entity;
        Box::new(())
    }

    /// Called for each message, with its state already borrowed. It returns the outcome of `next.run()`, or another one
    /// of the same message (without running it, if it wants). A panic is like a panic of the handler.
    fn around_message<'a>(&'a self, next: Next<'a, P>) -> Intercepted<'a, P::Outcome> {
        next.run()
    }

    /// This one around `inner`.
    fn and<I: EntityInterceptor<P>>(self, inner: I) -> Both<Self, I>
    where
        Self: Sized,
    {
        Both { outer: self, inner }
    }
}

impl<P: Protocol, I: EntityInterceptor<P> + ?Sized> EntityInterceptor<P> for Arc<I> {
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        (**self).around_entity(entity)
    }

    fn around_message<'a>(&'a self, next: Next<'a, P>) -> Intercepted<'a, P::Outcome> {
        (**self).around_message(next)
    }
}

/// Two interceptors, one around the other; see [`EntityInterceptor::and`].
pub struct Both<A, B> {
    outer: A,
    inner: B,
}

impl<P: Protocol, A: EntityInterceptor<P>, B: EntityInterceptor<P>> EntityInterceptor<P> for Both<A, B> {
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        around_both(|| self.outer.around_entity(entity), || self.inner.around_entity(entity))
    }

    fn around_message<'a>(&'a self, next: Next<'a, P>) -> Intercepted<'a, P::Outcome> {
        let (entity_type, id, name) = (next.entity_type, next.id.clone(), next.name);
        let step = Box::new(Through { inner: &self.inner, next });
        self.outer.around_message(Next { entity_type, id, name, step })
    }
}

/// The inner one is made within the outer one, so that it sees what the outer one sets.
fn around_both(
    outer: impl FnOnce() -> Box<dyn AroundEntity>,
    inner: impl Fn() -> Box<dyn AroundEntity>,
) -> Box<dyn AroundEntity> {
    let outer = outer();
    let mut made = None;
    outer.enter(&mut || made = Some(inner()));
    Box::new(BothAround { inner: made.unwrap_or_else(|| not_run()), outer })
}

/// The fields are dropped in this order.
struct BothAround {
    inner: Box<dyn AroundEntity>,
    outer: Box<dyn AroundEntity>,
}

impl AroundEntity for BothAround {
    fn enter(&self, run: &mut dyn FnMut()) {
        self.outer.enter(&mut || self.inner.enter(run));
    }
}

#[cold]
fn not_run() -> ! {
    panic!("`AroundEntity::enter` of an interceptor did not call `run`; call it exactly once")
}

/// What is left to do for a message.
trait Step<'a, P: Protocol> {
    fn message(&self) -> P::Borrowed<'_>;
    fn run(self: Box<Self>) -> Intercepted<'a, P::Outcome>;
}

/// A message at its interceptor: what it is, and what comes next for it.
#[must_use = "a message is not processed unless it is run"]
pub struct Next<'a, P: Protocol> {
    entity_type: &'static str,
    id: EntityId,
    name: &'static str,
    step: Box<dyn Step<'a, P> + 'a>,
}

impl<'a, P: Protocol> Next<'a, P> {
    pub(super) fn handler<M, H, F>(id: EntityId, message: M, handle: H) -> Next<'a, P>
    where
        M: Message<Protocol = P>,
        H: FnOnce(M) -> F + 'a,
        F: Future<Output = Answer<M>> + 'a,
    {
        Next { entity_type: P::NAME, id, name: M::NAME, step: Box::new(Handler { message, handle }) }
    }

    /// The name of the entity's type.
    #[must_use]
    pub fn entity_type(&self) -> &'static str {
        self.entity_type
    }

    /// The id of the entity.
    #[must_use]
    pub fn id(&self) -> &EntityId {
        &self.id
    }

    /// The name of the message.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The message, for matching. The handler takes it over: clone what is needed after it.
    #[must_use]
    pub fn message(&self) -> P::Borrowed<'_> {
        self.step.message()
    }

    /// Processes the message: by the interceptor inside of this one, or by the handler.
    pub fn run(self) -> Intercepted<'a, P::Outcome> {
        self.step.run()
    }
}

struct Handler<M, H> {
    message: M,
    handle: H,
}

impl<'a, M, H, F> Step<'a, M::Protocol> for Handler<M, H>
where
    M: Message,
    H: FnOnce(M) -> F + 'a,
    F: Future<Output = Answer<M>> + 'a,
{
    fn message(&self) -> <M::Protocol as Protocol>::Borrowed<'_> {
        self.message.borrowed()
    }

    fn run(self: Box<Self>) -> Intercepted<'a, <M::Protocol as Protocol>::Outcome> {
        let Handler { message, handle } = *self;
        Box::pin(async move { M::outcome(handle(message).await) })
    }
}

struct Through<'a, P: Protocol> {
    inner: &'a dyn EntityInterceptor<P>,
    next: Next<'a, P>,
}

impl<'a, P: Protocol> Step<'a, P> for Through<'a, P> {
    fn message(&self) -> P::Borrowed<'_> {
        self.next.message()
    }

    fn run(self: Box<Self>) -> Intercepted<'a, P::Outcome> {
        let Through { inner, next } = *self;
        inner.around_message(next)
    }
}

/// Wraps the entities of every type of a pod; it knows messages by their names.
pub trait AnyInterceptor: Send + Sync + 'static {
    /// As [`EntityInterceptor::around_entity`].
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        let _ = entity;
        Box::new(())
    }

    /// As [`EntityInterceptor::around_message`]; it can fail a message only by a panic.
    fn around_message<'a>(&'a self, next: AnyNext<'a>) -> Intercepted<'a, AnyOutcome> {
        next.run()
    }

    /// This one around `inner`.
    fn and<I: AnyInterceptor>(self, inner: I) -> Both<Self, I>
    where
        Self: Sized,
    {
        Both { outer: self, inner }
    }
}

impl<I: AnyInterceptor + ?Sized> AnyInterceptor for Arc<I> {
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        (**self).around_entity(entity)
    }

    fn around_message<'a>(&'a self, next: AnyNext<'a>) -> Intercepted<'a, AnyOutcome> {
        (**self).around_message(next)
    }
}

impl<A: AnyInterceptor, B: AnyInterceptor> AnyInterceptor for Both<A, B> {
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        around_both(|| self.outer.around_entity(entity), || self.inner.around_entity(entity))
    }

    fn around_message<'a>(&'a self, next: AnyNext<'a>) -> Intercepted<'a, AnyOutcome> {
        let (entity_type, id, name) = (next.entity_type, next.id.clone(), next.name);
        // Made when it is polled, since an interceptor may do something before it returns its future.
        let run = Box::pin(async move { self.inner.around_message(next).await });
        self.outer.around_message(AnyNext { entity_type, id, name, run })
    }
}

/// A message of any type at its interceptor.
#[must_use = "a message is not processed unless it is run"]
pub struct AnyNext<'a> {
    entity_type: &'static str,
    id: EntityId,
    name: &'static str,
    run: Intercepted<'a, AnyOutcome>,
}

impl<'a> AnyNext<'a> {
    /// The name of the entity's type.
    #[must_use]
    pub fn entity_type(&self) -> &'static str {
        self.entity_type
    }

    /// The id of the entity.
    #[must_use]
    pub fn id(&self) -> &EntityId {
        &self.id
    }

    /// The name of the message.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Processes the message.
    pub fn run(self) -> Intercepted<'a, AnyOutcome> {
        self.run
    }
}

/// The outcome of a message of any type.
pub struct AnyOutcome {
    is_error: bool,
    outcome: Box<dyn Any>,
}

impl AnyOutcome {
    /// Whether the message failed with its declared error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.is_error
    }
}

/// An interceptor of all types as that of one.
pub(super) struct Typed<P> {
    any: Arc<dyn AnyInterceptor>,
    protocol: PhantomData<fn() -> P>,
}

impl<P> Typed<P> {
    pub(super) fn new(any: Arc<dyn AnyInterceptor>) -> Typed<P> {
        Typed { any, protocol: PhantomData }
    }
}

impl<P: Protocol> EntityInterceptor<P> for Typed<P> {
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        self.any.around_entity(entity)
    }

    fn around_message<'a>(&'a self, next: Next<'a, P>) -> Intercepted<'a, P::Outcome> {
        let (entity_type, id, name) = (next.entity_type, next.id.clone(), next.name);
        let run = Box::pin(async move {
            let outcome = next.run().await;
            AnyOutcome { is_error: outcome.is_error(), outcome: Box::new(outcome) }
        });
        let outcome = self.any.around_message(AnyNext { entity_type, id, name, run });
        Box::pin(async move {
            match outcome.await.outcome.downcast::<P::Outcome>() {
                Ok(outcome) => *outcome,
                Err(_) => wrong_outcome(name),
            }
        })
    }
}

#[cold]
pub(super) fn wrong_outcome(message: &'static str) -> ! {
    panic!("an interceptor of `{message}` returned the outcome of another message; return that of `next.run()`")
}

/// Runs something within what lies around its entity.
pub(super) fn run_within(around: Option<&dyn AroundEntity>, run: impl FnOnce()) {
    let Some(around) = around else { return run() };
    let mut run = Some(run);
    around.enter(&mut || {
        if let Some(run) = run.take() {
            run();
        }
    });
    if run.is_some() {
        not_run();
    }
}

/// A future whose polls run within what lies around its entity.
pub(super) struct Within<F> {
    around: Option<Rc<dyn AroundEntity>>,
    future: F,
}

impl<F> Within<F> {
    pub(super) fn new(around: Option<Rc<dyn AroundEntity>>, future: F) -> Within<F> {
        Within { around, future }
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: nothing is moved out of it: `around` is only read, and `future` is pinned again at once.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the future is pinned when the whole is: it is never moved out, the type has no `Drop`, and it is
        // `Unpin` only if the future is.
        let mut future = unsafe { Pin::new_unchecked(&mut this.future) };
        let Some(around) = &this.around else { return future.poll(context) };
        let mut polled = None;
        around.enter(&mut || {
            if polled.is_none() {
                polled = Some(future.as_mut().poll(context));
            }
        });
        polled.unwrap_or_else(|| not_run())
    }
}
