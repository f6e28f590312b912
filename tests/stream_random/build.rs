//! A case as a graph of the language.

use std::sync::{Arc, Mutex};

use atoll::stream::attributes::{Fuzzing, InputBuffer, Placement, TransparentPull};
use atoll::stream::dsl::{Flow, FlowOps, GraphBuilder, RunnableGraph, Sink, Source};
use atoll::stream::operators::{
    Balance, Broadcast, ElementwiseOps, FanInOps, FanOutOps, FlattenOps, Merge, NestedOps, Partition, ZipWith,
};
use atoll::stream::{Attributes, StreamError};

use super::graph::{Case, Disturbance, Joined, Node, Op};
use super::reference::{chosen, element, expanded, mapped, passes, zipped};
use super::stages::{Failure, Gather, Item, Probe, Record};

fn fails_at(failure: u32, at: u64) -> impl FnMut(Item) -> Result<Item, StreamError> + Clone + Send + Sync + 'static {
    let mut position = 0;
    move |item: Item| {
        position += 1;
        if position > at { Err(StreamError::new(Failure(failure))) } else { Ok(item) }
    }
}

fn source_of(op: &Op, source: Source<Item>) -> Source<Item> {
    match op.clone() {
        Op::Map(id) => source.map(move |item| Item::new(mapped(item.0, id))).seal(),
        Op::Filter(filter) => source.filter(move |item| passes(item.0, filter)).seal(),
        Op::Take(count) => source.take(count).seal(),
        Op::TryMap { failure, at } => source.try_map(fails_at(failure, at)).seal(),
        Op::Probe => source.via_stage(Probe),
        Op::Boundary { buffer, core } => {
            let buffer = Attributes::of(InputBuffer::new(1, 1 << buffer).unwrap());
            let source = source.add_attributes(&buffer);
            match core {
                Some(core) => source.on(Placement::Index(core)),
                None => source.async_boundary(),
            }
        }
        Op::FlatMap => source.flat_map_concat(|item| {
            let value = item.0;
            Source::from_iterator(move || expanded(value).map(Item::new))
        }),
        Op::FlatMapMerge(breadth) => source.flat_map_merge(breadth, |item| {
            let value = item.0;
            Source::from_iterator(move || expanded(value).map(Item::new))
        }),
        Op::Split { after: false } => source.split_when(|item| passes(item.0, 0)).flatten(),
        Op::Split { after: true } => source.split_after(|item| passes(item.0, 0)).flatten(),
        Op::GroupBy => source.group_by(2, |item| chosen(item.0)).flat_map_merge(2, |(_, group)| group),
        Op::Copied { all } => {
            let sink = Sink::fold(0_u64, |count, _: Item| count + 1);
            if all { source.also_to(sink) } else { source.wire_tap(sink) }
        }
        Op::PrefixAndTail(wanted) => source
            .prefix_and_tail(wanted)
            .flat_map_concat(|(prefix, tail)| Source::from_iterator(move || prefix.clone()).concat(tail)),
    }
}

fn branch_of(branch: &[Op]) -> Flow<Item, Item> {
    let mut flow = Flow::<Item, Item>::new();
    for op in branch {
        flow = match op.clone() {
            Op::Map(id) => flow.map(move |item| Item::new(mapped(item.0, id))).seal(),
            Op::Filter(filter) => flow.filter(move |item| passes(item.0, filter)).seal(),
            Op::Take(count) => flow.take(count).seal(),
            Op::TryMap { failure, at } => flow.try_map(fails_at(failure, at)).seal(),
            Op::Probe => flow.via_stage(Probe),
            Op::Boundary { buffer, core } => {
                let buffer = Attributes::of(InputBuffer::new(1, 1 << buffer).unwrap());
                let flow = flow.add_attributes(&buffer);
                match core {
                    Some(core) => flow.on(Placement::Index(core)),
                    None => flow.async_boundary(),
                }
            }
            other => unreachable!("{other:?} in a branch"),
        };
    }
    flow
}

