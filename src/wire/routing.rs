//! The routing block: where a request goes, from whom, and how long its sender still waits.
//!
//! Follows the header in [`Ask`](super::FrameKind::Ask), [`Tell`](super::FrameKind::Tell) and
//! [`StreamRequest`](super::FrameKind::StreamRequest) frames. The engine writes it with [`Routing`] and reads it in
//! place with [`RoutingView`]. The layout, all little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `remaining_us`: microseconds that the sender still waits, 0 for ever |
//! | 4 | 1 | `hops`: how often the message was passed on |
//! | 5 | 1 | length of the call chain in calls, at most [`CALL_CHAIN_MAX`] |
//! | 6 | 1 | length of the role in bytes, at most [`NAME_BYTES_MAX`]; 0 stands for [`ROLE_DEFAULT`] |
//! | 7 | 1 | length of the entity id in bytes, at least 1 |
//! | 8 | 8 | `sender_incarnation` |
//! | 16 | 8 | `sender_sequence` |
//! | 24 | 8 each | the call chain |
//! | | | the role, then the entity id, both UTF-8 |
//!
//! Invariants of a view: the lengths were within their limits and used up the block exactly; the texts are UTF-8.
//! The time is what remains and never a point in time, because the clocks of two hosts have nothing in common.

use core::time::Duration;

use crate::base::limits::{CALL_CHAIN_MAX, ENTITY_ID_BYTES_MAX, NAME_BYTES_MAX};

use super::header::{u32_at, u64_at};

/// Length of the part that every routing block has.
const FIXED_BYTES: usize = 24;
/// Length of one call of the chain.
const CALL_BYTES: usize = 8;

/// The role that an empty role stands for on the wire: most installations have only this one.
pub const ROLE_DEFAULT: &str = "default";

/// Longest routing block.
pub const ROUTING_BYTES_MAX: usize = FIXED_BYTES + CALL_CHAIN_MAX * CALL_BYTES + NAME_BYTES_MAX + ENTITY_ID_BYTES_MAX;

/// Why bytes are not a routing block, or why one cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoutingError {
    /// The block is not as long as its parts together.
    #[error("its length is not that of its parts")]
    Length,
    /// The call chain is too long.
    #[error("its call chain has {calls} calls, at most {CALL_CHAIN_MAX} are allowed")]
    Chain {
        /// Calls in the refused chain.
        calls: usize,
    },
    /// The name of the role is too long.
    #[error("its role has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed")]
    Role {
        /// Bytes of the refused role.
        bytes: usize,
    },
    /// The entity id is empty or too long.
    #[error("its entity id has {bytes} bytes, 1 to {ENTITY_ID_BYTES_MAX} are allowed")]
    EntityId {
        /// Bytes of the refused id.
        bytes: usize,
    },
    /// Role or entity id are not UTF-8.
    #[error("its role or entity id is not UTF-8")]
    Text,
}

/// A routing block to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing<'a> {
    /// Microseconds that the sender still waits; 0 if it waits for ever. See [`remaining_us`].
    pub remaining_us: u32,
    /// How often the message was passed on.
    pub hops: u8,
    /// The calls that wait for this one, outermost first.
    pub chain: &'a [u64],
    /// Role of the entity.
    pub role: &'a str,
    /// Id of the entity.
    pub entity_id: &'a str,
    /// Tells the runs of the sending core apart.
    pub sender_incarnation: u64,
    /// Counts the messages of that run.
    pub sender_sequence: u64,
}

impl Routing<'_> {
    /// Appends the block and returns its length in bytes.
    ///
    /// # Errors
    /// If a part is longer than allowed or the entity id is empty; then nothing was appended.
    #[inline]
    pub fn encode(&self, into: &mut Vec<u8>) -> Result<usize, RoutingError> {
        let role = if self.role == ROLE_DEFAULT { "" } else { self.role };
        check_lengths(self.chain.len(), role.len(), self.entity_id.len())?;
        let mut fixed = [0; FIXED_BYTES];
        fixed[0..4].copy_from_slice(&self.remaining_us.to_le_bytes());
        fixed[4] = self.hops;
        fixed[5] = self.chain.len() as u8;
        fixed[6] = role.len() as u8;
        fixed[7] = self.entity_id.len() as u8;
        fixed[8..16].copy_from_slice(&self.sender_incarnation.to_le_bytes());
        fixed[16..24].copy_from_slice(&self.sender_sequence.to_le_bytes());

        let start = into.len();
        into.reserve(FIXED_BYTES + self.chain.len() * CALL_BYTES + role.len() + self.entity_id.len());
        into.extend_from_slice(&fixed);
        for call in self.chain {
            into.extend_from_slice(&call.to_le_bytes());
        }
        into.extend_from_slice(role.as_bytes());
        into.extend_from_slice(self.entity_id.as_bytes());
        Ok(into.len() - start)
    }
}

