//! Calls from elsewhere that wait or run on this core, so that they end when nobody waits for them any more.
//!
//! A sender that stops waiting says so, and a link that is gone says so for all behind it. A sender that hangs says
//! nothing: for that each request over a link carries the time that its sender still waits, which counts here too. A
//! message that is not started by then never is, and a handler gets some grace. Called by `hosting` when a message is
//! kept or ends, by the engine for what senders say, by `host` for timers. Invariant: a call is here from when its
//! message is kept to its answer; one whose handler is ready at once, which is most, is never here and costs nothing.

use core::time::Duration;

use super::call::ReplyTo;
use super::host::{Host, TimerKey, add};
use super::pending::Location;
use crate::base::limits::CALLER_GRACE;
use crate::base::timers::TimerId;
use crate::base::{ClusterError, LinkId};

/// A call from elsewhere.
pub(super) struct Caller {
    pub location: Location,
    /// Ends it, in case its sender does not say that it stopped waiting.
    pub timer: Option<TimerId>,
    /// The timer is for the end of the grace.
    has_grace: bool,
}

impl Host {
    pub(super) fn remember_caller(&self, reply_to: ReplyTo, location: Location) {
        match reply_to {
            ReplyTo::Nobody => {}
            ReplyTo::Local(key) => self.pending.set_location(key, location),
            _ => {
                let new = Caller { location, timer: None, has_grace: false };
                self.callers.borrow_mut().entry(reply_to).or_insert(new).location = location;
            }
        }
    }

    pub(super) fn forget_caller(&self, reply_to: ReplyTo) {
        if matches!(reply_to, ReplyTo::Core(..) | ReplyTo::Link(..) | ReplyTo::Json(..)) {
            let caller = self.callers.borrow_mut().remove(&reply_to);
            self.disarm(caller.and_then(|caller| caller.timer));
        }
    }

    /// A sender elsewhere stopped waiting.
    /// True if its message was still here; nobody answers it then.
    pub(crate) fn cancel_caller(&self, reply_to: ReplyTo) -> bool {
        let caller = self.callers.borrow_mut().remove(&reply_to);
        if let Some(caller) = &caller {
            self.disarm(caller.timer);
            self.interrupt(caller.location);
        }
        caller.is_some()
    }

    /// The sender of a request that came over a link waits so long. If it has not said by then that it stopped waiting,
    /// which it may have no chance to, this host ends the request as if it had. Without effect if the request is done.
    pub(crate) fn limit_caller(&self, link: LinkId, correlation: u64, remaining: Duration) {
        let mut callers = self.callers.borrow_mut();
        if let Some(caller) = callers.get_mut(&ReplyTo::Link(link, correlation))
            && caller.timer.is_none()
        {
            // Its sender's clock began earlier, so a message that still waits then is one that nobody waits for.
            caller.has_grace = !matches!(caller.location, Location::Queued(_));
            let grace = if caller.has_grace { CALLER_GRACE } else { Duration::ZERO };
            caller.timer = Some(self.arm(self.now() + remaining + grace, TimerKey::Caller(link, correlation)));
        }
    }

    /// Counts a request that was ended since nobody waits for it any more.
    pub(crate) fn count_expired(&self) {
        add(&self.counters().expired, 1);
    }

    /// The timer of a request fired.
    pub(super) fn caller_is_late(&self, link: LinkId, correlation: u64) {
        let caller = ReplyTo::Link(link, correlation);
        if let Some(late) = self.callers.borrow_mut().get_mut(&caller) {
            late.timer = None;
            if !late.has_grace && !matches!(late.location, Location::Queued(_)) {
                // It was started in time.
                late.has_grace = true;
                late.timer = Some(self.arm(self.now() + CALLER_GRACE, TimerKey::Caller(link, correlation)));
                return;
            }
        }
        if self.cancel_caller(caller) {
            self.count_expired();
            self.router().fail_link(link, correlation, ClusterError::SendTimeout);
        }
    }

    /// A link is gone: nobody waits behind it any more.
    pub(crate) fn cancel_callers_of(&self, link: LinkId) {
        let gone: Vec<ReplyTo> = self
            .callers
            .borrow()
            .keys()
            .filter(|caller| matches!(caller, ReplyTo::Link(of, _) | ReplyTo::Json(of, _) if *of == link))
            .copied()
            .collect();
        for caller in gone {
            self.cancel_caller(caller);
        }
    }
}
