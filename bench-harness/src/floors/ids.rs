//! Ids of entities as users write them, and the fastest hash for them that we could write: SipHash would make every
//! floor with a lookup some 10 ns slower than it need be.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Odd constants without pattern: the first digits of pi and of e.
const KEYS: [u64; 2] = [0x243f_6a88_85a3_08d3, 0xb7e1_5162_8aed_2a6b];

/// A map from string ids.
pub type ById<V> = HashMap<String, V, BuildHasherDefault<IdHasher>>;

/// An id of 16 bytes.
pub fn id(index: u32) -> String {
    let mut text = String::with_capacity(16);
    write_id(index, &mut text);
    text
}

/// Writes an id of 16 bytes into `text`, which is cleared.
pub fn write_id(index: u32, text: &mut String) {
    let mut bytes = *b"entity-000000000";
    let (mut rest, mut at) = (index, bytes.len());
    while rest > 0 && at > "entity-".len() {
        at -= 1;
        bytes[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text.clear();
    text.push_str(core::str::from_utf8(&bytes).expect("digits are ASCII"));
}

/// `count` distinct ids (up to 1,000,000,000), of 16 bytes each.
pub fn ids(count: u32) -> Vec<String> {
    (0..count).map(id).collect()
}

/// Folded multiplication over eight bytes at a time. Not safe against chosen keys: the keys here are our own.
#[derive(Clone, Copy, Default)]
pub struct IdHasher {
    state: u64,
}

impl IdHasher {
    #[inline]
    fn fold(&mut self, low: u64, high: u64) {
        let product = u128::from(low ^ KEYS[0] ^ self.state) * u128::from(high ^ KEYS[1]);
        self.state = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for IdHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut pairs = bytes.chunks_exact(16);
        for pair in &mut pairs {
            let word = |at: usize| u64::from_le_bytes(pair[at..at + 8].try_into().expect("eight bytes"));
            self.fold(word(0), word(8));
        }
        let rest = pairs.remainder();
        if !rest.is_empty() {
            let mut padded = [0; 16];
            padded[..rest.len()].copy_from_slice(rest);
            let word = |at: usize| u64::from_le_bytes(padded[at..at + 8].try_into().expect("eight bytes"));
            self.fold(word(0) ^ rest.len() as u64, word(8));
        }
    }

    /// The mark that ends a string: all ids are 16 bytes long, so it tells nothing apart.
    #[inline]
    fn write_u8(&mut self, _: u8) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn ids_are_distinct_and_sixteen_bytes_long() {
        let ids = ids(10_001);
        assert!(ids.iter().all(|id| id.len() == 16));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 10_001);
        assert_eq!(id(123_456), "entity-000123456");
    }

    #[test]
    fn hashes_of_similar_ids_spread_over_low_and_high_bits() {
        let build = BuildHasherDefault::<IdHasher>::default();
        let hashes: Vec<u64> = ids(65_536).iter().map(|id| build.hash_one(id)).collect();
        for shift in [0, 48] {
            let buckets = hashes.iter().map(|hash| hash >> shift & 0xffff).collect::<HashSet<_>>();
            // Throwing 65,536 balls into as many urns at random fills 63.2 % of them.
            assert!((0.60..0.67).contains(&(buckets.len() as f64 / 65_536.0)), "{} at {shift}", buckets.len());
        }
    }
}
