//! One thing at a time: a lane that is stalled, a large body and a small message, limits, senders that give up.

use std::time::Duration;

use atoll::SendError;
use atoll::base::ClusterError;
use atoll::base::limits::{BODY_PART_TIMEOUT, LINK_BODY_BYTES_MAX};
use atoll::engine::LinkLimits;
use atoll::wire::codec::encode;
use atoll::wire::{FrameFlags, FrameHeader, FrameKind, Lane};

use crate::host::Signal;
use crate::store::{StoreRef, apart, hold, let_go, linked, log, pattern, store, unless};
use crate::watch::{BULK_IN_SEND, Watch};
use crate::wire::Wire;

/// Many sends long.
const LARGE: usize = 4 << 20;

fn small_windows() -> LinkLimits {
    LinkLimits {
        credit_bytes: 20 << 10,
        bulk_credit_bytes: 400 << 10,
        body_bytes_max: 300 << 10,
        ..LinkLimits::default()
    }
}

/// Carries one send of the client, and says what was in it.
fn one_send(wire: &Wire, watch: &mut Watch) -> Vec<FrameHeader> {
    let mut headers = Vec::new();
    for (link, bytes) in wire.take_requests() {
        headers.extend(watch.sent(&bytes));
        wire.give_to_pod(link, &bytes);
    }
    headers
}

fn one_answer(wire: &Wire, watch: &mut Watch) -> Vec<FrameHeader> {
    let mut headers = Vec::new();
    for (link, bytes) in wire.take_answers() {
        headers.extend(watch.answered(&bytes));
        wire.give_to_client(link, &bytes);
    }
    headers
}

fn watching(limits: &LinkLimits) -> Watch {
    let mut watch = Watch::new(limits);
    watch.sent[Lane::Messages as usize] = 45;
    watch
}

#[test]
fn a_small_message_waits_for_one_send_of_a_large_body_at_most() {
    let wire = linked(LinkLimits::default());
    let mut watch = watching(&LinkLimits::default());
    let ids = apart(2);
    let (large, small): (StoreRef, StoreRef) = (wire.entity(&ids[0]), wire.entity(&ids[1]));
    let slow = wire.send(large.put(1, pattern(1, LARGE), 0));
    let first = one_send(&wire, &mut watch);
    assert!(first.iter().all(|frame| frame.flags.lane() == Lane::Bulk && frame.flags.has(FrameFlags::MORE)));
    let quick = wire.send(small.put(1, pattern(1, 100), 5));
    let second = one_send(&wire, &mut watch);
    assert_eq!(second[0].flags.lane(), Lane::Messages, "it goes before the rest of the large one");
    assert!(second.len() > 1, "which goes on in the same send");
    wire.work(&wire.pod);
    one_answer(&wire, &mut watch);
    wire.work(&wire.client);
    assert_eq!(quick.take().unwrap().unwrap().len(), 5);
    assert!(slow.waits() && log(&ids[0]).is_empty());
    wire.run();
    assert_eq!(slow.take().unwrap(), Ok(Vec::new()));
    assert_eq!(log(&ids[0]), [(1, LARGE)]);
}

#[test]
fn a_small_answer_waits_for_one_send_of_a_large_one_at_most() {
    let wire = linked(LinkLimits::default());
    let mut watch = watching(&LinkLimits::default());
    let ids = apart(2);
    let (large, small): (StoreRef, StoreRef) = (wire.entity(&ids[0]), wire.entity(&ids[1]));
    let slow = wire.send(large.put(1, Vec::new(), LARGE as u32));
    one_send(&wire, &mut watch);
    wire.work(&wire.pod);
    assert!(!one_answer(&wire, &mut watch).is_empty());
    let quick = wire.send(small.put(1, Vec::new(), 5));
    one_send(&wire, &mut watch);
    wire.work(&wire.pod);
    one_answer(&wire, &mut watch);
    wire.work(&wire.client);
    assert_eq!(quick.take().unwrap().unwrap().len(), 5);
    assert!(slow.waits());
    wire.run();
    assert!(slow.take().unwrap() == Ok(pattern(LARGE as u32, LARGE)));
}

#[test]
fn a_later_message_to_the_same_entity_does_not_overtake_a_large_one() {
    let wire = linked(LinkLimits::default());
    let mut watch = watching(&LinkLimits::default());
    let ids = apart(1);
    let to: StoreRef = wire.entity(&ids[0]);
    let asks: Vec<_> = [LARGE, 10, 70_000, 0, LARGE, 20]
        .into_iter()
        .enumerate()
        .map(|(at, length)| wire.send(to.put(at as u32, pattern(at as u32, length), 0)))
        .collect();
    let first = one_send(&wire, &mut watch);
    assert!(first.iter().all(|frame| frame.flags.lane() == Lane::Bulk));
    wire.run();
    let numbers: Vec<_> = log(&ids[0]).iter().map(|got| got.0).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    assert!(asks.iter().all(|ask| ask.take().unwrap().is_ok()));
}

