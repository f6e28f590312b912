//! Junctions: which elements go where, in which order, and how ends spread.

use atoll::stream::dsl::{Flow, FlowOps, GraphBuilder, Sink, Source};
use atoll::stream::operators::{
    Balance, Broadcast, ElementwiseOps, FanInOps, FanOutOps, Interleave, Merge, Partition, Unzip, Zip,
};

use crate::running::{Running, all, collect, outcome};

fn numbers(from: u32, to: u32) -> Source<u32> {
    Source::from_iterator(move || from..to).seal()
}

fn failing() -> Source<u32> {
    numbers(0, 1).map(|_| -> u32 { panic!("boom") }).seal()
}

#[test]
fn a_merge_gives_everything_and_keeps_the_order_of_each_input() {
    let merged = collect(numbers(0, 100).merge(numbers(1000, 1050)));
    let part = |range: std::ops::Range<u32>| merged.iter().copied().filter(|n| range.contains(n)).collect::<Vec<_>>();
    assert_eq!(merged.len(), 150);
    assert_eq!(part(0..100), (0..100).collect::<Vec<_>>());
    assert_eq!(part(1000..1050), (1000..1050).collect::<Vec<_>>());
    assert_eq!(collect(numbers(0, 0).merge(numbers(0, 3))), [0, 1, 2]);
    assert_eq!(collect(numbers(0, 0).merge(numbers(0, 0))), [0_u32; 0]);
}

#[test]
fn a_concat_gives_one_input_after_the_other() {
    for (first, second, expected) in [
        ((0, 3), (10, 12), vec![0, 1, 2, 10, 11]),
        ((0, 0), (10, 12), vec![10, 11]),
        ((0, 3), (10, 10), vec![0, 1, 2]),
        ((0, 0), (0, 0), vec![]),
        ((0, 1), (10, 11), vec![0, 10]),
    ] {
        let (a, b) = (numbers(first.0, first.1), numbers(second.0, second.1));
        assert_eq!(collect(a.clone().concat(b.clone())), expected, "concat {first:?} {second:?}");
        assert_eq!(collect(a.clone().concat_lazy(b.clone())), expected, "concat_lazy {first:?} {second:?}");
        assert_eq!(collect(b.prepend(a)), expected, "prepend {first:?} {second:?}");
    }
}

#[test]
fn nothing_comes_after_a_failure_that_is_concatenated() {
    assert!(outcome(numbers(0, 3).concat(failing())).is_err());
    assert!(outcome(failing().concat(numbers(0, 3))).is_err());
}

#[test]
fn zip_pairs_up_and_ends_with_the_shorter_input() {
    for (left, right) in [(0, 0), (0, 5), (5, 0), (3, 5), (5, 3), (4, 4), (1, 1)] {
        let zipped = collect(numbers(0, left).zip(numbers(100, 100 + right)));
        let expected: Vec<_> = (0..left).zip(100..100 + right).collect();
        assert_eq!(zipped, expected, "{left} and {right}");
    }
    assert_eq!(collect(numbers(0, 3).zip_with(numbers(5, 9), |a, b| a * b)), [0, 6, 14]);
}

#[test]
fn sorted_streams_merge_to_a_sorted_one() {
    let evens = numbers(0, 50).map(|n| n * 2);
    let odds = numbers(0, 20).map(|n| n * 2 + 1);
    let merged = collect(evens.merge_sorted(odds));
    let mut expected: Vec<u32> = (0..50).map(|n| n * 2).chain((0..20).map(|n| n * 2 + 1)).collect();
    expected.sort_unstable();
    assert_eq!(merged, expected);
    assert_eq!(collect(numbers(0, 0).merge_sorted(numbers(0, 3))), [0, 1, 2]);
    assert_eq!(collect(numbers(0, 3).merge_sorted(numbers(0, 0))), [0, 1, 2]);
    assert_eq!(collect(numbers(0, 0).merge_sorted(numbers(0, 0))), [0_u32; 0]);
}

