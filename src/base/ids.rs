//! Identities: small types that cannot be mixed up.

use core::fmt;

use compact_str::CompactString;

use super::limits::ENTITY_ID_BYTES_MAX;

/// Id of an entity within its type: 1 to 255 bytes of UTF-8. Up to 24 bytes are stored without an allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityId(CompactString);

/// A text that cannot be an entity id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entity id has 1 to {ENTITY_ID_BYTES_MAX} bytes, this one has {bytes}")]
pub struct InvalidEntityId {
    /// Length of the refused text.
    pub bytes: usize,
}

impl EntityId {
    /// Checks and takes an id.
    ///
    /// # Errors
    /// If it is empty or longer than [`ENTITY_ID_BYTES_MAX`].
    #[inline]
    pub fn new(id: &str) -> Result<EntityId, InvalidEntityId> {
        if id.is_empty() || id.len() > ENTITY_ID_BYTES_MAX {
            return Err(InvalidEntityId { bytes: id.len() });
        }
        Ok(EntityId(CompactString::new(id)))
    }

    /// The empty id: of a slot that nobody lives in, or of a reference that was made from an invalid text.
    pub(crate) fn placeholder() -> EntityId {
        EntityId(CompactString::const_new(""))
    }

    /// Whether it is the empty placeholder.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.0.is_empty()
    }

    /// The id as a text.
    #[inline]
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Number of a shard within its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

/// Number of a core within its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreIndex(pub u16);

/// Position of a pod in a table; means nothing without the table's epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodIndex(pub u16);

/// Identity of one run of a process: fresh at each start, never used again, so it is the incarnation too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(pub u128);

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Fencing token: the revision at which its owner claimed a shard. A later owner has a larger one. 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Version of a table; a larger one is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A link of one core: position and generation, so that a late answer never reaches a link that took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId {
    /// Position in the core's table of links.
    pub index: u32,
    /// Counts the links that had this position.
    pub generation: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_a_length() {
        assert!(EntityId::new("").is_err());
        assert!(EntityId::new("g").is_ok());
        assert!(EntityId::new(&"x".repeat(255)).is_ok());
        assert_eq!(EntityId::new(&"x".repeat(256)), Err(InvalidEntityId { bytes: 256 }));
    }
}
