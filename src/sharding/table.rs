//! The table of one role: shard → (pod, core, token), immutable, replaced as a whole by one with a newer epoch.
//!
//! `control` builds it from the records of the store; a link hands it to other pods and clients as
//! [parts](TableParts), which are checked again by [`ShardTable::from_parts`]. Invariants of a [`ShardTable`]: it has
//! one owner entry for each shard; every owner is one of its pods and names one of that pod's cores; all its pods have
//! its role and different uids. Two tables of a role with the same epoch are equal.

use crate::base::hash::shard_of_hash;
use crate::base::limits::{NAME_BYTES_MAX, NUMBER_OF_SHARDS_MAX};
use crate::base::{CoreIndex, Epoch, PodIndex, PodUid, ShardId, Token};

/// Most pods of one table: far above the largest installation, and below [`Owner::NONE`]'s index.
pub const PODS_MAX: usize = 4096;
/// Longest address of a pod: a DNS name (253 bytes) and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;
/// Most cores of a pod: bounds what a table can make a sender set up.
pub const CORES_MAX: u16 = 1024;

/// A pod as a sender needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// Identity of the process.
    pub uid: PodUid,
    /// Host and port where its cores are reached.
    pub address: String,
    /// Number of its cores, at least 1.
    pub cores: u16,
    /// Version of the program, for rolling updates.
    pub version: String,
    /// The role whose shards it hosts.
    pub role: String,
}

/// Where a shard lives. 16 bytes: a core's copy of the largest table is one megabyte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Fencing token of the ownership: larger for each later owner.
    pub token: Token,
    /// Position of the owning pod in the table.
    pub pod: PodIndex,
    /// The core of that pod.
    pub core: CoreIndex,
}

const _: () = assert!(size_of::<Owner>() == 16);

impl Owner {
    /// The entry of a shard that nobody owns.
    pub const NONE: Owner = Owner { token: Token(0), pod: PodIndex(u16::MAX), core: CoreIndex(0) };

    /// Whether nobody owns the shard.
    #[inline]
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.pod == Owner::NONE.pod
    }
}

/// The plain contents of a table, for a frame that carries it. May hold anything until it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableParts {
    /// The role.
    pub role: String,
    /// Version of the table.
    pub epoch: Epoch,
    /// Seed of the entity hash.
    pub hash_seed: u64,
    /// Number of shards of the role.
    pub number_of_shards: u32,
    /// The pods of the role.
    pub pods: Vec<PodRecord>,
    /// One entry for each shard, [`Owner::NONE`] where nobody owns it.
    pub owners: Vec<Owner>,
}

