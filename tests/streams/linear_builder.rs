//! The table of the builder of chains: wiring, attributes and islands, alone and mixed with graphs.
//!
//! Not here: the two rows that are pending in the table.

use atoll::stream::traversal::Combine;
use atoll::stream::traversal::builder::{Added, CompositeBuilder, LinearBuilder, TraversalBuilder, WiringError};

use super::support::{I1, I2, composite, is_unit, linear, named, operator, prefix, text, trace};

fn then(upstream: LinearBuilder, downstream: impl Into<TraversalBuilder>) -> LinearBuilder {
    upstream.append(downstream.into().into_linear().unwrap(), Combine::Left).unwrap()
}

/// A chain of these operators; those that begin with `c` are parts that are no chains.
fn chain(names: &str) -> LinearBuilder {
    let part = |name: &str| match name.strip_prefix('c') {
        Some(_) => atomic_in_graph(name),
        None => linear(name).into(),
    };
    names.split_whitespace().fold(LinearBuilder::empty(), |chain, name| then(chain, part(name)))
}

/// One operator inside a graph, so that a chain has to wait for its outlet.
fn atomic_in_graph(name: &str) -> TraversalBuilder {
    CompositeBuilder::containing(composite(name)).0.seal_all()
}

fn wiring(chain: LinearBuilder) -> Vec<String> {
    trace(&chain.blueprint().unwrap()).0.wiring()
}

fn wire(graph: &mut CompositeBuilder, from: Added, to: Added) {
    graph.wire(from.outlet(0), to.inlet(0)).unwrap();
}

#[test]
fn chains_are_numbered_from_their_end() {
    let table: &[(&str, &[&str])] = &[
        ("S K", &["S -> K"]),
        ("S F1 K", &["F1 -> K", "S -> F1"]),
        ("S F1 F2 K", &["F2 -> K", "F1 -> F2", "S -> F1"]),
        ("S F1 F1 K", &["F1 -> K", "F1 -> F1", "S -> F1"]),
        ("S cK", &["S -> cK"]),
        ("cS K", &["cS -> K"]),
        ("cS cK", &["cS -> cK"]),
        ("S cF1 K", &["cF1 -> K", "S -> cF1"]),
        ("S cF1 cF1 K", &["cF1 -> K", "cF1 -> cF1", "S -> cF1"]),
        ("S cF1 F1 cF1 F1 K", &["F1 -> K", "cF1 -> F1", "F1 -> cF1", "cF1 -> F1", "S -> cF1"]),
    ];
    for (names, expected) in table {
        assert_eq!(wiring(chain(names)), *expected, "{names}");
    }
}

#[test]
fn appending_is_associative() {
    let expected = ["F2 -> K", "F1 -> F2", "S -> F1"];
    for mark in ["", "c"] {
        let of = |names: &str| {
            let marked: Vec<String> = names.split_whitespace().map(|name| format!("{mark}{name}")).collect();
            chain(&marked.join(" "))
        };
        let table = [
            then(of("S F1"), of("F2 K")),
            then(of("S"), of("F1 F2 K")),
            then(of("S"), then(of("F1"), of("F2 K"))),
            then(then(of("S"), of("F1 F2")), of("K")),
            then(of("S F1 F2"), of("K")),
        ];
        for chain in table {
            let unmarked: Vec<String> = wiring(chain).iter().map(|wire| wire.replace('c', "")).collect();
            assert_eq!(unmarked, expected);
        }
    }
}

#[test]
fn one_chain_can_be_used_twice() {
    let flows = chain("F1 F2");
    let chain = then(then(then(chain("S"), flows.clone()), flows), chain("K"));
    assert_eq!(wiring(chain), ["F2 -> K", "F1 -> F2", "F2 -> F1", "F1 -> F2", "S -> F1"]);
}

#[test]
fn chains_can_be_closed_to_loops() {
    let table: &[(&str, &[&str])] = &[
        ("F1", &["F1 -> F1"]),
        ("F1 F2", &["F1 -> F2", "F2 -> F1"]),
        ("F1 F1", &["F1 -> F1", "F1 -> F1"]),
        ("cF1", &["cF1 -> cF1"]),
        ("cF1 F2", &["cF1 -> F2", "F2 -> cF1"]),
        ("F1 cF2", &["F1 -> cF2", "cF2 -> F1"]),
    ];
    for (names, expected) in table {
        assert_eq!(wiring(chain(names).close_loop().unwrap()), *expected, "{names}");
    }
}

