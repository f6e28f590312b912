//! Peers that send what makes no sense: each closes its own link, with a counted reason, and harms nobody else.
#![cfg(feature = "runtime")]

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use atoll::base::{ClusterError, ShardId};
use atoll::client::{ClientOptions, ConnectError};
use atoll::entity::Message;
use atoll::services::echo::{EchoRef, echo};
use atoll::wire::{ControlMessage, FrameKind, HEADER_BYTES, Hello, Inspect, VersionRange};
use atoll::{Client, SendError};
use support::*;

/// The same messages as the pod's `echo` by name, with other shapes.
mod other_build {
    #[atoll::protocol(name = "echo")]
    pub trait Echo {
        async fn add(&mut self, value: u32) -> u64;
        async fn total(&self) -> u64;
        async fn unheard_of(&mut self) -> u64;
    }
}

/// A pod, a client that watches its counters, and one that must go on being served.
struct Poisoned {
    pod: PodProcess,
    watcher: Client,
    steady: SteadyClient,
}

impl Poisoned {
    fn start(arguments: &[&str]) -> Poisoned {
        let pod = PodProcess::start(arguments);
        let watcher = Client::connect([pod.address]).unwrap();
        let steady = SteadyClient::start(pod.address);
        Poisoned { pod, watcher, steady }
    }

    /// Runs `poison`, and waits until the pod has counted the reason once more.
    fn counts(&self, reason: &str, poison: impl FnOnce()) {
        let before = refused(&counters(&self.watcher), reason);
        poison();
        until(&format!("`{reason}` is counted"), || (refused(&counters(&self.watcher), reason) > before).then_some(()));
    }

    /// An open link that sends these bytes must be closed for this reason, and get no answer.
    fn closes(&self, reason: &str, bytes: &[u8]) {
        self.counts(reason, || {
            let mut link = RawLink::open(self.pod.address);
            link.send(bytes);
            let answers: Vec<_> = link.until_closed().into_iter().map(|frame| frame.header.kind).collect();
            assert!(answers.iter().all(|kind| *kind == FrameKind::Credit), "{reason}: {answers:?}");
        });
    }

    /// All others went on, and nothing is left of the poisoned links.
    fn finish(mut self) {
        until("only the links of the good clients are left", || {
            (sum_of(&counters(&self.watcher), "links_open") <= GOOD_LINKS_MAX).then_some(())
        });
        self.steady.finish();
        assert!(self.pod.is_running());
        assert!(self.pod.line_with("panicked").is_none(), "{}", self.pod.log());
    }
}

/// Two clients of one core each, at a pod of one core: one link to learn the table, one to send by.
const GOOD_LINKS_MAX: u64 = 4;

fn add(correlation: u64) -> Vec<u8> {
    ask("poison", &echo::Add { value: 1 }, correlation)
}

#[test]
fn a_right_raw_link_is_answered() {
    let pod = PodProcess::start(&[]);
    let mut link = RawLink::open(pod.address);
    link.send(&add(41));
    let reply = link.answer();
    assert_eq!((reply.header.kind, reply.header.correlation), (FrameKind::Reply, 41));
    let outcome = atoll::wire::codec::decode::<Result<u64, atoll::Never>>(&reply.body);
    assert_eq!(outcome.unwrap().unwrap(), 1);
    // The hello in pieces of one byte, and the frames after it too.
    let mut slow = RawLink::dial(pod.address);
    for byte in [&hello().encode()[..], &introduce("atoll"), &add(42)].concat() {
        slow.send(&[byte]);
    }
    assert!(matches!(slow.answer().control(), ControlMessage::Welcome(_)));
    assert_eq!(slow.answer().header.correlation, 42);
}

