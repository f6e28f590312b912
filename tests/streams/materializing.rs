//! What the materializer does beside wiring: failures, hand-made traversals, the narration, printing and drawing; and the
//! normal form of traversals.

use std::cell::RefCell;
use std::rc::Rc;

use atoll::stream::materializer::{
    IslandSetup, MaterializationError, Materializer, PhaseIsland, Phases, TracingNarrator,
};
use atoll::stream::traversal::builder::{CompositeBuilder, LinearBuilder, TraversalBuilder};
use atoll::stream::traversal::{
    Blueprint, Combine, IslandTag, Traversal, draw_dot, draw_mermaid, print_traversal, print_wiring,
};

use super::support::{I1, I2, Trace, Tracer, linear, named, operator, prefix, trace, try_trace};

fn then(upstream: LinearBuilder, downstream: LinearBuilder) -> LinearBuilder {
    upstream.append(downstream, Combine::Left).unwrap()
}

fn list(commands: Vec<Traversal>) -> Traversal {
    commands.into_iter().rev().fold(Traversal::Empty, |rest, command| command.concat(rest))
}

/// Two islands inside one island, and wires of each kind.
fn islands() -> Blueprint {
    let inner = then(linear("F2"), linear("F3")).with_island(I2);
    let chain = then(then(linear("S"), linear("F1").with_island(I1)), inner);
    then(then(chain, linear("F4")), linear("K")).with_attributes(named("whole")).blueprint().unwrap()
}

#[test]
fn holes_leave_the_slots_of_an_island_contiguous() {
    // The tracer asserts that local slots are contiguous.
    let (trace, _) = trace(&islands());
    assert_eq!(trace.wiring(), ["F4 -> K", "F3 -> F4", "F2 -> F3", "F1 -> F2", "S -> F1"]);
    let tags: Vec<_> = trace.operators.iter().map(|visited| (visited.name.as_str(), visited.tag)).collect();
    let expected = [("K", "Default"), ("F4", "Default"), ("F3", "I2"), ("F2", "I2"), ("F1", "I1"), ("S", "Default")];
    assert_eq!(tags, expected);
    assert_eq!((trace.crossings, trace.ready), (3, vec![0, 1, 2]));
    assert_eq!(trace.islands, ["whole-1", "whole-2"]);
}

#[test]
fn a_failure_starts_nothing_and_drops_every_island() {
    let shared = Rc::new(RefCell::new(Trace::default()));
    let factory = |setup: IslandSetup<'_>| -> Result<Box<dyn PhaseIsland>, MaterializationError> {
        Ok(Box::new(Tracer::island(&shared, &setup)))
    };
    let phases = Phases::new().with(I1, factory).with(I2, factory);
    let mut root = Tracer::root(&shared);
    root.refuses = Some("S");
    let failed = Materializer::new(&phases).materialize(&islands(), &mut root);
    let expected = "phase `root` does not take operator `S`: it is told to";
    assert_eq!(failed.err().unwrap().to_string(), expected);
    assert_eq!((shared.borrow().dropped, shared.borrow().ready.len()), (2, 0));
    drop(root);

    let phases = Phases::new().with(I2, factory);
    let failed = Materializer::new(&phases).materialize(&islands(), &mut Tracer::root(&shared));
    assert!(matches!(failed, Err(MaterializationError::UnknownIsland { tag }) if tag == I1));
    assert_eq!((shared.borrow().dropped, shared.borrow().ready.len()), (5, 0));
}

