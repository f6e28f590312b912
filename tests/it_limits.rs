//! Peers that take more than their share: each is held to its bounds, and the others go on.
#![cfg(feature = "runtime")]

mod support;

use std::io::{ErrorKind, Write};
use std::pin::pin;
use std::time::Duration;

use atoll::base::ClusterError;
use atoll::client::ClientOptions;
use atoll::services::echo::{EchoRef, echo};
use atoll::wire::{FrameKind, Inspect};
use atoll::{Client, SendError};
use support::*;

/// A little less than what echo takes, so that a frame of it is below the limit of a frame.
const LARGE: usize = 500_000;
/// What a link may have open by default: four mebibytes.
const CREDIT: usize = 4 << 20;
/// How much a pod may grow by one peer: its credit, buffers for that, and what the allocator keeps.
const GROWTH_MAX: u64 = 32 << 20;

fn large(id: &str, correlation: u64) -> Vec<u8> {
    ask(id, &echo::Echo { payload: vec![7; LARGE] }, correlation)
}

/// The allocator keeps what was freed for a moment, so it has some time to give it back.
fn assert_grew_little(pod: &PodProcess, before: u64, by: u64) {
    let grew_little = || pod.resident_bytes() < before + by;
    let settled = (0..50).any(|_| {
        let settled = grew_little();
        if !settled {
            std::thread::sleep(Duration::from_millis(100));
        }
        settled
    });
    assert!(settled, "{before} bytes before, {} after", pod.resident_bytes());
}

#[test]
fn requests_above_the_limit_of_a_link_get_busy() {
    const LIMIT: u64 = 100;
    const SURPLUS: u64 = 5000;
    let pod = PodProcess::start(&["--set", &format!("links.in_flight_max={LIMIT}")]);
    let steady = SteadyClient::start(pod.address);
    let mut link = RawLink::open(pod.address);
    let before = pod.resident_bytes();
    for at in 0..LIMIT {
        link.send(&ask(&format!("s{at}"), &echo::Sleep { milliseconds: 3000 }, at));
    }
    for at in LIMIT..LIMIT + SURPLUS {
        link.send(&ask("quick", &echo::Add { value: 1 }, at));
    }
    for at in LIMIT..LIMIT + SURPLUS {
        let answer = link.answer();
        assert_eq!((answer.header.kind, answer.header.correlation), (FrameKind::Failure, at));
        assert_eq!(ClusterError::from_code(answer.header.tag), Some(ClusterError::Busy));
    }
    assert_grew_little(&pod, before, 8 << 20);
    let mut ended: Vec<u64> = (0..LIMIT)
        .map(|_| {
            let answer = link.answer();
            assert_eq!(answer.header.kind, FrameKind::Reply);
            answer.header.correlation
        })
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, (0..LIMIT).collect::<Vec<_>>(), "what was within the limit is served");
    link.send(&ask("quick", &echo::Add { value: 1 }, 77));
    assert_eq!(link.answer().header.kind, FrameKind::Reply, "and there is room again");
    steady.finish();
}

#[test]
fn a_peer_that_ignores_its_credit_is_closed() {
    let pod = PodProcess::start(&[]);
    let watcher = Client::connect([pod.address]).unwrap();
    let steady = SteadyClient::start(pod.address);
    let before = pod.resident_bytes();
    let mut link = RawLink::open(pod.address);
    link.send(&ask("sleeper", &echo::Sleep { milliseconds: 20_000 }, 1));
    // As many as begin within the credit are taken; the one after those is not.
    let taken = CREDIT / LARGE + 1;
    for at in 0..taken as u64 {
        link.send(&large("sleeper", 2 + at));
    }
    // A question is answered on the same core after all that was sent before, if it was sent over the same link.
    link.send(&control_ping());
    assert_eq!(link.answer().header.kind, FrameKind::Control, "within its credit a peer is served");
    assert_eq!(refused(&counters(&watcher), "credit"), 0);
    link.send(&large("sleeper", 100));
    assert!(link.until_closed().is_empty());
    until("`credit` is counted", || (refused(&counters(&watcher), "credit") == 1).then_some(()));
    assert_grew_little(&pod, before, GROWTH_MAX);
    steady.finish();
}

fn control_ping() -> Vec<u8> {
    control(&atoll::wire::ControlMessage::Ping { nonce: 1 }, 0)
}

