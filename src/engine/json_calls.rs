//! Calls in JSON, on the core that serves them: like requests, with names instead of numbers.
//!
//! Called by `handshake` with the control message, by `frames` when the caller stops waiting, by `core` when time has
//! passed. A call ends as an ask does: the caller cancels it, its link ends, or the time is over that the caller said it
//! would wait; then its message leaves the mailbox or its handler is dropped, unless it is uninterruptible.
//!
//! Invariants: a call is open from its arrival to its one answer or the end of its link; a link has at most
//! [`LINK_QUESTIONS_MAX`] open, whatever its peer sends; every open call has a deadline.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use super::core::Core;
use super::link::Link;
use super::routes::Routes;
use crate::base::hash::{entity_hash, shard_of_hash};
use crate::base::limits::LINK_QUESTIONS_MAX;
use crate::base::{ClusterError, EntityId, LinkId, Nanos};
use crate::entity::{Call, CallChain, Delivered, Delivery, ReplyTo};
use crate::wire::control::JsonCall;
use crate::wire::{ControlMessage, JsonOutcome};

/// The calls that are not answered, with the time at which nobody waits for them any more.
#[derive(Default)]
pub(super) struct OpenCalls {
    deadlines: RefCell<HashMap<(LinkId, u64), Nanos>>,
    by_deadline: RefCell<BTreeSet<(Nanos, LinkId, u64)>>,
}

impl OpenCalls {
    /// Opens a call. False if its link has one with this correlation already.
    fn open(&self, link: LinkId, correlation: u64, deadline: Nanos) -> bool {
        let mut deadlines = self.deadlines.borrow_mut();
        if deadlines.contains_key(&(link, correlation)) {
            return false;
        }
        deadlines.insert((link, correlation), deadline);
        self.by_deadline.borrow_mut().insert((deadline, link, correlation))
    }

    /// Ends a call. False if it is not open.
    fn close(&self, link: LinkId, correlation: u64) -> bool {
        let Some(deadline) = self.deadlines.borrow_mut().remove(&(link, correlation)) else { return false };
        self.by_deadline.borrow_mut().remove(&(deadline, link, correlation))
    }

    fn is_open(&self, link: LinkId, correlation: u64) -> bool {
        self.deadlines.borrow().contains_key(&(link, correlation))
    }

    fn forget_link(&self, link: LinkId) {
        self.deadlines.borrow_mut().retain(|(of, _), _| *of != link);
        self.by_deadline.borrow_mut().retain(|(_, of, _)| *of != link);
    }

    /// The call that is due first; [`Nanos::NEVER`] without one.
    pub fn next_deadline(&self) -> Nanos {
        self.by_deadline.borrow().first().map_or(Nanos::NEVER, |(deadline, ..)| *deadline)
    }

    /// A call whose time is over.
    fn due(&self, now: Nanos) -> Option<(LinkId, u64)> {
        let first = self.by_deadline.borrow().first().copied();
        first.filter(|(deadline, ..)| *deadline <= now).map(|(_, link, correlation)| (link, correlation))
    }

    fn length(&self) -> u64 {
        self.deadlines.borrow().len() as u64
    }
}

impl Core {
    /// A call came.
    pub(super) fn json_call(&self, link: &Link, correlation: u64, call: &JsonCall) {
        if link.questions.get() >= LINK_QUESTIONS_MAX {
            return self.close_link(link, "questions_max");
        }
        let remaining = match call.timeout_ms {
            0 => self.host.defaults().send_timeout,
            milliseconds => Duration::from_millis(u64::from(milliseconds)),
        };
        if !self.routes.open_calls.open(link.id, correlation, self.host.now() + remaining) {
            return self.close_link(link, "call_twice");
        }
        link.questions.set(link.questions.get() + 1);
        self.routes.count_open_calls();
        let refused = match self.deliver_json(link, correlation, call) {
            Ok(Delivered::Failed(error)) => Err((error, error.to_string())),
            Ok(_) => Ok(()),
            Err(refused) => Err(refused),
        };
        if let Err((error, text)) = refused {
            self.routes.end_json(link.id, correlation, JsonOutcome::Failed { code: error.code(), text });
        }
    }