#[test]
fn appending_to_the_empty_chain_gives_the_chain() {
    for (names, expected) in [("S K", "S -> K"), ("cS cK", "cS -> cK"), ("cS K", "cS -> K"), ("S cK", "S -> cK")] {
        let (source, sink) = names.split_once(' ').unwrap();
        let [source, sink] = [source, sink].map(|name| then(LinearBuilder::empty(), chain(name)));
        let after = then(then(source.clone(), LinearBuilder::empty()), sink.clone());
        assert_eq!(wiring(after), [expected], "{names}, empty between");
        assert_eq!(wiring(then(then(source, sink), LinearBuilder::empty())), [expected], "{names}, empty at the end");
    }
    let flow = then(LinearBuilder::empty(), chain("cF1"));
    assert_eq!(wiring(then(then(chain("S"), flow), chain("K"))), ["cF1 -> K", "S -> cF1"]);
    assert_eq!(wiring(LinearBuilder::empty()), Vec::<String>::new());
}

#[test]
fn chains_can_be_parts_of_graphs() {
    let mut graph = CompositeBuilder::new();
    let source = graph.add(composite("cS"), Combine::Left);
    let sink = graph.add(linear("K").into(), Combine::Left);
    wire(&mut graph, source, sink);
    assert_eq!(wiring(graph.seal_all().into_linear().unwrap()), ["cS -> K"]);

    let mut graph = CompositeBuilder::new();
    let sink = graph.add(composite("cK"), Combine::Left);
    let source = graph.add(linear("S").into(), Combine::Left);
    wire(&mut graph, source, sink);
    assert_eq!(wiring(graph.seal_all().into_linear().unwrap()), ["S -> cK"]);

    let mut graph = CompositeBuilder::new();
    let flow = graph.add(composite("cF1"), Combine::Left);
    let flows = graph.add(chain("F1 F2").into(), Combine::Left);
    wire(&mut graph, flow, flows);
    wire(&mut graph, flows, flow);
    assert_eq!(wiring(graph.seal_all().into_linear().unwrap()), ["F2 -> cF1", "F1 -> F2", "cF1 -> F1"]);

    let mut graph = CompositeBuilder::new();
    let source = graph.add(composite("cS"), Combine::Left);
    let sink = graph.add(composite("cK"), Combine::Left);
    let flow = graph.add(linear("F1").into(), Combine::Left);
    wire(&mut graph, source, flow);
    wire(&mut graph, flow, sink);
    assert_eq!(wiring(graph.seal_all().into_linear().unwrap()), ["F1 -> cK", "cS -> F1"]);

    let mut graph = CompositeBuilder::new();
    let flow = graph.add(linear("F1").into(), Combine::Left);
    wire(&mut graph, flow, flow);
    assert_eq!(wiring(graph.seal_all().into_linear().unwrap()), ["F1 -> F1"]);

    let mut graph = CompositeBuilder::new();
    let flows = graph.add(chain("F1 cF2").into(), Combine::Left);
    wire(&mut graph, flows, flows);
    assert_eq!(wiring(graph.seal_all().into_linear().unwrap()), ["F1 -> cF2", "cF2 -> F1"]);
}

#[test]
fn graphs_whose_ports_lie_anywhere_can_be_parts_of_chains() {
    let mut sinks = CompositeBuilder::new();
    let second = sinks.add(composite("cF2"), Combine::Left);
    let sink = sinks.add(composite("cK"), Combine::Left);
    let first = sinks.add(composite("cF1"), Combine::Left);
    wire(&mut sinks, second, sink);
    wire(&mut sinks, first, second);
    let sinks = sinks.seal(&[first.inlet(0)], &[]).unwrap();
    assert_eq!(wiring(then(chain("S"), sinks)), ["cF1 -> cF2", "cF2 -> cK", "S -> cF1"]);

    let mut flows = CompositeBuilder::new();
    let second = flows.add(composite("cF2"), Combine::Left);
    let first = flows.add(composite("cF1"), Combine::Left);
    let last = flows.add(linear("F1").into(), Combine::Left);
    wire(&mut flows, first, second);
    wire(&mut flows, second, last);
    let flows = flows.seal(&[first.inlet(0)], &[last.outlet(0)]).unwrap();
    let expected = ["F1 -> K", "cF1 -> cF2", "S -> cF1", "cF2 -> F1"];
    let flows = then(LinearBuilder::empty(), flows);
    assert_eq!(wiring(then(then(chain("S"), flows), chain("K"))), expected);
}

