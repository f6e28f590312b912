//! Entities: typed messages, turn × borrow, life cycle, and the host that runs them on one core.
//!
//! Called by user code (through the generated references), by `engine` (messages from elsewhere) and by the shells
//! (foreign threads). Invariants are stated in `host.rs`; unsafe code lives in `pool`, `cell`, `mailbox`, `slot`,
//! `dispatch`, `host`, `hosting`, `stopping`, `ownership`, `pending`, `ask` and `scope`, which together keep the memory
//! of one core.

mod ask;
mod call;
mod callers;
mod cell;
mod dispatch;
pub mod foreign;
mod gate;
mod host;
mod hosting;
mod in_place;
mod incoming;
mod infallible;
mod intercepted;
mod interceptor;
mod lifecycle;
mod mailbox;
mod message;
pub(crate) mod messenger;
mod options;
mod ownership;
mod pending;
pub(crate) mod pool;
#[cfg_attr(not(feature = "runtime"), allow(dead_code, reason = "awaits the answers to questions of clients"))]
pub(crate) mod reply;
pub(crate) mod router;
mod scope;
mod slot;
mod stopping;
mod view;

pub use ask::{Ask, Discard};
pub use call::{Call, CallChain, PendingKey, ReplyTo};
pub use cell::WakeTarget;
pub use dispatch::{Answer, AnswerVtable, MessageVtable, Method};
pub use host::{Entered, Host, HostCounters, HostOptions};
pub use hosting::{Delivered, Delivery, TypeHost};
pub use in_place::HandlerCall;
pub use infallible::Infallible;
pub use interceptor::{
    AnyInterceptor, AnyNext, AnyOutcome, AroundEntity, Both, EntityContext, EntityInterceptor, Intercepted, Next,
};
pub use lifecycle::{Entity, StartError, StopReason};
pub use message::{
    Access, EntityRef, HandledExclusive, HandledShared, Message, MethodInfo, Outcome, Protocol, Serves, Tell,
};
pub use messenger::{EntityTarget, Messenger, SendStreamError};
pub use options::{EntityDefaults, EntityOptions};
pub use ownership::{Clock, Lease};
pub use pending::Location;
pub use router::{Encode, Outbound, Router, Sent};
pub use scope::{FenceError, Gone, Scope, Sleep, sleep, spawn};
pub use view::{ReadInBlock, ReadInPlace, View, ViewOf};
