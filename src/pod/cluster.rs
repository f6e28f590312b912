//! The cluster as the pod sees it: a copy of the records for other threads, made by the control thread.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use crate::base::PodUid;
use crate::control::records::PodState;
use crate::control::view::ClusterView;
use crate::sharding::ShardTable;

/// A pod that is registered in the cluster, of any role.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredPod {
    /// Which run of which pod it is.
    pub uid: PodUid,
    /// Where it accepts links.
    pub address: String,
    /// Version of its program, as operators name it.
    pub version: String,
    /// Its pool of shards.
    pub role: String,
    /// Where it is in its life.
    pub state: PodState,
    /// Whether an admin ordered that it gets no further shards.
    pub cordoned: bool,
    /// Whether an admin ordered that it gives its shards away.
    pub drained: bool,
    /// Number of its cores.
    pub cores: u16,
    /// Its share relative to other pods.
    pub weight: u32,
    /// Shards that it owns.
    pub shards: u32,
    /// Shards that are planned for it.
    pub planned: u32,
    /// Whether it makes the plan of the cluster.
    pub manager: bool,
}

impl RegisteredPod {
    /// The state in one word, with the orders of the admin.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self.state {
            PodState::Draining => "stopping",
            _ if self.drained => "draining",
            _ if self.cordoned => "cordoned",
            PodState::Joining => "joining",
            PodState::Active => "active",
        }
    }
}

/// What the control thread shares with other threads.
pub(super) struct Shared {
    pub uid: Mutex<PodUid>,
    pub table: Mutex<Arc<ShardTable>>,
    pub registered: Mutex<Arc<Vec<RegisteredPod>>>,
    /// Until when the cores may serve.
    pub validity: Arc<AtomicU64>,
}

impl Shared {
    pub fn uid(&self) -> PodUid {
        *self.uid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn table(&self) -> Arc<ShardTable> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn registered(&self) -> Arc<Vec<RegisteredPod>> {
        Arc::clone(&self.registered.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// All pods of all roles, in the order of their registration.
pub(super) fn registered_pods(view: &ClusterView) -> Vec<RegisteredPod> {
    let manager = view.manager();
    let mut pods = Vec::new();
    for (name, role) in &view.roles {
        let mut shards: BTreeMap<PodUid, (u32, u32)> = BTreeMap::new();
        for owner in role.owners.values() {
            shards.entry(owner.record.owner).or_default().0 += 1;
        }
        for planned in role.pages.values().flat_map(|page| &page.record.shards).filter_map(|planned| planned.owner) {
            shards.entry(planned).or_default().1 += 1;
        }
        for (uid, pod) in &role.pods {
            let order = role.orders.get(uid).map(|order| order.record).unwrap_or_default();
            let entry = &pod.record;
            let (owned, planned) = shards.get(uid).copied().unwrap_or_default();
            let registered = RegisteredPod {
                uid: *uid,
                address: entry.address.clone(),
                version: entry.version.clone(),
                role: name.clone(),
                state: entry.state,
                cordoned: order.cordon,
                drained: order.drain,
                cores: entry.cores,
                weight: entry.weight,
                shards: owned,
                planned,
                manager: manager.is_some() && pod.lease == manager,
            };
            pods.push((pod.create_revision, registered));
        }
    }
    pods.sort_by_key(|(created, _)| *created);
    pods.into_iter().map(|(_, pod)| pod).collect()
}