#[test]
fn large_bodies_that_are_not_answered_stall_no_small_message() {
    let wire = linked(small_windows());
    let ids = apart(3);
    hold(&ids[0]);
    let slow: StoreRef = wire.entity(&ids[0]);
    let large: Vec<_> = (0..4).map(|at| wire.start(slow.put(at, pattern(at, 180_000), 0))).collect();
    assert!(large.iter().all(|ask| ask.waits()));
    let other: StoreRef = wire.entity(&ids[1]);
    let waits = wire.start(other.put(9, pattern(9, 180_000), 0));
    assert!(waits.waits() && log(&ids[1]).is_empty(), "the lane of large bodies is full");
    let quick: StoreRef = wire.entity(&ids[2]);
    for at in 0..100 {
        assert_eq!(wire.block(quick.put(at, pattern(at, 1000), 0)), Ok(Vec::new()), "number {at}");
    }
    let_go(&ids[0]);
    wire.run();
    assert!(large.iter().all(|ask| ask.take().unwrap().is_ok()));
    assert!(waits.take().unwrap().is_ok());
}

#[test]
fn small_messages_that_are_not_answered_stall_no_large_one() {
    let wire = linked(small_windows());
    let ids = apart(3);
    hold(&ids[0]);
    let slow: StoreRef = wire.entity(&ids[0]);
    let small: Vec<_> = (0..40).map(|at| wire.start(slow.put(at, pattern(at, 1000), 0))).collect();
    let other: StoreRef = wire.entity(&ids[1]);
    let waits = wire.start(other.put(1, pattern(1, 1000), 0));
    assert!(waits.waits() && log(&ids[1]).is_empty(), "the lane of messages is full");
    let large: StoreRef = wire.entity(&ids[2]);
    for at in 0..10 {
        assert_eq!(wire.block(large.put(at, pattern(at, 180_000), 0)), Ok(Vec::new()), "number {at}");
    }
    let_go(&ids[0]);
    wire.run();
    assert!(small.iter().all(|ask| ask.take().unwrap().is_ok()));
    assert!(waits.take().unwrap().is_ok());
}

/// The length of the bytes with which a message has exactly this body.
fn exactly(body_bytes: usize) -> usize {
    let length = |bytes: usize| {
        let mut out = Vec::new();
        encode(&store::Put { number: 1, bytes: vec![0; bytes], answer: 0 }, &mut out, usize::MAX).unwrap();
        out.len()
    };
    let bytes = body_bytes - (length(1000) - 1000);
    assert_eq!(length(bytes), body_bytes);
    bytes
}

#[test]
fn a_body_may_have_the_limit_and_no_byte_more() {
    let wire = linked(LinkLimits::default());
    let id = &apart(1)[0];
    let to: StoreRef = wire.entity(id);
    let most = exactly(LINK_BODY_BYTES_MAX as usize);
    assert_eq!(wire.block(to.put(1, pattern(1, most), 0)), Ok(Vec::new()));
    let too_large = wire.block(to.put(2, pattern(2, most + 1), 0));
    assert_eq!(too_large, Err(SendError::Cluster(ClusterError::PayloadTooLarge)));
    assert_eq!(log(id), [(1, most)]);
    let answer_most = (LINK_BODY_BYTES_MAX - 9) as usize;
    assert!(wire.block(to.put(3, Vec::new(), answer_most as u32)) == Ok(pattern(answer_most as u32, answer_most)));
    let too_large = wire.block(to.put(4, Vec::new(), answer_most as u32 + 1));
    assert_eq!(too_large, Err(SendError::Cluster(ClusterError::PayloadTooLarge)));
    assert_eq!(wire.block(to.put(5, Vec::new(), 1)).unwrap().len(), 1, "the link goes on");
}

#[test]
fn a_large_message_that_is_given_up_half_sent_never_arrives_and_leaves_its_room() {
    let limits = small_windows();
    let wire = linked(limits);
    let mut watch = watching(&limits);
    let ids = apart(1);
    let to: StoreRef = wire.entity(&ids[0]);
    for at in 0..10 {
        let given_up = Signal::default();
        let ask = wire.send(unless(to.put(at, pattern(at, 290_000), 0), given_up.clone()));
        let later = wire.send(to.put(100 + at, pattern(100 + at, 10), 0));
        assert!(one_send(&wire, &mut watch).iter().all(|frame| frame.flags.has(FrameFlags::MORE)));
        given_up.fire();
        wire.work(&wire.client);
        assert!(matches!(ask.take(), Some(None)));
        let rest = one_send(&wire, &mut watch);
        assert!(rest.iter().any(|frame| frame.kind == FrameKind::Cancel));
        assert!(rest.iter().all(|frame| frame.flags.lane() != Lane::Bulk), "nothing of it follows");
        wire.work(&wire.pod);
        one_answer(&wire, &mut watch);
        wire.work(&wire.client);
        one_send(&wire, &mut watch);
        wire.work(&wire.pod);
        one_answer(&wire, &mut watch);
        wire.work(&wire.client);
        assert_eq!(later.take().unwrap(), Ok(Vec::new()), "what waited behind it goes");
    }
    assert_eq!(wire.block(to.put(200, pattern(200, 290_000), 0)), Ok(Vec::new()));
    assert!(log(&ids[0]).iter().all(|got| got.0 >= 100));
}

