//! What a peer may do with frames, and what comes out: properties of the decoder and of the checks, seen from outside.

use atoll::base::{ShardId, Token};
use atoll::wire::{
    FrameDecoder, FrameError, FrameFlags, FrameHeader, FrameKind, HEADER_BYTES, HELLO_BYTES, Hello, Lane, Routing,
    RoutingView, SendBuffer, decode_control,
};
use proptest::collection::vec;
use proptest::prelude::*;

const FRAME_BYTES_MAX: u32 = 1 << 20;

const KINDS: [FrameKind; 15] = [
    FrameKind::Ask,
    FrameKind::Tell,
    FrameKind::Cancel,
    FrameKind::Reply,
    FrameKind::Failure,
    FrameKind::Ack,
    FrameKind::Moved,
    FrameKind::Control,
    FrameKind::Credit,
    FrameKind::StreamRequest,
    FrameKind::StreamElement,
    FrameKind::StreamDemand,
    FrameKind::StreamComplete,
    FrameKind::StreamFail,
    FrameKind::StreamCancel,
];

fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { 256 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// A frame as its sender means it.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    kind: FrameKind,
    flags: FrameFlags,
    tag: u32,
    shard: ShardId,
    token: Token,
    correlation: u64,
    routing: Vec<u8>,
    body: Vec<u8>,
}

fn flags() -> impl Strategy<Value = FrameFlags> {
    let no_checksum = !FrameFlags::BODY_CHECKSUM.bits();
    (0..64_u8).prop_map(move |bits| FrameFlags::from_bits(bits & no_checksum).unwrap())
}

/// Most frames are small; some are larger than the scratch of a decoder at first.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let large = if cfg!(miri) { 200 } else { 20_000 };
    prop_oneof![9 => vec(any::<u8>(), 0..120), 1 => vec(any::<u8>(), 0..large)]
}

fn sent() -> impl Strategy<Value = Sent> {
    let header = (prop::sample::select(&KINDS[..]), flags(), any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>());
    (header, vec(any::<u8>(), 0..60), body()).prop_map(
        |((kind, flags, tag, shard, token, correlation), routing, body)| Sent {
            kind,
            flags,
            tag,
            shard: ShardId(shard),
            token: Token(token),
            correlation,
            routing,
            body,
        },
    )
}

fn bytes_of(sent: &[Sent], body_checksum: bool) -> Vec<u8> {
    let mut buffer = SendBuffer::new(0);
    buffer.set_body_checksum(body_checksum);
    for frame in sent {
        let start = buffer.begin_frame(frame.kind, frame.flags, frame.tag, frame.shard, frame.token, frame.correlation);
        buffer.bytes_mut().extend_from_slice(&frame.routing);
        buffer.bytes_mut().extend_from_slice(&frame.body);
        buffer.finish_frame(start, frame.routing.len()).unwrap();
    }
    let mut bytes = Vec::new();
    buffer.take(&mut bytes);
    bytes
}

fn received(header: FrameHeader, routing: &[u8], body: &[u8]) -> Sent {
    Sent {
        kind: header.kind,
        flags: header.flags.without(FrameFlags::BODY_CHECKSUM),
        tag: header.tag,
        shard: header.shard,
        token: header.token,
        correlation: header.correlation,
        routing: routing.to_vec(),
        body: body.to_vec(),
    }
}

/// What a decoder makes of chunks: the frames, and the error that ended them.
fn decode<'a>(
    mut decoder: FrameDecoder,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Sent>, Option<FrameError>, FrameDecoder) {
    let mut all = Vec::new();
    for chunk in chunks {
        let mut frames = decoder.feed(chunk);
        while let Some(frame) = frames.next() {
            match frame {
                Ok(frame) => all.push(received(frame.header, frame.routing, frame.body)),
                Err(error) => return (all, Some(error), decoder),
            }
        }
    }
    (all, None, decoder)
}

fn decoder() -> FrameDecoder {
    FrameDecoder::new(FRAME_BYTES_MAX)
}