#[test]
fn operators_appended_one_by_one_are_as_chains_that_are_appended() {
    let mut appended = linear("S");
    for name in ["F1", "F2", "F3"] {
        appended = appended.append_operator(operator(name, 1, 1), Combine::Left).unwrap();
    }
    let appended = appended.append_operator(operator("K", 1, 0), Combine::Right).unwrap();
    let size = appended.clone().blueprint().unwrap().size();
    assert_eq!((size.modules, size.inlets, size.outlets, size.arena_bytes), (5, 4, 4, 500));
    let (trace, value) = trace(&appended.blueprint().unwrap());
    assert_eq!(trace.wiring(), wiring(chain("S F1 F2 F3 K")));
    assert_eq!(text(value), "K");
}

#[test]
fn values_of_chains_and_of_graphs_in_them_are_kept_as_said() {
    type Pair = (String, String);
    for mark in ["", "c"] {
        let of = |name: &str| {
            let name = format!("{mark}{name}");
            let part = if mark.is_empty() { linear(&name).into() } else { atomic_in_graph(&name) };
            part.into_linear().unwrap()
        };
        let build = |first: Combine, second: Combine| {
            let chain = of("S").append(of("F1"), first).unwrap().append(of("K"), second).unwrap();
            trace(&chain.blueprint().unwrap()).1
        };
        let name = |name: &str| format!("{mark}{name}");
        let both = Combine::both::<String, String>;
        assert_eq!(text(build(Combine::Left, Combine::Left)), name("S"));
        assert_eq!(text(build(Combine::Right, Combine::Left)), name("F1"));
        assert_eq!(text(build(Combine::Left, Combine::Right)), name("K"));
        assert!(is_unit(&build(Combine::Left, Combine::Neither)));
        assert_eq!(*build(both(), Combine::Left).downcast::<Pair>().unwrap(), (name("S"), name("F1")));
        assert_eq!(*build(Combine::Right, both()).downcast::<Pair>().unwrap(), (name("F1"), name("K")));
        let nested = build(both(), Combine::both::<Pair, String>()).downcast::<(Pair, String)>().unwrap();
        assert_eq!(*nested, ((name("S"), name("F1")), name("K")));
        let mapped =
            of("S").transform(prefix("M1: ")).append(of("K"), Combine::Left).unwrap().transform(prefix("M2: "));
        assert_eq!(text(trace(&mapped.blueprint().unwrap()).1), format!("M2: M1: {mark}S"));
    }
}

#[test]
fn attributes_of_chains_wrap_what_is_there_when_they_are_set() {
    let attributes = |chain: LinearBuilder| trace(&chain.blueprint().unwrap()).0.attributes();
    let source = || linear("S").with_attributes(named("source"));

    let sink = linear("K").with_attributes(named("testSink"));
    let chain = then(linear("S").with_attributes(named("testSource")), sink).with_attributes(named("test"));
    assert_eq!(attributes(chain), ["K: test and testSink", "S: test and testSource"]);

    let chain = then(source(), linear("K")).with_attributes(named("test"));
    assert_eq!(attributes(chain), ["K: test", "S: test and source"]);

    let twice = then(source().with_attributes(named("source2")), linear("K"));
    let twice = twice.with_attributes(named("test")).with_attributes(named("test2"));
    assert_eq!(attributes(twice), ["K: test2", "S: test2 and source2"]);

    let composite_source = then(source(), linear("F1").with_attributes(named("flow")));
    let composite_source = composite_source.with_attributes(named("compositeSource"));
    let chain = then(composite_source, linear("K").with_attributes(named("sink"))).with_attributes(named("test"));
    assert_eq!(
        attributes(chain),
        ["K: test and sink", "F1: test and compositeSource and flow", "S: test and compositeSource and source"]
    );
}

