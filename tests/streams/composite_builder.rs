//! The table of the builder of graphs: wiring, values, attributes and islands of graphs that are built part by part.
//!
//! Not here: the lookup of sources that hold a single value (`.single`, `.future`, …), which is about operators, not about
//! wiring; it belongs to the typed operators. Ports are not copied shapes as in the table: each import gets new ports.

use atoll::stream::traversal::builder::{Added, CompositeBuilder, OutPort, TraversalBuilder, WiringError};
use atoll::stream::traversal::{Blueprint, Combine, TransformFunction};

use super::support::{I1, I2, composite, is_unit, named, operator, prefix, text, trace};

fn complete(graph: CompositeBuilder) -> Blueprint {
    graph.seal(&[], &[]).expect("all is wired").blueprint().expect("no port is free")
}

fn wire(graph: &mut CompositeBuilder, from: Added, to: Added) {
    graph.wire(from.outlet(0), to.inlet(0)).expect("both are free");
}

fn wiring(graph: CompositeBuilder) -> Vec<String> {
    trace(&complete(graph)).0.wiring()
}

/// Adds parts in this order and wires the pairs of positions in that order.
fn build(parts: Vec<TraversalBuilder>, wires: &[(usize, usize)]) -> CompositeBuilder {
    let mut graph = CompositeBuilder::new();
    let added: Vec<Added> = parts.into_iter().map(|part| graph.add(part, Combine::Left)).collect();
    wires.iter().for_each(|&(from, to)| wire(&mut graph, added[from], added[to]));
    graph
}

fn parts(names: &str) -> Vec<TraversalBuilder> {
    names.split_whitespace().map(composite).collect()
}

#[test]
fn slots_follow_the_order_of_adding_whatever_the_order_of_wiring() {
    type Row = (&'static str, &'static [(usize, usize)], &'static [&'static str]);
    let table: &[Row] = &[
        ("S K", &[(0, 1)], &["S -> K"]),
        ("K S", &[(1, 0)], &["S -> K"]),
        ("S F1 K", &[(0, 1), (1, 2)], &["S -> F1", "F1 -> K"]),
        ("S F1 F2 K", &[(0, 1), (1, 2), (2, 3)], &["S -> F1", "F1 -> F2", "F2 -> K"]),
        ("S F1 F2 K", &[(2, 3), (0, 1), (1, 2)], &["S -> F1", "F1 -> F2", "F2 -> K"]),
        ("S F1 F2 K", &[(1, 2), (2, 3), (0, 1)], &["S -> F1", "F1 -> F2", "F2 -> K"]),
        ("S K F2 F1", &[(2, 1), (0, 3), (3, 2)], &["F2 -> K", "F1 -> F2", "S -> F1"]),
        ("F1", &[(0, 0)], &["F1 -> F1"]),
        ("F1 F2", &[(0, 1), (1, 0)], &["F2 -> F1", "F1 -> F2"]),
    ];
    for (names, wires, expected) in table {
        assert_eq!(wiring(build(parts(names), wires)), *expected, "{names} {wires:?}");
    }
}

#[test]
fn parts_can_be_added_after_others_were_wired() {
    let (mut graph, source) = CompositeBuilder::containing(composite("S"));
    let sink = graph.add(composite("K"), Combine::Left);
    let second = graph.add(composite("F2"), Combine::Left);
    wire(&mut graph, second, sink);
    let first = graph.add(composite("F1"), Combine::Left);
    wire(&mut graph, source, first);
    wire(&mut graph, first, second);
    assert_eq!(wiring(graph), ["F2 -> K", "F1 -> F2", "S -> F1"]);
}

#[test]
fn a_part_within_an_otherwise_empty_graph_is_as_the_part() {
    let (inner, source) = CompositeBuilder::containing(composite("S"));
    let inner = inner.seal(&[], &[source.outlet(0)]).unwrap();
    let graph = build(vec![composite("K"), inner], &[(1, 0)]);
    assert_eq!(wiring(graph), ["S -> K"]);
}

#[test]
fn one_part_added_twice_has_two_places() {
    let flow = composite("F1");
    let graph = build(vec![composite("S"), flow.clone(), flow, composite("K")], &[(0, 1), (1, 2), (2, 3)]);
    assert_eq!(wiring(graph), ["S -> F1", "F1 -> F1", "F1 -> K"]);
}

fn nested_flows() -> TraversalBuilder {
    let mut inner = CompositeBuilder::new();
    let first = inner.add(composite("F1"), Combine::Left);
    let second = inner.add(composite("F2"), Combine::Left);
    wire(&mut inner, first, second);
    inner.seal(&[first.inlet(0)], &[second.outlet(0)]).unwrap()
}

