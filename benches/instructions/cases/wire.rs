//! Frames: what each message pays on its way out and in.

use std::hint::black_box;

use atoll::base::{ShardId, Token};
use atoll::services::echo::echo::Block;
use atoll::wire::checksum::crc32c;
use atoll::wire::codec::{decode, encode};
use atoll::wire::{FrameDecoder, FrameFlags, FrameKind, Lane, Routing, RoutingView, SendBuffer};

use crate::meter::Meter;

const FRAME_BYTES_MAX: u32 = 1 << 20;
const TIMES: u64 = 1_000;

fn checksum(meter: &mut Meter, bytes: usize) {
    let data: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
    meter.repeat(TIMES, || crc32c(black_box(&data)));
}

pub fn checksum_64(meter: &mut Meter) {
    checksum(meter, 64);
}

pub fn checksum_4096(meter: &mut Meter) {
    checksum(meter, 4_096);
}

/// Writes a frame with a message of 64 bytes, and takes it as the loop does that sends it.
fn write(buffer: &mut SendBuffer, kind: FrameKind, block: &Block, sent: &mut Vec<u8>) {
    let start = buffer.begin_frame(kind, FrameFlags::new(Lane::Messages), 7, ShardId(3), Token(1), 42);
    let into = buffer.bytes_mut();
    let routing_length = if kind == FrameKind::Ask {
        let routing = Routing {
            remaining_us: 5_000_000,
            hops: 0,
            chain: &[9],
            role: "default",
            entity_id: "account-0123456789ab",
            sender_incarnation: 1,
            sender_sequence: 2,
        };
        routing.encode(into).expect("all parts are short")
    } else {
        0
    };
    encode(block, into, FRAME_BYTES_MAX as usize).expect("it fits");
    buffer.finish_frame(start, routing_length).expect("it fits");
    sent.clear();
    buffer.take(sent);
}

/// Reads it, down to the message.
fn read(decoder: &mut FrameDecoder, bytes: &[u8]) -> Option<Block> {
    let mut at = 0;
    let span = decoder.next_frame(bytes, &mut at)?.ok()?;
    let frame = span.frame(bytes, &[]);
    if frame.header.kind == FrameKind::Ask {
        black_box(RoutingView::parse(frame.routing).ok()?);
    }
    decode(frame.body).ok()
}

fn encodes(meter: &mut Meter, kind: FrameKind) {
    let mut buffer = SendBuffer::new(1 << 20);
    let mut sent = Vec::new();
    let block = Block { block: [7; 8] };
    meter.repeat(TIMES, || write(&mut buffer, kind, black_box(&block), &mut sent));
}

fn decodes(meter: &mut Meter, kind: FrameKind) {
    let mut sent = Vec::new();
    write(&mut SendBuffer::new(1 << 20), kind, &Block { block: [7; 8] }, &mut sent);
    let mut decoder = FrameDecoder::new(FRAME_BYTES_MAX);
    assert!(read(&mut decoder, &sent).is_some_and(|block| block.block == [7; 8]));
    meter.repeat(TIMES, || read(&mut decoder, black_box(&sent)));
}

pub fn request_encode(meter: &mut Meter) {
    encodes(meter, FrameKind::Ask);
}

pub fn request_decode(meter: &mut Meter) {
    decodes(meter, FrameKind::Ask);
}

pub fn reply_encode(meter: &mut Meter) {
    encodes(meter, FrameKind::Reply);
}

pub fn reply_decode(meter: &mut Meter) {
    decodes(meter, FrameKind::Reply);
}