#[test]
fn attributes_of_graphs_in_chains_stay_with_them() {
    let mut source = atomic_in_graph("cS");
    source.set_attributes(named("source"));
    let outer = then(LinearBuilder::empty(), source.clone()).adding_attributes(&named("source-outer"));
    let chain = then(outer, linear("F1").with_attributes(named("flow")));
    let chain = then(chain, linear("K").with_attributes(named("sink"))).with_attributes(named("test"));
    let (trace, _) = trace(&chain.blueprint().unwrap());
    let expected = ["K: test and sink", "F1: test and flow", "cS: test and source-outer and source"];
    assert_eq!(trace.attributes(), expected);
}

#[test]
fn islands_of_chains_nest_as_their_levels() {
    let assignments = |chain: LinearBuilder| trace(&chain.blueprint().unwrap()).0.assignments();
    let source = linear("S").with_attributes(named("island1")).with_island(I1);
    let flows = then(source, linear("F1")).with_island(I2).with_attributes(named("island2"));
    let chain = then(then(flows, linear("F2")), linear("K"));
    assert_eq!(
        assignments(chain),
        ["K: none, Default", "F2: none, Default", "F1: island2, I2", "S: island2 and island1, I1"]
    );

    let nested = || then(linear("F1"), linear("F2")).with_attributes(named("nested")).with_island(I1);
    let whole = then(then(linear("S"), nested()), linear("K")).with_attributes(named("whole"));
    assert_eq!(
        assignments(whole),
        ["K: whole, Default", "F2: whole and nested, I1", "F1: whole and nested, I1", "S: whole, Default"]
    );

    let inner = then(linear("S"), nested()).with_island(I2);
    let whole = then(inner, linear("K")).with_attributes(named("whole"));
    assert_eq!(
        assignments(whole),
        ["K: whole, Default", "F2: whole and nested, I1", "F1: whole and nested, I1", "S: whole, I2"]
    );

    let inner = then(linear("S"), atomic_in_graph("cF1")).with_island(I2);
    let flow = linear("F2").with_attributes(named("nested")).with_island(I1);
    let whole = then(then(inner, flow), linear("K")).with_attributes(named("whole"));
    let (trace, _) = trace(&whole.blueprint().unwrap());
    let expected = ["K: whole, Default", "F2: whole and nested, I1", "cF1: whole, I2", "S: whole, I2"];
    assert_eq!(trace.assignments(), expected);
    assert_eq!(trace.wiring(), ["F2 -> K", "cF1 -> F2", "S -> cF1"]);
    assert_eq!((trace.crossings, trace.ready), (2, vec![0, 1, 2]));
    let islands: Vec<(usize, usize)> = trace.sizes.iter().map(|size| (size.modules, size.arena_bytes)).collect();
    assert_eq!(islands, [(1, 100), (2, 200)]);
}

#[test]
fn chains_without_a_matching_port_are_refused_by_name() {
    let no_inlet = linear("S").append(linear("S2"), Combine::Left).err();
    assert_eq!(no_inlet, Some(WiringError::NoInlet { part: "S2".to_owned() }));
    let no_outlet = linear("K").append(linear("F1"), Combine::Left).err();
    assert_eq!(no_outlet, Some(WiringError::NoOutlet { part: "K".to_owned() }));
    let no_outlet = linear("K").append_operator(operator("F1", 1, 1), Combine::Left).err();
    assert_eq!(no_outlet, Some(WiringError::NoOutlet { part: "K".to_owned() }));
    let junction = linear("S").append_operator(operator("M", 2, 1), Combine::Left).err();
    assert_eq!(junction, Some(WiringError::NotLinear { inlets: 2, outlets: 1 }));
    let junction = TraversalBuilder::operator(operator("M", 2, 1)).into_linear().err();
    assert_eq!(junction, Some(WiringError::NotLinear { inlets: 2, outlets: 1 }));
    let open = chain("cF1 F2").blueprint().err().unwrap();
    assert_eq!(open.unconnected, ["cF1.in", "F2.out"]);
    let open = chain("F1 cF2").blueprint().err().unwrap();
    assert_eq!(open.unconnected, ["F1.in", "cF2.out"]);
    assert_eq!(open.to_string(), "the graph is incomplete: connect F1.in, cF2.out");
}
