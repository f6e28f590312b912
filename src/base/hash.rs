//! Hashes that are the same on every machine and in every version.
//!
//! Three users: entity id → shard ([`entity_hash`], xxh3-64 with the cluster's seed), message tags and schema hashes
//! ([`stable_hash`] and [`mix`], usable in constants). They are stored and sent, so they never change.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::ids::ShardId;

/// Name of the entity hash in stored records. A pod whose build uses another is refused.
pub const ENTITY_HASH_NAME: &str = "xxh3-64";

/// Hash of an entity id under the cluster's seed.
#[inline]
#[must_use]
pub fn entity_hash(seed: u64, id: &[u8]) -> u64 {
    xxh3_64_with_seed(id, seed)
}

/// The shard of a hash among `number_of_shards` (at least 1).
#[inline]
#[must_use]
pub fn shard_of_hash(hash: u64, number_of_shards: u32) -> ShardId {
    debug_assert!(number_of_shards > 0);
    // The same number for a power of two, without the division, which costs more than the rest of a table lookup.
    if number_of_shards.is_power_of_two() {
        return ShardId(hash as u32 & (number_of_shards - 1));
    }
    ShardId((hash % u64::from(number_of_shards.max(1))) as u32)
}

/// 64-bit FNV-1a of a text (<http://www.isthe.com/chongo/tech/comp/fnv/>), usable in constants.
#[must_use]
pub const fn stable_hash(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash ^= bytes[i] as u64;
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// Combines two hashes; the order matters.
#[must_use]
pub const fn mix(left: u64, right: u64) -> u64 {
    let mut hash = left.rotate_left(23) ^ right;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// The tag of a message: `stable_hash("entity::method")` folded to 32 bits.
#[must_use]
pub const fn message_tag(entity: &str, method: &str) -> u32 {
    let hash = mix(stable_hash(entity), stable_hash(method));
    (hash ^ (hash >> 32)) as u32
}

/// A hasher for keys that are numbers already well spread or few: tags, ids of links and pods. Folds each word by a
/// multiplication. Not for keys that a peer can choose many of.
#[derive(Clone, Copy, Default)]
pub struct WordHasher(u64);

impl core::hash::Hasher for WordHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }
}

/// A map from such keys.
pub type WordMap<K, V> = std::collections::HashMap<K, V, core::hash::BuildHasherDefault<WordHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_never_change() {
        assert_eq!(entity_hash(0, b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(entity_hash(0, b"g1"), xxhash_rust::xxh3::xxh3_64(b"g1"));
        assert_eq!(stable_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(stable_hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_shard_is_the_remainder() {
        for number_of_shards in [1, 2, 3, 300, 1024, 1025, 65_536] {
            for hash in [0, 1, 1023, 1024, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
                let expected = (hash % u64::from(number_of_shards)) as u32;
                assert_eq!(shard_of_hash(hash, number_of_shards), ShardId(expected));
            }
        }
    }

    #[test]
    fn mixing_depends_on_the_order() {
        assert_ne!(mix(1, 2), mix(2, 1));
        assert_ne!(message_tag("a", "b"), message_tag("b", "a"));
    }
}
