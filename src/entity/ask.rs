//! Awaiting the reply of an entity.
//!
//! An [`Ask`] is `Send` and does nothing before its first poll. Polled on a core of its node it goes the core's way: to
//! an entity of the same core the message moves straight into the handler, and if that is done at once nothing else is
//! touched. Polled on any other thread it goes through the foreign inbox of a core (`foreign.rs`). Called by user code.
//!
//! Invariants: the message is in exactly one place (here, at its entity, or on its way), and comes back here only when
//! it never left; an ask that waits on a core is forgotten there when it is dropped, on whichever thread.
#![allow(unsafe_code)]

use core::future::Future;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::pin::Pin;
use core::ptr::null_mut;
use core::task::{Context, Poll};
use core::time::Duration;

use super::call::{Call, PendingKey, ReplyTo};
use super::cell::for_the_core;
use super::dispatch::{Answer, Tables, outcome};
use super::foreign::{self, ForeignAsk};
use super::host::{Host, TimerKey};
use super::hosting::{Delivered, Delivery};
use super::message::Message;
use super::messenger::{EntityTarget, NOT_HOSTED};
use super::options::Timeout;
use super::pending::{Location, State};
use super::router::Outbound;
use crate::base::timers::TimerId;
use crate::base::{ClusterError, CoreIndex, Nanos, SendError};

type Outcome<M> = Result<<M as Message>::Reply, SendError<<M as Message>::Error>>;

/// A message on its way to an entity; await it for the reply.
///
/// Dropping it (or running into the timeout) interrupts the message unless it is `#[uninterruptible]`.
#[must_use = "an ask does nothing until it is awaited; use `.discard()` if the reply does not matter"]
pub struct Ask<M: Message> {
    target: EntityTarget,
    message: Option<M>,
    stage: Stage<M>,
}

enum Stage<M: Message> {
    New,
    OnCore(Waiting),
    Foreign(ForeignAsk<M>),
    Done,
}

/// An ask that waits on a core.
struct Waiting {
    core: CoreIndex,
    key: PendingKey,
    /// [`Nanos::NEVER`] without a timeout.
    deadline: Nanos,
}

// The message is moved, never pinned in place.
impl<M: Message> Unpin for Ask<M> {}

impl<M: Message> Ask<M> {
    #[inline(always)]
    pub(super) fn new(target: EntityTarget, message: M) -> Ask<M> {
        Ask { target, message: Some(message), stage: Stage::New }
    }

