//! Questions that a client asks a pod: calls in JSON, and looks inside.
//!
//! Called by `client` on a core, from a task. The answers come back as control messages under the key of a
//! [`Reply`](crate::entity::reply::Reply); whoever stops waiting cancels its question as it would an ask. Invariant: a
//! link has at most [`LINK_QUESTIONS_MAX`] questions without an answer; further ones wait here, each for its own time.

use core::time::Duration;

use super::core::Core;
use super::link::Link;
use super::routes::Routes;
use crate::base::hash::entity_hash;
use crate::base::limits::{LINK_QUESTIONS_MAX, REFUSED_CALL_PAUSE};
use crate::base::{ClusterError, Nanos};
use crate::entity::Host;
use crate::entity::reply::Reply;
use crate::wire::control::JsonCall;
use crate::wire::{ControlMessage, Inspect, JsonOutcome};

impl Core {
    /// The ways out, for tasks that ask questions.
    pub fn routes(&self) -> std::rc::Rc<Routes> {
        std::rc::Rc::clone(&self.routes)
    }
}

impl Routes {
    /// Calls a message by name, in JSON. The owner learns how much of the timeout is left (`call.timeout_ms` does not
    /// matter); when it is over, or the future is dropped, the call is cancelled there. A call that an owner refused
    /// before it began, since its shard is on its way or elsewhere, follows the shard.
    ///
    /// # Errors
    /// If there is no way to the entity's pod within the timeout, the pod does not answer, or the call is larger than a
    /// frame may be.
    pub async fn call_json(
        &self,
        mut call: JsonCall,
        hash_seed: u64,
        timeout: Duration,
    ) -> Result<JsonOutcome, ClusterError> {
        let hash = entity_hash(hash_seed, call.entity_id.as_bytes());
        let deadline = on_host(|host| host.now() + timeout)?;
        loop {
            match self.call_json_once(&mut call, hash, deadline).await? {
                // The owner looked at the clock first.
                JsonOutcome::Failed { code, .. } if code == ClusterError::SendTimeout.code() => {
                    return Err(ClusterError::SendTimeout);
                }
                JsonOutcome::Failed { code, .. } if code == ClusterError::Busy.code() => {
                    self.when_table_is_newer(hash, deadline).await?;
                }
                outcome => return Ok(outcome),
            }
        }
    }

    /// Sends a call to the owner, as far as is known, and waits for what it says.
    async fn call_json_once(
        &self,
        call: &mut JsonCall,
        hash: u64,
        deadline: Nanos,
    ) -> Result<JsonOutcome, ClusterError> {
        let left = on_host(|host| deadline.since(host.now()))?;
        let reply = on_host(|host| Reply::<JsonOutcome>::new(host, left))?;
        self.when_linked(left, || {
            let now = Host::with_current(|host| host.map(Host::now))?;
            if now >= deadline {
                return Some(Err(ClusterError::SendTimeout));
            }
            let link = self.link_for_hash(hash, now)?;
            call.timeout_ms = whole_milliseconds(deadline.since(now));
            self.ask_over(&link, &reply, || ControlMessage::JsonCall(call.clone()))
        })
        .await?;
        reply.await
    }

    /// Waits until a newer table came, or for [`REFUSED_CALL_PAUSE`]: the table may be there, and its owner not ready.
    async fn when_table_is_newer(&self, hash: u64, deadline: Nanos) -> Result<(), ClusterError> {
        let epoch = || self.table.borrow().as_ref().map(|table| table.epoch());
        let (refused_by, now) = (epoch(), on_host(Host::now)?);
        if let Some(link) = self.link_for_hash(hash, now) {
            self.ask_for_table(&link);
        }
        let mut pause = core::pin::pin!(crate::entity::sleep(REFUSED_CALL_PAUSE.min(deadline.since(now))));
        core::future::poll_fn(|context| {
            if epoch() != refused_by {
                return core::task::Poll::Ready(());
            }
            self.wait_with_question(context.waker());
            pause.as_mut().poll(context)
        })
        .await;
        let over = on_host(|host| host.now() >= deadline)?;
        if over { Err(ClusterError::SendTimeout) } else { Ok(()) }
    }

    /// Asks any pod about the cluster; the answer is JSON.
    ///
    /// # Errors
    /// If no pod can be reached within the timeout, or it does not answer.
    pub(crate) async fn inspect(&self, question: Inspect, timeout: Duration) -> Result<String, ClusterError> {
        let reply = on_host(|host| Reply::<String>::new(host, timeout))?;
        self.when_linked(timeout, || {
            let link = self.any_open_link()?;
            self.ask_over(&link, &reply, || ControlMessage::InspectRequest { question: question.clone() })
        })
        .await?;
        reply.await
    }

    /// Sends a question. `None` if the link has enough of them.
    fn ask_over<T: 'static>(
        &self,
        link: &Link,
        reply: &Reply<T>,
        question: impl FnOnce() -> ControlMessage,
    ) -> Option<Result<(), ClusterError>> {
        if link.asked.get() >= LINK_QUESTIONS_MAX {
            return None;
        }
        let written = self.try_write_control(link, reply.key().to_number(), &question());
        if written.is_ok() {
            link.asked.set(link.asked.get() + 1);
            reply.is_behind(link.id);
        }
        Some(written)
    }

    /// A question was answered, whether somebody still waits for that or not.
    pub(super) fn question_answered(&self, link: &Link) {
        let asked = link.asked.get();
        link.asked.set(asked.saturating_sub(1));
        if asked >= LINK_QUESTIONS_MAX {
            self.wake_due.set(true);
        }
    }

    /// Tries again whenever a way opens.
    async fn when_linked(
        &self,
        timeout: Duration,
        mut attempt: impl FnMut() -> Option<Result<(), ClusterError>>,
    ) -> Result<(), ClusterError> {
        let mut deadline = core::pin::pin!(crate::entity::sleep(timeout));
        core::future::poll_fn(|context| {
            if let Some(sent) = attempt() {
                return core::task::Poll::Ready(sent);
            }
            self.wait_with_question(context.waker());
            deadline.as_mut().poll(context).map(|()| Err(ClusterError::SendTimeout))
        })
        .await
    }
}

/// Looks at the host of this core.
fn on_host<R>(look: impl FnOnce(&Host) -> R) -> Result<R, ClusterError> {
    Host::with_current(|host| host.map(look)).ok_or(ClusterError::Stopped)
}

/// A time as the owner is told it: rounded up, since zero stands for another one.
fn whole_milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_is_never_told_as_none() {
        assert_eq!(whole_milliseconds(Duration::ZERO), 1);
        assert_eq!(whole_milliseconds(Duration::from_nanos(1)), 1);
        assert_eq!(whole_milliseconds(Duration::from_millis(5)), 5);
        assert_eq!(whole_milliseconds(Duration::from_micros(5_001)), 6);
        assert_eq!(whole_milliseconds(Duration::MAX), u32::MAX);
    }
}
