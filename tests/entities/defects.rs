//! A panic in a handler ends its entity, and nothing else.

use atoll::ClusterError;

use crate::host::Core;
use crate::probe::*;

fn is_whole(core: &Core) {
    assert!(core.block(core.entity::<ProbeRef>("other").add(1)).is_ok(), "others notice nothing");
    lines();
    assert_eq!(core.block(probe(core).sum()), Ok(0), "the next message starts a new one");
    assert_eq!(lines(), ["start p"]);
    assert_eq!(core.host().blocks_in_use(), 0);
}

#[test]
fn a_panic_at_once() {
    let core = plain_core();
    assert_eq!(core.block(probe(&core).add(1)), Ok(1));
    assert_eq!(cluster(Some(core.block(probe(&core).defect_plain()))), ClusterError::EntityDefect);
    assert_eq!(lines(), ["start p", "dropped", "closed 2", "closed 1"]);
    is_whole(&core);
}

#[test]
fn a_panic_before_there_is_a_future() {
    let core = plain_core();
    assert_eq!(cluster(Some(core.block(probe(&core).defect_eagerly()))), ClusterError::EntityDefect);
    is_whole(&core);
    let blocked = core.start(probe(&core).write("a".into()));
    let queued = core.start(probe(&core).defect_eagerly());
    signal("a").fire();
    core.run();
    assert!(blocked.take().is_some());
    assert_eq!(cluster(queued.take()), ClusterError::EntityDefect);
    lines();
    is_whole(&core);
}

#[test]
fn a_panic_after_an_await() {
    let core = plain_core();
    let ask = core.start(probe(&core).defect("a".into()));
    signal("a").fire();
    core.run();
    assert_eq!(cluster(ask.take()), ClusterError::EntityDefect);
    assert_eq!(lines(), ["start p", "+a", "-a", "dropped", "closed 2", "closed 1"]);
    is_whole(&core);
}

#[test]
fn messages_that_waited_are_handled_by_the_next_one() {
    let core = plain_core();
    let probe = probe(&core);
    let defect = core.start(probe.defect("a".into()));
    let queued = [core.start(probe.add(1)), core.start(probe.add(1))];
    signal("a").fire();
    core.run();
    assert_eq!(cluster(defect.take()), ClusterError::EntityDefect);
    assert_eq!(queued.map(|ask| ask.take()), [Some(Ok(1)), Some(Ok(2))]);
    assert_eq!(lines(), ["start p", "+a", "-a", "dropped", "closed 2", "closed 1", "start p"]);
}

#[test]
fn messages_in_progress_beside_it_end_with_it() {
    let core = plain_core();
    let probe = probe(&core);
    let beside = core.start(probe.glance("b".into()));
    let defect = core.start(probe.defect_beside("a".into()));
    signal("a").fire();
    core.run();
    assert_eq!(cluster(defect.take()), ClusterError::EntityDefect);
    assert_eq!(cluster(beside.take()), ClusterError::EntityDefect);
    assert_eq!(lines(), ["start p", "+b", "+a", "-a", "~b", "dropped", "closed 2", "closed 1"]);
    is_whole(&core);
}

#[test]
fn a_discard_that_panics_ends_its_entity_too() {
    let core = plain_core();
    assert_eq!(core.block(probe(&core).defect_plain().discard()), Ok(()));
    assert_eq!(lines(), ["start p", "dropped", "closed 2", "closed 1"]);
    is_whole(&core);
}

#[test]
fn a_start_that_fails_is_told_to_all_who_wait() {
    for panics in [false, true] {
        for waits in [false, true] {
            let core = plain_core();
            let probe = probe(&core);
            world(|world| {
                world.start_fails = true;
                world.start_panics = panics;
                world.start_waits_for = waits.then(|| "loaded".into());
            });
            let asks = [core.start(probe.add(1)), core.start(probe.sum())];
            signal("loaded").fire();
            core.run();
            for ask in asks {
                assert_eq!(cluster(ask.take()), ClusterError::EntityDefect);
            }
            assert_eq!(core.host().live_entities(), 0);
            world(|world| *world = World::default());
            assert_eq!(core.block(probe.add(1)), Ok(1), "the next message tries again");
            assert_eq!(core.host().blocks_in_use(), 0);
            drop(core);
            world(|world| *world = World::default());
        }
    }
}