    /// How long to wait, for this message alone.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.target.timeout = Timeout::after(timeout);
        self
    }

    /// Waits for ever.
    pub fn no_timeout(mut self) -> Self {
        self.target.timeout = Timeout::NEVER;
        self
    }

    /// Wants no reply: the future is ready once the message is in the mailbox of its entity.
    pub fn discard(self) -> Discard<M> {
        Discard(self)
    }

    /// The entity that the message goes to.
    #[must_use]
    pub fn target(&self) -> &EntityTarget {
        &self.target
    }

    #[inline(always)]
    fn poll_as(&mut self, context: &mut Context<'_>, discard: bool) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        Host::with_current(|host| {
            let host = host.filter(|host| host.node() == self.target.node);
            // The common case first, as a branch that is predicted.
            if let (Stage::New, Some(host)) = (&self.stage, host) {
                return self.start(host, context, discard);
            }
            match (&mut self.stage, host) {
                (Stage::New, _) => self.start_foreign(context, discard),
                (Stage::OnCore(waiting), Some(host)) if host.core() == waiting.core => {
                    self.go_on(host, context, discard)
                }
                // Moved to another thread after its first poll: its home forgets it.
                (Stage::OnCore(_), _) => {
                    self.forget();
                    Poll::Ready(Err(ClusterError::Stopped))
                }
                (Stage::Foreign(foreign), _) => foreign.poll(context),
                (Stage::Done, _) => panic!("an ask was polled after it was ready"),
            }
        })
    }

    /// The first poll on a core.
    #[inline(always)]
    fn start(
        &mut self,
        host: &Host,
        context: &mut Context<'_>,
        discard: bool,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        if !host.take_budget() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.target.type_index != NOT_HOSTED && host.hosts(self.target.hash) {
            return self.start_here(host, context, discard);
        }
        self.start_elsewhere(host, context, discard)
    }

    #[inline(always)]
    fn start_here(
        &mut self,
        host: &Host,
        context: &mut Context<'_>,
        discard: bool,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        if self.target.id.is_placeholder() {
            return self.finish(Err(ClusterError::InvalidEntityId));
        }
        let Some(message) = self.message.take() else { unreachable!("a new ask has its message") };
        let mut message = ManuallyDrop::new(message);
        let mut answer = MaybeUninit::<Answer<M>>::uninit();
        let type_index = self.target.type_index;
        let delivery = Delivery {
            type_index,
            hash: self.target.hash,
            id: &self.target.id,
            method: &host.types()[usize::from(type_index)].methods()[usize::from(M::INDEX)],
            call: Call { reply_to: ReplyTo::Nobody, chain: host.current_chain() },
        };
        let out = if discard { null_mut() } else { answer.as_mut_ptr().cast() };
        // SAFETY: the message is initialised and given away; `out` has room for its answer; the messenger found the
        // type by the name of the message's protocol, so its methods are those of the protocol.
        let delivered = unsafe { host.deliver(&delivery, (&raw mut message).cast(), out) };
        match delivered {
            Delivered::Done if discard => self.finish(Ok(None)),
            // SAFETY: `out` was given and the handler is done, so the answer is there.
            Delivered::Done => self.finish(Ok(Some(unsafe { answer.assume_init() }))),
            Delivered::Failed(ClusterError::MessageDiscarded) if discard => self.finish(Ok(None)),
            Delivered::Failed(error) => self.finish(Err(error)),
            Delivered::Queued(_) | Delivered::Running(_) if discard => self.finish(Ok(None)),
            Delivered::Queued(_) | Delivered::Running(_) => {
                let (key, deadline) = self.wait(host, context);
                host.pending.set_sent(key, Location::Nowhere, arm(host, key, deadline));
                host.attach(&delivered, key);
                self.stage = Stage::OnCore(Waiting { core: host.core(), key, deadline });
                Poll::Pending
            }
        }
    }

    #[inline(always)]
    fn finish(
        &mut self,
        outcome: Result<Option<Answer<M>>, ClusterError>,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        self.stage = Stage::Done;
        Poll::Ready(outcome)
    }

    /// Enters the table of those who wait.
    #[inline(always)]
    fn wait(&self, host: &Host, context: &Context<'_>) -> (PendingKey, Nanos) {
        let key = host.pending.insert(Tables::<M>::ANSWER, Some(for_the_core(host, context.waker())));
        let timeout = self.target.timeout.resolve(host.defaults().send_timeout);
        (key, timeout.map_or(Nanos::NEVER, |timeout| host.now() + timeout))
    }

    #[inline(never)]
    fn start_elsewhere(
        &mut self,
        host: &Host,
        context: &mut Context<'_>,
        discard: bool,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        if self.target.id.is_placeholder() {
            return self.finish(Err(ClusterError::InvalidEntityId));
        }
        let (key, deadline) = self.wait(host, context);
        host.enter_order(key, self.target.hash);
        self.stage = Stage::OnCore(Waiting { core: host.core(), key, deadline });
        let timer = arm(host, key, deadline);
        self.send_away(host, discard, key, deadline, timer)
    }

    /// Hands the message to the router; it stays here if it goes over a link or finds no way.
    fn send_away(
        &mut self,
        host: &Host,
        discard: bool,
        key: PendingKey,
        deadline: Nanos,
        timer: Option<TimerId>,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        let Some(message) = &mut self.message else {
            // It was moved to another core and got lost with it.
            self.forget();
            return Poll::Ready(Err(ClusterError::EntityInterrupted));
        };
        let outbound = Outbound {
            target: &self.target,
            message_type: Tables::<M>::MESSAGE,
            message: (&raw mut *message).cast(),
            key,
            discard,
            remaining: (deadline != Nanos::NEVER).then(|| deadline.since(host.now())),
            call: Call { reply_to: ReplyTo::Local(key), chain: host.current_chain() },
        };
        match host.router().send(host, &outbound) {
            Ok(sent) => {
                if sent.taken {
                    // Moved out by the router.
                    core::mem::forget(self.message.take());
                }
                if sent.location == Location::Unrouted && host.pending.wait_for_route(key) {
                    host.router().wait_for_route(key);
                }
                host.pending.set_sent(key, sent.location, timer);
                Poll::Pending
            }
            Err(error) => {
                host.pending.set_sent(key, Location::Nowhere, timer);
                self.forget();
                Poll::Ready(Err(error))
            }
        }
    }

    /// A later poll on the same core.
    fn go_on(
        &mut self,
        host: &Host,
        context: &mut Context<'_>,
        discard: bool,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        let Stage::OnCore(Waiting { key, deadline, .. }) = self.stage else { unreachable!("checked by the caller") };
        let state = host.pending.check(key);
        match state {
            Some(State::Waiting) if host.pending.location(key) != Location::Unrouted => {
                host.pending.set_waker(host, key, context.waker());
                Poll::Pending
            }
            Some(State::Waiting) => {
                host.pending.set_waker(host, key, context.waker());
                self.try_again(host, context, discard, key, deadline)
            }
            Some(State::Answered(block)) => {
                host.disarm(host.pending.remove_taken(key));
                // SAFETY: the block holds an answer of this message, which moves out of it.
                let answer = unsafe {
                    let answer = block.cast::<Answer<M>>().read();
                    host.pool().give(block, Tables::<M>::ANSWER.layout);
                    answer
                };
                self.finish(Ok(Some(answer)))
            }
            Some(State::Acknowledged) => self.end(host, key, Ok(None)),
            Some(State::Failed(ClusterError::MessageDiscarded)) if discard => self.end(host, key, Ok(None)),
            Some(State::Failed(error)) => self.end(host, key, Err(error)),
            Some(State::Free { .. }) | None => unreachable!("an ask that waits has its entry"),
        }
    }

    fn try_again(
        &mut self,
        host: &Host,
        context: &mut Context<'_>,
        discard: bool,
        key: PendingKey,
        deadline: Nanos,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        if let Some(block) = host.take_returned(key) {
            // SAFETY: the core that it had moved to gave back the message of this ask, which moves out of the block.
            unsafe {
                self.message = Some(block.cast::<M>().read());
                host.pool().give(block, Tables::<M>::MESSAGE.layout);
            }
        }
        let hash = self.target.hash;
        let here = self.target.type_index != NOT_HOSTED && (host.hosts(hash) || host.may_start_waiting(key, hash));
        if here && self.message.is_some() {
            // The shard came to this core while the message waited.
            host.router().leaves(host, key, hash);
            host.disarm(host.pending.remove(key, host.pool()));
            self.stage = Stage::New;
            return self.start_here(host, context, discard);
        }
        let timer = host.pending.timer(key);
        self.send_away(host, discard, key, deadline, timer)
    }

    fn end(
        &mut self,
        host: &Host,
        key: PendingKey,
        outcome: Result<Option<Answer<M>>, ClusterError>,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        host.forget_returned(key);
        host.disarm(host.pending.remove(key, host.pool()));
        self.finish(outcome)
    }

    fn start_foreign(
        &mut self,
        context: &mut Context<'_>,
        discard: bool,
    ) -> Poll<Result<Option<Answer<M>>, ClusterError>> {
        let Some(message) = self.message.take() else { unreachable!("a new ask has its message") };
        match ForeignAsk::start(self.target.clone(), message, discard) {
            Ok(foreign) => {
                let polled = foreign.poll(context);
                self.stage = Stage::Foreign(foreign);
                polled
            }
            Err(error) => self.finish(Err(error)),
        }
    }

    /// Forgets a waiting ask on its core.
    fn forget(&mut self) {
        let Stage::OnCore(Waiting { core, key, .. }) = core::mem::replace(&mut self.stage, Stage::Done) else { return };
        let node = self.target.node;
        let here = Host::with_current(|host| match host {
            Some(host) if host.node() == node && host.core() == core => {
                forget_on(host, key);
                true
            }
            _ => false,
        });
        if !here {
            foreign::submit_to(node, core, Box::new(move |host| forget_on(host, key)));
        }
    }
}

