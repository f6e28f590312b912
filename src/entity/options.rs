//! How an entity type behaves: idle time, concurrency, mailbox, which messages start it.

use core::any::Any;
use core::time::Duration;
use std::sync::Arc;

use super::intercepted::{Interceptor, MakeAround};
use super::interceptor::{AnyInterceptor, EntityInterceptor, Typed};
use super::message::Protocol;
use crate::base::limits;

/// Which messages start an entity that is not running.
pub struct LoadRule<P: Protocol>(Arc<LoadFunction<P>>);

type LoadFunction<P> = dyn for<'a> Fn(<P as Protocol>::Borrowed<'a>) -> bool + Send + Sync;

impl<P: Protocol> LoadRule<P> {
    pub(super) fn may_load(&self, message: P::Borrowed<'_>) -> bool {
        (self.0)(message)
    }
}

/// Options of one entity type. The defaults come from the pod's configuration.
pub struct EntityOptions<P: Protocol> {
    pub(crate) max_idle: Option<Duration>,
    pub(crate) termination_timeout: Option<Duration>,
    pub(crate) concurrency: u16,
    pub(crate) mailbox_capacity: Option<u32>,
    pub(crate) load: Option<LoadRule<P>>,
    pub(crate) interceptor: Option<Interceptor<P>>,
}

impl<P: Protocol> Default for EntityOptions<P> {
    fn default() -> Self {
        EntityOptions {
            max_idle: None,
            termination_timeout: None,
            concurrency: 1,
            mailbox_capacity: None,
            load: None,
            interceptor: None,
        }
    }
}

impl<P: Protocol> EntityOptions<P> {
    /// Time without any message after which an entity stops. Messages in progress count as activity.
    #[must_use]
    pub fn max_idle(mut self, max_idle: Duration) -> Self {
        self.max_idle = Some(max_idle);
        self
    }

    /// Time that a stopping entity has to finish the messages that it received, its `stop` included.
    #[must_use]
    pub fn termination_timeout(mut self, timeout: Duration) -> Self {
        self.termination_timeout = Some(timeout);
        self
    }

    /// How many messages may be in progress at the same time (1 by default: one at a time, in order). More than one
    /// makes sense only for protocols with `&self` handlers; others are refused when the pod starts.
    #[must_use]
    pub fn concurrency(mut self, permits: u16) -> Self {
        self.concurrency = permits.max(1);
        self
    }

    /// How many messages may wait or be in progress at one entity; beyond that they fail with `MailboxFull`.
    #[must_use]
    pub fn mailbox_capacity(mut self, messages: u32) -> Self {
        self.mailbox_capacity = Some(messages.max(1));
        self
    }

    /// No limit for the mailbox.
    #[must_use]
    pub fn unbounded_mailbox(mut self) -> Self {
        self.mailbox_capacity = Some(u32::MAX);
        self
    }

    /// Which messages start an entity that is not running. Others are discarded then: a discard succeeds, an ask
    /// fails with `MessageDiscarded`.
    #[must_use]
    pub fn load_entity(mut self, rule: impl for<'a> Fn(P::Borrowed<'a>) -> bool + Send + Sync + 'static) -> Self {
        self.load = Some(LoadRule(Arc::new(rule)));
        self
    }

    /// Wraps the entities of the type and their messages. A second one lies around the first.
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl EntityInterceptor<P>) -> Self {
        self.interceptor = Some(match self.interceptor {
            Some(inner) => Arc::new(interceptor.and(inner)),
            None => Arc::new(interceptor),
        });
        self
    }

    /// As [`EntityOptions::interceptor`], with one that is made for every type.
    #[must_use]
    pub fn any_interceptor(self, interceptor: Arc<dyn AnyInterceptor>) -> Self {
        self.interceptor(Typed::new(interceptor))
    }
}

impl<P: Protocol> Clone for EntityOptions<P> {
    fn clone(&self) -> Self {
        EntityOptions {
            max_idle: self.max_idle,
            termination_timeout: self.termination_timeout,
            concurrency: self.concurrency,
            mailbox_capacity: self.mailbox_capacity,
            load: self.load.as_ref().map(|rule| LoadRule(Arc::clone(&rule.0))),
            interceptor: self.interceptor.clone(),
        }
    }
}

/// Defaults of a pod for entity types that say nothing else.
#[derive(Clone, Copy, Debug)]
pub struct EntityDefaults {
    /// See [`EntityOptions::max_idle`].
    pub max_idle: Duration,
    /// See [`EntityOptions::termination_timeout`].
    pub termination_timeout: Duration,
    /// See [`EntityOptions::mailbox_capacity`].
    pub mailbox_capacity: u32,
    /// Time to wait for a reply.
    pub send_timeout: Duration,
}

impl Default for EntityDefaults {
    fn default() -> Self {
        EntityDefaults {
            max_idle: limits::ENTITY_MAX_IDLE,
            termination_timeout: limits::ENTITY_TERMINATION_TIMEOUT,
            mailbox_capacity: limits::MAILBOX_CAPACITY,
            send_timeout: limits::SEND_TIMEOUT,
        }
    }
}

/// The options of a type without the type.
pub(crate) struct ErasedOptions {
    pub max_idle: Duration,
    pub termination_timeout: Duration,
    pub concurrency: u16,
    pub mailbox_capacity: u32,
    pub load: Option<Box<dyn Any>>,
    /// An [`Interceptor`] of the type's protocol.
    pub interceptor: Option<Box<dyn Any>>,
    pub make_around: Option<MakeAround>,
}

impl ErasedOptions {
    pub(crate) fn new<P: Protocol>(options: EntityOptions<P>, defaults: &EntityDefaults) -> ErasedOptions {
        let make_around = options
            .interceptor
            .clone()
            .map(|interceptor| -> MakeAround { Box::new(move |context| interceptor.around_entity(context)) });
        ErasedOptions {
            max_idle: options.max_idle.unwrap_or(defaults.max_idle),
            termination_timeout: options.termination_timeout.unwrap_or(defaults.termination_timeout),
            concurrency: options.concurrency,
            mailbox_capacity: options.mailbox_capacity.unwrap_or(defaults.mailbox_capacity),
            load: options.load.map(|rule| Box::new(rule) as Box<dyn Any>),
            interceptor: options.interceptor.map(|interceptor| Box::new(interceptor) as Box<dyn Any>),
            make_around,
        }
    }
}

/// How long a sender waits for a reply: one word, since it is copied with every ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(u64);

impl Timeout {
    /// What the pod's configuration says (`send_timeout`).
    pub(crate) const INHERIT: Timeout = Timeout(u64::MAX);
    /// For ever.
    pub(crate) const NEVER: Timeout = Timeout(u64::MAX - 1);

    /// A time of its own; more than five centuries is for ever.
    pub(crate) fn after(duration: Duration) -> Timeout {
        Timeout(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(Timeout::NEVER.0))
    }

    /// The time, if there is one.
    pub(crate) fn resolve(self, inherited: Duration) -> Option<Duration> {
        match self {
            Timeout::INHERIT => Some(inherited),
            Timeout::NEVER => None,
            Timeout(nanos) => Some(Duration::from_nanos(nanos)),
        }
    }
}
