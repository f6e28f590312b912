//! The header of a frame: 40 bytes that say what the frame is and how long.
//!
//! Written by `send_buffer`, read by `decoder`. The layout, all little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | `length` of the whole frame, this header included; there is no padding |
//! | 4 | 1 | `kind` |
//! | 5 | 1 | `flags` |
//! | 6 | 2 | `routing_length` |
//! | 8 | 4 | `tag` of the message; the code of the cluster error in a [`FrameKind::Failure`]; in a further part the place |
//! | 12 | 4 | `shard` |
//! | 16 | 8 | `token` |
//! | 24 | 8 | `correlation` |
//! | 32 | 4 | `body_checksum`: crc32c of routing block and body, 0 when the flag is off |
//! | 36 | 4 | crc32c of the 36 bytes before it |
//!
//! A large body travels in parts, on the lane [`Lane::Bulk`] and in one frame each. All parts have kind, lane and
//! correlation of the message, and all but the last have [`FrameFlags::MORE`]. The first has the message's header and
//! routing block, then the length of the whole body (4 bytes), then its beginning. The further ones hold only the next
//! bytes of the body; their `tag` is how many came before. Bodies of one link and direction follow one another, so at
//! most one is unfinished. It ends early with a [`FrameKind::Cancel`] (a request) or a [`FrameKind::Failure`] (a reply)
//! of its correlation. Parts exist since version 2 of the protocol.
//!
//! Invariants of a decoded header: the checksum was right, kind and flags are known, and header and routing block fit
//! in `length`. Whether `length` is acceptable is for the decoder to say, which knows the limit.

use crate::base::{ShardId, Token};

use super::routing::RoutingError;

/// Length of a frame's header.
pub const HEADER_BYTES: usize = 40;

/// Where the checksum of the header lies; it covers everything before it.
const CHECKSUM_AT: usize = 36;

/// What a frame is. The numbers are part of the protocol and never change; 10 to 15 are not given out yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// A request that wants a [`FrameKind::Reply`]. Has a routing block.
    Ask = 1,
    /// A request that wants an [`FrameKind::Ack`] and no reply. Has a routing block.
    Tell = 2,
    /// The sender of a request no longer waits for it.
    Cancel = 3,
    /// The archived result of an ask: the reply or the error that the message declares.
    Reply = 4,
    /// A request failed in the cluster; the tag is the code of the error.
    Failure = 5,
    /// A [`FrameKind::Tell`] is in the mailbox of its entity.
    Ack = 6,
    /// The shard is elsewhere; the frame says where.
    Moved = 7,
    /// A message between the pods themselves; its body is an archived `ControlMessage`.
    Control = 8,
    /// Permission to send more bytes on a lane.
    Credit = 9,
    /// A request that is answered by a stream. Has a routing block.
    StreamRequest = 16,
    /// Elements of a stream.
    StreamElement = 17,
    /// The consumer of a stream has room for more elements.
    StreamDemand = 18,
    /// A stream has ended well.
    StreamComplete = 19,
    /// A stream has failed.
    StreamFail = 20,
    /// The consumer of a stream wants no more of it.
    StreamCancel = 21,
}

impl FrameKind {
    /// The kind of a number; `None` for one that this version does not know.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<FrameKind> {
        Some(match number {
            1 => FrameKind::Ask,
            2 => FrameKind::Tell,
            3 => FrameKind::Cancel,
            4 => FrameKind::Reply,
            5 => FrameKind::Failure,
            6 => FrameKind::Ack,
            7 => FrameKind::Moved,
            8 => FrameKind::Control,
            9 => FrameKind::Credit,
            16 => FrameKind::StreamRequest,
            17 => FrameKind::StreamElement,
            18 => FrameKind::StreamDemand,
            19 => FrameKind::StreamComplete,
            20 => FrameKind::StreamFail,
            21 => FrameKind::StreamCancel,
            _ => return None,
        })
    }

    /// The number that stands for this kind on the wire.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether the first frame of such a message carries a routing block.
    #[inline]
    #[must_use]
    pub const fn is_request(self) -> bool {
        matches!(self, FrameKind::Ask | FrameKind::Tell | FrameKind::StreamRequest)
    }
}

/// The queue of a link that a frame belongs to. Each lane has its own credit, so that a slow one delays no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Lane {
    /// Messages between the pods themselves.
    #[default]
    Control = 0,
    /// Requests and their answers.
    Messages = 1,
    /// Streams.
    Streams = 2,
    /// Big bodies in chunks.
    Bulk = 3,
}

