//! The hello: the first 64 bytes that a dialer sends, before any frame.
//!
//! The acceptor reads exactly these bytes, learns which core the dialer wants and hands the connection to it. The
//! layout, all little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | the magic `ATOLLRNG` |
//! | 8 | 2 | `version_min` |
//! | 10 | 2 | `version_max` |
//! | 12 | 2 | `target_core` |
//! | 14 | 2 | `sender_core` |
//! | 16 | 8 | `cluster_name_hash` |
//! | 24 | 16 | `sender_uid` |
//! | 40 | 2 | `flags`: bit 0 is set if the sender is a pod |
//! | 42 | 18 | zeros; not looked at |
//! | 60 | 4 | crc32c of the 60 bytes before it |
//!
//! Invariants: this layout outlives every protocol version, since it is how two versions find out about each other.
//! So flags and bytes without a meaning are sent as zero and ignored when received.

use crate::base::{CoreIndex, PodUid};

use super::header::{u16_at, u32_at, u64_at, u128_at};

/// Length of a hello.
pub const HELLO_BYTES: usize = 64;
/// As the target: any core will do, the acceptor chooses. A client that does not know the pod yet asks so.
pub const ANY_CORE: CoreIndex = CoreIndex(u16::MAX);
/// The versions of the protocol that this build speaks.
pub const PROTOCOL_VERSIONS: VersionRange = VersionRange { min: 1, max: 2 };
/// Since this version the two sides tell each other what they take on each lane, and large bodies travel in parts.
pub const LANES_VERSION: u16 = 2;

const MAGIC: [u8; 8] = *b"ATOLLRNG";
const CHECKSUM_AT: usize = 60;
const FLAG_POD: u16 = 1;

/// Versions of the protocol, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// Oldest version.
    pub min: u16,
    /// Newest version.
    pub max: u16,
}

/// The two sides have no version of the protocol in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this side speaks protocol versions {} to {}, the peer {} to {}; update the older of the two",
    ours.min, ours.max, theirs.min, theirs.max
)]
pub struct VersionMismatch {
    /// What this side speaks.
    pub ours: VersionRange,
    /// What the peer speaks.
    pub theirs: VersionRange,
}

/// The newest version that both sides speak.
///
/// # Errors
/// If there is none.
pub fn negotiate(ours: VersionRange, theirs: VersionRange) -> Result<u16, VersionMismatch> {
    let newest = ours.max.min(theirs.max);
    if newest < ours.min || newest < theirs.min {
        return Err(VersionMismatch { ours, theirs });
    }
    Ok(newest)
}

/// Why bytes are not a hello. The connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The bytes do not start as a hello does.
    #[error("the peer does not speak this protocol; was another kind of server or client meant?")]
    Magic,
    /// The bytes were damaged.
    #[error("the checksum of the hello is wrong: the bytes were damaged on their way")]
    Checksum,
    /// The oldest version is newer than the newest.
    #[error("the hello offers versions {min} to {max}, which is no range")]
    Versions {
        /// The oldest version it offers.
        min: u16,
        /// The newest version it offers.
        max: u16,
    },
}

impl HelloError {
    /// A short fixed name, for the label of a counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            HelloError::Magic => "magic",
            HelloError::Checksum => "checksum",
            HelloError::Versions { .. } => "versions",
        }
    }
}

/// What a dialer says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Versions of the protocol that it speaks.
    pub versions: VersionRange,
    /// Core that it wants, or [`ANY_CORE`].
    pub target_core: CoreIndex,
    /// Core that it dials from.
    pub sender_core: CoreIndex,
    /// [`stable_hash`](crate::base::hash::stable_hash) of the cluster's name; the acceptor refuses another cluster.
    pub cluster_name_hash: u64,
    /// Which run of which process it is.
    pub sender_uid: PodUid,
    /// Whether it is a pod; else a client.
    pub is_pod: bool,
}

