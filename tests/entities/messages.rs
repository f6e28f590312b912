//! Replies, errors, order, the mailbox and what starts an entity.

use std::time::Duration;

use atoll::{ClusterError, EntityOptions, SendError};

use crate::probe::*;

#[test]
fn an_ask_that_is_ready_at_once_is_answered_in_its_first_poll() {
    let core = plain_core();
    let probe = probe(&core);
    assert_eq!(core.poll(&mut probe.add(2)), Some(Ok(2)), "the first one starts the entity");
    assert_eq!(core.poll(&mut probe.add(3)), Some(Ok(5)));
    assert_eq!(core.poll(&mut probe.plain(4)), Some(Ok(9)), "a method that is no async fn");
    assert_eq!(core.host().live_entities(), 1);
    assert_eq!(core.host().waiting_asks(), 0);
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn each_id_is_an_entity_of_its_own() {
    let core = plain_core();
    for round in 1..=2 {
        for id in ["a", "b", &"long".repeat(60)] {
            assert_eq!(core.block(core.entity::<ProbeRef>(id).add(1)), Ok(round));
        }
    }
    assert_eq!(core.host().live_entities(), 3);
}

#[test]
fn a_declared_error_is_the_senders_own() {
    let core = plain_core();
    let outcome = core.block(probe(&core).refuse("closed".into()));
    assert_eq!(outcome, Err(SendError::Declared(Refused { reason: "closed".into() })));
}

#[test]
fn an_id_that_is_none_fails_with_its_own_error() {
    let core = plain_core();
    for id in ["", &"x".repeat(256)] {
        let outcome = core.block(core.entity::<ProbeRef>(id).add(1));
        assert_eq!(outcome, Err(SendError::Cluster(ClusterError::InvalidEntityId)));
        let outcome = core.block(core.entity::<ProbeRef>(id).add(1).discard());
        assert_eq!(outcome, Err(ClusterError::InvalidEntityId));
    }
}

#[test]
fn messages_are_handled_one_at_a_time_in_order() {
    let core = plain_core();
    let probe = probe(&core);
    let asks: Vec<_> = ["a", "b", "c"].map(|name| core.start(probe.write(name.into()))).into();
    assert_eq!(lines(), ["start p", "+a"]);
    signal("c").fire();
    signal("b").fire();
    core.run();
    assert_eq!(lines(), [""; 0], "the first one has not ended");
    signal("a").fire();
    core.run();
    assert_eq!(lines(), ["-a", "+b", "-b", "+c", "-c"]);
    assert!(asks.iter().all(|ask| ask.take() == Some(Ok(()))));
}

#[test]
fn a_message_is_not_overtaken_by_one_that_could_start_at_once() {
    let core = plain_core();
    let probe = probe(&core);
    let first = core.start(probe.write("a".into()));
    let second = core.start(probe.write("b".into()));
    let third = core.start(probe.add(1));
    signal("a").fire();
    core.run();
    assert!(first.take().is_some() && second.waits() && third.waits());
    signal("b").fire();
    core.run();
    assert_eq!(third.take(), Some(Ok(3)));
}

#[test]
fn a_discard_is_done_once_the_message_is_in_the_mailbox() {
    let core = plain_core();
    let probe = probe(&core);
    assert_eq!(core.poll(&mut probe.write("a".into()).discard()), Some(Ok(())), "it runs");
    assert_eq!(core.poll(&mut probe.write("b".into()).discard()), Some(Ok(())), "it waits");
    assert_eq!(core.poll(&mut probe.refuse("no".into()).discard()), Some(Ok(())), "nobody cares how it ends");
    signal("a").fire();
    signal("b").fire();
    core.run();
    assert_eq!(lines(), ["start p", "+a", "-a", "+b", "-b"]);
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn a_message_that_says_nothing_can_be_sent_as_a_value() {
    let core = plain_core();
    let to = probe(&core);
    let tell = ProbeTell::from(probe::Write { name: "a".into() });
    assert_eq!(core.block(async move { tell.send(&to).await }), Ok(()));
    assert_eq!(lines(), ["start p", "+a"]);
    let outcome = core.block(core.messenger::<ProbeRef>().send("q", probe::Add { value: 4 }));
    assert_eq!(outcome, Ok(4));
}

#[test]
fn a_full_mailbox_refuses() {
    let core = core(EntityOptions::default().mailbox_capacity(2));
    let probe = probe(&core);
    let first = core.start(probe.write("a".into()));
    let second = core.start(probe.add(1));
    let third = core.start(probe.add(1));
    assert_eq!(cluster(third.take()), ClusterError::MailboxFull);
    assert_eq!(core.block(probe.add(1).discard()), Err(ClusterError::MailboxFull));
    signal("a").fire();
    core.run();
    assert!(first.take().is_some());
    assert_eq!(second.take(), Some(Ok(2)), "the refused ones were not processed");
    assert_eq!(core.block(probe.add(1)), Ok(3), "there is room again");
}

#[test]
fn only_messages_that_may_start_an_entity_do() {
    let core = core(
        EntityOptions::default().load_entity(|message| matches!(message, ProbeMessage::Add(add) if add.value > 1)),
    );
    let probe = probe(&core);
    assert_eq!(cluster(Some(core.block(probe.sum()))), ClusterError::MessageDiscarded);
    assert_eq!(cluster(Some(core.block(probe.add(1)))), ClusterError::MessageDiscarded);
    assert_eq!(core.block(probe.add(1).discard()), Ok(()), "a discard of it succeeds");
    assert_eq!(core.host().live_entities(), 0);
    assert_eq!(core.block(probe.add(2)), Ok(2));
    assert_eq!(core.block(probe.sum()), Ok(2), "it runs now, so every message is handled");
}

#[test]
fn who_waits_is_woken_by_time_that_passes_in_a_handler() {
    let core = plain_core();
    let nap = core.start(probe(&core).nap(50));
    core.pass(Duration::from_millis(49));
    assert!(nap.waits());
    core.pass(Duration::from_millis(2));
    assert_eq!(nap.take(), Some(Ok(())));
}