#[test]
fn graphs_nest_to_any_depth() {
    let mut nested = nested_flows();
    for depth in 0..5 {
        let graph = build(vec![composite("S"), nested.clone(), composite("K")], &[(0, 1), (1, 2)]);
        assert_eq!(wiring(graph), ["S -> F1", "F1 -> F2", "F2 -> K"], "depth {depth}");
        let (outer, ports) = CompositeBuilder::containing(nested);
        nested = outer.seal(&[ports.inlet(0)], &[ports.outlet(0)]).unwrap();
    }
    let twice = build(vec![composite("S"), nested.clone(), nested, composite("K")], &[(2, 3), (0, 1), (1, 2)]);
    assert_eq!(wiring(twice), ["S -> F1", "F1 -> F2", "F2 -> F1", "F1 -> F2", "F2 -> K"]);
}

#[test]
fn the_empty_graph_has_the_unit_value_and_no_wire() {
    let (trace, value) = trace(&complete(CompositeBuilder::new()));
    assert_eq!(trace.wiring(), Vec::<String>::new());
    assert!(is_unit(&value));
}

#[test]
fn a_fan_out_is_complete_when_each_outlet_is_wired() {
    let mut graph = CompositeBuilder::new();
    let source = graph.add(composite("S"), Combine::Left);
    let fan_out = graph.add(TraversalBuilder::operator(operator("FO", 1, 2)), Combine::Left);
    let first = graph.add(composite("K1"), Combine::Left);
    let second = graph.add(composite("K2"), Combine::Left);
    wire(&mut graph, source, fan_out);
    graph.wire(fan_out.outlet(0), first.inlet(0)).unwrap();
    assert_eq!(graph.is_outlet_wired(fan_out.outlet(0)), Some(true));
    assert_eq!(graph.is_outlet_wired(fan_out.outlet(1)), Some(false));
    assert_eq!(graph.is_inlet_wired(second.inlet(0)), Some(false));
    graph.wire(fan_out.outlet(1), second.inlet(0)).unwrap();
    assert_eq!(wiring(graph), ["S -> FO", "FO.0 -> K1", "FO.1 -> K2"]);
}

#[test]
fn the_order_of_a_sealed_shape_is_the_one_that_was_given() {
    let mut inner = CompositeBuilder::new();
    let fan_out = inner.add(TraversalBuilder::operator(operator("FO", 2, 2)), Combine::Left);
    let crossed = inner.seal(&[fan_out.inlet(1), fan_out.inlet(0)], &[fan_out.outlet(1), fan_out.outlet(0)]).unwrap();
    let mut graph = CompositeBuilder::new();
    let part = graph.add(crossed, Combine::Left);
    for position in 0..2 {
        let source = graph.add(composite(["S0", "S1"][position]), Combine::Left);
        let sink = graph.add(composite(["K0", "K1"][position]), Combine::Left);
        graph.wire(source.outlet(0), part.inlet(position)).unwrap();
        graph.wire(part.outlet(position), sink.inlet(0)).unwrap();
    }
    assert_eq!(wiring(graph), ["S1 -> FO.0", "S0 -> FO.1", "FO.1 -> K0", "FO.0 -> K1"]);
}

#[test]
fn values_are_kept_as_each_addition_says() {
    type Pair = (String, String);
    fn chain(combines: [Combine; 2]) -> CompositeBuilder {
        let (mut graph, source) = CompositeBuilder::containing(composite("S"));
        let [first, second] = combines;
        let flow = graph.add(composite("F1"), first);
        let sink = graph.add(composite("K"), second);
        wire(&mut graph, source, flow);
        wire(&mut graph, flow, sink);
        graph
    }
    let both = Combine::both::<String, String>;
    let value = |combines| trace(&complete(chain(combines))).1;
    assert_eq!(text(value([Combine::Left, Combine::Left])), "S");
    assert_eq!(text(value([Combine::Left, Combine::Right])), "K");
    assert_eq!(text(value([Combine::Right, Combine::Left])), "F1");
    let pair = |value: Box<dyn std::any::Any>| *value.downcast::<Pair>().unwrap();
    assert_eq!(pair(value([Combine::Left, both()])), ("S".to_owned(), "K".to_owned()));
    assert_eq!(pair(value([both(), Combine::Left])), ("S".to_owned(), "F1".to_owned()));
    let nested = *value([both(), Combine::both::<Pair, String>()]).downcast::<(Pair, String)>().unwrap();
    assert_eq!(nested, (("S".to_owned(), "F1".to_owned()), "K".to_owned()));
    assert!(is_unit(&value([Combine::Left, Combine::Neither])));
    let mut mapped = chain([Combine::Right, Combine::Left]);
    mapped.transform(prefix("MAPPED: "));
    assert_eq!(text(trace(&complete(mapped)).1), "MAPPED: F1");
}

#[test]
fn transformations_apply_from_the_inside_to_the_outside() {
    let mut flow = composite("F1");
    flow.transform(prefix("M1: "));
    let (mut inner, ports) = CompositeBuilder::containing(flow);
    inner.transform(prefix("M2: "));
    let inner = inner.seal(&[ports.inlet(0)], &[ports.outlet(0)]).unwrap();
    let mut graph = CompositeBuilder::new();
    let source = graph.add(composite("S"), Combine::Left);
    let flow = graph.add(inner, Combine::Right);
    let sink = graph.add(composite("K"), Combine::Left);
    wire(&mut graph, source, flow);
    wire(&mut graph, flow, sink);
    assert_eq!(text(trace(&complete(graph)).1), "M2: M1: F1");
}