#[test]
fn segments_are_interleaved_and_finished_inputs_passed_over() {
    assert_eq!(collect(numbers(0, 5).interleave(numbers(10, 13), 2)), [0, 1, 10, 11, 2, 3, 12, 4]);
    assert_eq!(collect(numbers(0, 0).interleave(numbers(10, 13), 2)), [10, 11, 12]);
    assert_eq!(collect(numbers(0, 3).interleave(numbers(10, 10), 2)), [0, 1, 2]);
    let mut graph = GraphBuilder::new();
    let junction = graph.add_stage(Interleave::new(3, 1).eager_close());
    for (inlet, to) in junction.inlets.iter().zip([2, 5, 5]) {
        let source = graph.add(numbers(0, to));
        graph.connect(source, *inlet);
    }
    let source = graph.source(junction.outlet).unwrap();
    assert!(collect(source).len() <= 6, "it ends with the shortest input");
}

#[test]
fn the_second_choice_is_used_if_the_first_is_empty() {
    assert_eq!(collect(numbers(0, 2).or_else(numbers(10, 12))), [0, 1]);
    assert_eq!(collect(numbers(0, 0).or_else(numbers(10, 12))), [10, 11]);
    assert_eq!(collect(numbers(0, 0).or_else(numbers(0, 0))), [0_u32; 0]);
    assert!(outcome(failing().or_else(numbers(0, 2))).is_err());
}

#[test]
fn the_latest_elements_are_paired_until_both_ended() {
    let pairs = collect(numbers(0, 4).zip_latest_with(numbers(10, 13), |a, b| (*a, *b)));
    assert_eq!(pairs.first(), Some(&(0, 10)));
    assert_eq!(pairs.last(), Some(&(3, 12)));
    assert!(pairs.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 <= two[1].1), "{pairs:?}");
    assert_eq!(collect(numbers(0, 4).zip_latest_with(numbers(0, 0), |a, b| (*a, *b))), []);
}

#[test]
fn a_diamond_gives_each_element_both_ways() {
    let mut graph = GraphBuilder::new();
    let source = graph.add(numbers(0, 1000));
    let broadcast = graph.add_stage(Broadcast::new(2));
    let zip = graph.add_stage(Zip::new::<u32, u32>());
    graph.connect(source, broadcast.inlet);
    graph.from(broadcast.outlets[0]).via(Flow::<u32, u32>::new().map(|n| n + 1)).to(zip.first);
    graph.from(broadcast.outlets[1]).via(Flow::<u32, u32>::new().map(|n| n * 2)).to(zip.second);
    let source = graph.source(zip.outlet).unwrap();
    assert_eq!(collect(source), (0..1000).map(|n| (n + 1, n * 2)).collect::<Vec<_>>());
}

#[test]
fn a_broadcast_goes_on_while_an_output_is_open() {
    for (first, second) in [(0, 5), (2, 5), (5, 2), (5, 5), (7, 9)] {
        let mut graph = GraphBuilder::new();
        let source = graph.add(numbers(0, 6));
        let broadcast = graph.add_stage(Broadcast::new(2));
        graph.connect(source, broadcast.inlet);
        let take = |n| Flow::<u32, u32>::new().take(n).to_mat(all(), |(), value| value);
        let (mut graph, left) = graph.add_mat(take(first), |(), value| value);
        let (mut graph, right) = {
            graph.connect(broadcast.outlets[0], left);
            graph.add_mat(take(second), |left, right| (left, right))
        };
        graph.connect(broadcast.outlets[1], right);
        let running = Running::new();
        let (mut left, mut right) = running.start(&graph.close().unwrap());
        running.settle();
        let expected = |n: u64| (0..6.min(n as u32)).collect::<Vec<_>>();
        assert_eq!(left.try_take().unwrap().unwrap(), expected(first), "{first} and {second}");
        assert_eq!(right.try_take().unwrap().unwrap(), expected(second), "{first} and {second}");
        assert_eq!(running.host.islands(), 0);
    }
}

