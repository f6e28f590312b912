//! Where each record is stored: the layout of the keys, the same in every store.
//!
//! With `P = /atoll/{cluster}/v1`:
//!
//! | key | record | writer | lease |
//! | --- | --- | --- | --- |
//! | `/atoll/cluster` | the one cluster of a store that is not shared | first pod | no |
//! | `P/meta` | schema, base of the tokens | first pod | no |
//! | `P/role/{role}` | number of shards, hash, seed | first pod of the role | no |
//! | `P/mgr/{lease}` | candidate for the management; the oldest is the manager | the candidate | its own |
//! | `P/pod/{role}/{uid}` | a pod | the pod | its own |
//! | `P/plan/{role}/{page}` | who should own the 64 shards of the page | manager only | no |
//! | `P/own/{role}/{shard}` | who owns the shard | the owning pod | the pod's |
//! | `P/single/{role}/{name}` | who runs the singleton | the running pod | the pod's |
//! | `P/cmd/pod/{role}/{uid}` | cordon or drain the pod | admin | that pod's |
//! | `P/cmd/pin/{role}/{shard}` | keep the shard on a pod | admin | no |
//! | `P/cmd/rebalance/{role}` | one round of rebalancing now | admin; the manager deletes it | no |
//!
//! Numbers are padded, so that the order of the keys is that of the numbers. Names have no `/`, so that a prefix that
//! ends in one names a folder.

use crate::base::limits::NAME_BYTES_MAX;
use crate::base::{PodUid, ShardId};

use super::store::LeaseId;

/// Shards of one plan page: a plan of 60 pages, and the claims of one page, fit a transaction.
pub const PLAN_PAGE_SHARDS: u32 = 64;
/// The record that binds a store to one cluster.
pub const CLUSTER_KEY: &str = "/atoll/cluster";

/// A text that cannot be the name of a cluster, role or singleton.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' or '.', not {name:?}")]
pub struct InvalidName {
    /// What it should name.
    pub what: &'static str,
    /// The refused text.
    pub name: String,
}

/// Checks a name that becomes a part of keys.
///
/// # Errors
/// If it is empty, too long, or has other characters than letters, digits, `-`, `_` and `.`.
pub fn check_name(what: &'static str, name: &str) -> Result<(), InvalidName> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(allowed) {
        return Err(InvalidName { what, name: name.chars().take(NAME_BYTES_MAX).collect() });
    }
    Ok(())
}

/// The page that holds a shard, and its position there.
#[must_use]
pub fn page_of(shard: ShardId) -> (u32, usize) {
    (shard.0 / PLAN_PAGE_SHARDS, (shard.0 % PLAN_PAGE_SHARDS) as usize)
}

/// Number of pages of a role.
#[must_use]
pub fn pages_of(number_of_shards: u32) -> u32 {
    number_of_shards.div_ceil(PLAN_PAGE_SHARDS)
}