/// Why parts do not make a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTable {
    /// The number of shards is zero or too large.
    #[error("a role has 1 to {NUMBER_OF_SHARDS_MAX} shards, this one has {0}")]
    NumberOfShards(u32),
    /// There is not one entry for each shard.
    #[error("the table has {owners} owner entries for {shards} shards")]
    OwnerCount {
        /// Number of shards.
        shards: u32,
        /// Number of entries.
        owners: usize,
    },
    /// Too many pods.
    #[error("a table has at most {PODS_MAX} pods, this one has {0}")]
    PodCount(usize),
    /// A pod appears twice.
    #[error("the pod {0} appears twice in the table")]
    DuplicatePod(PodUid),
    /// A pod has no cores or too many, another role, or an empty or too long text.
    #[error("the record of pod {uid} is not usable: {what}")]
    Pod {
        /// The pod.
        uid: PodUid,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The name of the role is empty or too long.
    #[error("the name of a role has 1 to {NAME_BYTES_MAX} bytes")]
    Role,
    /// A shard's owner is not a pod of the table, is a core that the pod does not have, or has no token.
    #[error("the owner entry of shard {shard} is not usable: {what}")]
    Owner {
        /// The shard.
        shard: u32,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Who owns each shard of a role at one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardTable {
    parts: TableParts,
    /// Sorted by uid.
    by_uid: Vec<(PodUid, PodIndex)>,
}

impl ShardTable {
    /// Checks parts from outside and makes a table of them.
    ///
    /// # Errors
    /// If an invariant of the [module](self) does not hold.
    pub fn from_parts(parts: TableParts) -> Result<ShardTable, InvalidTable> {
        if parts.role.is_empty() || parts.role.len() > NAME_BYTES_MAX {
            return Err(InvalidTable::Role);
        }
        let shards = parts.number_of_shards;
        if shards == 0 || shards > NUMBER_OF_SHARDS_MAX {
            return Err(InvalidTable::NumberOfShards(shards));
        }
        if parts.owners.len() != shards as usize {
            return Err(InvalidTable::OwnerCount { shards, owners: parts.owners.len() });
        }
        let by_uid = check_pods(&parts)?;
        for (shard, owner) in parts.owners.iter().enumerate() {
            if let Some(what) = owner_fault(owner, &parts.pods) {
                return Err(InvalidTable::Owner { shard: shard as u32, what });
            }
        }
        Ok(ShardTable { parts, by_uid })
    }

    /// The plain contents, for a frame.
    #[must_use]
    pub fn parts(&self) -> &TableParts {
        &self.parts
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.parts.role
    }

    /// Version of the table.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.parts.epoch
    }

    /// Seed of the entity hash.
    #[inline]
    #[must_use]
    pub fn hash_seed(&self) -> u64 {
        self.parts.hash_seed
    }

    /// Number of shards, at least 1.
    #[must_use]
    pub fn number_of_shards(&self) -> u32 {
        self.parts.number_of_shards
    }

    /// The pods of the role; a [`PodIndex`] is a position in it.
    #[must_use]
    pub fn pods(&self) -> &[PodRecord] {
        &self.parts.pods
    }

    /// One entry for each shard.
    #[must_use]
    pub fn owners(&self) -> &[Owner] {
        &self.parts.owners
    }

    /// The shard of an entity hash.
    #[inline]
    #[must_use]
    pub fn shard_of(&self, hash: u64) -> ShardId {
        shard_of_hash(hash, self.parts.number_of_shards)
    }

    /// The owner of a shard; `None` if nobody owns it or it does not exist.
    #[inline]
    #[must_use]
    pub fn owner(&self, shard: ShardId) -> Option<Owner> {
        self.parts.owners.get(shard.0 as usize).copied().filter(|owner| !owner.is_none())
    }

    /// The pod at a position.
    #[inline]
    #[must_use]
    pub fn pod(&self, index: PodIndex) -> Option<&PodRecord> {
        self.parts.pods.get(usize::from(index.0))
    }

    /// The position of a pod.
    #[must_use]
    pub fn pod_index_of(&self, uid: PodUid) -> Option<PodIndex> {
        let at = self.by_uid.binary_search_by_key(&uid, |(uid, _)| *uid).ok()?;
        self.by_uid.get(at).map(|(_, index)| *index)
    }

    /// Whether this table takes the place of `other`: same role, later epoch.
    #[must_use]
    pub fn is_newer_than(&self, other: &ShardTable) -> bool {
        self.parts.role == other.parts.role && self.parts.epoch > other.parts.epoch
    }
}

fn check_pods(parts: &TableParts) -> Result<Vec<(PodUid, PodIndex)>, InvalidTable> {
    if parts.pods.len() > PODS_MAX {
        return Err(InvalidTable::PodCount(parts.pods.len()));
    }
    let mut by_uid = Vec::with_capacity(parts.pods.len());
    for (index, pod) in parts.pods.iter().enumerate() {
        if let Some(what) = pod_fault(pod, &parts.role) {
            return Err(InvalidTable::Pod { uid: pod.uid, what });
        }
        by_uid.push((pod.uid, PodIndex(index as u16)));
    }
    by_uid.sort_unstable();
    for pair in by_uid.windows(2) {
        if pair[0].0 == pair[1].0 {
            return Err(InvalidTable::DuplicatePod(pair[0].0));
        }
    }
    Ok(by_uid)
}

fn pod_fault(pod: &PodRecord, role: &str) -> Option<&'static str> {
    if pod.role != role {
        Some("it has another role than the table")
    } else if pod.cores == 0 || pod.cores > CORES_MAX {
        Some("it has no cores, or more than a pod may have")
    } else if pod.address.is_empty() || pod.address.len() > ADDRESS_BYTES_MAX {
        Some("its address is empty or too long")
    } else if pod.version.len() > NAME_BYTES_MAX {
        Some("its version is too long")
    } else {
        None
    }
}

