//! Junctions and cycles between probes: the table of `GraphInterpreterSpec`.
//!
//! Left out: the rows about snapshot labels of released references, which have no counterpart (a stopped stage is
//! dropped, which `leaks` shows, and a connection of no number cannot be named).

use atoll::stream::Attributes;
use atoll::stream::testkit::{DownstreamProbe, EVENTS_MAX, InterpreterBench, UpstreamProbe};

use super::bench_stages::*;
use super::bench_support::*;

/// The bench is started, and what the stages ask for at the start is still to come.
fn start(bench: &mut InterpreterBench) {
    bench.set_event_limit(0);
    bench.start().unwrap();
    assert_eq!(bench.events_text(), "");
    bench.set_event_limit(EVENTS_MAX);
}

struct Graph {
    bench: InterpreterBench,
    sources: Vec<UpstreamProbe<i64>>,
    sinks: Vec<DownstreamProbe<i64>>,
}

impl Graph {
    fn new(mode: &Attributes, sources: &[&'static str], sinks: &[&'static str]) -> Graph {
        let mut bench = InterpreterBench::with_attributes(mode.clone());
        let sources = sources.iter().map(|name| bench.upstream(name)).collect();
        let sinks = sinks.iter().map(|name| bench.downstream(name)).collect();
        Graph { bench, sources, sinks }
    }

    fn pull(&mut self, sink: usize) -> String {
        self.sinks[sink].pull(&mut self.bench).unwrap();
        self.bench.events_text()
    }

    fn push(&mut self, source: usize, element: i64) -> String {
        self.sources[source].push(&mut self.bench, element).unwrap();
        self.bench.events_text()
    }
}

#[test]
fn identities() {
    for mode in all_modes() {
        for length in [1, 3] {
            let mut chain = Chain::<i64, i64>::of(&mode, |bench| (0..length).map(|_| pass::<i64>(bench)).collect());
            assert_eq!(chain.events(), "");
            assert_eq!(chain.pull(), "Request source");
            assert_eq!(chain.push(1), "Next sink 1");
        }
    }
}

#[test]
fn a_detacher_holds_one() {
    for mode in all_modes() {
        let mut graph = Graph::new(&mode, &["source"], &["sink"]);
        let detacher = detacher::<i64>(&mut graph.bench);
        graph.bench.connect(graph.sources[0].outlet(), detacher.inlet(0));
        graph.bench.connect(detacher.outlet(0), graph.sinks[0].inlet());
        start(&mut graph.bench);
        assert_eq!(graph.pull(0), "Request source");
        assert_eq!(graph.push(0, 1), "Next sink 1, Request source");
        assert_eq!(graph.push(0, 2), "");
        assert_eq!(graph.pull(0), "Next sink 2, Request source");
        assert_eq!(graph.pull(0), "");
        assert_eq!(graph.push(0, 3), "Next sink 3, Request source");
    }
}