/// Which record a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKey<'a> {
    /// `P/meta`
    Meta,
    /// `P/role/{role}`
    Role(&'a str),
    /// `P/mgr/{lease}`
    Manager(LeaseId),
    /// `P/pod/{role}/{uid}`
    Pod(&'a str, PodUid),
    /// `P/plan/{role}/{page}`
    Plan(&'a str, u32),
    /// `P/own/{role}/{shard}`
    Ownership(&'a str, ShardId),
    /// `P/single/{role}/{name}`
    Singleton(&'a str, &'a str),
    /// `P/cmd/pod/{role}/{uid}`
    PodOrder(&'a str, PodUid),
    /// `P/cmd/pin/{role}/{shard}`
    Pin(&'a str, ShardId),
    /// `P/cmd/rebalance/{role}`
    Rebalance(&'a str),
}

/// The keys of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpace {
    prefix: String,
}

impl KeySpace {
    /// The keys of a cluster.
    ///
    /// # Errors
    /// If the name is not usable.
    pub fn new(cluster: &str) -> Result<KeySpace, InvalidName> {
        check_name("a cluster name", cluster)?;
        Ok(KeySpace { prefix: format!("/atoll/{cluster}/v1/") })
    }

    /// The prefix of all keys of the cluster.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key of a record.
    #[must_use]
    pub fn key(&self, key: RecordKey<'_>) -> String {
        let prefix = &self.prefix;
        match key {
            RecordKey::Meta => format!("{prefix}meta"),
            RecordKey::Role(role) => format!("{prefix}role/{role}"),
            RecordKey::Manager(lease) => format!("{prefix}mgr/{:016x}", lease.0),
            RecordKey::Pod(role, uid) => format!("{prefix}pod/{role}/{uid}"),
            RecordKey::Plan(role, page) => format!("{prefix}plan/{role}/{page:05}"),
            RecordKey::Ownership(role, shard) => format!("{prefix}own/{role}/{:05}", shard.0),
            RecordKey::Singleton(role, name) => format!("{prefix}single/{role}/{name}"),
            RecordKey::PodOrder(role, uid) => format!("{prefix}cmd/pod/{role}/{uid}"),
            RecordKey::Pin(role, shard) => format!("{prefix}cmd/pin/{role}/{:05}", shard.0),
            RecordKey::Rebalance(role) => format!("{prefix}cmd/rebalance/{role}"),
        }
    }

    /// What a key stands for; `None` for one of another cluster or of a kind that this version does not know.
    #[must_use]
    pub fn parse<'a>(&self, key: &'a str) -> Option<RecordKey<'a>> {
        let mut words = key.strip_prefix(self.prefix.as_str())?.split('/');
        let kind = words.next()?;
        let parsed = match kind {
            "meta" => RecordKey::Meta,
            "role" => RecordKey::Role(words.next()?),
            "mgr" => RecordKey::Manager(LeaseId(u64::from_str_radix(words.next()?, 16).ok()?)),
            "pod" => RecordKey::Pod(words.next()?, parse_uid(words.next()?)?),
            "plan" => RecordKey::Plan(words.next()?, words.next()?.parse().ok()?),
            "own" => RecordKey::Ownership(words.next()?, ShardId(words.next()?.parse().ok()?)),
            "single" => RecordKey::Singleton(words.next()?, words.next()?),
            "cmd" => match words.next()? {
                "pod" => RecordKey::PodOrder(words.next()?, parse_uid(words.next()?)?),
                "pin" => RecordKey::Pin(words.next()?, ShardId(words.next()?.parse().ok()?)),
                "rebalance" => RecordKey::Rebalance(words.next()?),
                _ => return None,
            },
            _ => return None,
        };
        words.next().is_none().then_some(parsed)
    }
}

/// Reads a pod's identity from its 32 hexadecimal digits.
#[must_use]
pub fn parse_uid(text: &str) -> Option<PodUid> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u128::from_str_radix(text, 16).ok())?.map(PodUid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_fixed_and_go_both_ways() {
        let keys = KeySpace::new("c1").expect("valid");
        let all = [
            (RecordKey::Meta, "/atoll/c1/v1/meta"),
            (RecordKey::Role("default"), "/atoll/c1/v1/role/default"),
            (RecordKey::Manager(LeaseId(255)), "/atoll/c1/v1/mgr/00000000000000ff"),
            (RecordKey::Pod("r", PodUid(1)), "/atoll/c1/v1/pod/r/00000000000000000000000000000001"),
            (RecordKey::Plan("r", 3), "/atoll/c1/v1/plan/r/00003"),
            (RecordKey::Ownership("r", ShardId(65_535)), "/atoll/c1/v1/own/r/65535"),
            (RecordKey::Singleton("r", "s"), "/atoll/c1/v1/single/r/s"),
            (RecordKey::PodOrder("r", PodUid(1)), "/atoll/c1/v1/cmd/pod/r/00000000000000000000000000000001"),
            (RecordKey::Pin("r", ShardId(7)), "/atoll/c1/v1/cmd/pin/r/00007"),
            (RecordKey::Rebalance("r"), "/atoll/c1/v1/cmd/rebalance/r"),
        ];
        for (record, text) in all {
            assert_eq!(keys.key(record), text);
            assert_eq!(keys.parse(text), Some(record));
        }
        for other in ["/atoll/c2/v1/meta", "/atoll/c1/v1/meta/x", "/atoll/c1/v1/own/r/x", "/atoll/c1/v1/later/x", ""] {
            assert_eq!(keys.parse(other), None, "{other}");
        }
    }

    #[test]
    fn names_have_no_separators() {
        assert!(KeySpace::new("").is_err());
        assert!(KeySpace::new("a/b").is_err());
        assert!(KeySpace::new(&"x".repeat(65)).is_err());
        assert!(KeySpace::new("prod-eu_1.2").is_ok());
    }

    #[test]
    fn shards_are_on_pages_of_64() {
        assert_eq!(page_of(ShardId(63)), (0, 63));
        assert_eq!(page_of(ShardId(64)), (1, 0));
        assert_eq!(pages_of(64), 1);
        assert_eq!(pages_of(65), 2);
    }
}
