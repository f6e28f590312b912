//! What a pod brings along when it joins, and why it may be refused.
//!
//! Called by the assembly of a pod, which fills it from the configuration, and by [`super::membership`].

use core::time::Duration;

use super::keys::{InvalidName, KeySpace, check_name};
use super::records::RecordError;
use super::{LEASE_TTL, LEASE_TTL_MIN, REBALANCE_INTERVAL, REBALANCE_RATE_PER_MILLE, SETTLE};
use crate::base::limits::{NAME_BYTES_MAX, NUMBER_OF_SHARDS, NUMBER_OF_SHARDS_MAX};
use crate::base::{Nanos, PodUid};
use crate::sharding::table::{ADDRESS_BYTES_MAX, CORES_MAX};

/// What a pod says about itself and expects of the cluster.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// The name of the cluster.
    pub cluster: String,
    /// Whether the store serves this cluster only (embedded and served stores): another name is then refused.
    pub one_cluster_store: bool,
    /// The role of the pod.
    pub role: String,
    /// Number of shards of the role.
    pub number_of_shards: u32,
    /// Seed of the entity hash of the role.
    pub hash_seed: u64,
    /// Fresh at each start.
    pub uid: PodUid,
    /// Host and port where the cores are reached.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Number of cores.
    pub cores: u16,
    /// Share of the shards relative to other pods; 0 takes none.
    pub weight: u32,
    /// Failure zone.
    pub zone: Option<String>,
    /// Time to live of the lease.
    pub lease_ttl: Duration,
    /// Whether the pod may become the manager.
    pub may_manage: bool,
    /// Time between two rounds of rebalancing.
    pub rebalance_interval: Duration,
    /// Share of all shards that a pod may gain in a round, in thousandths.
    pub rebalance_rate_per_mille: u32,
    /// How long the manager waits after the loss of a pod.
    pub settle: Duration,
    /// Wall-clock time at [`Nanos::ZERO`], for the times in records that people read.
    pub unix_ms_at_origin: u64,
}

impl ControlConfig {
    /// The defaults for a pod of the role `default` in the cluster `atoll` on a store of its own.
    #[must_use]
    pub fn new(uid: PodUid, address: &str, cores: u16) -> ControlConfig {
        ControlConfig {
            cluster: "atoll".to_owned(),
            one_cluster_store: true,
            role: "default".to_owned(),
            number_of_shards: NUMBER_OF_SHARDS,
            hash_seed: 0,
            uid,
            address: address.to_owned(),
            version: "1.0.0".to_owned(),
            cores,
            weight: 1,
            zone: None,
            lease_ttl: LEASE_TTL,
            may_manage: true,
            rebalance_interval: REBALANCE_INTERVAL,
            rebalance_rate_per_mille: REBALANCE_RATE_PER_MILLE,
            settle: SETTLE,
            unix_ms_at_origin: 0,
        }
    }

    pub(super) fn check(&self) -> Result<KeySpace, Refusal> {
        let keys = KeySpace::new(&self.cluster)?;
        check_name("a role", &self.role)?;
        let fault = if self.number_of_shards == 0 || self.number_of_shards > NUMBER_OF_SHARDS_MAX {
            Some("the number of shards has to be 1 to 65536")
        } else if self.cores == 0 || self.cores > CORES_MAX {
            Some("a pod has 1 to 1024 cores")
        } else if self.address.is_empty() || self.address.len() > ADDRESS_BYTES_MAX {
            Some("the address of the pod is empty or too long")
        } else if self.version.len() > NAME_BYTES_MAX || self.zone.as_ref().is_some_and(|z| z.len() > NAME_BYTES_MAX) {
            Some("the version or the zone is longer than 64 bytes")
        } else if self.lease_ttl < LEASE_TTL_MIN {
            Some("the time to live of the lease is at least 2 s")
        } else {
            None
        };
        fault.map_or(Ok(keys), |fault| Err(Refusal::Config(fault)))
    }

    pub(super) fn unix_ms(&self, now: Nanos) -> u64 {
        self.unix_ms_at_origin.saturating_add(now.0 / 1_000_000)
    }
}

/// Why a pod may not join. Final.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A name is not usable.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// A setting is out of its bounds.
    #[error("{0}")]
    Config(&'static str),
    /// The store serves another cluster.
    #[error("the store serves the cluster {stored:?}, this pod is of {configured:?}; use its name or another store")]
    OtherCluster {
        /// In the store.
        stored: String,
        /// Of this pod.
        configured: String,
    },
    /// The role has another number of shards.
    #[error("the role {role:?} has {stored} shards, this pod is configured for {configured}; they never change")]
    OtherNumberOfShards {
        /// The role.
        role: String,
        /// In the store.
        stored: u32,
        /// Of this pod.
        configured: u32,
    },
    /// The role uses another entity hash.
    #[error(
        "the role {role:?} uses the hash {stored:?}, this program has {configured:?}; use a program with that hash"
    )]
    OtherHash {
        /// The role.
        role: String,
        /// In the store.
        stored: String,
        /// Of this program.
        configured: String,
    },
    /// The role uses another seed.
    #[error(
        "the role {role:?} uses the hash seed {stored}, this pod is configured for {configured}; they never change"
    )]
    OtherHashSeed {
        /// The role.
        role: String,
        /// In the store.
        stored: u64,
        /// Of this pod.
        configured: u64,
    },
    /// The record of the cluster or role cannot be read.
    #[error("the record {key} in the store cannot be used: {error}")]
    Record {
        /// Its key.
        key: String,
        /// Why.
        error: RecordError,
    },
    /// Another process registered with this uid.
    #[error("another process registered as pod {0}; a pod id is made fresh at each start")]
    UidTaken(PodUid),
}