#[test]
fn a_balance_gives_each_element_to_one_output() {
    for wait_for_all in [false, true] {
        let mut graph = GraphBuilder::new();
        let source = graph.add(numbers(0, 100));
        let balance = Balance::new(3);
        let balance = graph.add_stage(if wait_for_all { balance.wait_for_all() } else { balance });
        let merge = graph.add_stage(Merge::new(3));
        graph.connect(source, balance.inlet);
        for (outlet, inlet) in balance.outlets.iter().zip(&merge.inlets) {
            graph.from(*outlet).via(Flow::<u32, u32>::new().map(|n| n)).to(*inlet);
        }
        let mut given = collect(graph.source(merge.outlet).unwrap());
        given.sort_unstable();
        assert_eq!(given, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn a_partition_goes_where_its_function_says() {
    let odd = collect(numbers(0, 10).divert_to(all().map_materialized_value(drop), |n| n % 2 == 0));
    assert_eq!(odd, [1, 3, 5, 7, 9]);
    let mut graph = GraphBuilder::new();
    let source = graph.add(numbers(0, 10));
    let partition = graph.add_stage(Partition::new(2, |n: &u32| *n as usize));
    graph.connect(source, partition.inlet);
    let merge = graph.add_stage(Merge::new(2));
    for (outlet, inlet) in partition.outlets.iter().zip(&merge.inlets) {
        graph.connect(*outlet, *inlet);
    }
    let error = outcome(graph.source(merge.outlet).unwrap()).unwrap_err();
    assert!(error.to_string().contains("output 2"), "{error}");
}

#[test]
fn pairs_are_taken_apart() {
    let mut graph = GraphBuilder::new();
    let source = graph.add(numbers(0, 5).map(|n| (n, n * n)));
    let unzip = graph.add_stage(Unzip::new::<u32, u32>());
    let zip = graph.add_stage(Zip::new::<u32, u32>());
    graph.connect(source, unzip.inlet);
    graph.connect(unzip.first, zip.second);
    graph.connect(unzip.second, zip.first);
    assert_eq!(collect(graph.source(zip.outlet).unwrap()), (0..5).map(|n| (n * n, n)).collect::<Vec<_>>());
}

#[test]
fn a_tap_never_holds_the_stream_up() {
    let stuck: Sink<u32> = Sink::from_stage(never::Never);
    let running = Running::new();
    let mut given = running.start(&numbers(0, 10).wire_tap(stuck).to_right(all()));
    running.settle();
    // The copy that waits for the tap keeps the tap alive, but not the stream.
    assert_eq!(given.try_take().unwrap().unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(collect(numbers(0, 10).wire_tap(all().map_materialized_value(drop))), (0..10).collect::<Vec<_>>());
    assert_eq!(collect(numbers(0, 10).also_to(all().map_materialized_value(drop))), (0..10).collect::<Vec<_>>());
}

#[test]
fn the_materialized_value_can_be_an_element() {
    let (mut graph, sum) = GraphBuilder::with(Source::from_iterator(|| 0..3_u32).map_materialized_value(|()| 42_u32));
    let value = graph.materialized_value();
    let concat = graph.add_stage(atoll::stream::operators::Concat::new(2));
    graph.connect(sum, concat.inlets[0]);
    graph.connect(value, concat.inlets[1]);
    let source = graph.source(concat.outlet).unwrap();
    assert_eq!(collect(source.clone()), [0, 1, 2, 42]);
    assert_eq!(collect(source), [0, 1, 2, 42]);
}

#[test]
fn wrong_wiring_names_the_ports() {
    let mut graph = GraphBuilder::new();
    let source = graph.add(numbers(0, 1).named("numbers"));
    let sink = graph.add(all::<u32>());
    let other = graph.add(all::<u32>());
    graph.connect(source, sink);
    graph.connect(source, other);
    let error = graph.close().map(drop).unwrap_err().to_string();
    assert!(error.contains("already connected"), "{error}");
    let mut graph = GraphBuilder::new();
    graph.add(numbers(0, 1));
    let error = graph.close().map(drop).unwrap_err().to_string();
    assert!(error.contains("not connected"), "{error}");
}

mod never {
    use atoll::stream::Attributes;
    use atoll::stream::interpreter::Inlet;
    use atoll::stream::stage::{GraphStage, Logic, Setup, SinkShape};

    /// Asks for nothing.
    pub struct Never;
    pub struct NeverLogic;

    impl GraphStage for Never {
        type Shape = SinkShape<u32>;
        type Seed = ();
        type Mat = ();
        type Logic = NeverLogic;

        fn name(&self) -> &'static str {
            "never"
        }

        fn shape(&self) -> Self::Shape {
            SinkShape::new()
        }

        fn prepare(&self, _: &Attributes) -> ((), ()) {
            ((), ())
        }

        fn create((): (), _: Inlet<u32>, _: &Setup<'_>) -> NeverLogic {
            NeverLogic
        }
    }

    impl Logic for NeverLogic {}
}