/// Cuts bytes at places given as fractions of 65,536.
fn cut<'a>(bytes: &'a [u8], cuts: &[u16]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) * bytes.len() / 65_536).collect();
    places.push(bytes.len());
    places.sort_unstable();
    let starts = core::iter::once(0).chain(places.iter().copied());
    starts.zip(places.iter()).map(|(start, end)| &bytes[start..*end]).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_chunking_gives_the_frames_that_were_sent(
        sent in vec(sent(), 0..12),
        cuts in vec(any::<u16>(), 0..30),
        body_checksum in any::<bool>(),
    ) {
        let bytes = bytes_of(&sent, body_checksum);
        let (frames, error, decoder) = decode(decoder(), cut(&bytes, &cuts));
        prop_assert_eq!(error, None);
        prop_assert_eq!(frames, sent);
        prop_assert!(!decoder.is_within_frame());
    }

    #[test]
    fn bytes_one_at_a_time_give_the_frames_that_were_sent(sent in vec(sent(), 1..4)) {
        let bytes = bytes_of(&sent, true);
        let (frames, error, _) = decode(decoder(), bytes.chunks(1));
        prop_assert_eq!(error, None);
        prop_assert_eq!(frames, sent);
    }

    /// The places are found with the decoder not borrowed, as a link does it.
    #[test]
    fn the_cursor_finds_the_same_frames_and_always_moves(
        sent in vec(sent(), 0..12),
        cuts in vec(any::<u16>(), 0..30),
        gives_back in any::<bool>(),
    ) {
        let bytes = bytes_of(&sent, true);
        let mut decoder = decoder();
        let mut frames = Vec::new();
        for chunk in cut(&bytes, &cuts) {
            let mut at = 0;
            loop {
                let before = at;
                let Some(span) = decoder.next_frame(chunk, &mut at) else { break };
                prop_assert!(at > before && at <= chunk.len());
                let span = span.unwrap();
                let scratch = decoder.take_scratch();
                let frame = span.frame(chunk, &scratch);
                frames.push(received(frame.header, frame.routing, frame.body));
                if gives_back {
                    decoder.give_back(scratch);
                }
            }
            prop_assert_eq!(at, chunk.len());
        }
        prop_assert_eq!(frames, sent);
    }

    #[test]
    fn bytes_cut_short_give_no_part_of_a_frame(sent in vec(sent(), 1..5), end in any::<u16>(), cuts in vec(any::<u16>(), 0..5)) {
        let bytes = bytes_of(&sent, true);
        let short = &bytes[..usize::from(end) * bytes.len() / 65_536];
        let (frames, error, decoder) = decode(decoder(), cut(short, &cuts));
        let whole: usize = frames.iter().map(|frame| HEADER_BYTES + frame.routing.len() + frame.body.len()).sum();
        prop_assert_eq!(error, None);
        prop_assert_eq!(&frames[..], &sent[..frames.len()]);
        prop_assert!(frames.len() < sent.len());
        prop_assert_eq!(decoder.is_within_frame(), whole < short.len());
    }

    #[test]
    fn every_flipped_bit_is_noticed(sent in sent(), cuts in vec(any::<u16>(), 0..3)) {
        let bytes = bytes_of(&[sent], true);
        let step = if cfg!(miri) { 61 } else { 1 + bytes.len() / 200 };
        for bit in (0..bytes.len() * 8).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (frames, error, _) = decode(decoder(), cut(&damaged, &cuts));
            prop_assert!(frames.is_empty(), "bit {} went unnoticed", bit);
            let expected = if bit < HEADER_BYTES * 8 { FrameError::HeaderChecksum } else { FrameError::BodyChecksum };
            prop_assert_eq!(error, Some(expected), "bit {}", bit);
        }
    }

    /// Without the body checksum only the body may differ: where a frame ends and what it is stays certain.
    #[test]
    fn without_body_checksums_a_flipped_bit_is_noticed_or_stays_in_its_body(sent in vec(sent(), 1..4), bit in any::<u32>()) {
        let mut bytes = bytes_of(&sent, false);
        let bit = bit as usize % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (frames, error, _) = decode(decoder(), [&bytes[..]]);
        match error {
            Some(error) => {
                prop_assert_eq!(error, FrameError::HeaderChecksum);
                prop_assert_eq!(&frames[..], &sent[..frames.len()]);
            }
            None => {
                let differing = frames.iter().zip(&sent).filter(|(got, sent)| got != sent).count();
                let shape = |frame: &Sent| Sent {
                    routing: vec![0; frame.routing.len()],
                    body: vec![0; frame.body.len()],
                    ..frame.clone()
                };
                prop_assert_eq!(frames.iter().map(shape).collect::<Vec<_>>(), sent.iter().map(shape).collect::<Vec<_>>());
                prop_assert_eq!(differing, 1);
            }
        }
    }

    #[test]
    fn random_bytes_are_refused_and_take_no_memory(bytes in vec(any::<u8>(), HEADER_BYTES..2000), cuts in vec(any::<u16>(), 0..5)) {
        let (frames, error, decoder) = decode(decoder(), cut(&bytes, &cuts));
        prop_assert!(frames.is_empty());
        prop_assert_eq!(error, Some(FrameError::HeaderChecksum));
        prop_assert_eq!(decoder.held_bytes(), 0);
    }

    /// A peer that computes right checksums over nonsense.
    #[test]
    fn nonsense_with_a_right_checksum_never_panics(mut header in any::<[u8; HEADER_BYTES]>(), length in 0..200_u32, rest in vec(any::<u8>(), 0..300)) {
        for known in [false, true] {
            header[0..4].copy_from_slice(&length.to_le_bytes());
            if known {
                header[4] = KINDS[usize::from(header[4]) % KINDS.len()].number();
                header[5] &= 0b11_1011;
                (header[6], header[7]) = (header[6] % 64, 0);
                header[32..36].fill(0);
            }
            let checksum = crc32c(&header[..36]);
            header[36..].copy_from_slice(&checksum.to_le_bytes());
            let bytes = [&header[..], &rest].concat();
            let (frames, _, decoder) = decode(decoder(), [&bytes[..]]);
            prop_assert!(decoder.held_bytes() <= 4096);
            for frame in frames {
                let _ = RoutingView::parse(&frame.routing);
                let _ = decode_control(&frame.body);
            }
        }
    }

    #[test]
    fn a_lying_length_takes_little_memory(length in 40..u32::MAX, arrived in 0..5000_usize) {
        let sent = Sent {
            kind: FrameKind::Reply, flags: FrameFlags::new(Lane::Messages), tag: 0, shard: ShardId(0),
            token: Token(0), correlation: 0, routing: vec![], body: vec![],
        };
        let mut header = *bytes_of(&[sent], true).first_chunk().unwrap();
        FrameHeader { length, ..FrameHeader::decode(&header).unwrap() }.encode(&mut header);
        let bytes = [&header[..], &vec![0; arrived]].concat();
        let mut decoder = FrameDecoder::new(u32::MAX);
        for chunk in bytes.chunks(100) {
            let mut frames = decoder.feed(chunk);
            while frames.next().is_some() {}
        }
        prop_assert!(decoder.held_bytes() < 64 << 10);
    }

    #[test]
    fn routing_comes_back_as_it_was(
        remaining_us in any::<u32>(), hops in any::<u8>(), chain in vec(any::<u64>(), 0..=8),
        role in "[a-zä]{0,32}", entity_id in "\\PC{1,60}", sender in any::<(u64, u64)>(),
    ) {
        let routing = Routing {
            remaining_us, hops, chain: &chain, role: &role, entity_id: &entity_id,
            sender_incarnation: sender.0, sender_sequence: sender.1,
        };
        let mut bytes = vec![1, 2, 3];
        let length = routing.encode(&mut bytes).unwrap();
        prop_assert_eq!(length + 3, bytes.len());
        let view = RoutingView::parse(&bytes[3..]).unwrap();
        let chain_seen: Vec<u64> = view.chain().collect();
        prop_assert_eq!(&chain_seen, &chain);
        let again = Routing {
            remaining_us: view.remaining_us, hops: view.hops, chain: &chain_seen,
            role: if role.is_empty() { "" } else { view.role }, entity_id: view.entity_id,
            sender_incarnation: view.sender_incarnation, sender_sequence: view.sender_sequence,
        };
        prop_assert_eq!(again, routing);
    }

    #[test]
    fn random_routing_hello_and_control_bytes_never_panic(bytes in vec(any::<u8>(), 0..400), hello in vec(any::<u8>(), HELLO_BYTES)) {
        if let Ok(view) = RoutingView::parse(&bytes) {
            prop_assert!(!view.entity_id.is_empty());
        }
        let _ = decode_control(&bytes);
        prop_assert!(Hello::decode(hello.first_chunk().unwrap()).is_err());
    }

    /// Random blocks rarely pass the checks of their lengths, so these are told the right ones.
    #[test]
    fn a_routing_block_with_fitting_lengths_is_refused_only_for_its_text(
        fixed in any::<[u8; 24]>(), calls in 0..=8_u8, role in text_bytes(0..=64), id in text_bytes(1..=255),
    ) {
        let mut bytes = fixed.to_vec();
        (bytes[5], bytes[6], bytes[7]) = (calls, role.len() as u8, id.len() as u8);
        bytes.resize(24 + usize::from(calls) * 8, 0xff);
        bytes.extend_from_slice(&role);
        bytes.extend_from_slice(&id);
        let are_texts = str::from_utf8(&role).is_ok() && str::from_utf8(&id).is_ok();
        prop_assert_eq!(RoutingView::parse(&bytes).is_ok(), are_texts);
    }
}

/// Bytes that are UTF-8 about as often as not.
fn text_bytes(length: core::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![300 => b'a'..=b'z', 1 => any::<u8>()], length)
}

/// crc32c bit by bit, written here so that the tests do not trust the library.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}