    /// Ends a call that nobody waits for; true if it was open. It is answered all the same, since the caller counts
    /// its open calls by their answers.
    pub(super) fn cancel_json(&self, link: LinkId, correlation: u64, error: ClusterError) -> bool {
        let open = self.routes.open_calls.is_open(link, correlation);
        if open {
            self.host.cancel_caller(ReplyTo::Json(link, correlation));
            let outcome = JsonOutcome::Failed { code: error.code(), text: error.to_string() };
            self.routes.end_json(link, correlation, outcome);
        }
        open
    }

    /// Ends the calls whose time is over, in case their callers did not say so: they may hang, or be far.
    pub(super) fn end_late_calls(&self, now: Nanos) {
        while let Some((link, correlation)) = self.routes.open_calls.due(now) {
            self.cancel_json(link, correlation, ClusterError::SendTimeout);
        }
    }

    fn deliver_json(
        &self,
        link: &Link,
        correlation: u64,
        call: &JsonCall,
    ) -> Result<Delivered, (ClusterError, String)> {
        let types = self.host.types();
        let Some(type_index) = self.host.type_index(&call.entity_type) else {
            let known: Vec<_> = types.iter().map(|kind| kind.name()).collect();
            let text = format!("there is no entity type `{}` here; there are: {}", call.entity_type, known.join(", "));
            return Err((ClusterError::NotServed, text));
        };
        let methods = types[usize::from(type_index)].methods();
        let Some(method) = methods.iter().find(|method| method.name() == call.method) else {
            let known: Vec<_> = methods.iter().map(|method| method.name()).collect();
            let text = format!("`{}` has no message `{}`; it has: {}", call.entity_type, call.method, known.join(", "));
            return Err((ClusterError::NotServed, text));
        };
        let hash = entity_hash(self.host.hash_seed(), call.entity_id.as_bytes());
        let shard = shard_of_hash(hash, self.host.number_of_shards());
        let id = EntityId::new(&call.entity_id).map_err(|error| (ClusterError::InvalidEntityId, error.to_string()))?;
        if self.is_frozen_now() || self.host.shard_token(shard).is_none() {
            return Err((ClusterError::Busy, "the entity's shard is on its way to another pod; try again".to_owned()));
        }
        let delivery = Delivery {
            type_index,
            hash,
            id: &id,
            method,
            call: Call { reply_to: ReplyTo::Json(link.id, correlation), chain: CallChain::EMPTY },
        };
        self.host
            .deliver_json(&delivery, &call.body)
            .map_err(|text| (ClusterError::Serialization, format!("`{}` does not take this: {text}", call.method)))
    }
}

impl Routes {
    /// Answers a call, if it is open.
    pub(super) fn end_json(&self, id: LinkId, correlation: u64, outcome: JsonOutcome) {
        if !self.open_calls.close(id, correlation) {
            return;
        }
        self.count_open_calls();
        let Some(link) = self.link(id) else { return };
        link.questions.set(link.questions.get().saturating_sub(1));
        if let Err(error) = self.try_write_control(&link, correlation, &ControlMessage::JsonResult { outcome }) {
            let outcome = JsonOutcome::Failed { code: error.code(), text: error.to_string() };
            self.write_control(&link, correlation, &ControlMessage::JsonResult { outcome });
        }
        // What an entity said waits for the lease as all such answers do, though it is in a control frame.
        link.has_messages.set(true);
    }

    /// A link is gone, and with it whoever called over it.
    pub(super) fn forget_calls_of(&self, link: LinkId) {
        self.open_calls.forget_link(link);
        self.count_open_calls();
    }

    fn count_open_calls(&self) {
        self.counters.json_calls_open.store(self.open_calls.length(), Ordering::Relaxed);
    }
}