#[test]
fn a_client_waits_when_its_credit_is_used_up() {
    let pod = PodProcess::start(&[]);
    let options = ClientOptions { send_timeout: Duration::from_millis(700), ..ClientOptions::default() };
    let client = Client::connect_with([pod.address], options).unwrap();
    let watcher = Client::connect([pod.address]).unwrap();
    let before = pod.resident_bytes();
    let echoes = client.messenger::<EchoRef>();
    let asleep = run_on(&client, 0, move || async move {
        let sleeper = echoes.entity("sleeper");
        // With the link open, what is polled first is sent first.
        assert_eq!(sleeper.total().await, Ok(0));
        let mut sleep = pin!(sleeper.sleep(2000).timeout(PATIENCE));
        assert!(started(sleep.as_mut()).await.is_none());
        // Some are in the mailbox, some wait here: for all of them the time runs out.
        let outcomes = all((0..20).map(|_| sleeper.echo(vec![7; LARGE]))).await;
        // Large bodies are left out of what a failure prints.
        let errors: Vec<_> = outcomes.into_iter().map(|outcome| outcome.map(|bytes| bytes.len())).collect();
        assert_eq!(errors, vec![Err(SendError::Cluster(ClusterError::SendTimeout)); 20]);
        sleep.await
    });
    assert_eq!(asleep, Ok(()));
    let later = run_on(&client, 0, move || async move {
        let asks = (0..20).map(|_| echoes.entity("sleeper").echo(vec![7; LARGE]).timeout(PATIENCE));
        all(asks).await.into_iter().all(|outcome| outcome == Ok(vec![7; LARGE]))
    });
    assert!(later, "the credit came back");
    assert_eq!(refused(&counters(&watcher), "credit"), 0, "a client keeps to its credit");
    assert_grew_little(&pod, before, GROWTH_MAX);
}

#[test]
fn a_peer_that_does_not_read_its_replies_is_not_read() {
    let pod = PodProcess::start(&[]);
    let steady = SteadyClient::start(pod.address);
    let before = pod.resident_bytes();
    let mut deaf = RawLink::open(pod.address);
    deaf.stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
    // At once answered, so the credit always comes back; what stops the peer is that the pod stops reading.
    let mut stopped = false;
    for at in 0..400 {
        match deaf.stream.write_all(&large(&format!("d{}", at % 7), at)) {
            Ok(()) => {}
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                stopped = true;
                break;
            }
        }
    }
    assert!(stopped, "the pod takes 200 MB of requests from a peer that reads no reply");
    // Eight mebibytes wait to be sent, and as many are being sent.
    assert_grew_little(&pod, before, 64 << 20);
    drop(deaf);
    steady.finish();
}

/// A peer that hangs says nothing: what it has here ends with the time that it said it would wait, and others go on.
#[test]
fn a_request_ends_with_the_time_that_it_carries() {
    let pod = PodProcess::start(&[]);
    let client = Client::connect([pod.address]).unwrap();
    let mut hung = RawLink::open(pod.address);
    hung.send(&ask_within("shared", &echo::Sleep { milliseconds: 600_000 }, 1, Duration::from_millis(300)));
    hung.send(&ask_within("shared", &echo::Sleep { milliseconds: 600_000 }, 2, Duration::from_millis(300)));
    // The second is never started, and the handler of the first has some grace.
    for at in [2, 1] {
        let frame = hung.answer();
        assert_eq!((frame.header.kind, frame.header.correlation), (FrameKind::Failure, at));
        assert_eq!(ClusterError::from_code(frame.header.tag), Some(ClusterError::SendTimeout));
    }
    let echo = client.messenger::<EchoRef>().entity("shared");
    let sum = run_on(&client, 0, move || async move { echo.add(1).await.unwrap() });
    assert_eq!(sum, 1, "the turn is free: neither runs");
    let counters = client.inspect(Inspect::Counters, PATIENCE).unwrap();
    assert!(counters.contains(r#""requests_expired":2"#), "{counters}");
}

/// A discard is acknowledged as soon as it is in the mailbox, which must not make the mailbox a way around the credit.
#[test]
fn tells_that_wait_in_a_mailbox_are_bounded() {
    let pod = PodProcess::start(&[]);
    let steady = SteadyClient::start(pod.address);
    let before = pod.resident_bytes();
    let mut link = RawLink::open(pod.address);
    link.send(&ask("sleeper", &echo::Sleep { milliseconds: 20_000 }, 1));
    let mut body = Vec::new();
    atoll::wire::codec::encode(&echo::Echo { payload: vec![7; LARGE] }, &mut body, 1 << 30).unwrap();
    let tell = |at| {
        request(FrameKind::Tell, <echo::Echo as atoll::entity::Message>::TAG, "sleeper", shard_of("sleeper"), at, &body)
    };
    for at in 0..300 {
        link.send(&tell(2 + at));
    }
    link.send(&control_ping());
    let mut acknowledged = 0;
    while let Some(frame) = link.receive() {
        match frame.header.kind {
            FrameKind::Control => break,
            FrameKind::Ack => acknowledged += 1,
            _ => {}
        }
    }
    assert!((8..20).contains(&acknowledged), "4 MiB and one more may wait, {acknowledged} were taken");
    let grown = pod.resident_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes more");
    steady.finish();
}
