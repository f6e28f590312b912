//! Questions that a client asks a pod: calls in JSON, and looks inside.
//!
//! Called by `client` on a core, from a task. The answers come back as control messages under the key of a
//! [`Reply`](crate::entity::reply::Reply).

use core::time::Duration;

use super::core::Core;
use super::routes::Routes;
use crate::base::ClusterError;
use crate::base::hash::entity_hash;
use crate::entity::reply::Reply;
use crate::wire::control::JsonCall;
use crate::wire::{ControlMessage, Inspect, JsonOutcome};

impl Core {
    /// The ways out, for tasks that ask questions.
    pub(crate) fn routes(&self) -> std::rc::Rc<Routes> {
        std::rc::Rc::clone(&self.routes)
    }
}

impl Routes {
    /// Calls a message by name, in JSON.
    ///
    /// # Errors
    /// If there is no way to the entity's pod within the timeout, or the pod does not answer.
    pub(crate) async fn call_json(
        &self,
        mut call: JsonCall,
        hash_seed: u64,
        timeout: Duration,
    ) -> Result<JsonOutcome, ClusterError> {
        let hash = entity_hash(hash_seed, call.entity_id.as_bytes());
        call.timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let reply = crate::entity::Host::with_current(|host| {
            host.map(|host| Reply::<JsonOutcome>::new(host, timeout)).ok_or(ClusterError::Stopped)
        })?;
        let correlation = reply.key().to_number();
        self.when_linked(timeout, || {
            let now = crate::entity::Host::with_current(|host| host.map(crate::entity::Host::now))?;
            let link = self.link_for_hash(hash, now)?;
            self.write_control(&link, correlation, &ControlMessage::JsonCall(call.clone()));
            reply.is_behind(link.id);
            Some(())
        })
        .await?;
        reply.await
    }

    /// Asks any pod about the cluster; the answer is JSON.
    ///
    /// # Errors
    /// If no pod can be reached within the timeout, or it does not answer.
    pub(crate) async fn inspect(&self, question: Inspect, timeout: Duration) -> Result<String, ClusterError> {
        let reply = crate::entity::Host::with_current(|host| {
            host.map(|host| Reply::<String>::new(host, timeout)).ok_or(ClusterError::Stopped)
        })?;
        let correlation = reply.key().to_number();
        self.when_linked(timeout, || {
            let link = self.any_open_link()?;
            self.write_control(&link, correlation, &ControlMessage::InspectRequest { question: question.clone() });
            reply.is_behind(link.id);
            Some(())
        })
        .await?;
        reply.await
    }

    /// Tries again whenever a way opens.
    async fn when_linked(
        &self,
        timeout: Duration,
        mut attempt: impl FnMut() -> Option<()>,
    ) -> Result<(), ClusterError> {
        let mut deadline = core::pin::pin!(crate::entity::sleep(timeout));
        core::future::poll_fn(|context| {
            if attempt().is_some() {
                return core::task::Poll::Ready(Ok(()));
            }
            self.wait_with_question(context.waker());
            deadline.as_mut().poll(context).map(|()| Err(ClusterError::SendTimeout))
        })
        .await
    }
}