fn owner_fault(owner: &Owner, pods: &[PodRecord]) -> Option<&'static str> {
    if owner.is_none() {
        return (*owner != Owner::NONE).then_some("nobody owns it, yet it has a token or a core");
    }
    let Some(pod) = pods.get(usize::from(owner.pod.0)) else {
        return Some("its pod is not in the table");
    };
    if owner.core.0 >= pod.cores {
        Some("its pod does not have this core")
    } else if owner.token == Token(0) {
        Some("it has no token")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: u128) -> PodRecord {
        PodRecord {
            uid: PodUid(uid),
            address: format!("10.0.0.{uid}:7500"),
            cores: 2,
            version: "1.0.0".into(),
            role: "default".into(),
        }
    }

    fn owner(pod: u16, core: u16) -> Owner {
        Owner { token: Token(7), pod: PodIndex(pod), core: CoreIndex(core) }
    }

    fn parts() -> TableParts {
        TableParts {
            role: "default".into(),
            epoch: Epoch(5),
            hash_seed: 9,
            number_of_shards: 4,
            pods: vec![pod(8), pod(3)],
            owners: vec![owner(0, 0), owner(1, 1), Owner::NONE, owner(1, 0)],
        }
    }

    fn refused(change: impl FnOnce(&mut TableParts)) -> InvalidTable {
        let mut parts = parts();
        change(&mut parts);
        ShardTable::from_parts(parts).expect_err("refused")
    }

    #[test]
    fn owners_and_pods_are_found() {
        let table = ShardTable::from_parts(parts()).expect("valid");
        assert_eq!(table.owner(ShardId(1)), Some(owner(1, 1)));
        assert_eq!(table.owner(ShardId(2)), None);
        assert_eq!(table.owner(ShardId(4)), None);
        assert_eq!(table.pod_index_of(PodUid(3)), Some(PodIndex(1)));
        assert_eq!(table.pod_index_of(PodUid(4)), None);
        assert_eq!(table.pod(PodIndex(0)).map(|pod| pod.uid), Some(PodUid(8)));
        assert_eq!(table.pod(PodIndex(2)), None);
        assert_eq!(table.shard_of(u64::MAX), ShardId(3));
        assert_eq!(ShardTable::from_parts(table.parts().clone()), Ok(table));
    }

    #[test]
    fn only_a_later_epoch_of_the_same_role_replaces_a_table() {
        let older = ShardTable::from_parts(parts()).expect("valid");
        let newer = ShardTable::from_parts(TableParts { epoch: Epoch(6), ..parts() }).expect("valid");
        assert!(newer.is_newer_than(&older));
        assert!(!older.is_newer_than(&newer) && !older.is_newer_than(&older));
        let mut other = TableParts { epoch: Epoch(9), role: "other".into(), ..parts() };
        for pod in &mut other.pods {
            pod.role = "other".into();
        }
        assert!(!ShardTable::from_parts(other).expect("valid").is_newer_than(&older));
    }

    #[test]
    fn bad_parts_are_refused() {
        assert_eq!(refused(|parts| parts.number_of_shards = 0), InvalidTable::NumberOfShards(0));
        assert_eq!(refused(|parts| parts.number_of_shards = 65_537), InvalidTable::NumberOfShards(65_537));
        assert_eq!(refused(|parts| parts.number_of_shards = 5), InvalidTable::OwnerCount { shards: 5, owners: 4 });
        assert_eq!(refused(|parts| parts.role = String::new()), InvalidTable::Role);
        assert_eq!(refused(|parts| parts.pods[1].uid = PodUid(8)), InvalidTable::DuplicatePod(PodUid(8)));
        assert!(matches!(refused(|parts| parts.pods = vec![pod(1); PODS_MAX + 1]), InvalidTable::PodCount(_)));
        assert!(matches!(refused(|parts| parts.pods[0].cores = 0), InvalidTable::Pod { .. }));
        assert!(matches!(refused(|parts| parts.pods[0].role = "x".into()), InvalidTable::Pod { .. }));
        assert!(matches!(refused(|parts| parts.pods[0].address = "x".repeat(300)), InvalidTable::Pod { .. }));
        assert!(matches!(refused(|parts| parts.owners[0].pod = PodIndex(2)), InvalidTable::Owner { shard: 0, .. }));
        assert!(matches!(refused(|parts| parts.owners[0].core = CoreIndex(2)), InvalidTable::Owner { shard: 0, .. }));
        assert!(matches!(refused(|parts| parts.owners[0].token = Token(0)), InvalidTable::Owner { shard: 0, .. }));
        assert!(matches!(refused(|parts| parts.owners[2].token = Token(1)), InvalidTable::Owner { shard: 2, .. }));
    }
}
