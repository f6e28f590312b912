//! The values of the records, as JSON with a version: a person can read them, and a later version can add fields.
//!
//! A record of a later version than [`RECORD_VERSION`] is not read but reported, so that an old pod never acts on
//! half of what it says. Fields that are not known are ignored. The keys are in [`super::keys`].

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::keys::parse_uid;
use crate::base::PodUid;

/// The version of all records.
pub const RECORD_VERSION: u16 = 1;

/// Why a value is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// It was written by a later version.
    #[error("it has version {0}, this program knows version {RECORD_VERSION}; use a newer program")]
    LaterVersion(u16),
    /// It is not what it should be.
    #[error("it is damaged: {0}")]
    Damaged(String),
}

/// Binds a store that serves one cluster to its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// The name of the cluster.
    pub cluster: String,
}

/// What holds for the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaRecord {
    /// The name of the cluster.
    pub cluster: String,
    /// Added to a revision of the store to make a token or an epoch. It grows when the cluster moves to another store.
    pub token_base: u64,
    /// Wall-clock time of creation, for people.
    pub created_unix_ms: u64,
}

/// What holds for all pods of a role. It never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRecord {
    /// Number of shards.
    pub number_of_shards: u32,
    /// Name of the entity hash.
    pub hash: String,
    /// Its seed.
    pub hash_seed: u64,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodState {
    /// Registered, takes no shards yet.
    Joining,
    /// Takes shards.
    Active,
    /// Gives its shards away and stops.
    Draining,
}

/// A pod. Its role and uid are in the key; its create revision says when it registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodEntry {
    /// Host and port where its cores are reached.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Number of its cores.
    pub cores: u16,
    /// Its share of the shards relative to other pods; 0 takes none.
    pub weight: u32,
    /// Failure zone, if the installation has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Where it is in its life.
    pub state: PodState,
}

/// A candidate for the management of the cluster. The one with the smallest create revision is the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerRecord {
    /// The process.
    #[serde(with = "uid_text")]
    pub uid: PodUid,
    /// Its address, for people.
    pub address: String,
    /// Its version, for people.
    pub version: String,
}

/// Who should own a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedShard {
    /// The pod.
    pub owner: Option<PodUid>,
    /// Whether an admin pinned it there.
    pub pinned: bool,
}

/// A pod that a plan page names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPod {
    /// The pod.
    #[serde(with = "uid_text")]
    pub uid: PodUid,
    /// Its address: tells a new start of a pod that is gone, so that it gets its old shards back.
    pub address: String,
}

/// Who should own the shards of one page. Stored with each pod once, so that a page stays small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredPage", into = "StoredPage")]
pub struct PlanPage {
    /// Counts the changes of the page.
    pub generation: u64,
    /// The pods that it names.
    pub pods: Vec<PlannedPod>,
    /// One entry for each of its shards.
    pub shards: Vec<PlannedShard>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredPage {
    generation: u64,
    pods: Vec<PlannedPod>,
    owners: Vec<Option<u16>>,
    #[serde(default)]
    pinned: Vec<u16>,
}

impl TryFrom<StoredPage> for PlanPage {
    type Error = String;

    fn try_from(stored: StoredPage) -> Result<PlanPage, String> {
        let mut shards = Vec::with_capacity(stored.owners.len());
        for owner in stored.owners {
            let owner = match owner {
                None => None,
                Some(at) => Some(stored.pods.get(usize::from(at)).ok_or("an owner is not among the pods")?.uid),
            };
            shards.push(PlannedShard { owner, pinned: false });
        }
        for at in stored.pinned {
            shards.get_mut(usize::from(at)).ok_or("a pinned shard is not on the page")?.pinned = true;
        }
        Ok(PlanPage { generation: stored.generation, pods: stored.pods, shards })
    }
}

impl From<PlanPage> for StoredPage {
    fn from(page: PlanPage) -> StoredPage {
        let at = |uid| page.pods.iter().position(|pod| pod.uid == uid).map(|at| at as u16);
        StoredPage {
            generation: page.generation,
            owners: page.shards.iter().map(|shard| shard.owner.and_then(at)).collect(),
            pinned: (0_u16..).zip(&page.shards).filter(|(_, shard)| shard.pinned).map(|(at, _)| at).collect(),
            pods: page.pods,
        }
    }
}

/// Who owns a shard. Written by the owner itself, under its lease; its create revision makes the fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnershipRecord {
    /// The owner.
    #[serde(with = "uid_text")]
    pub owner: PodUid,
    /// The core of the owner that serves the shard.
    pub core: u16,
    /// The create revision of the owner's pod record: its incarnation in this store.
    pub pod_revision: u64,
    /// Wall-clock time of the claim, for people.
    pub since_unix_ms: u64,
}