#[test]
fn zip_pairs() {
    for mode in all_modes() {
        let mut bench = InterpreterBench::with_attributes(mode);
        let (first, second) = (bench.upstream::<i64>("s1"), bench.upstream::<&'static str>("s2"));
        let sink = bench.downstream::<(i64, &'static str)>("sink");
        let zip = zip::<i64, &'static str>(&mut bench);
        bench.connect(first.outlet(), zip.inlet(0));
        bench.connect(second.outlet(), zip.inlet(1));
        bench.connect(zip.outlet(0), sink.inlet());
        start(&mut bench);
        sink.pull(&mut bench).unwrap();
        assert_eq!(bench.events_text(), "Request s1, Request s2");
        first.push(&mut bench, 42).unwrap();
        assert_eq!(bench.events_text(), "");
        second.push(&mut bench, "x").unwrap();
        assert_eq!(bench.events_text(), "Next sink (42, \"x\"), Request s1, Request s2");
    }
}

#[test]
fn broadcast_asks_when_all_ask() {
    for mode in all_modes() {
        let mut graph = Graph::new(&mode, &["source"], &["k1", "k2"]);
        let broadcast = broadcast::<i64>(&mut graph.bench, 2);
        graph.bench.connect(graph.sources[0].outlet(), broadcast.inlet(0));
        graph.bench.connect(broadcast.outlet(0), graph.sinks[0].inlet());
        graph.bench.connect(broadcast.outlet(1), graph.sinks[1].inlet());
        start(&mut graph.bench);
        assert_eq!(graph.pull(0), "");
        assert_eq!(graph.pull(1), "Request source");
        assert_eq!(graph.push(0, 1), "Next k1 1, Next k2 1");
    }
}

#[test]
fn broadcast_into_zip() {
    for mode in all_modes() {
        let mut bench = InterpreterBench::with_attributes(mode);
        let (source, sink) = (bench.upstream::<i64>("source"), bench.downstream::<(i64, i64)>("sink"));
        let (broadcast, zip) = (broadcast::<i64>(&mut bench, 2), zip::<i64, i64>(&mut bench));
        bench.connect(source.outlet(), broadcast.inlet(0));
        bench.connect(broadcast.outlet(0), zip.inlet(0));
        bench.connect(broadcast.outlet(1), zip.inlet(1));
        bench.connect(zip.outlet(0), sink.inlet());
        start(&mut bench);
        for element in 1..=2 {
            sink.pull(&mut bench).unwrap();
            // The zip asks for the next pair when it has pushed one.
            let expected = if element == 1 { "Request source" } else { "" };
            assert_eq!(bench.events_text(), expected);
            source.push(&mut bench, element).unwrap();
            assert_eq!(bench.events_text(), format!("Next sink ({element}, {element}), Request source"));
        }
    }
}

#[test]
fn zip_into_broadcast() {
    for mode in all_modes() {
        let mut bench = InterpreterBench::with_attributes(mode);
        let sources = [bench.upstream::<i64>("s1"), bench.upstream::<i64>("s2")];
        let sinks = [bench.downstream::<(i64, i64)>("k1"), bench.downstream::<(i64, i64)>("k2")];
        let (zip, broadcast) = (zip::<i64, i64>(&mut bench), broadcast::<(i64, i64)>(&mut bench, 2));
        for at in 0..2 {
            bench.connect(sources[at].outlet(), zip.inlet(at));
            bench.connect(broadcast.outlet(at), sinks[at].inlet());
        }
        bench.connect(zip.outlet(0), broadcast.inlet(0));
        start(&mut bench);
        sinks[0].pull(&mut bench).unwrap();
        assert_eq!(bench.events_text(), "Request s1, Request s2");
        sinks[1].pull(&mut bench).unwrap();
        assert_eq!(bench.events_text(), "");
        sources[0].push(&mut bench, 1).unwrap();
        assert_eq!(bench.events_text(), "");
        sources[1].push(&mut bench, 2).unwrap();
        assert_eq!(bench.events_text(), "Next k1 (1, 2), Next k2 (1, 2), Request s1, Request s2");
    }
}

#[test]
fn merge_takes_what_comes() {
    for mode in all_modes() {
        let mut graph = Graph::new(&mode, &["s1", "s2"], &["sink"]);
        let merge = merge::<i64>(&mut graph.bench, 2);
        graph.bench.connect(graph.sources[0].outlet(), merge.inlet(0));
        graph.bench.connect(graph.sources[1].outlet(), merge.inlet(1));
        graph.bench.connect(merge.outlet(0), graph.sinks[0].inlet());
        start(&mut graph.bench);
        assert_eq!(graph.pull(0), "Request s1, Request s2");
        assert_eq!(graph.push(0, 1), "Next sink 1, Request s1");
        assert_eq!(graph.push(1, 2), "");
        assert_eq!(graph.pull(0), "Next sink 2, Request s2");
        assert_eq!(graph.pull(0), "");
        assert_eq!(graph.push(1, 3), "Next sink 3, Request s2");
        assert_eq!(graph.pull(0), "");
        assert_eq!(graph.push(0, 4), "Next sink 4, Request s1");
    }
}

#[test]
fn balance_gives_to_who_asks() {
    for mode in all_modes() {
        let mut graph = Graph::new(&mode, &["source"], &["k1", "k2"]);
        let balance = balance::<i64>(&mut graph.bench, 2);
        graph.bench.connect(graph.sources[0].outlet(), balance.inlet(0));
        graph.bench.connect(balance.outlet(0), graph.sinks[0].inlet());
        graph.bench.connect(balance.outlet(1), graph.sinks[1].inlet());
        start(&mut graph.bench);
        assert_eq!(graph.pull(0), "Request source");
        assert_eq!(graph.pull(1), "");
        assert_eq!(graph.push(0, 1), "Next k1 1, Request source");
        assert_eq!(graph.push(0, 2), "Next k2 2");
    }
}

/// source → merge → balance → sink, and from balance back to merge; with a detacher there if it is `detached`.
fn cycle(mode: &Attributes, detached: bool) -> Graph {
    let mut graph = Graph::new(mode, &["source"], &["sink"]);
    let (merge, balance) = (merge::<i64>(&mut graph.bench, 2), balance::<i64>(&mut graph.bench, 2));
    graph.bench.connect(graph.sources[0].outlet(), merge.inlet(0));
    graph.bench.connect(merge.outlet(0), balance.inlet(0));
    graph.bench.connect(balance.outlet(0), graph.sinks[0].inlet());
    if detached {
        let detacher = detacher::<i64>(&mut graph.bench);
        graph.bench.connect(balance.outlet(1), detacher.inlet(0));
        graph.bench.connect(detacher.outlet(0), merge.inlet(1));
    } else {
        graph.bench.connect(balance.outlet(1), merge.inlet(1));
    }
    start(&mut graph.bench);
    graph
}

#[test]
fn a_cycle_without_a_buffer_stands_still_until_it_is_asked() {
    for mode in exact_modes() {
        let mut graph = cycle(&mode, false);
        assert_eq!(graph.pull(0), "Request source");
        assert_eq!(graph.push(0, 1), "Next sink 1, Request source");
        // The element waits in the cycle.
        assert_eq!(graph.push(0, 2), "Request source");
        assert_eq!(graph.pull(0), "Next sink 2");
    }
}

#[test]
fn a_cycle_that_spins_is_suspended_by_the_event_limit() {
    for mode in exact_modes() {
        let mut graph = cycle(&mode, true);
        assert_eq!(graph.pull(0), "Request source");
        assert_eq!(graph.push(0, 1), "Next sink 1, Request source");
        graph.bench.set_event_limit(1000);
        assert_eq!(graph.push(0, 2), "Request source");
        assert!(graph.bench.is_suspended());
        assert_eq!(graph.pull(0), "Next sink 2");
        assert!(!graph.bench.is_suspended());
    }
}

#[test]
fn completion_cascades() {
    for mode in all_modes() {
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| vec![detacher::<i64>(bench), pass::<i64>(bench)]);
        assert_eq!(chain.events(), "Request source");
        assert_eq!(chain.pull(), "");
        assert_eq!(chain.push(1), "Next sink 1, Request source");
        assert_eq!(chain.complete(), "Complete sink");
        assert!(chain.bench.is_completed());
    }
}