/// The flags of a frame: its lane and yes-or-no properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameFlags(u8);

impl FrameFlags {
    const LANE_MASK: u8 = 0b11;
    const KNOWN: u8 = 0b0011_1111;

    /// The header holds a checksum of routing block and body.
    pub const BODY_CHECKSUM: FrameFlags = FrameFlags(1 << 2);
    /// The message goes on in a further frame.
    pub const MORE: FrameFlags = FrameFlags(1 << 3);
    /// The body is JSON, not an archive.
    pub const JSON: FrameFlags = FrameFlags(1 << 4);
    /// The message is processed to its end even if its sender stops waiting.
    pub const UNINTERRUPTIBLE: FrameFlags = FrameFlags(1 << 5);

    /// The flags of a frame on a lane, with no property.
    #[inline]
    #[must_use]
    pub const fn new(lane: Lane) -> FrameFlags {
        FrameFlags(lane as u8)
    }

    /// These flags and the properties of `other`. The lane stays.
    #[inline]
    #[must_use]
    pub const fn with(self, other: FrameFlags) -> FrameFlags {
        FrameFlags(self.0 | (other.0 & !Self::LANE_MASK))
    }

    /// These flags less the properties of `other`. The lane stays.
    #[inline]
    #[must_use]
    pub const fn without(self, other: FrameFlags) -> FrameFlags {
        FrameFlags(self.0 & !(other.0 & !Self::LANE_MASK))
    }

    /// Whether all properties of `other` are here; its lane does not count.
    #[inline]
    #[must_use]
    pub const fn has(self, other: FrameFlags) -> bool {
        let properties = other.0 & !Self::LANE_MASK;
        self.0 & properties == properties
    }

    /// These flags on another lane.
    #[inline]
    #[must_use]
    pub const fn on_lane(self, lane: Lane) -> FrameFlags {
        FrameFlags((self.0 & !Self::LANE_MASK) | lane as u8)
    }

    /// The lane of the frame.
    #[inline]
    #[must_use]
    pub const fn lane(self) -> Lane {
        match self.0 & Self::LANE_MASK {
            0 => Lane::Control,
            1 => Lane::Messages,
            2 => Lane::Streams,
            _ => Lane::Bulk,
        }
    }

    /// The byte that stands for these flags on the wire.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The flags of a byte; `None` if it has a bit that this version does not know.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<FrameFlags> {
        if bits & !Self::KNOWN == 0 { Some(FrameFlags(bits)) } else { None }
    }
}

/// Why bytes from a peer are not a frame. The link is of no use after that and has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The header was damaged, or the bytes are no header.
    #[error("the checksum of a frame header is wrong: the bytes were damaged or the peer does not speak this protocol")]
    HeaderChecksum,
    /// Routing block or body were damaged.
    #[error("the checksum of a frame body is wrong: the bytes were damaged on their way")]
    BodyChecksum,
    /// The frame has no body checksum although this side wants one.
    #[error("a frame has no body checksum; switch body checksums on at the peer, or off at this side")]
    BodyChecksumMissing,
    /// The frame is longer than this side takes.
    #[error("a frame has {length} bytes, {limit} are allowed; raise `frame_bytes_max` on both sides or send less")]
    TooLong {
        /// Length that the header states, in bytes.
        length: u32,
        /// Longest accepted frame, in bytes.
        limit: u32,
    },
    /// The stated length is less than that of a header.
    #[error("a frame header states a length of {length} bytes, less than the header itself has")]
    TooShort {
        /// Length that the header states, in bytes.
        length: u32,
    },
    /// This version does not know the kind of the frame.
    #[error("frame kind {kind} is unknown to this version; the peer must not use it before it was agreed on")]
    UnknownKind {
        /// The number in the header.
        kind: u8,
    },
    /// This version does not know one of the flags.
    #[error("frame flags {flags:#010b} are unknown to this version; the peer must not use them before agreed on")]
    UnknownFlags {
        /// The byte in the header.
        flags: u8,
    },
    /// The routing block would reach past the end of the frame.
    #[error("the routing block of a frame is longer than the frame")]
    RoutingLength,
    /// The routing block is no routing block.
    #[error("the routing block of a frame is wrong: {0}")]
    Routing(#[from] RoutingError),
}