/// A routing block read where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingView<'a> {
    /// Microseconds that the sender still waits; 0 if it waits for ever.
    pub remaining_us: u32,
    /// How often the message was passed on.
    pub hops: u8,
    /// Tells the runs of the sending core apart.
    pub sender_incarnation: u64,
    /// Counts the messages of that run.
    pub sender_sequence: u64,
    /// Role of the entity.
    pub role: &'a str,
    /// Id of the entity.
    pub entity_id: &'a str,
    chain: &'a [[u8; CALL_BYTES]],
    bytes: &'a [u8],
}

impl<'a> RoutingView<'a> {
    /// Reads and checks a block; `bytes` are the `routing_length` bytes after the header.
    ///
    /// # Errors
    /// If a part is longer than allowed, the block does not have exactly the length of its parts, or a text is not
    /// UTF-8.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<RoutingView<'a>, RoutingError> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(RoutingError::Length)?;
        let (calls, role_length, id_length) = (usize::from(fixed[5]), usize::from(fixed[6]), usize::from(fixed[7]));
        check_lengths(calls, role_length, id_length)?;
        if rest.len() != calls * CALL_BYTES + role_length + id_length {
            return Err(RoutingError::Length);
        }
        let (chain, texts) = rest.split_at(calls * CALL_BYTES);
        let (role, entity_id) = texts.split_at(role_length);
        let role = if role.is_empty() { ROLE_DEFAULT } else { text(role)? };
        Ok(RoutingView {
            remaining_us: u32_at(fixed, 0),
            hops: fixed[4],
            sender_incarnation: u64_at(fixed, 8),
            sender_sequence: u64_at(fixed, 16),
            role,
            entity_id: text(entity_id)?,
            chain: chain.as_chunks().0,
            bytes,
        })
    }

    /// The calls that wait for this one, outermost first.
    #[inline]
    pub fn chain(&self) -> impl ExactSizeIterator<Item = u64> + 'a {
        self.chain.iter().map(|call| u64::from_le_bytes(*call))
    }

    /// How long the sender still waits; `None` for ever, or for longer than can be said ([`remaining_us`]).
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> Option<Duration> {
        match self.remaining_us {
            0 | u32::MAX => None,
            microseconds => Some(Duration::from_micros(microseconds as u64)),
        }
    }

    /// Appends this block with another remaining time and hop count, for a message that is passed on, and returns
    /// its length in bytes.
    pub fn encode_passed_on(&self, remaining_us: u32, hops: u8, into: &mut Vec<u8>) -> usize {
        into.extend_from_slice(&remaining_us.to_le_bytes());
        into.push(hops);
        into.extend_from_slice(&self.bytes[5..]);
        self.bytes.len()
    }
}

/// A time to wait as it is sent: at least 1, because 0 says that the sender waits for ever, and at most 71 minutes.
#[inline]
#[must_use]
pub fn remaining_us(remaining: Option<Duration>) -> u32 {
    remaining.map_or(0, |remaining| u32::try_from(remaining.as_micros()).unwrap_or(u32::MAX).max(1))
}

#[inline]
fn check_lengths(calls: usize, role_bytes: usize, id_bytes: usize) -> Result<(), RoutingError> {
    if calls > CALL_CHAIN_MAX {
        return Err(RoutingError::Chain { calls });
    }
    if role_bytes > NAME_BYTES_MAX {
        return Err(RoutingError::Role { bytes: role_bytes });
    }
    if id_bytes == 0 || id_bytes > ENTITY_ID_BYTES_MAX {
        return Err(RoutingError::EntityId { bytes: id_bytes });
    }
    Ok(())
}

