//! What travels between a pod and an `atoll manager`: a preface each way, then frames each way.
//!
//! Called by the server and by both clients (control records and saved state). A frame is the length of its body and
//! the crc32c of it, 4 bytes each, little-endian, then the body: one archived value. A frame without a body asks for a
//! sign of life and is answered by one. Invariants: nothing of a body is read before its length, checksum and archive
//! were checked; whatever comes from the other side ends in a value or in a [`Broken`], never in a panic; a body is
//! never buffered beyond the limit of its direction.

use atoll_macros::Wire;

use crate::base::hash::mix;
use crate::control::store::{StoreEvent, StoreRequest, StoreResponse};
use crate::wire::Wire as _;
use crate::wire::checksum::crc32c;
use crate::wire::codec::{self, CodecError};

/// Largest body of a request: a transaction of 128 plan pages of 25 KB each, and some more.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;
/// Largest body of an answer or event: the end of a lease deletes up to 65,536 records at one revision.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Length and checksum.
pub const HEADER_BYTES: usize = 8;
/// Bytes of the preface.
pub const PREFACE_BYTES: usize = 24;

const MAGIC: [u8; 8] = *b"ATOLLSTO";
/// Version of preface and frames; the values in them have their schema.
const VERSION: u16 = 1;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The control records.
    Control,
    /// What entities save.
    State,
}

impl Service {
    const fn code(self) -> u8 {
        match self {
            Service::Control => 1,
            Service::State => 2,
        }
    }
}

/// From a pod.
#[derive(Wire, Debug)]
pub(crate) struct Asked {
    /// Names the request until its answer.
    pub id: u64,
    /// The request.
    pub request: StoreRequest,
}

/// From the manager.
#[derive(Wire, Debug)]
pub(crate) enum Told {
    /// To a request.
    Answer {
        /// Its id.
        id: u64,
        /// The answer.
        response: StoreResponse,
    },
    /// Of a watch.
    Event(StoreEvent),
}

/// The schema of the control service.
pub(crate) const CONTROL_SCHEMA: u64 = mix(Asked::SCHEMA, Told::SCHEMA);

/// Why a connection was closed. Each has a name under which it is counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The other side speaks something else.
    #[error("the other side is no atoll store; check the address")]
    NotAtoll,
    /// It is another version.
    #[error("the other side has another version of the store protocol; run the same version of atoll on both")]
    OtherVersion,
    /// It said nothing.
    #[error("the other side sent no hello in time")]
    LateHello,
    /// It sent nothing for long.
    #[error("the other side was silent for too long")]
    Silent,
    /// A request was not answered in time.
    #[error("the store did not answer in time")]
    LateAnswer,
    /// A frame is larger than allowed.
    #[error("a frame of {0} bytes is larger than allowed")]
    TooLarge(u32),
    /// A frame was changed on its way.
    #[error("a frame has a wrong checksum")]
    Checksum,
    /// A body is no value of the expected type.
    #[error("a frame holds no valid message")]
    Malformed,
    /// There are too many connections.
    #[error("the store has as many connections as it takes; run fewer pods on it")]
    TooMany,
    /// It went away.
    #[error("the other side closed the connection")]
    Closed,
    /// The system says so.
    #[error("{0}")]
    System(String),
}

impl Broken {
    /// The name under which it is counted.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Broken::NotAtoll => "not_atoll",
            Broken::OtherVersion => "other_version",
            Broken::LateHello => "late_hello",
            Broken::Silent => "silent",
            Broken::LateAnswer => "late_answer",
            Broken::TooLarge(_) => "too_large",
            Broken::Checksum => "checksum",
            Broken::Malformed => "malformed",
            Broken::TooMany => "too_many",
            Broken::Closed => "closed",
            Broken::System(_) => "system",
        }
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::BrokenPipe => Broken::Closed,
            _ => Broken::System(error.to_string()),
        }
    }
}

/// The first bytes of each side.
#[must_use]
pub(crate) fn preface(service: Service, schema: u64) -> [u8; PREFACE_BYTES] {
    let mut bytes = [0; PREFACE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10] = service.code();
    bytes[16..].copy_from_slice(&schema.to_le_bytes());
    bytes
}

/// Which service a client asks for. Its schema is compared later, so that it can be told ours.
pub(crate) fn service_of(bytes: &[u8; PREFACE_BYTES]) -> Result<Service, Broken> {
    if bytes[..8] != MAGIC {
        return Err(Broken::NotAtoll);
    }
    let known = [Service::Control, Service::State].into_iter().find(|service| service.code() == bytes[10]);
    known.ok_or(Broken::OtherVersion)
}

/// Whether the other side speaks exactly this service.
pub(crate) fn compare_preface(bytes: &[u8; PREFACE_BYTES], service: Service, schema: u64) -> Result<(), Broken> {
    if bytes[..8] != MAGIC {
        return Err(Broken::NotAtoll);
    }
    if *bytes != preface(service, schema) { Err(Broken::OtherVersion) } else { Ok(()) }
}