pub fn source(node: &Node) -> Source<Item> {
    match node {
        Node::Source { id, count, failure } => {
            let (id, count) = (*id, *count);
            match *failure {
                None => Source::from_iterator(move || (0..count).map(move |at| Item::new(element(id, at)))).seal(),
                // The element that is one too many does not come.
                Some(failure) => Source::from_iterator(move || (0..=count).map(move |at| Item::new(element(id, at))))
                    .try_map(fails_at(failure, count))
                    .seal(),
            }
        }
        Node::Op(op, input) => source_of(op, source(input)),
        Node::Merge { preferred: false, inputs } => source(&inputs[0]).merge(source(&inputs[1])),
        Node::Merge { preferred: true, inputs } => source(&inputs[0]).merge_preferred(source(&inputs[1])),
        Node::Concat { lazy: false, inputs } => source(&inputs[0]).concat(source(&inputs[1])),
        Node::Concat { lazy: true, inputs } => source(&inputs[0]).concat_lazy(source(&inputs[1])),
        Node::Interleave { segment, inputs } => source(&inputs[0]).interleave(source(&inputs[1]), *segment),
        Node::Zip(inputs) => source(&inputs[0]).zip_with(source(&inputs[1]), |a, b| Item::new(zipped(a.0, b.0))),
        Node::OrElse(inputs) => source(&inputs[0]).or_else(source(&inputs[1])),
        Node::Broadcast { joined, branches, input } => {
            let mut graph = GraphBuilder::new();
            let input = graph.add(source(input));
            let broadcast = graph.add_stage(Broadcast::new(2));
            graph.connect(input, broadcast.inlet);
            let outlet = match joined {
                Joined::Zipped => {
                    let zip = graph.add_stage(ZipWith::new(|a: Item, b: Item| Item::new(zipped(a.0, b.0))));
                    graph.from(broadcast.outlets[0]).via(branch_of(&branches[0])).to(zip.first);
                    graph.from(broadcast.outlets[1]).via(branch_of(&branches[1])).to(zip.second);
                    zip.outlet
                }
                Joined::Merged => {
                    let merge = graph.add_stage(Merge::new(2));
                    for (at, branch) in branches.iter().enumerate() {
                        graph.from(broadcast.outlets[at]).via(branch_of(branch)).to(merge.inlets[at]);
                    }
                    merge.outlet
                }
            };
            graph.source(outlet).unwrap()
        }
        Node::Partition { branches, input } => {
            let mut graph = GraphBuilder::new();
            let input = graph.add(source(input));
            let partition = graph.add_stage(Partition::new(2, |item: &Item| chosen(item.0)));
            let merge = graph.add_stage(Merge::new(2));
            graph.connect(input, partition.inlet);
            for (at, branch) in branches.iter().enumerate() {
                graph.from(partition.outlets[at]).via(branch_of(branch)).to(merge.inlets[at]);
            }
            graph.source(merge.outlet).unwrap()
        }
        Node::Balance { wait_for_all, map, input } => {
            let mut graph = GraphBuilder::new();
            let input = graph.add(source(input));
            let balance = Balance::new(2);
            let balance = graph.add_stage(if *wait_for_all { balance.wait_for_all() } else { balance });
            let merge = graph.add_stage(Merge::new(2));
            graph.connect(input, balance.inlet);
            for (outlet, inlet) in balance.outlets.iter().zip(&merge.inlets) {
                graph.from(*outlet).via(branch_of(&[Op::Map(*map)])).to(*inlet);
            }
            graph.source(merge.outlet).unwrap()
        }
    }
}

/// The graph of a case, and what its sink sees.
pub fn runnable(case: &Case) -> (RunnableGraph<()>, Arc<Mutex<Record>>) {
    let mut record = Record::default();
    match case.disturbance {
        Disturbance::TakeThenCancel(count) => record.cancel_after = Some(count),
        Disturbance::SinkPanics(at) => record.panic_at = Some(at),
        Disturbance::Nothing | Disturbance::CancelAt(_) | Disturbance::Abort { .. } => {}
    }
    let record = Arc::new(Mutex::new(record));
    let mut attributes = Attributes::of(TransparentPull(case.transparent_pull));
    if case.fuzzing != 0 {
        attributes = attributes.with(Fuzzing(case.fuzzing));
    }
    let graph = source(&case.node).to(Sink::from_stage(Gather(Arc::clone(&record))));
    (graph.add_attributes(&attributes), record)
}