#[inline]
fn text(bytes: &[u8]) -> Result<&str, RoutingError> {
    core::str::from_utf8(bytes).map_err(|_| RoutingError::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing() -> Routing<'static> {
        Routing {
            remaining_us: 1000,
            hops: 1,
            chain: &[5, 6],
            role: "map",
            entity_id: "g1",
            sender_incarnation: 0x1112_1314_1516_1718,
            sender_sequence: 9,
        }
    }

    fn encoded(routing: &Routing<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert_eq!(routing.encode(&mut bytes), Ok(bytes.len()));
        bytes
    }

    #[test]
    fn the_layout_never_changes() {
        let fixed = [
            0xe8, 0x03, 0, 0, 1, 2, 3, 2, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0,
            0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, b'm', b'a', b'p', b'g', b'1',
        ];
        assert_eq!(encoded(&routing()), fixed);
    }

    #[test]
    fn the_default_role_takes_no_bytes() {
        let bytes = encoded(&Routing { role: ROLE_DEFAULT, chain: &[], ..routing() });
        assert_eq!(bytes.len(), FIXED_BYTES + 2);
        let view = RoutingView::parse(&bytes).unwrap();
        assert_eq!((view.role, view.entity_id), (ROLE_DEFAULT, "g1"));
    }

    #[test]
    fn what_is_too_long_or_empty_is_not_written() {
        let refused = |routing: Routing<'_>| {
            let mut bytes = vec![1];
            let outcome = routing.encode(&mut bytes);
            assert_eq!(bytes, [1], "nothing was appended");
            outcome.unwrap_err()
        };
        let long = "x".repeat(256);
        assert_eq!(refused(Routing { chain: &[0; 9], ..routing() }), RoutingError::Chain { calls: 9 });
        assert_eq!(refused(Routing { role: &long[..65], ..routing() }), RoutingError::Role { bytes: 65 });
        assert_eq!(refused(Routing { entity_id: "", ..routing() }), RoutingError::EntityId { bytes: 0 });
        assert_eq!(refused(Routing { entity_id: &long, ..routing() }), RoutingError::EntityId { bytes: 256 });
        let largest = Routing { chain: &[0; 8], role: &long[..64], entity_id: &long[..255], ..routing() };
        assert_eq!(encoded(&largest).len(), ROUTING_BYTES_MAX);
    }

    #[test]
    fn a_block_has_exactly_the_length_of_its_parts() {
        let bytes = encoded(&routing());
        for length in 0..bytes.len() {
            assert_eq!(RoutingView::parse(&bytes[..length]), Err(RoutingError::Length), "{length} bytes");
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(RoutingView::parse(&longer), Err(RoutingError::Length));
    }

    #[test]
    fn a_wrong_block_is_refused_by_name() {
        let refused = |at: usize, value: u8| {
            let mut bytes = encoded(&routing());
            bytes[at] = value;
            RoutingView::parse(&bytes).unwrap_err()
        };
        assert_eq!(refused(5, 9), RoutingError::Chain { calls: 9 });
        assert_eq!(refused(6, 65), RoutingError::Role { bytes: 65 });
        assert_eq!(refused(7, 0), RoutingError::EntityId { bytes: 0 });
        assert_eq!(refused(40, 0xff), RoutingError::Text);
        assert_eq!(refused(44, 0xff), RoutingError::Text);
    }

    #[test]
    fn a_character_cut_by_the_border_of_role_and_id_is_refused() {
        let mut bytes = encoded(&Routing { role: "aé", entity_id: "b", ..routing() });
        bytes[6] -= 1;
        bytes[7] += 1;
        assert_eq!(RoutingView::parse(&bytes), Err(RoutingError::Text));
    }

    #[test]
    fn a_message_that_is_passed_on_keeps_all_but_time_and_hops() {
        let before = encoded(&routing());
        let mut after = Vec::new();
        let length = RoutingView::parse(&before).unwrap().encode_passed_on(7, 2, &mut after);
        assert_eq!(length, after.len());
        assert_eq!(after, encoded(&Routing { remaining_us: 7, hops: 2, ..routing() }));
    }

    #[test]
    fn a_time_that_is_over_does_not_become_for_ever() {
        assert_eq!(remaining_us(None), 0);
        assert_eq!(remaining_us(Some(Duration::ZERO)), 1);
        assert_eq!(remaining_us(Some(Duration::from_millis(2))), 2000);
        assert_eq!(remaining_us(Some(Duration::MAX)), u32::MAX);
    }
}