impl FrameError {
    /// A short fixed name, for the label of a counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FrameError::HeaderChecksum => "header_checksum",
            FrameError::BodyChecksum => "body_checksum",
            FrameError::BodyChecksumMissing => "body_checksum_missing",
            FrameError::TooLong { .. } => "too_long",
            FrameError::TooShort { .. } => "too_short",
            FrameError::UnknownKind { .. } => "unknown_kind",
            FrameError::UnknownFlags { .. } => "unknown_flags",
            FrameError::RoutingLength => "routing_length",
            FrameError::Routing(_) => "routing",
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the whole frame in bytes, header included.
    pub length: u32,
    /// What the frame is.
    pub kind: FrameKind,
    /// Lane and properties.
    pub flags: FrameFlags,
    /// Length of the routing block in bytes; 0 if there is none.
    pub routing_length: u16,
    /// Tag of the message, or code of a cluster error.
    pub tag: u32,
    /// Shard that the message is for or comes from.
    pub shard: ShardId,
    /// Fencing token under which the sender sees the shard's owner, or under which the owner answers.
    pub token: Token,
    /// Pairs an answer with its request; chosen by the side that asks.
    pub correlation: u64,
    /// crc32c of routing block and body; 0 without [`FrameFlags::BODY_CHECKSUM`].
    pub body_checksum: u32,
}

impl FrameHeader {
    /// Writes the header and its checksum.
    #[inline]
    pub fn encode(&self, into: &mut [u8; HEADER_BYTES]) {
        into[0..4].copy_from_slice(&self.length.to_le_bytes());
        into[4] = self.kind.number();
        into[5] = self.flags.bits();
        into[6..8].copy_from_slice(&self.routing_length.to_le_bytes());
        into[8..12].copy_from_slice(&self.tag.to_le_bytes());
        into[12..16].copy_from_slice(&self.shard.0.to_le_bytes());
        into[16..24].copy_from_slice(&self.token.0.to_le_bytes());
        into[24..32].copy_from_slice(&self.correlation.to_le_bytes());
        into[32..36].copy_from_slice(&self.body_checksum.to_le_bytes());
        let checksum = super::checksum::crc32c_of::<CHECKSUM_AT>(&part(into, 0));
        into[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads and checks a header.
    ///
    /// # Errors
    /// If the checksum is wrong, kind or flags are unknown, or the lengths contradict one another.
    #[inline]
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        if super::checksum::crc32c_of::<CHECKSUM_AT>(&part(bytes, 0)) != u32_at(bytes, CHECKSUM_AT) {
            return Err(FrameError::HeaderChecksum);
        }
        let header = FrameHeader {
            length: u32_at(bytes, 0),
            kind: FrameKind::from_number(bytes[4]).ok_or(FrameError::UnknownKind { kind: bytes[4] })?,
            flags: FrameFlags::from_bits(bytes[5]).ok_or(FrameError::UnknownFlags { flags: bytes[5] })?,
            routing_length: u16_at(bytes, 6),
            tag: u32_at(bytes, 8),
            shard: ShardId(u32_at(bytes, 12)),
            token: Token(u64_at(bytes, 16)),
            correlation: u64_at(bytes, 24),
            body_checksum: u32_at(bytes, 32),
        };
        let Some(after_header) = header.length.checked_sub(HEADER_BYTES as u32) else {
            return Err(FrameError::TooShort { length: header.length });
        };
        if u32::from(header.routing_length) > after_header {
            return Err(FrameError::RoutingLength);
        }
        if header.body_checksum != 0 && !header.flags.has(FrameFlags::BODY_CHECKSUM) {
            return Err(FrameError::BodyChecksum);
        }
        Ok(header)
    }
}

/// Reads a number at an offset. Callers pass constant offsets within the array, so no check is left in the code.
#[inline]
pub(super) fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes(part(bytes, at))
}

/// As [`u16_at`].
#[inline]
pub(super) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

/// As [`u16_at`].
#[inline]
pub(super) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

/// As [`u16_at`].
#[inline]
pub(super) fn u128_at<const N: usize>(bytes: &[u8; N], at: usize) -> u128 {
    u128::from_le_bytes(part(bytes, at))
}