#[test]
fn the_value_of_an_empty_graph_can_be_transformed_and_kept() {
    let mut empty = CompositeBuilder::new();
    empty.transform(TransformFunction::new(|(): ()| "NOTUSED".to_owned()));
    let (mut graph, _) = CompositeBuilder::containing(empty.seal_all());
    let source = graph.add(composite("S"), Combine::Left);
    let sink = graph.add(composite("K"), Combine::Left);
    wire(&mut graph, source, sink);
    assert_eq!(text(trace(&complete(graph)).1), "NOTUSED");
}

fn with_names(mut part: TraversalBuilder, names: &[&str]) -> TraversalBuilder {
    names.iter().for_each(|name| part.set_attributes(named(name)));
    part
}

#[test]
fn attributes_of_outer_levels_are_less_specific() {
    let source = with_names(composite("S"), &["testSource"]);
    let sink = with_names(composite("K"), &["testSink"]);
    let mut graph = build(vec![source, sink], &[(0, 1)]);
    graph.set_attributes(named("test"));
    let (trace, _) = trace(&complete(graph));
    assert_eq!(trace.attributes(), ["S: test and testSource", "K: test and testSink"]);
}

#[test]
fn attributes_set_twice_at_a_level_are_replaced() {
    let source = with_names(composite("S"), &["testSource"]);
    let (mut inner, ports) = CompositeBuilder::containing(source);
    inner.set_attributes(named("test"));
    inner.set_attributes(named("test2"));
    let inner = inner.seal(&[], &[ports.outlet(0)]).unwrap();
    let sink = with_names(composite("K"), &["testSink", "testSinkB"]);
    let (mut nested_sink, sink_ports) = CompositeBuilder::containing(sink);
    nested_sink.set_attributes(named("test2"));
    let nested_sink = nested_sink.seal(&[sink_ports.inlet(0)], &[]).unwrap();
    let mut graph = build(vec![inner, nested_sink], &[(0, 1)]);
    graph.set_attributes(named("outer"));
    graph.set_attributes(named("outer2"));
    let (trace, _) = trace(&complete(graph));
    assert_eq!(trace.attributes(), ["S: outer2 and test2 and testSource", "K: outer2 and test2 and testSinkB"]);
}

#[test]
fn attributes_of_a_flow_are_its_own() {
    let flow = with_names(composite("F1"), &["flow"]);
    let mut graph = build(vec![composite("S"), flow, composite("K")], &[(0, 1), (1, 2)]);
    graph.set_attributes(named("test"));
    assert_eq!(trace(&complete(graph)).0.attributes(), ["S: test", "F1: test and flow", "K: test"]);
}

#[test]
fn an_island_is_what_its_part_is_and_the_first_tag_counts() {
    for second in [None, Some(I2)] {
        let mut flow = composite("F1");
        flow.make_island(I1);
        if let Some(tag) = second {
            flow.make_island(tag);
        }
        flow.set_attributes(named("flow"));
        let graph = build(vec![composite("S"), flow, composite("K")], &[(0, 1), (1, 2)]);
        let (trace, _) = trace(&complete(graph));
        assert_eq!(trace.assignments(), ["S: none, Default", "F1: flow, I1", "K: none, Default"]);
        assert_eq!(trace.wiring(), ["S -> F1", "F1 -> K"]);
        assert_eq!((trace.crossings, trace.ready), (2, vec![0, 1]));
    }
}

#[test]
fn wrong_wiring_is_refused_with_the_name_of_the_port() {
    let mut graph = CompositeBuilder::new();
    let source = graph.add(composite("S"), Combine::Left);
    let other = graph.add(composite("S2"), Combine::Left);
    let sink = graph.add(composite("K"), Combine::Left);
    let flow = graph.add(composite("F1"), Combine::Left);
    wire(&mut graph, source, sink);
    let connected = |port: &str| Err(WiringError::AlreadyConnected { port: port.to_owned() });
    assert_eq!(graph.wire(other.outlet(0), sink.inlet(0)), connected("K.in"));
    assert_eq!(graph.wire(other.outlet(1), flow.inlet(0)), Err(WiringError::UnknownPort));
    assert!(matches!(graph.wire(source.outlet(0), flow.inlet(0)), Err(WiringError::AlreadyConnected { .. })));
    let unfinished = graph.clone().seal(&[], &[other.outlet(0), flow.outlet(0)]);
    let ports = vec!["F1.in".to_owned()];
    assert_eq!(unfinished.err(), Some(WiringError::NeitherReturnedNorConnected { ports }));
    let all: [OutPort; 2] = [other.outlet(0), flow.outlet(0)];
    let wired = graph.clone().seal(&[flow.inlet(0), sink.inlet(0)], &all);
    assert_eq!(wired.err(), Some(WiringError::ReturnedButConnected { ports: vec!["K.in".to_owned()] }));
    let open = graph.seal_all().blueprint().err().expect("ports are free");
    assert_eq!(open.unconnected, ["F1.in", "S2.out", "F1.out"]);
}
