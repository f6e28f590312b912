//! What an admin orders: cordon or drain a pod, take that back, one round of rebalancing now.
//!
//! A part of the machine of [`super::membership`]; called with [`super::ControlEvent::Order`]. An order is a record: it
//! survives the pod that was asked, and the manager acts on it when it sees it. An order about a pod lies under the
//! lease of that pod and goes with it.

use super::keys::RecordKey;
use super::membership::{ControlNotice, PodControl, Purpose, Step};
use super::records::{self, PodEntry, PodOrder, RebalanceOrder};
use super::store::{Compare, Operation, StoreRequest, StoreResponse, Transaction};
use super::view::Stored;
use crate::base::{Nanos, PodUid};

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The pod keeps its shards and gets no further ones.
    Cordon(PodUid),
    /// The pod gives its shards away and gets no further ones.
    Drain(PodUid),
    /// Takes both back.
    Uncordon(PodUid),
    /// A round of rebalancing of the role, now instead of at the next interval.
    Rebalance(String),
}

/// Why an order was not given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// There is no such pod.
    #[error("there is no pod {0} any more; `atoll ctl pods` lists them")]
    UnknownPod(PodUid),
    /// There is no such role.
    #[error("there is no role {0:?} in this cluster")]
    UnknownRole(String),
    /// The asked pod cannot reach the store, or has not joined.
    #[error("the asked pod is not in touch with the store at the moment; ask again, or ask another pod")]
    NotMember,
    /// The store did not do it.
    #[error("the store did not take the order ({0}); ask again")]
    Store(String),
}

impl PodControl {
    pub(super) fn on_order(&mut self, ticket: u64, order: Order, now: Nanos) {
        match self.order_transaction(&order, now) {
            Ok(transaction) => {
                self.request(Purpose::Order(ticket), StoreRequest::Transaction(transaction), now);
            }
            Err(error) => self.notice(ControlNotice::Ordered { ticket, outcome: Err(error) }),
        }
    }

    pub(super) fn on_order_response(&mut self, ticket: u64, response: StoreResponse) {
        let outcome = match response {
            StoreResponse::Transaction { succeeded: true, revision } => {
                self.await_revision(revision);
                Ok(())
            }
            StoreResponse::Failed(error) => Err(OrderError::Store(error.to_string())),
            _ => Err(OrderError::Store("the pod or its orders changed meanwhile".to_owned())),
        };
        self.notice(ControlNotice::Ordered { ticket, outcome });
    }

    fn order_transaction(&self, order: &Order, now: Nanos) -> Result<Transaction, OrderError> {
        if self.current_step() != Step::Member || self.is_frozen() {
            return Err(OrderError::NotMember);
        }
        match order {
            Order::Cordon(uid) => self.pod_order(*uid, |order| order.cordon = true),
            Order::Drain(uid) => self.pod_order(*uid, |order| order.drain = true),
            Order::Uncordon(uid) => {
                let (role, _) = self.registered_pod(*uid).ok_or(OrderError::UnknownPod(*uid))?;
                let key = self.keys.key(RecordKey::PodOrder(role, *uid));
                Ok(Transaction { compares: Vec::new(), operations: vec![Operation::Delete(key)] })
            }
            Order::Rebalance(role) => {
                if self.view.role(role).is_none() {
                    return Err(OrderError::UnknownRole(role.clone()));
                }
                let key = self.keys.key(RecordKey::Rebalance(role));
                let value = records::encode(RebalanceOrder { since_unix_ms: self.config.unix_ms(now) });
                let operations = vec![Operation::Put { key, value, lease: None }];
                Ok(Transaction { compares: Vec::new(), operations })
            }
        }
    }

    fn pod_order(&self, uid: PodUid, change: impl FnOnce(&mut PodOrder)) -> Result<Transaction, OrderError> {
        let (role, pod) = self.registered_pod(uid).ok_or(OrderError::UnknownPod(uid))?;
        let key = self.keys.key(RecordKey::PodOrder(role, uid));
        let before = self.view.role(role).and_then(|role| role.orders.get(&uid));
        let unchanged = match before {
            Some(before) => Compare::ModRevision(key.clone(), before.mod_revision),
            None => Compare::Absent(key.clone()),
        };
        let mut order = before.map(|before| before.record).unwrap_or_default();
        change(&mut order);
        let registered = Compare::CreateRevision(self.keys.key(RecordKey::Pod(role, uid)), pod.create_revision);
        let operations = vec![Operation::Put { key, value: records::encode(order), lease: pod.lease }];
        Ok(Transaction { compares: vec![registered, unchanged], operations })
    }

    fn registered_pod(&self, uid: PodUid) -> Option<(&str, &Stored<PodEntry>)> {
        self.view.roles.iter().find_map(|(name, role)| Some((name.as_str(), role.pods.get(&uid)?)))
    }
}