#[inline]
fn part<const N: usize, const M: usize>(bytes: &[u8; N], at: usize) -> [u8; M] {
    let mut part = [0; M];
    part.copy_from_slice(&bytes[at..at + M]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum was computed by an independent program.
    const FIXED: [u8; HEADER_BYTES] = [
        0x04, 0x03, 0x02, 0x01, 0x10, 0x2e, 0x06, 0x05, 0x0a, 0x09, 0x08, 0x07, 0x0e, 0x0d, 0x0c, 0x0b, 0x16, 0x15,
        0x14, 0x13, 0x12, 0x11, 0x10, 0x0f, 0x1e, 0x1d, 0x1c, 0x1b, 0x1a, 0x19, 0x18, 0x17, 0x22, 0x21, 0x20, 0x1f,
        0x05, 0xd7, 0x1b, 0x65,
    ];

    fn header() -> FrameHeader {
        FrameHeader {
            length: 0x0102_0304,
            kind: FrameKind::StreamRequest,
            flags: FrameFlags::new(Lane::Streams)
                .with(FrameFlags::BODY_CHECKSUM)
                .with(FrameFlags::MORE)
                .with(FrameFlags::UNINTERRUPTIBLE),
            routing_length: 0x0506,
            tag: 0x0708_090a,
            shard: ShardId(0x0b0c_0d0e),
            token: Token(0x0f10_1112_1314_1516),
            correlation: 0x1718_191a_1b1c_1d1e,
            body_checksum: 0x1f20_2122,
        }
    }

    fn encoded(header: &FrameHeader) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        header.encode(&mut bytes);
        bytes
    }

    #[test]
    fn the_layout_never_changes() {
        assert_eq!(encoded(&header()), FIXED);
        assert_eq!(FrameHeader::decode(&FIXED), Ok(header()));
    }

    #[test]
    fn kinds_have_fixed_numbers_both_ways() {
        let known: Vec<(u8, FrameKind)> =
            (0..=255).filter_map(|number| Some((number, FrameKind::from_number(number)?))).collect();
        assert!(known.iter().all(|(number, kind)| kind.number() == *number));
        let numbers: Vec<u8> = known.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 18, 19, 20, 21]);
        assert_eq!(FrameKind::Ask.number(), 1);
        assert_eq!(FrameKind::Credit.number(), 9);
        assert_eq!(FrameKind::StreamCancel.number(), 21);
    }

    #[test]
    fn flags_keep_lane_and_properties_apart() {
        for lane in [Lane::Control, Lane::Messages, Lane::Streams, Lane::Bulk] {
            let flags = FrameFlags::new(lane).with(FrameFlags::JSON).with(FrameFlags::MORE);
            assert_eq!(flags.lane(), lane);
            assert!(flags.has(FrameFlags::JSON) && flags.has(FrameFlags::MORE));
            assert!(!flags.has(FrameFlags::BODY_CHECKSUM));
            assert_eq!(flags.without(FrameFlags::JSON), FrameFlags::new(lane).with(FrameFlags::MORE));
            let moved = FrameFlags::new(Lane::Bulk).with(FrameFlags::JSON).with(FrameFlags::MORE).on_lane(lane);
            assert_eq!(moved, flags);
            assert_eq!(FrameFlags::from_bits(flags.bits()), Some(flags));
        }
        assert_eq!(FrameFlags::from_bits(0b0100_0000), None);
        assert_eq!(FrameFlags::from_bits(0b1000_0000), None);
    }

    #[test]
    fn a_header_that_contradicts_itself_is_refused_by_name() {
        let refused = |change: fn(&mut [u8; HEADER_BYTES])| {
            let plain = FrameHeader { length: 50, routing_length: 10, ..header() };
            let mut bytes = encoded(&plain);
            change(&mut bytes);
            let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
            bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
            FrameHeader::decode(&bytes)
        };
        assert!(refused(|_| ()).is_ok());
        assert_eq!(refused(|bytes| bytes[0] = 39), Err(FrameError::TooShort { length: 39 }));
        assert_eq!(refused(|bytes| bytes[6] = 11), Err(FrameError::RoutingLength));
        assert_eq!(refused(|bytes| bytes[4] = 10), Err(FrameError::UnknownKind { kind: 10 }));
        assert_eq!(refused(|bytes| bytes[5] = 0x40), Err(FrameError::UnknownFlags { flags: 0x40 }));
        assert_eq!(refused(|bytes| bytes[5] &= !4), Err(FrameError::BodyChecksum), "a checksum that is not announced");
        let mut damaged = FIXED;
        damaged[20] ^= 1;
        assert_eq!(FrameHeader::decode(&damaged), Err(FrameError::HeaderChecksum));
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut damaged = FIXED;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&damaged), Err(FrameError::HeaderChecksum), "bit {bit}");
        }
    }
}