impl Hello {
    /// The hello as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.versions.min.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.versions.max.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.target_core.0.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.sender_core.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.cluster_name_hash.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.sender_uid.0.to_le_bytes());
        let flags = if self.is_pod { FLAG_POD } else { 0 };
        bytes[40..42].copy_from_slice(&flags.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads and checks a hello.
    ///
    /// # Errors
    /// If the magic or the checksum is wrong or the versions are no range.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, HelloError> {
        if bytes[..8] != MAGIC {
            return Err(HelloError::Magic);
        }
        if crc32c::crc32c(&bytes[..CHECKSUM_AT]) != u32_at(bytes, CHECKSUM_AT) {
            return Err(HelloError::Checksum);
        }
        let versions = VersionRange { min: u16_at(bytes, 8), max: u16_at(bytes, 10) };
        if versions.min > versions.max {
            return Err(HelloError::Versions { min: versions.min, max: versions.max });
        }
        Ok(Hello {
            versions,
            target_core: CoreIndex(u16_at(bytes, 12)),
            sender_core: CoreIndex(u16_at(bytes, 14)),
            cluster_name_hash: u64_at(bytes, 16),
            sender_uid: PodUid(u128_at(bytes, 24)),
            is_pod: u16_at(bytes, 40) & FLAG_POD != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The checksum was computed by an independent program.
    const FIXED: [u8; HELLO_BYTES] = [
        0x41, 0x54, 0x4f, 0x4c, 0x4c, 0x52, 0x4e, 0x47, 0x01, 0x00, 0x02, 0x00, 0x03, 0x00, 0x04, 0x00, 0x12, 0x11,
        0x10, 0x09, 0x08, 0x07, 0x06, 0x05, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xab,
        0xac, 0xad, 0xae, 0xaf, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0x3f, 0x2a, 0x4a,
    ];

    fn hello() -> Hello {
        Hello {
            versions: VersionRange { min: 1, max: 2 },
            target_core: CoreIndex(3),
            sender_core: CoreIndex(4),
            cluster_name_hash: 0x0506_0708_0910_1112,
            sender_uid: PodUid(0xafae_adac_abaa_a9a8_a7a6_a5a4_a3a2_a1a0),
            is_pod: true,
        }
    }

    fn resealed(mut bytes: [u8; HELLO_BYTES]) -> [u8; HELLO_BYTES] {
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        bytes[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn the_layout_never_changes() {
        assert_eq!(hello().encode(), FIXED);
        assert_eq!(Hello::decode(&FIXED), Ok(hello()));
        let client = Hello { is_pod: false, target_core: ANY_CORE, ..hello() };
        assert_eq!(Hello::decode(&client.encode()), Ok(client));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..HELLO_BYTES * 8 {
            let mut damaged = FIXED;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 64 { HelloError::Magic } else { HelloError::Checksum };
            assert_eq!(Hello::decode(&damaged), Err(expected), "bit {bit}");
        }
    }

    #[test]
    fn a_later_hello_that_uses_more_bytes_is_still_understood() {
        let mut later = FIXED;
        later[41] = 0x80;
        later[50] = 7;
        assert_eq!(Hello::decode(&resealed(later)), Ok(hello()));
    }

    #[test]
    fn versions_have_to_be_a_range() {
        let mut wrong = FIXED;
        wrong[8] = 3;
        assert_eq!(Hello::decode(&resealed(wrong)), Err(HelloError::Versions { min: 3, max: 2 }));
    }

    #[test]
    fn both_sides_agree_on_the_newest_version_that_both_speak() {
        for (ours, theirs) in (0..625).map(|n| ([n % 5, n / 5 % 5], [n / 25 % 5, n / 125])) {
            let [ours, theirs] = [ours, theirs].map(|[a, b]| VersionRange { min: a.min(b), max: a.max(b) });
            let speaks = |range: VersionRange, version| range.min <= version && version <= range.max;
            let newest = (0..5).rev().find(|version| speaks(ours, *version) && speaks(theirs, *version));
            assert_eq!(negotiate(ours, theirs).ok(), newest);
            assert_eq!(negotiate(theirs, ours).ok(), newest);
        }
        let (ours, theirs) = (VersionRange { min: 1, max: 2 }, VersionRange { min: 3, max: 3 });
        assert_eq!(negotiate(ours, theirs), Err(VersionMismatch { ours, theirs }));
        assert_eq!(negotiate(PROTOCOL_VERSIONS, PROTOCOL_VERSIONS), Ok(PROTOCOL_VERSIONS.max));
    }
}
