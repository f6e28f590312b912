//! Random graphs of parts in parts, built by the builders and by a naive model that copies lists of operators and wires.
//!
//! The model knows the order of visiting (graphs: as added; chains: from their end), who is wired to whom, which island
//! an operator is in, and the materialized value. A part may be imported again after it was changed and wired elsewhere.

use std::collections::HashMap;

use atoll::stream::traversal::builder::{CompositeBuilder, InPort, LinearBuilder, OutPort, TraversalBuilder};
use atoll::stream::traversal::{Blueprint, Combine, IslandTag, TransformFunction};
use proptest::prelude::*;

use super::support::{I1, I2, operator, prefix, text, trace};

/// Choices for one graph.
const TAPE_MAX: usize = if cfg!(miri) { 60 } else { 300 };

/// Choices in the order in which they are asked for; when they are used up, the first of each.
struct Choices<'c> {
    tape: std::slice::Iter<'c, u16>,
    operators: usize,
    islands: usize,
}

impl Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        self.tape.next().map_or(0, |choice| usize::from(*choice) % bound.max(1))
    }
}

#[derive(Clone, Debug)]
struct Leaf {
    name: String,
    ports: (usize, usize),
    /// Number of the innermost island and its tag.
    island: Option<(usize, &'static str)>,
}

type Port = (usize, usize);

/// A part as the model sees it. Ports are named by the position of the operator and their own.
#[derive(Clone, Default, Debug)]
struct Model {
    leaves: Vec<Leaf>,
    wires: Vec<(Port, Port)>,
    inlets: Vec<Port>,
    outlets: Vec<Port>,
    value: String,
}

impl Model {
    /// Gives every island in it a new number, as for a part that is imported.
    fn instance(&self, choices: &mut Choices<'_>) -> Model {
        let mut copy = self.clone();
        let mut renumbered = HashMap::new();
        for leaf in &mut copy.leaves {
            if let Some((island, _)) = &mut leaf.island {
                *island = *renumbered.entry(*island).or_insert_with(|| {
                    choices.islands += 1;
                    choices.islands
                });
            }
        }
        copy
    }

    /// The operators of `other` behind those of this one. Returns the ports of `other` in their new positions.
    fn join(&mut self, other: Model) -> (Vec<Port>, Vec<Port>) {
        let by = self.leaves.len();
        let shift = |(leaf, port): Port| (leaf + by, port);
        self.leaves.extend(other.leaves);
        self.wires.extend(other.wires.into_iter().map(|(from, to)| (shift(from), shift(to))));
        (other.inlets.into_iter().map(shift).collect(), other.outlets.into_iter().map(shift).collect())
    }