/// The timer that ends the waiting of an ask.
#[inline(always)]
fn arm(host: &Host, key: PendingKey, deadline: Nanos) -> Option<TimerId> {
    (deadline != Nanos::NEVER).then(|| host.arm(deadline, TimerKey::Ask(key)))
}

fn forget_on(host: &Host, key: PendingKey) {
    if host.pending.is_waiting(key) {
        host.abandon(key);
    }
    host.forget_returned(key);
    host.disarm(host.pending.remove(key, host.pool()));
}

impl<M: Message> Drop for Ask<M> {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::OnCore(_)) {
            self.forget();
        }
    }
}

impl<M: Message> Future for Ask<M> {
    type Output = Outcome<M>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome<M>> {
        let this = self.get_mut();
        let polled = this.poll_as(context, false);
        polled.map(|outcome_| match outcome_ {
            Ok(Some(answer)) => outcome::<M>(answer),
            // Only a discard is acknowledged.
            Ok(None) => Err(SendError::Cluster(ClusterError::Transport)),
            Err(error) => Err(SendError::Cluster(error)),
        })
    }
}

/// A message whose reply does not matter; await it to know that it is in the mailbox of its entity.
#[must_use = "a discard does nothing until it is awaited"]
pub struct Discard<M: Message>(Ask<M>);

impl<M: Message> Future for Discard<M> {
    type Output = Result<(), ClusterError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ClusterError>> {
        self.get_mut().0.poll_as(context, true).map(|outcome| outcome.map(drop))
    }
}
