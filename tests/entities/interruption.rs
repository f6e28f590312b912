//! A sender that stops waiting.

use std::time::Duration;

use atoll::ClusterError;

use crate::probe::*;

fn fire_all(names: &[&str]) {
    names.iter().for_each(|name| signal(name).fire());
}

const LONG: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_handler_is_dropped_at_its_await_when_the_time_is_over() {
    let core = plain_core();
    let probe = probe(&core);
    let ask = core.start(probe.write("a".into()).timeout(SHORT));
    core.pass(SHORT - Duration::from_millis(1));
    assert!(ask.waits());
    core.pass(Duration::from_millis(2));
    assert_eq!(cluster(ask.take()), ClusterError::SendTimeout);
    assert_eq!(lines(), ["start p", "+a", "~a"]);
    assert_eq!(core.block(probe.sum()), Ok(0), "the next message finds the turn free");
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn an_uninterruptible_handler_goes_on_without_its_sender() {
    let core = plain_core();
    let probe = probe(&core);
    let ask = core.start(probe.finish("a".into()).timeout(SHORT));
    core.pass(LONG);
    assert_eq!(cluster(ask.take()), ClusterError::SendTimeout);
    let next = core.start(probe.add(0));
    assert!(next.waits(), "it holds the turn");
    signal("a").fire();
    core.run();
    assert_eq!(lines(), ["start p", "+a", "-a"]);
    assert_eq!(next.take(), Some(Ok(1)));
}

#[test]
fn the_timeout_is_inherited_or_ones_own_or_none() {
    let core = plain_core();
    let messenger = core.messenger::<ProbeRef>();
    let inherited = core.start(messenger.entity("a").write("a".into()));
    let of_messenger = core.start(messenger.timeout(LONG).entity("b").write("b".into()));
    let own = core.start(messenger.timeout(LONG).entity("c").write("c".into()).timeout(SHORT));
    let none = core.start(messenger.entity("d").write("d".into()).no_timeout());
    core.pass(SHORT + Duration::from_millis(1));
    assert_eq!(cluster(own.take()), ClusterError::SendTimeout);
    assert!(of_messenger.waits());
    core.pass(LONG);
    assert_eq!(cluster(of_messenger.take()), ClusterError::SendTimeout);
    assert!(inherited.waits());
    core.pass(Duration::from_secs(30));
    assert_eq!(cluster(inherited.take()), ClusterError::SendTimeout);
    core.pass(Duration::from_secs(3600));
    assert!(none.waits());
}

#[test]
fn dropping_an_ask_takes_its_message_out_of_the_mailbox() {
    let core = plain_core();
    let probe = probe(&core);
    let first = core.start(probe.write("a".into()));
    let mut second = probe.write("b".into());
    let mut third = probe.finish("c".into());
    assert!(core.poll(&mut second).is_none() && core.poll(&mut third).is_none());
    core.drop(second);
    core.drop(third);
    fire_all(&["a", "b", "c"]);
    core.run();
    assert!(first.take().is_some());
    assert_eq!(lines(), ["start p", "+a", "-a", "+c", "-c"], "the uninterruptible one stays");
    assert_eq!(core.host().waiting_asks(), 0);
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn dropping_an_ask_drops_its_handler() {
    let core = plain_core();
    let probe = probe(&core);
    for kind in 0..3 {
        let mut ask = match kind {
            0 => probe.write("a".into()),
            _ => probe.write("b".into()),
        };
        assert!(core.poll(&mut ask).is_none());
        let next = core.start(probe.add(1));
        assert!(next.waits());
        core.drop(ask);
        assert!(next.take().is_some(), "the turn is free");
    }
    assert_eq!(lines(), ["start p", "+a", "~a", "+b", "~b", "+b", "~b"]);
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn dropping_an_ask_that_was_answered_drops_the_answer() {
    let core = plain_core();
    let probe = probe(&core);
    let blocked = core.start(probe.write("a".into()));
    let mut ask = probe.refuse("a text that is too long to be kept in place".into());
    assert!(core.poll(&mut ask).is_none());
    signal("a").fire();
    core.run();
    assert!(blocked.take().is_some());
    core.drop(ask);
    assert_eq!(core.host().waiting_asks(), 0);
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn an_interrupted_handler_interrupts_what_it_asks() {
    let core = plain_core();
    let outer = core.entity::<ProbeRef>("outer");
    let inner = core.entity::<ProbeRef>("inner");
    let busy = core.start(inner.write("busy".into()));
    let mut ask = outer.pass_on(vec!["write".into(), "inner".into()]);
    assert!(core.poll(&mut ask).is_none());
    assert_eq!(core.host().waiting_asks(), 3);
    core.drop(ask);
    assert_eq!(core.host().waiting_asks(), 1, "the inner ask went with the handler");
    signal("busy").fire();
    core.run();
    assert!(busy.take().is_some());
    assert_eq!(core.host().blocks_in_use(), 0);
}

/// Interrupts at each step of a handler that waits three times, from a sender that was dropped or ran out of time.
#[test]
fn interruption_at_every_point_leaves_nothing_behind() {
    for queued in [false, true] {
        for steps in 0..=3 {
            for by_time in [false, true] {
                let core = plain_core();
                let probe = probe(&core);
                let blocker = queued.then(|| core.start(probe.write("blocker".into())));
                let mut ask =
                    probe.pass_on(vec!["write".into(), "x".into(), "write".into(), "y".into()]).timeout(SHORT);
                let others = ["x", "y"].map(|id| core.start(core.entity::<ProbeRef>(id).write(format!("hold {id}"))));
                assert!(core.poll(&mut ask).is_none());
                for step in ["blocker", "hold x", "hold y"].iter().take(steps) {
                    signal(step).fire();
                    core.run();
                }
                if by_time {
                    core.pass(LONG);
                    assert!(core.poll(&mut ask).is_some());
                }
                core.drop(ask);
                fire_all(&["blocker", "hold x", "hold y"]);
                core.run();
                assert!(others.iter().all(|other| other.take() == Some(Ok(()))));
                assert!(blocker.is_none_or(|blocker| blocker.take() == Some(Ok(()))));
                assert_eq!(core.host().waiting_asks(), 0, "{queued} {steps} {by_time}");
                assert_eq!(core.host().blocks_in_use(), 0, "{queued} {steps} {by_time}");
                drop(core);
                world(|world| *world = World::default());
            }
        }
    }
}

#[test]
fn a_waker_that_outlives_its_handler_wakes_nobody() {
    let core = plain_core();
    let probe = probe(&core);
    let mut ask = probe.write("a".into());
    assert!(core.poll(&mut ask).is_none());
    let waker = signal("a").steal_waker().expect("the handler waits");
    core.drop(ask);
    let next = core.start(probe.write("b".into()));
    lines();
    waker.wake_by_ref();
    core.run();
    assert!(next.waits());
    assert_eq!(lines(), [""; 0], "the next handler was not polled in its place");
    std::thread::spawn(move || waker.wake()).join().expect("it wakes from any thread");
    core.run();
    assert!(next.waits());
    drop(core);
}

#[test]
fn a_waker_may_be_used_when_its_core_is_gone() {
    let core = plain_core();
    let ask = core.start(probe(&core).write("a".into()));
    let waker = signal("a").steal_waker().expect("the handler waits");
    drop(core);
    assert!(ask.waits());
    std::thread::spawn(move || waker.wake()).join().expect("it wakes from any thread");
}

#[test]
fn a_handler_is_woken_from_another_thread() {
    let core = plain_core();
    let mut ask = probe(&core).write("a".into());
    assert!(core.poll(&mut ask).is_none());
    let waker = signal("a").steal_waker().expect("the handler waits");
    assert!(!core.host().has_work());
    std::thread::spawn(move || waker.wake()).join().expect("it wakes from any thread");
    assert!(core.host().has_work());
    core.run();
    assert!(core.poll(&mut ask).is_none(), "it was polled and still waits");
    core.drop(ask);
}