    fn make_island(&mut self, choices: &mut Choices<'_>, tag: IslandTag) {
        choices.islands += 1;
        let island = choices.islands;
        self.leaves.iter_mut().for_each(|leaf| {
            leaf.island.get_or_insert((island, tag.0));
        });
    }
}

type Part = (TraversalBuilder, Model);

fn leaf(choices: &mut Choices<'_>, ports: (usize, usize)) -> Part {
    let name = format!("n{}", choices.operators);
    choices.operators += 1;
    let module = operator(&name, ports.0, ports.1);
    let builder = match choices.below(2) {
        0 => TraversalBuilder::operator(module),
        _ => TraversalBuilder::atomic(std::sync::Arc::new(module)),
    };
    let model = Model {
        leaves: vec![Leaf { name: name.clone(), ports, island: None }],
        wires: Vec::new(),
        inlets: (0..ports.0).map(|inlet| (0, inlet)).collect(),
        outlets: (0..ports.1).map(|outlet| (0, outlet)).collect(),
        value: name,
    };
    (builder, model)
}

fn combine(choices: &mut Choices<'_>, so_far: &str, added: &str) -> (Combine, String) {
    match choices.below(3) {
        0 => (Combine::Left, so_far.to_owned()),
        1 => (Combine::Right, added.to_owned()),
        _ => {
            let both = Combine::with(|a: String, b: String| format!("({a},{b})"));
            (both, format!("({so_far},{added})"))
        }
    }
}

/// Attributes change nothing about the wiring, but they put commands between operators.
fn decorate(choices: &mut Choices<'_>, (builder, model): &mut Part) {
    if choices.below(3) == 0 {
        builder.set_attributes(super::support::named("decorated"));
    }
    if choices.below(3) == 0 {
        builder.transform(prefix("t"));
        model.value.insert(0, 't');
    }
    if choices.below(3) == 0 {
        let tag = [I1, I2][choices.below(2)];
        builder.make_island(tag);
        model.make_island(choices, tag);
    }
}

fn part(choices: &mut Choices<'_>, depth: usize) -> Part {
    let kind = if depth == 0 { 0 } else { choices.below(4) };
    let mut part = match kind {
        0 => {
            let ports = (choices.below(3), choices.below(3));
            leaf(choices, ports)
        }
        1 | 2 => graph(choices, depth),
        _ => chain(choices, depth),
    };
    decorate(choices, &mut part);
    part
}

/// Adds parts, some of them twice, and wires some of the free ports.
fn graph(choices: &mut Choices<'_>, depth: usize) -> Part {
    let mut graph = Growing::default();
    let mut known: Vec<Part> = Vec::new();
    for _ in 0..1 + choices.below(4) {
        let reused = choices.below(3) == 2 && !known.is_empty();
        let added = if reused { known[choices.below(known.len())].clone() } else { part(choices, depth - 1) };
        graph.add(choices, &added);
        known.push(added);
        for _ in 0..choices.below(3) {
            graph.wire_some(choices);
        }
    }
    graph.seal(choices)
}

#[derive(Default)]
struct Growing {
    builder: CompositeBuilder,
    model: Model,
    inlets: Vec<(InPort, Port)>,
    outlets: Vec<(OutPort, Port)>,
}

impl Growing {
    fn add(&mut self, choices: &mut Choices<'_>, (builder, model): &Part) {
        let model = model.instance(choices);
        let first = self.model.leaves.is_empty();
        let (combine, value) = combine(choices, &self.model.value, &model.value);
        let (combine, value) = if first { (Combine::Right, model.value.clone()) } else { (combine, value) };
        let added = self.builder.add(builder.clone(), combine);
        let (inlets, outlets) = self.model.join(model);
        assert_eq!((added.inlets(), added.outlets()), (inlets.len(), outlets.len()));
        self.model.value = value;
        self.inlets.extend(inlets.into_iter().enumerate().map(|(at, port)| (added.inlet(at), port)));
        self.outlets.extend(outlets.into_iter().enumerate().map(|(at, port)| (added.outlet(at), port)));
    }

    fn wire_some(&mut self, choices: &mut Choices<'_>) {
        if self.inlets.is_empty() || self.outlets.is_empty() {
            return;
        }
        let inlet = self.inlets.swap_remove(choices.below(self.inlets.len()));
        let outlet = self.outlets.swap_remove(choices.below(self.outlets.len()));
        self.builder.wire(outlet.0, inlet.0).expect("both are free");
        self.model.wires.push((outlet.1, inlet.1));
    }