#[test]
fn traversals_made_by_hand_are_checked() {
    let place =
        |name: &str, inlets, outlets: &[i32]| Traversal::operator(operator(name, inlets, outlets.len()), outlets);
    let unit = Traversal::Empty.concat(Traversal::PushNotUsed);
    let table: Vec<(Vec<Traversal>, &str)> = vec![
        (vec![], "the traversal is malformed: a command takes a materialized value where there is none"),
        (vec![Traversal::Pop], "the traversal is malformed: a command takes a materialized value where there is none"),
        (
            vec![unit.clone(), Traversal::PopAttributes],
            "the traversal is malformed: attributes are popped that were not pushed",
        ),
        (
            vec![unit.clone(), Traversal::ExitIsland],
            "the traversal is malformed: an island is left that was not entered",
        ),
        (
            vec![unit.clone(), Traversal::EnterIsland(I1)],
            "the traversal is malformed: an island is entered and not left",
        ),
        (vec![place("K", 1, &[])], "the graph is incomplete: connect K.in"),
        (vec![place("S", 0, &[5]), place("K", 1, &[])], "the graph is incomplete: connect S.out, K.in"),
        (vec![place("K", 1, &[]), place("S", 0, &[-2])], "the graph is incomplete: connect S.out, K.in"),
        (vec![Traversal::operator(operator("S", 0, 1), &[])], "the graph is incomplete: connect S.out"),
        (
            vec![place("K", 1, &[]), place("S1", 0, &[-1]), place("S2", 0, &[-1])],
            "inlet `K.in` is connected twice: each inlet has one outlet",
        ),
        (
            vec![place("S1", 0, &[0]), place("S2", 0, &[0]), place("K", 1, &[])],
            "inlet `K.in` is connected twice: each inlet has one outlet",
        ),
        (vec![place("F", 2, &[0, 0])], "inlet `F.in0` is connected twice: each inlet has one outlet"),
    ];
    for (commands, expected) in table {
        let blueprint = Blueprint::from_traversal(list(commands));
        assert_eq!(try_trace(&blueprint).err().unwrap().to_string(), expected);
    }
    let good = list(vec![place("K", 1, &[]), Traversal::Pop, place("S", 0, &[-1])]);
    assert_eq!(trace(&Blueprint::from_traversal(good)).0.wiring(), ["S -> K"]);
}

#[test]
fn concatenation_has_a_normal_form() {
    let text = |traversal: Traversal| print_traversal(&traversal);
    let empty = || Traversal::Empty;
    assert!(empty().concat(empty()).is_empty());
    assert!(Traversal::PushNotUsed.concat(Traversal::Pop).is_empty());
    assert_eq!(text(empty().concat(Traversal::Pop)), "pop mat\n");
    assert_eq!(text(Traversal::Pop.concat(empty())), "pop mat\n");
    let rest = Traversal::Pop.concat(Traversal::ExitIsland);
    assert_eq!(text(Traversal::PushNotUsed.concat(rest)), "exit island\n");
    let left = Traversal::PopAttributes.concat(Traversal::Pop).concat(Traversal::ExitIsland);
    assert_eq!(text(left), " | pop attr\n | pop mat\nexit island\n");
}

#[test]
fn the_printed_traversal_has_the_words_of_the_commands() {
    let source = linear("S").with_attributes(named("source")).with_island(I1).transform(prefix("x"));
    let chain = then(source, linear("F1")).append(linear("K"), Combine::both::<String, String>()).unwrap();
    let mut blueprint = print_traversal(chain.blueprint().unwrap().traversal());
    blueprint = blueprint.replace(" | ", "");
    let expected = "materialize K []\nmaterialize F1 [-1]\npop mat\npush attr [Name(\"source\")]\nenter island I1\n\
                    materialize S [-1]\ntransform mat\nexit island\npop attr\ncompose reversed mat\n";
    assert_eq!(blueprint, expected);
}

#[test]
fn the_printed_wiring_counts_slots() {
    let chain = then(then(linear("S"), linear("F1")), linear("K"));
    let blueprint = chain.blueprint().unwrap();
    let (text, next) = print_wiring(blueprint.traversal(), 10);
    let expected = "materialize K\n  wiring in to 10\nmaterialize F1\n  wiring in to 11\n  wiring out to 10\n\
                    materialize S\n  wiring out to 11\n";
    assert_eq!((text.as_str(), next), (expected, 12));
}