/// An order of an admin about a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodOrder {
    /// It keeps its shards and gets no further ones.
    pub cordon: bool,
    /// It gives its shards away.
    pub drain: bool,
}

/// An order of an admin to keep a shard on a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinOrder {
    /// The pod.
    #[serde(with = "uid_text")]
    pub pod: PodUid,
}

/// An order of an admin to rebalance a role now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceOrder {
    /// Wall-clock time of the order, for people.
    pub since_unix_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u16,
    #[serde(flatten)]
    record: T,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u16,
}

/// The value of a record.
#[must_use]
pub fn encode<T: Serialize>(record: T) -> Vec<u8> {
    // Records have only texts, numbers and lists of them: encoding them to memory has no way to fail.
    serde_json::to_vec(&Versioned { v: RECORD_VERSION, record }).unwrap_or_default()
}

/// Reads a record.
///
/// # Errors
/// If the value is of a later version, or not this record.
pub fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T, RecordError> {
    let damaged = |error: serde_json::Error| RecordError::Damaged(error.to_string());
    let version = serde_json::from_slice::<VersionOnly>(value).map_err(damaged)?.v;
    if version > RECORD_VERSION {
        return Err(RecordError::LaterVersion(version));
    }
    serde_json::from_slice::<Versioned<T>>(value).map(|versioned| versioned.record).map_err(damaged)
}

mod uid_text {
    //! A uid as its 32 hexadecimal digits: JSON numbers do not hold 128 bits.
    use super::{PodUid, parse_uid};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(uid: &PodUid, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(uid)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PodUid, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_uid(&text).ok_or_else(|| D::Error::custom("a pod id has 32 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: Serialize>(record: T) -> String {
        String::from_utf8(encode(record)).expect("text")
    }

    #[test]
    fn stored_values_never_change() {
        let role = RoleRecord { number_of_shards: 8, hash: "xxh3-64".into(), hash_seed: u64::MAX };
        assert_eq!(text(&role), r#"{"v":1,"number_of_shards":8,"hash":"xxh3-64","hash_seed":18446744073709551615}"#);
        assert_eq!(decode(&encode(&role)), Ok(role));
        let own = OwnershipRecord { owner: PodUid(10), core: 1, pod_revision: 4, since_unix_ms: 5 };
        let stored =
            r#"{"v":1,"owner":"0000000000000000000000000000000a","core":1,"pod_revision":4,"since_unix_ms":5}"#;
        assert_eq!(text(&own), stored);
        assert_eq!(decode(stored.as_bytes()), Ok(own));
        let pod = PlannedPod { uid: PodUid(10), address: "a:1".into() };
        let owned = PlannedShard { owner: Some(PodUid(10)), pinned: true };
        let page = PlanPage { generation: 2, pods: vec![pod], shards: vec![PlannedShard::default(), owned] };
        let stored = concat!(
            r#"{"v":1,"generation":2,"pods":[{"uid":"0000000000000000000000000000000a","address":"a:1"}],"#,
            r#""owners":[null,0],"pinned":[1]}"#
        );
        assert_eq!(text(page.clone()), stored);
        assert_eq!(decode(stored.as_bytes()), Ok(page));
    }

    #[test]
    fn later_versions_and_damage_are_told_apart() {
        let later = br#"{"v":2,"cluster":1}"#;
        assert_eq!(decode::<ClusterRecord>(later), Err(RecordError::LaterVersion(2)));
        let bad_owner = br#"{"v":1,"generation":2,"pods":[],"owners":[0]}"#;
        let bad_pin = br#"{"v":1,"generation":2,"pods":[],"owners":[null],"pinned":[3]}"#;
        for damaged in [&b"{"[..], b"", b"[]", br#"{"v":1}"#, bad_owner, bad_pin] {
            assert!(matches!(decode::<PlanPage>(damaged), Err(RecordError::Damaged(_))));
        }
        let with_more = br#"{"v":1,"cluster":"c","later":true}"#;
        assert_eq!(decode(with_more), Ok(ClusterRecord { cluster: "c".into() }));
    }
}
