//! The body of a [`Moved`](super::FrameKind::Moved) frame: where the shard of a refused request is.
//!
//! Written by the pod that got the request and read by its sender, both in `engine`. The header's token is that of the
//! refused request. The layout, all little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | epoch of the table that the answer comes from |
//! | 8 | 8 | token of the owner; 0 if no owner is known, then nothing follows |
//! | 16 | 16 | uid of the owning pod |
//! | 32 | 2 | its core |
//! | 34 | 2 | length of its address |
//! | 36 | | its address, UTF-8 |
//!
//! Invariant: what was read has an address of at most [`ADDRESS_BYTES_MAX`] bytes, and bytes to spare are refused.

use crate::base::{CoreIndex, Epoch, PodUid, Token};

/// Longest address: a DNS name (253 bytes) and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;
const EMPTY_BYTES: usize = 16;
const HEAD_BYTES: usize = 36;

/// The owner of a shard, as a pod knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedOwner<'a> {
    /// Token of the ownership, never 0.
    pub token: Token,
    /// The pod.
    pub uid: PodUid,
    /// Its core.
    pub core: CoreIndex,
    /// Where it accepts links, as `host:port`.
    pub address: &'a str,
}

/// The newest that a pod knows of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved<'a> {
    /// Epoch of its table.
    pub epoch: Epoch,
    /// The owner, if it knows one.
    pub owner: Option<MovedOwner<'a>>,
}

/// The body of a `Moved` frame is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body of a `Moved` frame does not say where the shard is")]
pub struct InvalidMoved;

impl<'a> Moved<'a> {
    /// Appends the body.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.epoch.0.to_le_bytes());
        let Some(owner) = &self.owner else { return into.extend_from_slice(&0_u64.to_le_bytes()) };
        into.extend_from_slice(&owner.token.0.to_le_bytes());
        into.extend_from_slice(&owner.uid.0.to_le_bytes());
        into.extend_from_slice(&owner.core.0.to_le_bytes());
        into.extend_from_slice(&(owner.address.len() as u16).to_le_bytes());
        into.extend_from_slice(owner.address.as_bytes());
    }

    /// Reads a body.
    ///
    /// # Errors
    /// If it has not the layout of the [module](self).
    pub fn decode(body: &'a [u8]) -> Result<Moved<'a>, InvalidMoved> {
        let epoch = Epoch(u64::from_le_bytes(field(body, 0)?));
        let token = Token(u64::from_le_bytes(field(body, 8)?));
        if token == Token(0) {
            let owner = None;
            return if body.len() == EMPTY_BYTES { Ok(Moved { epoch, owner }) } else { Err(InvalidMoved) };
        }
        let uid = PodUid(u128::from_le_bytes(field(body, 16)?));
        let core = CoreIndex(u16::from_le_bytes(field(body, 32)?));
        let length = usize::from(u16::from_le_bytes(field(body, 34)?));
        let address = body.get(HEAD_BYTES..).filter(|address| address.len() == length).ok_or(InvalidMoved)?;
        let address = core::str::from_utf8(address).map_err(|_| InvalidMoved)?;
        if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
            return Err(InvalidMoved);
        }
        Ok(Moved { epoch, owner: Some(MovedOwner { token, uid, core, address }) })
    }
}

fn field<const N: usize>(body: &[u8], at: usize) -> Result<[u8; N], InvalidMoved> {
    body.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).ok_or(InvalidMoved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved() -> Moved<'static> {
        let owner =
            MovedOwner { token: Token(7), uid: PodUid(u128::MAX - 3), core: CoreIndex(2), address: "[::1]:4100" };
        Moved { epoch: Epoch(5), owner: Some(owner) }
    }

    fn encoded(moved: &Moved<'_>) -> Vec<u8> {
        let mut body = Vec::new();
        moved.encode(&mut body);
        body
    }

    #[test]
    fn a_body_comes_back_as_it_was() {
        for moved in [moved(), Moved { epoch: Epoch(9), owner: None }] {
            assert_eq!(Moved::decode(&encoded(&moved)), Ok(moved));
        }
    }

    #[test]
    fn the_layout_is_fixed() {
        let body = encoded(&moved());
        assert_eq!(body[..16], [5, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(body[32..], *b"\x02\0\x0a\0[::1]:4100");
        assert_eq!(encoded(&Moved { epoch: Epoch(0), owner: None }), [0; 16]);
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_refused() {
        for moved in [moved(), Moved { epoch: Epoch(9), owner: None }] {
            let mut body = encoded(&moved);
            for length in 0..body.len() {
                assert_eq!(Moved::decode(&body[..length]), Err(InvalidMoved), "{length} bytes");
            }
            body.push(0);
            assert_eq!(Moved::decode(&body), Err(InvalidMoved));
        }
        let mut body = encoded(&moved());
        body[36] = 0xff;
        assert_eq!(Moved::decode(&body), Err(InvalidMoved));
        let long = "x".repeat(ADDRESS_BYTES_MAX + 1);
        let owner = MovedOwner { address: &long, ..moved().owner.unwrap() };
        assert_eq!(Moved::decode(&encoded(&Moved { epoch: Epoch(1), owner: Some(owner) })), Err(InvalidMoved));
        let owner = MovedOwner { address: "", ..moved().owner.unwrap() };
        assert_eq!(Moved::decode(&encoded(&Moved { epoch: Epoch(1), owner: Some(owner) })), Err(InvalidMoved));
    }
}
