//! Large bodies over real sockets: what they hold up, and what becomes of peers that send them wrong.
#![cfg(feature = "runtime")]

mod support;

use std::pin::pin;

use atoll::Client;
use atoll::base::{ShardId, Token};
use atoll::entity::Message;
use atoll::services::echo::{EchoRef, echo};
use atoll::wire::hello::VersionRange;
use atoll::wire::{FrameFlags, FrameKind, Hello, Lane, Routing, SendBuffer};
use support::*;

const LARGE: usize = 500_000;

#[test]
fn a_small_ask_passes_large_bodies_for_a_slow_entity() {
    let pod = PodProcess::start(&[]);
    let client = Client::connect([pod.address]).unwrap();
    let echoes = client.messenger::<EchoRef>();
    let passed = run_on(&client, 0, move || async move {
        let (sleeper, quick) = (echoes.entity("sleeper"), echoes.entity("quick"));
        assert_eq!(sleeper.total().await, Ok(0));
        let mut sleep = pin!(sleeper.sleep(3000).timeout(PATIENCE));
        assert!(started(sleep.as_mut()).await.is_none());
        // More than a pod takes of them at once, and twenty times what it takes of small messages.
        let mut large = pin!(all((0..160).map(|_| sleeper.echo(vec![7; LARGE]).timeout(PATIENCE))));
        assert!(started(large.as_mut()).await.is_none());
        for at in 1..=200 {
            assert_eq!(quick.add(1).await, Ok(at));
        }
        let none_is_done = started(large.as_mut()).await.is_none();
        let all_are_right = large.await.into_iter().all(|outcome| outcome == Ok(vec![7; LARGE]));
        (none_is_done, all_are_right, sleep.await)
    });
    assert_eq!(passed, (true, true, Ok(())));
    let watcher = Client::connect([pod.address]).unwrap();
    assert_eq!(refused(&counters(&watcher), "credit"), 0);
}

#[test]
fn a_peer_of_the_first_version_gets_no_parts() {
    let pod = PodProcess::start(&[]);
    for (version, in_parts) in [(1, false), (2, true)] {
        let mut link = RawLink::dial(pod.address);
        link.send(&Hello { versions: VersionRange { min: 1, max: version }, ..hello() }.encode());
        link.send(&introduce("atoll"));
        link.answer().control();
        if in_parts {
            let lanes = atoll::wire::control::LaneLimits {
                frame_bytes_max: 1 << 20,
                body_bytes_max: 1 << 20,
                streams_credit_bytes: 0,
                bulk_credit_bytes: 0,
            };
            link.send(&control(&atoll::wire::ControlMessage::Lanes(lanes), 0));
        }
        link.send(&ask("e", &echo::Echo { payload: vec![7; LARGE] }, 9));
        let mut replies = vec![link.answer()];
        while replies.last().unwrap().header.flags.has(FrameFlags::MORE) {
            replies.push(link.answer());
        }
        assert!(replies.iter().all(|reply| (reply.header.kind, reply.header.correlation) == (FrameKind::Reply, 9)));
        assert_eq!(replies.len() > 1, in_parts);
        let head = if in_parts { 4 } else { 0 };
        let body: Vec<u8> = [&replies[0].body[head..]]
            .into_iter()
            .chain(replies[1..].iter().map(|part| &part.body[..]))
            .collect::<Vec<_>>()
            .concat();
        let outcome = atoll::wire::codec::decode::<Result<Vec<u8>, atoll::wire::Never>>(&body).unwrap();
        assert!(outcome == Ok(vec![7; LARGE]));
    }
}

/// The first part of an ask, or a further one.
fn part(first: bool, place: u32, correlation: u64, length: u32, body: &[u8], more: bool) -> Vec<u8> {
    let flags = FrameFlags::new(Lane::Bulk);
    let flags = if more { flags.with(FrameFlags::MORE) } else { flags };
    let mut buffer = SendBuffer::new(1 << 30);
    let (tag, shard) = if first { (echo::Echo::TAG, shard_of("e")) } else { (place, ShardId(0)) };
    let start = buffer.begin_frame(FrameKind::Ask, flags, tag, shard, Token(0), correlation);
    let routing = Routing {
        remaining_us: 0,
        hops: 0,
        chain: &[],
        role: "default",
        entity_id: "e",
        sender_incarnation: 1,
        sender_sequence: 1,
    };
    let routing_length = if first { routing.encode(buffer.bytes_mut()).unwrap() } else { 0 };
    if first && more {
        buffer.bytes_mut().extend_from_slice(&length.to_le_bytes());
    }
    buffer.bytes_mut().extend_from_slice(body);
    buffer.finish_frame(start, routing_length).unwrap();
    let mut bytes = Vec::new();
    buffer.take(&mut bytes);
    bytes
}

#[test]
fn wrong_parts_close_their_link_with_a_counted_reason() {
    let pod = PodProcess::start(&[]);
    let steady = SteadyClient::start(pod.address);
    let watcher = Client::connect([pod.address]).unwrap();
    let mut body = Vec::new();
    atoll::wire::codec::encode(&echo::Echo { payload: vec![7; 90_000] }, &mut body, 1 << 30).unwrap();
    let (first, rest) = body.split_at(40_000);
    let length = body.len() as u32;
    let begun = || part(true, 0, 1, length, first, true);
    let ended = || part(false, 40_000, 1, 0, rest, false);
    let mut link = RawLink::open(pod.address);
    link.send(&[begun(), ask("other", &echo::Add { value: 1 }, 2), ended()].concat());
    assert_eq!(link.answer().header.correlation, 2, "a small one in between is answered first");
    assert_eq!(link.answer().header.correlation, 1);

    let closes = |reason: &str, bytes: Vec<u8>| {
        let before = refused(&counters(&watcher), reason);
        let mut link = RawLink::open(pod.address);
        link.send(&bytes);
        assert!(link.until_closed().iter().all(|frame| frame.header.kind == FrameKind::Credit), "{reason}");
        until(reason, || (refused(&counters(&watcher), reason) > before).then_some(()));
    };
    closes("part_place", [begun(), part(false, 39_999, 1, 0, rest, false)].concat());
    closes("part_place", [begun(), begun()].concat());
    closes("part_length", [begun(), part(false, 40_000, 1, 0, &rest[1..], false)].concat());
    closes("part_length", [begun(), part(false, 40_000, 1, 0, rest, true)].concat());
    closes("part_stray", [begun(), part(false, 40_000, 2, 0, rest, false)].concat());
    closes("part_stray", ended());
    closes("body_too_long", part(true, 0, 1, u32::MAX, first, true));
    closes("body_too_long", part(true, 0, 1, (16 << 20) + 1, first, true));
    let sleep = ask("e", &echo::Sleep { milliseconds: 20_000 }, 50);
    // Each is whole, waits, and is within the credit, until one is not.
    let many = (0..400).map(|at| part(true, 0, 100 + at, 0, &body, false));
    closes("credit", std::iter::once(sleep).chain(many).collect::<Vec<_>>().concat());
    steady.finish();
}
