//! A peer that writes its own bytes over a plain socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use atoll::base::hash::{entity_hash, shard_of_hash, stable_hash};
use atoll::base::limits::NUMBER_OF_SHARDS;
use atoll::base::{CoreIndex, PodUid, ShardId, Token};
use atoll::entity::Message;
use atoll::wire::control::Introduce;
use atoll::wire::{
    ANY_CORE, ControlMessage, FrameDecoder, FrameFlags, FrameHeader, FrameKind, HEADER_BYTES, Hello, Lane,
    PROTOCOL_VERSIONS, Routing, SendBuffer, decode_control, encode_control,
};

use super::PATIENCE;

/// A frame that arrived.
pub struct Received {
    pub header: FrameHeader,
    pub body: Vec<u8>,
}

impl Received {
    pub fn control(&self) -> ControlMessage {
        assert_eq!(self.header.kind, FrameKind::Control);
        decode_control(&self.body).unwrap()
    }
}

pub struct RawLink {
    pub stream: TcpStream,
    decoder: FrameDecoder,
    bytes: Vec<u8>,
    at: usize,
}

/// A right hello.
pub fn hello() -> Hello {
    Hello {
        versions: PROTOCOL_VERSIONS,
        target_core: ANY_CORE,
        sender_core: CoreIndex(0),
        cluster_name_hash: stable_hash("atoll"),
        sender_uid: PodUid(7),
        is_pod: false,
    }
}

/// A right introduction to a cluster of this name.
pub fn introduce(cluster_name: &str) -> Vec<u8> {
    control(
        &ControlMessage::Introduce(Introduce {
            cluster_name: cluster_name.to_owned(),
            uid: 7,
            role: "default".to_owned(),
            version: "1".to_owned(),
            is_pod: false,
            schemas: Vec::new(),
        }),
        0,
    )
}

/// A frame of any kind without a routing block.
pub fn frame(kind: FrameKind, tag: u32, correlation: u64, body: &[u8]) -> Vec<u8> {
    let lane = if kind == FrameKind::Control { Lane::Control } else { Lane::Messages };
    let mut buffer = SendBuffer::new(1 << 30);
    buffer.set_frame_bytes_max(u32::MAX);
    let start = buffer.begin_frame(kind, FrameFlags::new(lane), tag, ShardId(0), Token(0), correlation);
    buffer.bytes_mut().extend_from_slice(body);
    buffer.finish_frame(start, 0).unwrap();
    taken(buffer)
}

/// A control frame.
pub fn control(message: &ControlMessage, correlation: u64) -> Vec<u8> {
    let mut body = Vec::new();
    encode_control(message, &mut body).unwrap();
    frame(FrameKind::Control, 0, correlation, &body)
}

/// The shard of an id under the default configuration.
pub fn shard_of(id: &str) -> ShardId {
    shard_of_hash(entity_hash(0, id.as_bytes()), NUMBER_OF_SHARDS)
}

/// A right ask.
pub fn ask<M: Message>(id: &str, message: &M, correlation: u64) -> Vec<u8> {
    let mut body = Vec::new();
    atoll::wire::codec::encode(message, &mut body, 1 << 30).unwrap();
    request(FrameKind::Ask, M::TAG, id, shard_of(id), correlation, &body)
}

/// As [`ask`], by a sender that waits so long.
pub fn ask_within<M: Message>(id: &str, message: &M, correlation: u64, remaining: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    atoll::wire::codec::encode(message, &mut body, 1 << 30).unwrap();
    let remaining_us = atoll::wire::routing::remaining_us(Some(remaining));
    request_within(FrameKind::Ask, M::TAG, id, shard_of(id), correlation, &body, remaining_us)
}

/// A request whose parts are given.
pub fn request(kind: FrameKind, tag: u32, id: &str, shard: ShardId, correlation: u64, body: &[u8]) -> Vec<u8> {
    request_within(kind, tag, id, shard, correlation, body, 0)
}

fn request_within(
    kind: FrameKind,
    tag: u32,
    id: &str,
    shard: ShardId,
    correlation: u64,
    body: &[u8],
    remaining_us: u32,
) -> Vec<u8> {
    let mut buffer = SendBuffer::new(1 << 30);
    buffer.set_frame_bytes_max(u32::MAX);
    let start = buffer.begin_frame(kind, FrameFlags::new(Lane::Messages), tag, shard, Token(0), correlation);
    let routing = Routing {
        remaining_us,
        hops: 0,
        chain: &[],
        role: "default",
        entity_id: id,
        sender_incarnation: 1,
        sender_sequence: correlation,
    };
    let length = routing.encode(buffer.bytes_mut()).unwrap();
    buffer.bytes_mut().extend_from_slice(body);
    buffer.finish_frame(start, length).unwrap();
    taken(buffer)
}

fn taken(mut buffer: SendBuffer) -> Vec<u8> {
    let mut bytes = Vec::new();
    buffer.take(&mut bytes);
    bytes
}

/// Changes the bytes of a header and makes its checksum right again.
pub fn resealed(mut frame: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let header = &mut frame[..HEADER_BYTES];
    change(header);
    let checksum = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    frame
}

impl RawLink {
    /// Connected, and nothing said.
    pub fn dial(address: SocketAddr) -> RawLink {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        RawLink { stream, decoder: FrameDecoder::new(64 << 20), bytes: Vec::new(), at: 0 }
    }

    /// Said hello.
    pub fn greeted(address: SocketAddr) -> RawLink {
        let mut link = RawLink::dial(address);
        link.send(&hello().encode());
        link
    }

    /// Welcomed by the pod.
    pub fn open(address: SocketAddr) -> RawLink {
        let mut link = RawLink::greeted(address);
        link.send(&introduce("atoll"));
        let welcome = link.answer().control();
        assert!(matches!(welcome, ControlMessage::Welcome(_)), "{welcome:?}");
        link
    }

    /// Sends; the peer may have closed already.
    pub fn send(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => panic!("cannot send: {error}"),
        }
    }

    /// The next frame; `None` when the peer has closed.
    pub fn receive(&mut self) -> Option<Received> {
        loop {
            if let Some(span) = self.decoder.next_frame(&self.bytes, &mut self.at) {
                let span = span.expect("a pod sends right frames");
                let scratch = self.decoder.take_scratch();
                let frame = span.frame(&self.bytes, &scratch);
                let received = Received { header: frame.header, body: frame.body.to_vec() };
                self.decoder.give_back(scratch);
                return Some(received);
            }
            self.bytes.resize(64 << 10, 0);
            self.at = 0;
            match self.stream.read(&mut self.bytes) {
                Ok(0) => return None,
                Ok(length) => self.bytes.truncate(length),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                // A read with a timeout is not gone on with after the process was stopped.
                Err(error) if error.kind() == ErrorKind::Interrupted => self.bytes.clear(),
                Err(error) => panic!("the peer neither answers nor closes: {error}"),
            }
        }
    }

    /// The next frame that says nothing of credit.
    pub fn answer(&mut self) -> Received {
        loop {
            let received = self.receive().expect("the link stays open");
            let is_about_lanes = match received.header.kind {
                FrameKind::Credit => true,
                FrameKind::Control => matches!(received.control(), ControlMessage::Lanes(_)),
                _ => false,
            };
            if !is_about_lanes {
                return received;
            }
        }
    }

    /// Reads until the peer closes, and gives what came before.
    pub fn until_closed(mut self) -> Vec<Received> {
        std::iter::from_fn(|| self.receive()).collect()
    }
}