#[test]
fn drawings_show_operators_wires_and_islands() {
    let mut graph = CompositeBuilder::new();
    let mut source = TraversalBuilder::from(linear("S \"quoted\""));
    source.make_island(I1);
    let source = graph.add(source, Combine::Left);
    let merge = graph.add(TraversalBuilder::operator(operator("M", 2, 1)), Combine::Left);
    let fan_out = graph.add(TraversalBuilder::operator(operator("FO", 1, 2)), Combine::Left);
    let sink = graph.add(linear("K").into(), Combine::Left);
    graph.wire(source.outlet(0), merge.inlet(0)).unwrap();
    graph.wire(merge.outlet(0), fan_out.inlet(0)).unwrap();
    graph.wire(fan_out.outlet(0), sink.inlet(0)).unwrap();
    graph.wire(fan_out.outlet(1), merge.inlet(1)).unwrap();
    let blueprint = graph.seal_all().blueprint().unwrap();
    let mermaid = r##"flowchart LR
  m1["M"]
  m2["FO"]
  m3["K"]
  subgraph i1["island 1: I1"]
  m0["S #quot;quoted#quot;"]
  end
  m0 -- "out to in0" --> m1
  m1 --> m2
  m2 -- "out0 to in" --> m3
  m2 -- "out1 to in1" --> m1
"##;
    assert_eq!(draw_mermaid(blueprint.traversal()), mermaid);
    let dot = r#"digraph stream {
  rankdir=LR;
  node [shape=box];
  m1 [label="M"];
  m2 [label="FO"];
  m3 [label="K"];
  subgraph cluster_1 {
  label="island 1: I1";
  m0 [label="S \"quoted\""];
  }
  m0 -> m1 [label="out to in0"];
  m1 -> m2;
  m2 -> m3 [label="out0 to in"];
  m2 -> m1 [label="out1 to in1"];
}
"#;
    assert_eq!(draw_dot(blueprint.traversal()), dot);
}

#[test]
fn the_narration_tells_each_step_of_the_tracking() {
    let shared = Rc::new(RefCell::new(Trace::default()));
    let factory = |setup: IslandSetup<'_>| -> Result<Box<dyn PhaseIsland>, MaterializationError> {
        Ok(Box::new(Tracer::island(&shared, &setup)))
    };
    let phases = Phases::new().with(I1, factory).with(I2, factory).with(IslandTag::FUSED, factory);
    let mut lines: Vec<String> = Vec::new();
    let flow = linear("F1").with_attributes(named("flow")).with_island(I1);
    let blueprint = then(then(linear("S"), flow), linear("K")).blueprint().unwrap();
    Materializer::new(&phases).narrated(&mut lines).materialize(&blueprint, &mut Tracer::root(&shared)).unwrap();
    let start = lines.iter().position(|line| line == "--- Start materialization").unwrap();
    assert_eq!(lines[0], "--- Materializing layout:");
    let expected = [
        "materializing module: K",
        "  wiring port in inOffs absolute = 0 local = 0",
        "ATTR PUSH: [Name(\"flow\")]",
        "Completed segment from 0 to 1 of island 0",
        "Entering island starting at offset = 1 phase = flow-1 (I1)",
        "materializing module: F1",
        "  wiring port in inOffs absolute = 1 local = 0",
        "  wiring out to absolute = 0",
        "    backward wiring, cross-island to local slot 0 in target island 0",
        "PUSH: value of F1 => stack",
        "Completed segment from 1 to 2 of island 1",
        "Exited to island 0 at offset = 2",
        "ATTR POP",
        "POP: stack",
        "materializing module: S",
        "  wiring out to absolute = 1",
        "    backward wiring, cross-island to local slot 0 in target island 1",
        "PUSH: value of S => stack",
        "--- Finished materialization",
    ];
    let told: Vec<&str> = lines[start + 1..].iter().map(String::as_str).collect();
    assert_eq!(told, expected, "{told:#?}");
    let mut tracing = TracingNarrator;
    let mut materializer = Materializer::new(&phases).narrated(&mut tracing);
    materializer.materialize(&blueprint, &mut Tracer::root(&shared)).unwrap();
}