    /// The order of the free ports is already mixed by the wiring.
    fn seal(mut self, choices: &mut Choices<'_>) -> Part {
        if self.model.leaves.is_empty() {
            let only = leaf(choices, (1, 1));
            self.add(choices, &only);
        }
        let inlets: Vec<InPort> = self.inlets.iter().map(|inlet| inlet.0).collect();
        let outlets: Vec<OutPort> = self.outlets.iter().map(|outlet| outlet.0).collect();
        self.model.inlets = self.inlets.iter().map(|inlet| inlet.1).collect();
        self.model.outlets = self.outlets.iter().map(|outlet| outlet.1).collect();
        (self.builder.seal(&inlets, &outlets).expect("these are all free ports"), self.model)
    }
}

/// Appends parts as long as there are ports for it.
fn chain(choices: &mut Choices<'_>, depth: usize) -> Part {
    let ports = (choices.below(2), 1);
    let (first, mut model) = leaf(choices, ports);
    let mut builder = first.into_linear().expect("one inlet and one outlet at most");
    for _ in 0..1 + choices.below(4) {
        let (next, next_model) = part(choices, depth - 1);
        let (next, next_model) = match next.into_linear() {
            Ok(next) if next.has_inlet() => (next, next_model),
            _ => {
                let (next, next_model) = leaf(choices, (1, 1));
                (next.into_linear().expect("one inlet and one outlet"), next_model)
            }
        };
        let next_model = next_model.instance(choices);
        let (upstream, downstream) = (model.value.clone(), next_model.value.clone());
        let inlet = model.inlets.first().copied();
        let mut joined = Model::default();
        let (next_inlets, next_outlets) = joined.join(next_model);
        model.inlets = inlet.into_iter().collect();
        let (inlets, outlets) = joined.join(model);
        joined.wires.push((outlets[0], next_inlets[0]));
        (joined.inlets, joined.outlets) = (inlets, next_outlets);
        model = joined;
        builder = append(choices, builder, next, &mut model, &upstream, &downstream);
        if choices.below(3) == 0 {
            builder = builder.with_island(I1);
            model.make_island(choices, I1);
        }
        if !builder.has_outlet() {
            break;
        }
        if choices.below(4) == 0 && builder.has_inlet() {
            builder = builder.close_loop().expect("both are free");
            model.wires.push((model.outlets[0], model.inlets[0]));
            (model.inlets, model.outlets) = (Vec::new(), Vec::new());
            break;
        }
    }
    (builder.into(), model)
}

fn append(
    choices: &mut Choices<'_>,
    builder: LinearBuilder,
    next: LinearBuilder,
    model: &mut Model,
    upstream: &str,
    downstream: &str,
) -> LinearBuilder {
    if choices.below(5) == 4 {
        model.value = "u".to_owned();
        let appended = builder.append(next, Combine::Neither).expect("the ports are there");
        return appended.transform(TransformFunction::new(|(): ()| "u".to_owned()));
    }
    let (combine, value) = combine(choices, upstream, downstream);
    model.value = value;
    builder.append(next, combine).expect("the ports are there")
}

/// Sources and sinks for what is free.
fn closed(choices: &mut Choices<'_>) -> (Blueprint, Model) {
    let mut graph = Growing::default();
    let inner = part(choices, 3);
    graph.add(choices, &inner);
    while let Some((inlet, port)) = graph.inlets.pop() {
        let source = leaf(choices, (0, 1));
        let open = graph.outlets.len();
        graph.add(choices, &source);
        let (outlet, from) = graph.outlets.remove(open);
        graph.builder.wire(outlet, inlet).expect("both are free");
        graph.model.wires.push((from, port));
    }
    while let Some((outlet, port)) = graph.outlets.pop() {
        let sink = leaf(choices, (1, 0));
        graph.add(choices, &sink);
        let (inlet, to) = graph.inlets.pop().expect("the inlet of the sink");
        graph.builder.wire(outlet, inlet).expect("both are free");
        graph.model.wires.push((port, to));
    }
    let (builder, model) = graph.seal(choices);
    (builder.blueprint().expect("no port is free"), model)
}

fn check(tape: &[u16]) {
    let mut choices = Choices { tape: tape.iter(), operators: 0, islands: 0 };
    let (blueprint, model) = closed(&mut choices);
    let (trace, value) = trace(&blueprint);
    let visited = trace.operators.iter().map(|visited| (visited.name.clone(), (visited.inlets, visited.outlets)));
    let expected = model.leaves.iter().map(|leaf| (leaf.name.clone(), leaf.ports));
    assert_eq!(visited.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let sorted = |mut wires: Vec<(Port, Port)>| {
        wires.sort();
        wires
    };
    let crossing = model.wires.iter().filter(|(from, to)| model.leaves[from.0].island != model.leaves[to.0].island);
    assert_eq!(trace.crossings, crossing.count());
    assert_eq!(sorted(trace.wires.clone()), sorted(model.wires.clone()));
    let mut by_model = HashMap::new();
    let mut by_trace = HashMap::new();
    for (visited, leaf) in trace.operators.iter().zip(&model.leaves) {
        assert_eq!(visited.tag, leaf.island.map_or("Default", |(_, tag)| tag));
        let island = leaf.island.map(|(island, _)| island);
        assert_eq!(*by_model.entry(island).or_insert(visited.island), visited.island, "one island is one phase");
        assert_eq!(*by_trace.entry(visited.island).or_insert(island), island, "one phase is one island");
    }
    assert_eq!(text(value), model.value);
    let size = blueprint.size();
    assert_eq!((size.modules, size.inlets), (model.leaves.len(), model.wires.len()));
    let sizes = (0..=trace.islands.len()).map(|island| blueprint.island_size(island).modules);
    assert_eq!(sizes.sum::<usize>(), model.leaves.len());
    assert_eq!(trace.ready, (0..=trace.islands.len()).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 2_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn parts_in_parts_are_wired_as_the_model_says(tape in proptest::collection::vec(any::<u16>(), 0..TAPE_MAX)) {
        check(&tape);
    }
}
