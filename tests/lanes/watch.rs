//! Who reads along on a link, and knows what may be on each lane.

use std::collections::HashMap;

use atoll::engine::LinkLimits;
use atoll::wire::{FrameDecoder, FrameFlags, FrameHeader, FrameKind, Lane};

/// Bytes of large bodies that one send may have: two parts, with headers and routing blocks.
pub const BULK_IN_SEND: usize = 2 * (64 << 10) + 2048;

/// A request that was seen and not answered yet.
#[derive(Debug)]
struct Open {
    lane: Lane,
    bytes: u64,
    /// All of it was sent.
    whole: bool,
}

pub struct Watch {
    to_pod: FrameDecoder,
    to_client: FrameDecoder,
    windows: [u64; 4],
    /// What the client may have sent by now, as it was told.
    pub granted: [u64; 4],
    pub sent: [u64; 4],
    open: HashMap<u64, Open>,
    /// Of the request and of the reply in parts.
    pub in_parts: u64,
    pub cancels: u64,
}

impl Watch {
    pub fn new(limits: &LinkLimits) -> Watch {
        let mut windows = [0; 4];
        windows[Lane::Messages as usize] = u64::from(limits.credit_bytes);
        windows[Lane::Bulk as usize] = u64::from(limits.bulk_credit_bytes);
        Watch {
            to_pod: FrameDecoder::new(u32::MAX),
            to_client: FrameDecoder::new(u32::MAX),
            windows,
            granted: windows,
            sent: [0; 4],
            open: HashMap::new(),
            in_parts: 0,
            cancels: 0,
        }
    }

    /// Bytes that are open on a lane.
    pub fn open(&self, lane: Lane) -> u64 {
        self.open.values().filter(|open| open.lane == lane).map(|open| open.bytes).sum()
    }

    /// One send of the client. Returns the frames that it has.
    pub fn sent(&mut self, bytes: &[u8]) -> Vec<FrameHeader> {
        let mut frames = self.to_pod.feed(bytes);
        let mut headers = Vec::new();
        let mut bulk = 0;
        while let Some(frame) = frames.next() {
            let frame = frame.expect("a core sends right frames");
            let header = frame.header;
            headers.push(header);
            let lane = header.flags.lane();
            bulk += if lane == Lane::Bulk { header.length as usize } else { 0 };
            let at = lane as usize;
            match header.kind {
                FrameKind::Ask | FrameKind::Tell => {
                    let more = header.flags.has(FrameFlags::MORE);
                    if let Some(open) = self.open.get_mut(&header.correlation).filter(|open| !open.whole) {
                        open.whole = !more;
                        continue;
                    }
                    let body = if more {
                        u32::from_le_bytes(frame.body[..4].try_into().unwrap()) as usize
                    } else {
                        frame.body.len()
                    };
                    let bytes = (frame.routing.len() + body) as u64;
                    self.in_parts += u64::from(more);
                    if lane == Lane::Bulk {
                        assert!(self.sent[at] + bytes <= self.granted[at], "a large body exceeds the credit");
                    } else {
                        assert!(lane == Lane::Messages && body <= 16 << 10, "a body of {body} bytes on {lane:?}");
                        assert!(self.sent[at] < self.granted[at], "a message has no credit");
                    }
                    self.sent[at] += bytes;
                    let known = self.open.insert(header.correlation, Open { lane, bytes, whole: !more });
                    assert!(known.is_none(), "a message was sent twice");
                }
                FrameKind::Cancel => {
                    self.cancels += 1;
                    if let Some(open) = self.open.get(&header.correlation).filter(|open| !open.whole) {
                        self.sent[Lane::Bulk as usize] -= open.bytes;
                        self.open.remove(&header.correlation);
                    }
                }
                _ => {}
            }
        }
        assert!(bulk <= BULK_IN_SEND, "{bulk} bytes of large bodies in one send");
        // What one small request had is not remembered, so of those only the credit is exact.
        let (open, window) = (self.open(Lane::Bulk), self.windows[Lane::Bulk as usize]);
        assert!(open <= window, "{open} bytes of large bodies are open, {window} may be");
        headers
    }

    /// One send of the pod, when the client gets it.
    pub fn answered(&mut self, bytes: &[u8]) -> Vec<FrameHeader> {
        let mut frames = self.to_client.feed(bytes);
        let mut headers = Vec::new();
        let mut bulk = 0;
        while let Some(frame) = frames.next() {
            let header = frame.expect("a core sends right frames").header;
            headers.push(header);
            let lane = header.flags.lane();
            bulk += if lane == Lane::Bulk { header.length as usize } else { 0 };
            match header.kind {
                FrameKind::Credit => {
                    let granted = &mut self.granted[lane as usize];
                    assert!(header.correlation > *granted, "no grant is less than one before");
                    *granted = header.correlation;
                }
                FrameKind::Reply | FrameKind::Ack | FrameKind::Failure | FrameKind::Moved
                    if !header.flags.has(FrameFlags::MORE) =>
                {
                    assert!(self.open.remove(&header.correlation).is_some(), "an answer to nothing");
                }
                _ => {}
            }
        }
        assert!(bulk <= BULK_IN_SEND, "{bulk} bytes of large bodies in one send");
        headers
    }
}
