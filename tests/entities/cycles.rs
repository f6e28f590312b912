//! Asks that would wait for themselves.

use atoll::EntityOptions;

use crate::probe::*;

/// What becomes of an ask to "a" that goes on along a path of ways and ids.
fn along(concurrency: u16, first: &str, path: &str) -> Result<u32, String> {
    let core = core(EntityOptions::default().concurrency(concurrency));
    let path = path.split_whitespace().map(String::from).collect();
    let a = core.entity::<ProbeRef>("a");
    let ask = match first {
        "write" => core.start(a.pass_on(path)),
        "read" => core.start(a.pass_on_reading(path)),
        _ => core.start(a.pass_on_beside(path)),
    };
    let outcome = ask.take().expect("it ends at once, without a timeout");
    assert_eq!(core.host().blocks_in_use(), 0);
    outcome.map_err(|error| match error {
        atoll::SendError::Declared(refused) => refused.reason,
        atoll::SendError::Cluster(error) => panic!("{error}"),
    })
}

#[test]
fn an_ask_that_waits_for_itself_fails_at_once() {
    let cycle = Err("Cycle".to_owned());
    let table = [
        (1, "write", "", Ok(0)),
        (1, "write", "write b", Ok(1)),
        (1, "write", "write b write c", Ok(2)),
        (1, "write", "write a", cycle.clone()),
        (1, "write", "read a", cycle.clone()),
        (1, "write", "beside a", cycle.clone()),
        (1, "write", "write b write a", cycle.clone()),
        (1, "write", "write b beside c read a", cycle.clone()),
        (1, "read", "read a", cycle.clone()),
        (1, "read", "write a", cycle.clone()),
        (1, "read", "beside a", Ok(1)),
        (1, "beside", "beside a beside a", Ok(2)),
        (1, "beside", "read a", Ok(1)),
        (1, "beside", "write a", cycle.clone()),
        (2, "read", "read a", Ok(1)),
        (2, "read", "read a read a", cycle.clone()),
        (2, "read", "read b read a beside a", Ok(3)),
    ];
    for (concurrency, first, path, expected) in table {
        assert_eq!(along(concurrency, first, path), expected, "concurrency {concurrency}: {first} a {path}");
    }
}

#[test]
fn a_cycle_is_seen_after_an_await_too() {
    let core = plain_core();
    let [a, b] = ["a", "b"].map(|id| core.entity::<ProbeRef>(id));
    let busy = core.start(b.write("busy".into()));
    let ask = core.start(a.pass_on(vec!["write".into(), "b".into(), "write".into(), "a".into()]));
    assert!(ask.waits());
    signal("busy").fire();
    core.run();
    assert!(busy.take().is_some());
    let outcome = ask.take().expect("it ends at once");
    assert_eq!(outcome, Err(atoll::SendError::Declared(Refused { reason: "Cycle".into() })));
}

#[test]
fn two_chains_that_wait_for_each_other_end_by_their_timeout_only() {
    // Not a chain of asks that waits for itself: no one of the two can know of the other.
    let core = plain_core();
    let [a, b] = ["a", "b"].map(|id| core.entity::<ProbeRef>(id));
    let holds = [core.start(a.write("go a".into())), core.start(b.write("go b".into()))];
    let asks = [
        core.start(a.pass_on(vec!["write".into(), "b".into()])),
        core.start(b.pass_on(vec!["write".into(), "a".into()])),
    ];
    signal("go a").fire();
    signal("go b").fire();
    core.run();
    assert!(holds.iter().all(|hold| hold.take().is_some()));
    let cycles = asks.iter().filter(|ask| ask.waits()).count();
    assert!(cycles == 0 || cycles == 2);
    core.pass(std::time::Duration::from_secs(31));
    assert!(asks.iter().all(|ask| !ask.waits()));
}

#[test]
fn a_start_that_asks_its_own_entity_fails_at_once() {
    let core = plain_core();
    world(|world| world.start_asks = Some("p".into()));
    let ask = core.start(probe(&core).add(1));
    assert_eq!(ask.take(), Some(Ok(1)), "it does not wait for a timeout");
    assert_eq!(lines(), ["start p", "start got Err(Cluster(Cycle))"]);
}

#[test]
fn a_start_that_asks_someone_who_asks_it_fails_at_once() {
    let core = plain_core();
    world(|world| world.start_asks = Some("q".into()));
    // "p" starts and asks "q", which starts and asks "p".
    let ask = core.start(async_probe_that_asks_back(&core));
    assert_eq!(ask.take(), Some(Ok(1)), "it does not wait for a timeout");
    assert!(lines().iter().any(|line| line == "start got Err(Cluster(Cycle))"));
}

fn async_probe_that_asks_back(core: &crate::host::Core) -> atoll::Ask<probe::Add> {
    world(|world| world.second_start_asks = Some("p".into()));
    probe(core).add(1)
}

#[test]
fn starts_that_ask_entities_that_start_do_not_fill_the_stack() {
    let core = plain_core();
    let depth = if cfg!(miri) { 50 } else { 20_000 };
    let ask = core.start(core.entity::<ProbeRef>(&format!("depth {depth}")).add(1));
    assert_eq!(ask.take(), Some(Ok(1)));
    assert_eq!(core.host().live_entities(), depth + 1);
}
