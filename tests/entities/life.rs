//! Start, stop, idleness, the termination timeout, finalizers.

use std::time::Duration;

use atoll::entity::StopReason;
use atoll::{ClusterError, EntityOptions};

use crate::host::TOKEN;
use crate::probe::*;

fn options() -> EntityOptions<ProbeProtocol> {
    EntityOptions::default().max_idle(Duration::from_secs(2)).termination_timeout(Duration::from_secs(1))
}

#[test]
fn messages_wait_while_the_entity_starts() {
    let core = plain_core();
    world(|world| world.start_waits_for = Some("loaded".into()));
    let asks = [1, 2].map(|value| core.start(probe(&core).add(value)));
    assert!(asks.iter().all(|ask| ask.waits()));
    signal("loaded").fire();
    core.run();
    assert_eq!(asks.map(|ask| ask.take()), [Some(Ok(1)), Some(Ok(3))]);
    assert_eq!(lines(), ["start p"]);
}

#[test]
fn an_idle_entity_stops_and_starts_anew() {
    let core = core(options());
    let probe = probe(&core);
    assert_eq!(core.block(probe.add(5)), Ok(5));
    core.pass(Duration::from_millis(1800));
    assert_eq!(core.host().live_entities(), 1);
    assert_eq!(core.block(probe.sum()), Ok(5), "a message counts as activity");
    core.pass(Duration::from_millis(1800));
    assert_eq!(core.host().live_entities(), 1);
    core.pass(Duration::from_millis(500));
    assert_eq!(core.host().live_entities(), 0);
    assert_eq!(lines(), ["start p", "stop Idle", "dropped", "closed 2", "closed 1"]);
    assert_eq!(core.block(probe.add(1)), Ok(1), "the next message starts a new one");
    assert_eq!(lines(), ["start p"]);
}

#[test]
fn a_message_in_progress_is_not_idle() {
    let core = core(options());
    let ask = core.start(probe(&core).write("a".into()));
    core.pass(Duration::from_secs(20));
    assert!(ask.waits());
    signal("a").fire();
    core.run();
    assert_eq!(ask.take(), Some(Ok(())));
    core.pass(Duration::from_secs(1));
    assert_eq!(core.host().live_entities(), 1, "idleness counts from the end of the last message");
}

#[test]
fn a_stop_finishes_what_was_received_and_leaves_the_rest_to_the_next_instance() {
    let core = core(options());
    let probe = probe(&core);
    let before = core.start(probe.write("a".into()));
    let stop = core.start(probe.stop_yourself());
    let queued = core.start(probe.add(10));
    signal("a").fire();
    core.run();
    assert!(before.take().is_some() && stop.take().is_some());
    assert_eq!(queued.take(), Some(Ok(11)), "it had been received by the first instance");
    assert_eq!(core.host().live_entities(), 0);
    assert_eq!(lines(), ["start p", "+a", "-a", "stop Requested", "dropped", "closed 2", "closed 1"]);
    assert_eq!(core.block(probe.sum()), Ok(0));
}

#[test]
fn what_arrives_during_a_stop_starts_the_next_instance() {
    let core = core(options());
    let probe = probe(&core);
    world(|world| world.stop_waits_for = Some("saved".into()));
    assert_eq!(core.block(probe.add(5)), Ok(5));
    assert_eq!(core.block(probe.stop_yourself()), Ok(()));
    let [late, beside] = [core.start(probe.add(1)), core.start(probe.sum())];
    assert!(late.waits() && beside.waits(), "also a concurrent one: its state is about to end");
    signal("saved").fire();
    core.run();
    assert_eq!(late.take(), Some(Ok(1)));
    assert_eq!(beside.take(), Some(Ok(1)));
    assert_eq!(lines(), ["start p", "stop Requested", "dropped", "closed 2", "closed 1", "start p"]);
}

