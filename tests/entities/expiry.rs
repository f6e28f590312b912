//! The time that a request carries counts at its owner too: senders that hang say nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use atoll::{ClusterError, EntityOptions};

use crate::probe::*;
use crate::wire::Wire;

const SHORT: Duration = Duration::from_millis(100);
/// The owner gives those who say nothing a quarter of a second more.
const OVER: Duration = Duration::from_millis(360);
const LONG: Duration = Duration::from_secs(10);

fn linked() -> (Wire, ProbeRef) {
    let wire = Wire::new::<ProbeEntity>(EntityOptions::default());
    let probe = wire.entity::<ProbeRef>("p");
    assert_eq!(wire.block(probe.clone().add(1)), Ok(1));
    assert_eq!(lines(), ["start p"]);
    (wire, probe)
}

fn expired(wire: &Wire) -> u64 {
    wire.pod.host().counters().expired.load(Ordering::Relaxed)
}

#[test]
fn what_a_hung_sender_has_here_ends_with_the_time_that_it_said() {
    let (wire, probe) = linked();
    let running = wire.start(probe.clone().write("a".into()).timeout(SHORT));
    let queued = wire.start(probe.clone().write("b".into()).timeout(SHORT));
    let longer = wire.start(probe.clone().add(1).timeout(LONG));
    wire.pass_at_pod(SHORT + SHORT);
    assert_eq!(lines(), ["+a"], "a sender that lives would have said so by now; this one has some grace");
    assert_eq!(expired(&wire), 1, "what waits needs none");
    wire.pass_at_pod(OVER - SHORT - SHORT);
    assert_eq!(lines(), ["~a"], "the one that waited is never started");
    assert_eq!(expired(&wire), 2);
    // The client goes on.
    wire.pass(Duration::from_millis(1));
    assert_eq!(cluster(running.take()), ClusterError::SendTimeout);
    assert_eq!(cluster(queued.take()), ClusterError::SendTimeout);
    assert_eq!(longer.take(), Some(Ok(2)));
    assert_eq!((wire.client.host().waiting_asks(), wire.pod.host().waiting_asks()), (0, 0));
    assert_eq!(wire.block(probe.add(1)), Ok(3), "the link lives");
}

#[test]
fn a_message_whose_time_is_over_when_its_turn_comes_is_not_started() {
    let (wire, probe) = linked();
    let running = wire.start(probe.clone().write("a".into()).timeout(LONG));
    let too_late = wire.start(probe.clone().write("b".into()).timeout(SHORT));
    let in_time = wire.start(probe.clone().write("c".into()).timeout(SHORT + SHORT));
    assert_eq!(lines(), ["+a"]);
    wire.pass_at_pod(SHORT + SHORT / 2);
    signal("a").fire();
    wire.work(&wire.pod);
    assert_eq!(lines(), ["-a", "+c"]);
    wire.pass_at_pod(SHORT);
    assert_eq!(lines(), [""; 0], "one that was started in time has some grace");
    wire.pass_at_pod(OVER - SHORT);
    assert_eq!((lines(), expired(&wire)), (vec!["~c".to_owned()], 2));
    wire.pass(Duration::from_millis(1));
    assert_eq!(running.take(), Some(Ok(())));
    assert_eq!(cluster(too_late.take()), ClusterError::SendTimeout);
    assert_eq!(cluster(in_time.take()), ClusterError::SendTimeout);
    assert_eq!(wire.block(probe.add(1)), Ok(3), "of the three only the first ran to its end");
}

#[test]
fn a_sender_that_lives_says_itself_that_it_stopped_waiting() {
    let (wire, probe) = linked();
    let ask = wire.start(probe.clone().write("a".into()).timeout(SHORT));
    for _ in 0..10 {
        wire.pass(OVER / 5);
    }
    assert_eq!(cluster(ask.take()), ClusterError::SendTimeout);
    assert_eq!((lines(), expired(&wire)), (vec!["+a".to_owned(), "~a".to_owned()], 0));
}

#[test]
fn nothing_else_ends_before_its_sender_stops_waiting() {
    let (wire, probe) = linked();
    let uninterruptible = wire.start(probe.clone().finish("a".into()).timeout(SHORT));
    let unlimited = wire.start(wire.entity::<ProbeRef>("q").write("b".into()).no_timeout());
    let beyond_words = wire.start(wire.entity::<ProbeRef>("r").write("c".into()).timeout(Duration::from_secs(90 * 60)));
    assert_eq!(lines(), ["+a", "start q", "+b", "start r", "+c"]);
    for _ in 0..80 {
        wire.pass_at_pod(Duration::from_secs(60));
    }
    assert_eq!(lines(), [""; 0]);
    ["a", "b", "c"].into_iter().for_each(|name| signal(name).fire());
    wire.run();
    assert_eq!(lines(), ["-a", "-b", "-c"]);
    assert!(uninterruptible.take().is_some_and(|outcome| outcome.is_err()), "it was answered when its time was over");
    assert_eq!((unlimited.take(), beyond_words.take()), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_request_that_ends_in_time_does_not_expire() {
    let (wire, probe) = linked();
    for round in 0..100 {
        let ask = wire.start(probe.clone().write("a".into()).timeout(SHORT));
        let next = wire.start(probe.clone().add(1));
        signal("a").fire();
        wire.run();
        assert_eq!((ask.take(), next.take()), (Some(Ok(())), Some(Ok(2 * round + 3))));
    }
    wire.pass_at_pod(LONG);
    assert_eq!(expired(&wire), 0);
}