#[test]
fn wrong_frames_close_their_link_with_a_counted_reason() {
    let pod = Poisoned::start(&[]);
    let right = add(1);
    let changed = |at: usize, by: u8| {
        let mut bytes = right.clone();
        bytes[at] ^= by;
        bytes
    };
    let header = |change: &dyn Fn(&mut [u8])| resealed(right.clone(), change);
    let length = |length: u32| header(&|header| header[..4].copy_from_slice(&length.to_le_bytes()));

    pod.closes("header_checksum", &[0xa5; 4096]);
    pod.closes("header_checksum", b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
    for at in [0, 4, 5, 6, 8, 12, 16, 24, 32, 36] {
        pod.closes("header_checksum", &changed(at, 0x10));
    }
    for at in [HEADER_BYTES, right.len() / 2 + 20, right.len() - 1] {
        pod.closes("body_checksum", &changed(at, 1));
    }
    pod.closes("too_long", &length(u32::MAX));
    pod.closes("too_long", &length((1 << 20) + 1));
    pod.closes("too_short", &length(HEADER_BYTES as u32 - 1));
    pod.closes("too_short", &length(0));
    pod.closes("unknown_kind", &header(&|header| header[4] = 200));
    pod.closes("unknown_flags", &header(&|header| header[5] |= 0x80));
    pod.closes(
        "body_checksum_missing",
        &header(&|header| {
            header[5] &= !(1 << 2);
            header[32..36].fill(0);
        }),
    );
    pod.closes("routing_length", &header(&|header| header[6..8].copy_from_slice(&u16::MAX.to_le_bytes())));
    // Without a routing block there is no address.
    pod.closes("routing", &frame(FrameKind::Ask, echo::Add::TAG, 1, &[]));
    pod.closes("routing", &frame(FrameKind::Tell, echo::Add::TAG, 1, &[0xff; 30]));
    // A length that lies a little: the next header is read in the wrong place.
    let lies = [length(right.len() as u32 + 8), right.clone(), right.clone()].concat();
    pod.closes("body_checksum", &lies);
    pod.finish();
}

#[test]
fn a_truncated_frame_is_dropped_with_its_link() {
    let pod = Poisoned::start(&[]);
    let right = add(1);
    for cut in [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5, right.len() - 1] {
        let mut link = RawLink::open(pod.pod.address);
        link.send(&right[..cut]);
        link.stream.shutdown(Shutdown::Write).unwrap();
        assert!(link.until_closed().is_empty(), "{cut} bytes get no answer");
    }
    pod.finish();
}

#[test]
fn frames_before_and_out_of_the_handshake_close_the_link() {
    let pod = Poisoned::start(&[]);
    let address = pod.pod.address;
    let closes = |reason, greeted: bool, bytes: Vec<u8>| {
        pod.counts(reason, || {
            let mut link = if greeted { RawLink::open(address) } else { RawLink::greeted(address) };
            link.send(&bytes);
            assert!(link.until_closed().iter().all(|frame| frame.header.kind == FrameKind::Credit), "{reason}");
        });
    };
    closes("frame_before_handshake", false, add(1));
    closes("frame_before_handshake", false, frame(FrameKind::Reply, 0, 1, &[]));
    closes("control_before_handshake", false, control(&ControlMessage::Ping { nonce: 1 }, 0));
    let question = ControlMessage::InspectRequest { question: Inspect::Shards };
    closes("control_before_handshake", false, control(&question, 0));
    closes("control_message", false, frame(FrameKind::Control, 0, 0, &[0xff; 100]));
    closes("control_message", false, frame(FrameKind::Control, 0, 0, &[]));
    closes("control_message", true, frame(FrameKind::Control, 0, 0, &[7; 3]));
    closes("second_handshake", true, introduce("atoll"));
    pod.finish();
}

#[test]
fn a_dialer_of_another_cluster_or_version_is_told_why() {
    let pod = Poisoned::start(&[]);
    let address = pod.pod.address;
    let refusal = |reason, bytes: &[u8]| {
        let mut text = String::new();
        pod.counts(reason, || {
            let mut link = RawLink::dial(address);
            link.send(bytes);
            let answers = link.until_closed();
            let Some(ControlMessage::Refused { reason }) = answers.first().map(Received::control) else {
                panic!("no refusal but {} frames", answers.len());
            };
            text = reason;
        });
        text
    };
    let elsewhere = Hello { cluster_name_hash: 1, ..hello() }.encode();
    assert!(refusal("cluster_name", &elsewhere).contains("belongs to the cluster `atoll`"));
    let lies = [&hello().encode()[..], &introduce("elsewhere")].concat();
    assert!(refusal("cluster_name", &lies).contains("the dialer to `elsewhere`"));
    let future = Hello { versions: VersionRange { min: 90, max: 91 }, ..hello() }.encode();
    assert!(refusal("version", &future).contains("update the older of the two"));
    let nowhere = Hello { target_core: atoll::base::CoreIndex(77), ..hello() }.encode();
    assert!(refusal("core_unknown", &nowhere).contains("core 77 is not one"));

    let options = ClientOptions { cluster_name: "elsewhere".to_owned(), ..ClientOptions::default() };
    match Client::connect_with([address], options).map(drop) {
        Err(ConnectError::Refused(reason)) => assert!(reason.contains("belongs to the cluster `atoll`"), "{reason}"),
        other => panic!("{other:?}"),
    }
    pod.finish();
}

#[test]
fn what_is_no_hello_is_closed() {
    let pod = Poisoned::start(&["--set", "links.hello_timeout=300ms"]);
    let address = pod.pod.address;
    let dialed = |bytes: &[u8]| {
        let mut link = RawLink::dial(address);
        link.send(bytes);
        assert!(link.until_closed().is_empty());
    };
    pod.counts("magic", || dialed(&[0; 64]));
    pod.counts("magic", || dialed(&b"GET /index.html HTTP/1.1\r\nHost: somewhere.example\r\n\r\n".repeat(2)));
    let mut damaged = hello().encode();
    damaged[30] ^= 1;
    pod.counts("checksum", || dialed(&damaged));
    let backwards = Hello { versions: VersionRange { min: 2, max: 1 }, ..hello() };
    pod.counts("versions", || dialed(&backwards.encode()));
    // Those who say nothing, or half of it, or stop after it, have only so much time.
    pod.counts("hello_timeout", || dialed(&[]));
    pod.counts("hello_timeout", || dialed(&hello().encode()[..63]));
    pod.counts("handshake_timeout", || dialed(&hello().encode()));
    pod.counts("hello_broken", || {
        let mut link = RawLink::dial(address);
        link.send(&hello().encode()[..10]);
        link.stream.shutdown(Shutdown::Write).unwrap();
        assert!(link.until_closed().is_empty());
    });
    pod.finish();
}

#[test]
fn a_request_that_cannot_be_served_is_answered_and_the_link_stays() {
    let pod = Poisoned::start(&[]);
    let mut link = RawLink::open(pod.pod.address);
    let id = "poison";
    let shard = shard_of(id);
    let mut failure = |bytes: &[u8]| {
        link.send(bytes);
        let answer = link.answer();
        assert_eq!(answer.header.kind, FrameKind::Failure);
        ClusterError::from_code(answer.header.tag).unwrap()
    };
    let requests = |tag, shard, body: &[u8]| request(FrameKind::Ask, tag, id, shard, 9, body);
    let text = echo::Panic::TAG;
    for garbage in [&[][..], &[1], &[0xff; 7], &[0x80; 8], &[0x80; 4096], &[0xbf; 9]] {
        assert_eq!(failure(&requests(text, shard, garbage)), ClusterError::Serialization, "{garbage:?}");
    }
    assert_eq!(failure(&requests(echo::Echo::TAG, shard, &[0x7f; 1000])), ClusterError::Serialization);
    let wrong_shard = ShardId(shard.0 ^ 1);
    assert_eq!(failure(&requests(echo::Add::TAG, wrong_shard, &[1; 8])), ClusterError::InvalidShardId);
    assert_eq!(failure(&requests(echo::Add::TAG, ShardId(u32::MAX), &[1; 8])), ClusterError::InvalidShardId);
    assert_eq!(failure(&requests(12_345, shard, &[1; 8])), ClusterError::NotServed);
    for kind in [FrameKind::StreamRequest, FrameKind::StreamElement, FrameKind::StreamCancel] {
        let bytes = if kind.is_request() { request(kind, 1, id, shard, 9, &[]) } else { frame(kind, 1, 9, &[]) };
        assert_eq!(failure(&bytes), ClusterError::NotServed);
    }
    link.send(&add(77));
    assert_eq!(link.answer().header.correlation, 77, "the link goes on");
    pod.finish();
}

#[test]
fn answers_that_nobody_asked_for_harm_nobody() {
    let pod = Poisoned::start(&[]);
    let echoes = pod.watcher.messenger::<EchoRef>();
    let mut asleep = Box::pin(echoes.entity("asleep").sleep(1500));
    assert!(poll_once(asleep.as_mut()).is_pending());
    let started = std::time::Instant::now();
    until("the sleeper runs", || {
        let entities = pod.watcher.inspect(Inspect::Entities { entity_type: "echo".into(), limit: 100 }, PATIENCE);
        entities.unwrap().contains("asleep").then_some(())
    });
    let mut link = RawLink::open(pod.pod.address);
    for kind in [FrameKind::Reply, FrameKind::Ack, FrameKind::Failure, FrameKind::Moved, FrameKind::Cancel] {
        for index in 0..50_u64 {
            for generation in 0..50_u64 {
                link.send(
                    &[frame(kind, 1, index << 32 | generation, &[]), frame(kind, 1, generation << 32 | index, &[])]
                        .concat(),
                );
            }
        }
    }
    link.send(&frame(FrameKind::Credit, 0, u64::MAX, &[]));
    for message in [
        ControlMessage::Pong { nonce: 3 },
        ControlMessage::InspectReply { json: "{}".to_owned() },
        ControlMessage::JsonResult { outcome: atoll::wire::JsonOutcome::Reply("1".to_owned()) },
    ] {
        link.send(&control(&message, 0));
    }
    link.send(&add(1));
    assert_eq!(link.answer().header.kind, FrameKind::Reply, "they are thrown away");
    assert_eq!(block_on(asleep), Ok(()));
    assert!(started.elapsed() >= Duration::from_millis(1400), "nobody else can end a handler's sleep");
    drop(link);
    pod.finish();
}

#[test]
fn another_build_of_a_message_is_refused_before_a_byte_is_decoded() {
    let pod = Poisoned::start(&[]);
    let other = pod.watcher.messenger::<other_build::EchoRef>().entity("other");
    assert_eq!(block_on(other.add(1)), Err(SendError::Cluster(ClusterError::SchemaMismatch)));
    assert_eq!(block_on(other.add(1).discard()), Err(ClusterError::SchemaMismatch));
    assert_eq!(block_on(other.unheard_of()), Err(SendError::Cluster(ClusterError::NotServed)));
    assert_eq!(block_on(other.total()), Ok(0), "a message with the same shape is served");
    pod.finish();
}

#[test]
fn memory_stays_bounded_whatever_poisoned_links_send() {
    let pod = Poisoned::start(&[]);
    let right = add(1);
    let mut random = Random(7);
    let mut poison = |n: usize| {
        let mut links = Vec::new();
        for at in 0..n {
            let mut link = RawLink::open(pod.pod.address);
            match at % 4 {
                0 => link.send(&random.bytes(20_000)),
                // Promises a megabyte, sends a little of it, and stays.
                1 => {
                    let lying = resealed(right.clone(), |header| {
                        header[..4].copy_from_slice(&(1_u32 << 20).to_le_bytes());
                    });
                    link.send(&[&lying[..], &[0; 30_000]].concat());
                    links.push(link);
                }
                2 => link.send(&right[..right.len() - 1]),
                _ => link.send(&[right.clone(), random.bytes(500)].concat()),
            }
        }
    };
    poison(60);
    let before = pod.pod.resident_bytes();
    poison(200);
    let after = pod.pod.resident_bytes();
    assert!(after < before + (24 << 20), "{before} bytes before, {after} after");
    pod.finish();
}

#[test]
fn questions_that_nobody_reads_the_answers_of_cost_no_memory() {
    let pod = Poisoned::start(&[]);
    let before = pod.pod.resident_bytes();
    let mut link = RawLink::open(pod.pod.address);
    link.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let question = control(&ControlMessage::InspectRequest { question: Inspect::Shards }, 1);
    // The pod may stop to read; that is what it should do.
    for _ in 0..3000 {
        if link.stream.write_all(&question).is_err() {
            break;
        }
    }
    // All that was taken is answered by now, or waits.
    for _ in 0..50 {
        counters(&pod.watcher);
        std::thread::sleep(Duration::from_millis(20));
    }
    let after = pod.pod.resident_bytes();
    assert!(after < before + (48 << 20), "{before} bytes before, {after} after");
    drop(link);
    pod.finish();
}

#[test]
fn thousands_of_mutations_of_a_right_stream_crash_nothing() {
    let pod = Poisoned::start(&[]);
    let mut random = Random(0x5eed);
    let right = [
        &hello().encode()[..],
        &introduce("atoll"),
        &add(1),
        &request(FrameKind::Tell, echo::Tell::TAG, "m", shard_of("m"), 2, &[1; 8]),
        &ask("m", &echo::Echo { payload: vec![5; 200] }, 3),
        &frame(FrameKind::Cancel, 0, 3, &[]),
        &control(&ControlMessage::Ping { nonce: 4 }, 5),
        &control(&ControlMessage::TableRequest { role: "default".to_owned(), known_epoch: u64::MAX }, 6),
        &add(7),
    ]
    .concat();
    for round in 0..3000 {
        let mut bytes = right.clone();
        for _ in 0..=random.below(3) {
            random.mutate(&mut bytes);
        }
        let mut link = RawLink::dial(pod.pod.address);
        link.send(&bytes);
        // The peer's end of the stream ends the link, whatever the pod made of the bytes before.
        let _ = link.stream.shutdown(Shutdown::Write);
        if round % 50 == 0 {
            link.stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut rest = Vec::new();
            let _ = link.stream.read_to_end(&mut rest);
        }
    }
    pod.finish();
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Flips a bit, cuts, repeats or inserts a piece; sometimes repairs the checksum of a header that starts there.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        let length = 1 + self.below(64.min(bytes.len() - at));
        match self.below(6) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let piece = bytes[at..at + length].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                let piece = self.bytes(length);
                bytes.splice(at..at, piece);
            }
            4 => bytes.truncate(at.max(1)),
            // A header with a right checksum and a wrong content gets further than any other damage.
            _ => {
                let start = 64 + self.below(bytes.len().saturating_sub(64 + HEADER_BYTES).max(1));
                if let Some(header) = bytes.get_mut(start..start + HEADER_BYTES) {
                    header[self.0 as usize % 32] = self.0 as u8;
                    let checksum = crc32c::crc32c(&header[..HEADER_BYTES - 4]);
                    header[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
                }
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}