#[test]
fn one_that_is_given_up_before_its_first_part_is_not_mentioned() {
    let wire = linked(small_windows());
    let mut watch = watching(&small_windows());
    let to: StoreRef = wire.entity(&apart(1)[0]);
    let given_up = Signal::default();
    let ask = wire.send(unless(to.put(1, pattern(1, 290_000), 0), given_up.clone()));
    given_up.fire();
    wire.work(&wire.client);
    assert!(matches!(ask.take(), Some(None)));
    assert!(one_send(&wire, &mut watch).is_empty());
    assert_eq!(wire.block(to.put(2, pattern(2, 290_000), 0)), Ok(Vec::new()), "its room is free");
}

#[test]
fn a_large_answer_that_nobody_waits_for_is_not_sent_to_its_end() {
    let wire = linked(LinkLimits::default());
    let mut watch = watching(&LinkLimits::default());
    let to: StoreRef = wire.entity(&apart(1)[0]);
    let given_up = Signal::default();
    let ask = wire.send(unless(to.put(1, Vec::new(), LARGE as u32), given_up.clone()));
    one_send(&wire, &mut watch);
    wire.work(&wire.pod);
    assert!(!one_answer(&wire, &mut watch).is_empty());
    given_up.fire();
    wire.work(&wire.client);
    assert!(matches!(ask.take(), Some(None)));
    one_send(&wire, &mut watch);
    let last = one_answer(&wire, &mut watch);
    assert!(last.iter().any(|frame| frame.kind == FrameKind::Failure));
    let bytes: usize = last.iter().map(|frame| frame.length as usize).sum();
    assert!(bytes <= BULK_IN_SEND);
    assert!(one_answer(&wire, &mut watch).is_empty(), "the rest is dropped");
    assert_eq!(watch.open(Lane::Messages), 0);
    assert_eq!(wire.block(to.put(2, Vec::new(), 70_000)).unwrap().len(), 70_000);
}

#[test]
fn a_timeout_ends_a_half_sent_body_too() {
    let wire = linked(LinkLimits::default());
    let mut watch = watching(&LinkLimits::default());
    let to: StoreRef = wire.entity(&apart(1)[0]);
    let ask = wire.send(to.put(1, pattern(1, LARGE), 0).timeout(Duration::from_secs(1)));
    one_send(&wire, &mut watch);
    wire.advance(Duration::from_secs(2));
    wire.work(&wire.client);
    assert_eq!(ask.take().unwrap(), Err(SendError::Cluster(ClusterError::SendTimeout)));
    assert!(one_send(&wire, &mut watch).iter().any(|frame| frame.kind == FrameKind::Cancel));
    assert_eq!(watch.open(Lane::Bulk), 0);
    // Nothing is left that could come too late.
    wire.advance(BODY_PART_TIMEOUT * 2);
    assert_eq!(wire.block(to.put(2, Vec::new(), 1)).unwrap().len(), 1);
}

#[test]
fn the_time_that_a_large_body_takes_to_come_is_part_of_what_its_sender_waits() {
    for (takes, comes_in_time) in [(Duration::from_millis(900), true), (Duration::from_millis(1100), false)] {
        let wire = linked(LinkLimits::default());
        let mut watch = watching(&LinkLimits::default());
        let id = &apart(1)[0];
        let to: StoreRef = wire.entity(id);
        let ask = wire.send(to.put(1, pattern(1, LARGE), 0).timeout(Duration::from_secs(1)));
        one_send(&wire, &mut watch);
        wire.pass_at_pod(takes);
        while !one_send(&wire, &mut watch).is_empty() {
            wire.work(&wire.client);
        }
        wire.work(&wire.pod);
        one_answer(&wire, &mut watch);
        wire.work(&wire.client);
        assert_eq!(ask.take().unwrap().is_ok(), comes_in_time);
        assert_eq!(log(id).is_empty(), !comes_in_time, "nobody waits for it: it is not handled");
        let expired = wire.pod.host().counters().expired.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(expired, u64::from(!comes_in_time));
    }
}

#[test]
fn a_body_that_is_never_finished_closes_its_link() {
    let wire = linked(LinkLimits::default());
    let to: StoreRef = wire.entity(&apart(1)[0]);
    let ask = wire.send(to.put(1, pattern(1, LARGE), 0).no_timeout());
    for (link, bytes) in wire.take_requests() {
        wire.give_to_pod(link, &bytes);
    }
    let closes = |wire: &Wire| {
        let mut commands = Vec::new();
        wire.pod.take_commands(&mut commands);
        commands.iter().any(|command| matches!(command, atoll::engine::LinkCommand::Close { .. }))
    };
    wire.advance(BODY_PART_TIMEOUT / 2);
    assert!(!closes(&wire));
    wire.advance(BODY_PART_TIMEOUT);
    assert!(closes(&wire));
    let refusals = wire.pod.counters().refusals.lock().unwrap().clone();
    assert_eq!(refusals.get("part_timeout"), Some(&1));
    assert!(ask.waits());
}
