//! `scope.update`: the state from outside of a handler.

use crate::probe::*;

#[test]
fn an_update_waits_until_no_handler_borrows_the_state() {
    let core = plain_core();
    let probe = probe(&core);
    assert_eq!(core.block(probe.update_later("go".into())), Ok(()));
    let read = core.start(probe.read("a".into()));
    lines();
    signal("go").fire();
    core.run();
    assert_eq!(lines(), [""; 0]);
    signal("a").fire();
    core.run();
    assert!(read.take().is_some());
    assert_eq!(lines(), ["-a", "updated Ok(100)"]);
    assert_eq!(core.block(probe.sum()), Ok(100));
}

#[test]
fn an_update_of_an_idle_entity_is_done_at_once() {
    let core = plain_core();
    assert_eq!(core.block(probe(&core).update_later("go".into())), Ok(()));
    signal("go").fire();
    core.run();
    assert_eq!(core.block(probe(&core).sum()), Ok(100));
}

#[test]
fn an_update_after_the_stop_fails() {
    let core = plain_core();
    let probe = probe(&core);
    assert_eq!(core.block(probe.update_later("go".into())), Ok(()));
    assert_eq!(core.block(probe.stop_yourself()), Ok(()));
    assert_eq!(core.block(probe.add(1)), Ok(1), "another instance, maybe at the same place");
    lines();
    signal("go").fire();
    core.run();
    assert_eq!(lines(), ["updated Err(Gone)"]);
    assert_eq!(core.block(probe.sum()), Ok(1));
}

#[test]
fn an_update_that_waits_when_the_entity_ends_fails() {
    let core = plain_core();
    let probe = probe(&core);
    assert_eq!(core.block(probe.update_later("go".into())), Ok(()));
    let defect = core.start(probe.defect("a".into()));
    signal("go").fire();
    core.run();
    lines();
    signal("a").fire();
    core.run();
    assert!(defect.take().is_some());
    assert_eq!(lines(), ["-a", "dropped", "closed 2", "closed 1", "updated Err(Gone)"]);
}
