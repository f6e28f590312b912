//! Identities: small types that cannot be mixed up.

use core::fmt;

use super::limits::ENTITY_ID_BYTES_MAX;

/// Bytes of an id that are stored without an allocation.
const INLINE_BYTES: usize = 24;

/// Id of an entity within its type: 1 to 255 bytes of UTF-8. Up to 24 bytes are stored without an allocation.
///
/// Ids are made and copied for every ask, so a short one is put together in registers, word by word: copying bytes and
/// reading them back as words makes the processor wait for its own stores.
pub struct EntityId(Text);

enum Text {
    /// The bytes after the length are zero.
    Short {
        length: u32,
        bytes: Words,
    },
    Long(Box<str>),
}

/// Bytes that are copied as words.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(8))]
struct Words([u8; INLINE_BYTES]);

impl Clone for EntityId {
    #[inline(always)]
    fn clone(&self) -> EntityId {
        match &self.0 {
            Text::Short { length, bytes } => EntityId(Text::Short { length: *length, bytes: *bytes }),
            Text::Long(text) => EntityId(Text::Long(text.clone())),
        }
    }
}

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
    #[inline(always)]
    pub fn new(id: &str) -> Result<EntityId, InvalidEntityId> {
        let bytes = id.as_bytes();
        match bytes.len() {
            1..=INLINE_BYTES => Ok(EntityId(Text::Short { length: bytes.len() as u32, bytes: short(bytes) })),
            length if length == 0 || length > ENTITY_ID_BYTES_MAX => Err(InvalidEntityId { bytes: length }),
            _ => Ok(EntityId(Text::Long(id.into()))),
        }
    }

    /// The empty id: of a slot that nobody lives in, or of a reference that was made from an invalid text.
    pub(crate) const fn placeholder() -> EntityId {
        EntityId(Text::Short { length: 0, bytes: Words([0; INLINE_BYTES]) })
    }

    /// Whether it is the empty placeholder.
    #[inline]
    pub(crate) fn is_placeholder(&self) -> bool {
        matches!(self.0, Text::Short { length: 0, .. })
    }

    /// The id as bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short { length, bytes } => &bytes.0[..(*length as usize).min(INLINE_BYTES)],
            Text::Long(text) => text.as_bytes(),
        }
    }

    /// The id as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            // The bytes came from a text.
            Text::Short { .. } => core::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Long(text) => text,
        }
    }
}

/// Up to 24 bytes, followed by zeros.
#[inline(always)]
fn short(bytes: &[u8]) -> Words {
    let word = |at: usize| match bytes.get(at..) {
        Some(rest) if rest.len() >= 8 => rest.first_chunk().copied().map_or(0, u64::from_le_bytes),
        Some(rest) if !rest.is_empty() => partial_word(bytes, rest),
        _ => 0,
    };
    let words = [word(0), word(8), word(16)];
    let mut short = [0; INLINE_BYTES];
    for (into, word) in short.chunks_exact_mut(8).zip(words) {
        into.copy_from_slice(&word.to_le_bytes());
    }
    Words(short)
}

/// The last, incomplete word: from an overlapping read where the text is long enough for one.
#[inline(always)]
fn partial_word(bytes: &[u8], rest: &[u8]) -> u64 {
    match bytes.last_chunk().copied().map(u64::from_le_bytes) {
        Some(overlapping) => overlapping >> (8 * (8 - rest.len())),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

impl PartialEq for EntityId {
    #[inline]
    fn eq(&self, other: &EntityId) -> bool {
        match (&self.0, &other.0) {
            (Text::Short { length, bytes }, Text::Short { length: other_length, bytes: other_bytes }) => {
                // Whole arrays: no call for a few bytes.
                length == other_length && bytes == other_bytes
            }
            (Text::Long(text), Text::Long(other)) => text == other,
            _ => false,
        }
    }
}

impl Eq for EntityId {}

impl PartialOrd for EntityId {
    fn partial_cmp(&self, other: &EntityId) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EntityId {
    fn cmp(&self, other: &EntityId) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl core::hash::Hash for EntityId {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for EntityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    #[test]
    fn an_id_is_its_text() {
        let alphabet: String = ('!'..='~').cycle().take(255).collect();
        for length in 1..=255 {
            let text = &alphabet[255 - length..];
            let id = EntityId::new(text).unwrap();
            assert_eq!((id.as_str(), id.as_bytes()), (text, text.as_bytes()));
            assert_eq!(id, id.clone());
            assert_ne!(Some(id), EntityId::new(&text[1..]).ok());
        }
        let umlauts = EntityId::new("größe-süß").unwrap();
        assert_eq!(umlauts.as_str(), "größe-süß");
        assert_eq!(size_of::<EntityId>(), 32);
    }

    #[test]
    fn ids_are_ordered_by_their_bytes() {
        let id = |text: &str| EntityId::new(text).unwrap();
        assert!(id("a") < id("aa"));
        assert!(id("b") > id("a-very-long-id-that-needs-an-allocation"));
        assert_ne!(id("a\0"), id("a"));
    }
}
