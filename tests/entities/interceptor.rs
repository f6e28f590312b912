//! Code around the entities of a type and around their messages.

use std::cell::Cell;
use std::sync::Arc;

use atoll::entity::{
    AnyInterceptor, AnyNext, AnyOutcome, AroundEntity, EntityContext, EntityInterceptor, Intercepted, Next, Outcome,
};
use atoll::{ClusterError, EntityOptions, SendError};

use crate::host::Core;
use crate::probe::{
    self, ProbeMessage, ProbeOutcome, ProbeProtocol, Refused, cluster, lines, log, probe as the_probe, signal, world,
};
use crate::wire::Wire;

thread_local! {
    /// How many of those around the entity run now.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Logs what it surrounds, with its name.
struct Logs {
    name: &'static str,
    /// The start of an entity panics.
    dies: bool,
}

fn logs(name: &'static str) -> Logs {
    Logs { name, dies: false }
}

struct Around(&'static str);

impl AroundEntity for Around {
    fn enter(&self, run: &mut dyn FnMut()) {
        DEPTH.set(DEPTH.get() + 1);
        log(format!("{}>", self.0));
        run();
        log(format!("<{}", self.0));
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        log(format!("{} ends", self.0));
    }
}

impl EntityInterceptor<ProbeProtocol> for Logs {
    fn around_entity(&self, entity: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        log(format!("{} around {}/{}", self.name, entity.entity_type(), entity.id()));
        assert!(!self.dies, "an interceptor that panics (a test wants it)");
        Box::new(Around(self.name))
    }
}

/// Changes messages and outcomes.
struct Changes;

impl EntityInterceptor<ProbeProtocol> for Changes {
    fn around_message<'a>(&'a self, next: Next<'a, ProbeProtocol>) -> Intercepted<'a, ProbeOutcome> {
        Box::pin(async move {
            match next.message() {
                ProbeMessage::Add(add) if add.value == 13 => panic!("an interceptor that panics (a test wants it)"),
                ProbeMessage::Add(add) if add.value == 14 => ProbeOutcome::Sum(Ok(1)),
                ProbeMessage::Add(add) if add.value == 15 => ProbeOutcome::Add(Ok(1500)),
                ProbeMessage::Refuse(refuse) if refuse.reason == "instead" => {
                    ProbeOutcome::Refuse(Err(Refused { reason: "refused before".to_owned() }))
                }
                ProbeMessage::Write(write) => {
                    let name = write.name.clone();
                    log(format!("before {name}"));
                    let outcome = next.run().await;
                    log(format!("after {name}"));
                    outcome
                }
                _ => {
                    let (entity, name) = (format!("{}/{}", next.entity_type(), next.id()), next.name());
                    let outcome = next.run().await;
                    log(format!("{entity}.{name} {outcome:?}"));
                    outcome
                }
            }
        })
    }
}

/// Logs messages by their names.
struct Names(&'static str);

impl AnyInterceptor for Names {
    fn around_entity(&self, _: &EntityContext<'_>) -> Box<dyn AroundEntity> {
        Box::new(Around(self.0))
    }

    fn around_message<'a>(&'a self, next: AnyNext<'a>) -> Intercepted<'a, AnyOutcome> {
        Box::pin(async move {
            let message = format!("{} {}.{}", self.0, next.entity_type(), next.name());
            log(format!("{message}?"));
            let outcome = next.run().await;
            log(format!("{message}! {}", outcome.is_error()));
            outcome
        })
    }
}

fn core_with(interceptor: impl EntityInterceptor<ProbeProtocol>) -> Core {
    probe::core(EntityOptions::default().interceptor(interceptor))
}

/// The lines but for the bounds of each poll.
fn lines_inside() -> Vec<String> {
    lines().into_iter().filter(|line| !line.starts_with('<') && !line.ends_with('>')).collect()
}

#[test]
fn it_lies_around_the_whole_life_of_an_entity() {
    let core = core_with(logs("a"));
    core.block(the_probe(&core).add(1)).unwrap();
    core.block(the_probe(&core).stop_yourself()).unwrap();
    assert_eq!(
        lines(),
        [
            "a around probe/p",
            "a>",
            "start p",
            "<a", // the start
            "a>",
            "<a",
            "a>",
            "<a", // two messages
            "a>",
            "stop Requested",
            "<a",
            "dropped", // the stop
            "a>",
            "closed 2",
            "<a",
            "a>",
            "closed 1",
            "<a",
            "a ends",
        ]
    );
}

#[test]
fn every_poll_of_a_handler_is_inside() {
    let core = core_with(logs("a"));
    core.block(the_probe(&core).add(1)).unwrap();
    lines();
    let write = core.start(the_probe(&core).write("w".to_owned()));
    assert_eq!(lines(), ["a>", "+w", "<a"]);
    signal("w").fire();
    core.run();
    assert_eq!(lines(), ["a>", "-w", "<a"]);
    assert!(write.take().is_some());
    assert_eq!(DEPTH.get(), 0);
}

#[test]
fn dying_before_the_start_is_like_a_start_that_fails() {
    let core = core_with(Logs { name: "a", dies: true });
    let outcome = core.block(the_probe(&core).add(1));
    assert_eq!(cluster(Some(outcome)), ClusterError::EntityDefect);
    assert_eq!(lines(), ["a around probe/p"]);
    assert_eq!(core.host().live_entities(), 0);
    let outcome = core.block(the_probe(&core).add(1));
    assert_eq!(cluster(Some(outcome)), ClusterError::EntityDefect);
}

#[test]
fn a_start_that_fails_ends_what_lies_around_it() {
    let core = core_with(logs("a"));
    world(|world| world.start_fails = true);
    assert!(core.block(the_probe(&core).add(1)).is_err());
    assert_eq!(lines_inside(), ["a around probe/p", "start p", "closed 2", "closed 1", "a ends"]);
}

#[test]
fn a_new_instance_has_its_own() {
    let core = core_with(logs("a"));
    signal("d").fire();
    assert!(core.block(the_probe(&core).defect("d".to_owned())).is_err());
    assert!(lines_inside().ends_with(&["closed 1".to_owned(), "a ends".to_owned()]));
    core.block(the_probe(&core).add(1)).unwrap();
    assert_eq!(lines_inside(), ["a around probe/p", "start p"]);
}

#[test]
fn it_sees_messages_and_outcomes() {
    let core = core_with(Changes);
    assert_eq!(core.block(the_probe(&core).add(2)), Ok(2));
    assert_eq!(core.block(the_probe(&core).sum()), Ok(2));
    let refused = core.block(the_probe(&core).refuse("no".to_owned()));
    assert_eq!(refused, Err(SendError::Declared(Refused { reason: "no".to_owned() })));
    assert_eq!(lines(), ["start p", "probe/p.add add(Ok)", "probe/p.sum sum(Ok)", "probe/p.refuse refuse(Err)"]);
    let write = core.start(the_probe(&core).write("w".to_owned()));
    assert_eq!(lines(), ["before w", "+w"]);
    signal("w").fire();
    core.run();
    assert_eq!(lines(), ["-w", "after w"]);
    assert!(write.take().unwrap().is_ok());
}

#[test]
fn it_may_answer_itself() {
    let core = core_with(Changes);
    assert_eq!(core.block(the_probe(&core).add(15)), Ok(1500));
    let refused = core.block(the_probe(&core).refuse("instead".to_owned()));
    assert_eq!(refused, Err(SendError::Declared(Refused { reason: "refused before".to_owned() })));
    assert_eq!(core.block(the_probe(&core).sum()), Ok(0));
}

#[test]
fn its_panic_and_a_wrong_outcome_are_defects() {
    let core = core_with(Changes);
    for value in [13, 14] {
        core.block(the_probe(&core).add(1)).unwrap();
        let outcome = core.block(the_probe(&core).add(value));
        assert_eq!(cluster(Some(outcome)), ClusterError::EntityDefect);
        assert_eq!(core.host().live_entities(), 0);
    }
    assert_eq!(core.block(the_probe(&core).add(1)), Ok(1));
}

#[test]
fn an_interrupted_message_is_dropped_with_its_interceptor() {
    let core = core_with(logs("a").and(Changes));
    core.block(the_probe(&core).add(1)).unwrap();
    let blocks = core.host().blocks_in_use();
    let mut write = the_probe(&core).write("w".to_owned());
    assert!(core.poll(&mut write).is_none());
    lines();
    core.drop(write);
    assert_eq!(lines(), ["~w"]);
    assert_eq!(core.host().blocks_in_use(), blocks);
}

#[test]
fn the_first_lies_around_the_second() {
    let core = core_with(logs("a").and(logs("b")));
    core.block(the_probe(&core).add(1)).unwrap();
    let made = ["a around probe/p", "a>", "b around probe/p", "<a"];
    let start = ["a>", "b>", "start p", "<b", "<a"];
    let message = ["a>", "b>", "<b", "<a"];
    assert_eq!(lines(), [&made[..], &start, &message].concat());
    drop(core);
    let ends = lines();
    assert_eq!(ends[ends.len() - 2..], ["b ends", "a ends"]);
}

#[test]
fn messages_pass_the_first_before_the_second() {
    // The options put a later one around an earlier one.
    let core = probe::core(EntityOptions::default().interceptor(Changes).interceptor(logs("a").and(Changes)));
    core.block(the_probe(&core).add(1)).unwrap();
    assert_eq!(lines_inside(), ["a around probe/p", "start p", "probe/p.add add(Ok)", "probe/p.add add(Ok)"]);
}

#[test]
fn one_for_all_types_lies_around_that_of_the_type() {
    let both: Arc<dyn AnyInterceptor> = Arc::new(Names("x").and(Names("y")));
    let core = probe::core(EntityOptions::default().interceptor(Changes).any_interceptor(both));
    core.block(the_probe(&core).add(1)).unwrap();
    assert!(core.block(the_probe(&core).refuse("no".to_owned())).is_err());
    assert_eq!(
        lines_inside(),
        [
            "start p",
            "x probe.add?",
            "y probe.add?",
            "probe/p.add add(Ok)",
            "y probe.add! false",
            "x probe.add! false",
            "x probe.refuse?",
            "y probe.refuse?",
            "probe/p.refuse refuse(Err)",
            "y probe.refuse! true",
            "x probe.refuse! true",
        ]
    );
}

#[test]
fn it_sees_messages_from_a_link_and_the_concurrent_ones() {
    let wire = Wire::new::<probe::ProbeEntity>(EntityOptions::default().interceptor(Changes));
    let entity: probe::ProbeRef = wire.entity("p");
    assert_eq!(wire.block(entity.add(2)), Ok(2));
    assert_eq!(wire.block(entity.add(15)), Ok(1500));
    assert_eq!(wire.block(entity.sum()), Ok(2));
    assert_eq!(lines(), ["start p", "probe/p.add add(Ok)", "probe/p.sum sum(Ok)"]);
}

#[test]
fn outcomes_have_names() {
    let outcome = ProbeOutcome::Refuse(Err(Refused { reason: String::new() }));
    assert_eq!((outcome.name(), outcome.is_error()), ("refuse", true));
    assert_eq!(format!("{:?}", ProbeOutcome::Plain(Ok(1))), "plain(Ok)");
}