#[test]
fn a_stop_that_takes_too_long_interrupts_the_messages() {
    let core = core(options());
    let probe = probe(&core);
    let running = core.start(probe.finish("never".into()));
    let queued = core.start(probe.add(1));
    core.host().stop_entities(StopReason::Shutdown);
    core.run();
    core.pass(Duration::from_millis(900));
    assert!(running.waits());
    core.pass(Duration::from_millis(200));
    assert_eq!(cluster(running.take()), ClusterError::EntityInterrupted);
    assert_eq!(cluster(queued.take()), ClusterError::EntityInterrupted);
    assert_eq!(lines(), ["start p", "+never", "~never", "dropped", "closed 2", "closed 1"]);
    assert_eq!(core.host().live_entities(), 0);
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn a_stop_hook_that_takes_too_long_is_cut_off() {
    let core = core(options());
    let probe = probe(&core);
    world(|world| world.stop_waits_for = Some("never".into()));
    assert_eq!(core.block(probe.stop_yourself()), Ok(()));
    let late = core.start(probe.add(1));
    core.pass(Duration::from_millis(1100));
    assert_eq!(late.take(), Some(Ok(1)), "it did not belong to the one that was cut off");
    assert_eq!(lines(), ["start p", "stop Requested", "dropped", "closed 2", "closed 1", "start p"]);
}

#[test]
fn nothing_starts_on_a_core_that_stops() {
    let core = core(options());
    assert_eq!(core.block(probe(&core).add(1)), Ok(1));
    core.host().stop_entities(StopReason::Shutdown);
    core.run();
    assert_eq!(core.host().live_entities(), 0);
    assert_eq!(cluster(Some(core.block(probe(&core).add(1)))), ClusterError::EntityInterrupted);
}

#[test]
fn a_message_that_waits_while_a_core_stops_is_told() {
    let core = core(options());
    let probe = probe(&core);
    world(|world| world.stop_waits_for = Some("saved".into()));
    assert_eq!(core.block(probe.add(1)), Ok(1));
    core.host().stop_entities(StopReason::Shutdown);
    core.run();
    let late = core.start(probe.add(1));
    signal("saved").fire();
    core.run();
    assert_eq!(cluster(late.take()), ClusterError::EntityInterrupted);
    assert_eq!(core.host().live_entities(), 0);
}

#[test]
fn an_entity_told_to_stop_while_it_starts_stops_then() {
    let core = core(options());
    world(|world| world.start_waits_for = Some("loaded".into()));
    let ask = core.start(probe(&core).add(1));
    core.host().stop_entities(StopReason::Moved);
    core.run();
    signal("loaded").fire();
    core.run();
    assert_eq!(ask.take(), Some(Ok(1)), "it was received before the stop");
    assert_eq!(lines(), ["start p", "stop Moved", "dropped", "closed 2", "closed 1"]);
}

#[test]
fn a_start_that_never_ends_does_not_outlive_the_stop_of_the_core() {
    let core = core(options());
    world(|world| world.start_waits_for = Some("never".into()));
    let ask = core.start(probe(&core).add(1));
    core.host().stop_entities(StopReason::Shutdown);
    core.run();
    core.pass(Duration::from_millis(1100));
    assert_eq!(cluster(ask.take()), ClusterError::EntityInterrupted);
    assert_eq!(core.host().live_entities(), 0);
}

#[test]
fn the_scope_knows_the_token_of_the_shard() {
    let core = plain_core();
    assert_eq!(core.block(probe(&core).token()), Ok(TOKEN.0));
}

#[test]
fn the_end_of_a_core_drops_its_entities_and_runs_their_finalizers() {
    let core = plain_core();
    let waits = core.start(probe(&core).write("never".into()));
    let queued = core.start(probe(&core).write("never".into()));
    drop(core);
    assert_eq!(lines(), ["start p", "+never", "~never", "dropped", "closed 2", "closed 1"]);
    assert!(waits.waits() && queued.waits(), "their tasks ended with the core");
}