/// Appends a frame; on an error `out` is as before.
pub(crate) fn frame<T: crate::wire::Wire>(value: &T, out: &mut Vec<u8>, limit: usize) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    if let Err(error) = codec::encode(value, out, limit) {
        out.truncate(start);
        return Err(error);
    }
    let body = &out[start + HEADER_BYTES..];
    // The limits are far below 4 GiB.
    let (length, checksum) = (body.len() as u32, crc32c(body));
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Appends a frame without a body.
pub(crate) fn sign_of_life(out: &mut Vec<u8>) {
    out.extend_from_slice(&0_u32.to_le_bytes());
    out.extend_from_slice(&crc32c(&[]).to_le_bytes());
}

/// Cuts received bytes into the bodies of frames.
#[derive(Debug)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    taken: usize,
    limit: usize,
}

impl Frames {
    /// For bodies up to a limit.
    pub fn new(limit: usize) -> Frames {
        Frames { bytes: Vec::new(), taken: 0, limit }
    }

    /// Takes what was received.
    pub fn push(&mut self, received: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(received);
    }

    /// The body of the next complete frame.
    pub fn next(&mut self) -> Result<Option<&[u8]>, Broken> {
        let rest = &self.bytes[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, c0, c1, c2, c3] = *header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length as usize > self.limit {
            return Err(Broken::TooLarge(length));
        }
        let Some(body) = rest.get(..length as usize) else { return Ok(None) };
        if crc32c(body) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(Broken::Checksum);
        }
        self.taken += HEADER_BYTES + body.len();
        Ok(Some(body))
    }
}

/// Reads a body.
pub(crate) fn read<T: crate::wire::Wire>(body: &[u8]) -> Result<T, Broken> {
    codec::decode(body).map_err(|_| Broken::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::store::{LeaseId, Revision, WatchId};
    use proptest::prelude::*;

    fn asked(id: u64) -> Asked {
        Asked { id, request: StoreRequest::Watch { watch: WatchId(id), prefix: "p/".into(), from: Revision(7) } }
    }

    #[test]
    fn frames_are_cut_wherever_they_arrive() {
        let mut bytes = Vec::new();
        for id in 0..3 {
            frame(&asked(id), &mut bytes, REQUEST_BYTES_MAX).expect("fits");
            sign_of_life(&mut bytes);
        }
        for step in [1, 7, bytes.len()] {
            let mut frames = Frames::new(REQUEST_BYTES_MAX);
            let mut bodies = Vec::new();
            for part in bytes.chunks(step) {
                frames.push(part);
                while let Some(body) = frames.next().expect("valid") {
                    bodies.push(body.to_vec());
                }
            }
            assert_eq!(bodies.len(), 6);
            for (at, body) in bodies.into_iter().enumerate() {
                if at % 2 == 1 {
                    assert!(body.is_empty());
                } else {
                    assert_eq!(read::<Asked>(&body).map(|asked| asked.id), Ok(at as u64 / 2));
                }
            }
        }
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused_before_it_arrived() {
        let mut frames = Frames::new(1000);
        frames.push(&[0xff; HEADER_BYTES]);
        assert_eq!(frames.next(), Err(Broken::TooLarge(u32::MAX)));
        let mut out = vec![1, 2];
        let lease = Told::Answer { id: 1, response: StoreResponse::Lease { lease: LeaseId(1), ttl: None } };
        assert!(frame(&lease, &mut out, 8).is_err());
        assert_eq!(out, [1, 2]);
    }

    #[test]
    fn prefaces_say_what_does_not_fit() {
        let ours = preface(Service::Control, CONTROL_SCHEMA);
        assert_eq!(service_of(&ours), Ok(Service::Control));
        assert_eq!(compare_preface(&ours, Service::Control, CONTROL_SCHEMA), Ok(()));
        assert_eq!(compare_preface(&ours, Service::Control, 1), Err(Broken::OtherVersion));
        assert_eq!(compare_preface(&ours, Service::State, CONTROL_SCHEMA), Err(Broken::OtherVersion));
        assert_eq!(service_of(b"GET / HTTP/1.1\r\nHost: xx"), Err(Broken::NotAtoll));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), flip in 0_usize..60) {
            let mut frames = Frames::new(REQUEST_BYTES_MAX);
            frames.push(&bytes);
            while let Ok(Some(body)) = frames.next() {
                let _ = read::<Asked>(body);
            }
            let _ = (read::<Asked>(&bytes), read::<Told>(&bytes));
            // A change of one bit of a valid frame is always seen.
            let mut valid = Vec::new();
            frame(&asked(5), &mut valid, REQUEST_BYTES_MAX).expect("fits");
            let at = flip % (valid.len() - 4) + 4;
            valid[at] ^= 1;
            let mut frames = Frames::new(REQUEST_BYTES_MAX);
            frames.push(&valid);
            prop_assert_eq!(frames.next().map(|_| ()), Err(Broken::Checksum));
        }
    }
}
