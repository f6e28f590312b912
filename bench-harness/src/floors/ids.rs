//! Ids of entities as users write them, and the map that a careful program finds them in.

use std::collections::HashMap;

/// A map from string ids, with the standard library's hash: ids come from users, so whoever writes the lookup by hand
/// needs one that resists chosen keys, as atoll's seeded xxh3 does. (A hash that does not is some 10 ns faster.)
pub type ById<V> = HashMap<String, V>;

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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_distinct_and_sixteen_bytes_long() {
        let ids = ids(10_001);
        assert!(ids.iter().all(|id| id.len() == 16));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 10_001);
        assert_eq!(id(123_456), "entity-000123456");
    }
}
