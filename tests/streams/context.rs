//! Elements with contexts: the context goes where its element goes, in the same order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll::stream::StreamError;
use atoll::stream::attributes::{Directive, Supervision};
use atoll::stream::completion::completion;
use atoll::stream::dsl::{Flow, FlowOps, FlowWithContext, Source, SourceWithContext, WithContext, keep};
use atoll::stream::operators::{ElementwiseOps, Rate};

use crate::running::{Running, all, collect, outcome};

/// Elements of ten times their context.
fn numbers(to: u32) -> SourceWithContext<u32, u32> {
    let source = Source::from_iterator(move || (0..to).map(|n| n * 10));
    source.as_source_with_context(|element| element / 10)
}

type Pairs = Vec<(u32, u32)>;

#[test]
fn elements_come_out_with_their_own_context() {
    let cases: Vec<(&str, Pairs, Pairs)> = vec![
        ("nothing", collect(numbers(3).as_source()), vec![(0, 0), (10, 1), (20, 2)]),
        ("map", collect(numbers(3).map(|n| n + 1).as_source()), vec![(1, 0), (11, 1), (21, 2)]),
        ("try_map", collect(numbers(2).try_map(|n| Ok(n + 1)).as_source()), vec![(1, 0), (11, 1)]),
        (
            "map_option",
            collect(numbers(4).map_option(|n| (n > 10).then_some(n + 1)).as_source()),
            vec![(21, 2), (31, 3)],
        ),
        (
            "collect_while",
            collect(numbers(4).collect_while(|n| (n < 20).then_some(n + 1)).as_source()),
            vec![(1, 0), (11, 1)],
        ),
        ("filter", collect(numbers(4).filter(|n| n % 20 == 0).as_source()), vec![(0, 0), (20, 2)]),
        ("filter_not", collect(numbers(4).filter_not(|n| n % 20 == 0).as_source()), vec![(10, 1), (30, 3)]),
        ("take", collect(numbers(4).take(2).as_source()), vec![(0, 0), (10, 1)]),
        ("take 0", collect(numbers(4).take(0).as_source()), vec![]),
        ("take_while", collect(numbers(4).take_while(|n| *n < 20).as_source()), vec![(0, 0), (10, 1)]),
        ("drop", collect(numbers(4).drop(3).as_source()), vec![(30, 3)]),
        ("drop_while", collect(numbers(4).drop_while(|n| *n < 20).as_source()), vec![(20, 2), (30, 3)]),
        ("map_context", collect(numbers(2).map_context(|c| c + 100).as_source()), vec![(0, 100), (10, 101)]),
        ("map_async", collect(numbers(3).map_async(2, async |n| n + 1).as_source()), vec![(1, 0), (11, 1), (21, 2)]),
        ("try_map_async", collect(numbers(2).try_map_async(2, async |n| Ok(n)).as_source()), vec![(0, 0), (10, 1)]),
        (
            "map_concat",
            collect(numbers(3).map_concat(|n| (0..n / 10).collect::<Vec<_>>()).as_source()),
            vec![(0, 1), (0, 2), (1, 2)],
        ),
        (
            "many",
            collect(numbers(9).filter(|n| *n > 0).map(|n| n / 10).drop(1).take(2).map_context(|c| c * 2).as_source()),
            vec![(2, 4), (3, 6)],
        ),
        ("log", collect(numbers(2).log("numbers").as_source()), vec![(0, 0), (10, 1)]),
        ("none", collect(numbers(0).map(|n| n).as_source()), vec![]),
    ];
    for (name, given, expected) in cases {
        assert_eq!(given, expected, "{name}");
    }
}

#[test]
fn contexts_keep_their_order_whatever_future_is_done_first() {
    let promises = Arc::new(Mutex::new(Vec::new()));
    let made = Arc::clone(&promises);
    let waiting = numbers(3).try_map_async(3, move |n| {
        let (promise, value) = completion();
        made.lock().unwrap().push((promise, n + 1));
        value
    });
    let running = Running::new();
    let mut elements = running.start(&waiting.as_source().to_right(all()));
    running.settle();
    while let Some((promise, n)) = promises.lock().unwrap().pop() {
        promise.succeed(n);
        running.settle();
    }
    assert_eq!(elements.try_take().unwrap().unwrap(), [(1, 0), (11, 1), (21, 2)]);
}

#[test]
fn groups_have_the_contexts_of_their_elements() {
    let groups = collect(numbers(5).grouped(2).as_source());
    assert_eq!(groups, [(vec![0, 10], vec![0, 1]), (vec![20, 30], vec![2, 3]), (vec![40], vec![4])]);
    let windows = collect(numbers(4).sliding(2, 1).as_source());
    assert_eq!(windows, [(vec![0, 10], vec![0, 1]), (vec![10, 20], vec![1, 2]), (vec![20, 30], vec![2, 3])]);
    assert!(outcome(numbers(4).grouped(0).as_source()).is_err());
}

#[test]
fn flows_with_contexts_are_appended() {
    let halves = FlowWithContext::<u32, u32, _, _>::new().map(|n| n / 2).map_context(|c| format!("#{c}"));
    let given = collect(numbers(3).via(halves.clone()).map(|n| n + 1).as_source());
    assert_eq!(given, [(1, "#0".to_owned()), (6, "#1".to_owned()), (11, "#2".to_owned())]);
    let flow: Flow<(u32, u32), (u32, String), _, _> = halves.as_flow();
    assert_eq!(collect(numbers(2).as_source().via(flow))[1], (5, "#1".to_owned()));

    let swapped = WithContext::from_tuples(Flow::<(u32, u32), _>::new().map(|(element, context)| (context, element)));
    assert_eq!(collect(numbers(2).via(swapped).as_source()), [(0, 0), (1, 10)]);
}

#[test]
fn materialized_values_are_combined() {
    let source = numbers(2).map_materialized_value(|()| 1);
    let flow = FlowWithContext::<u32, u32, _, _>::new().map(|n| n).map_materialized_value(|()| 2);
    let running = Running::new();
    let graph = source.via_mat(flow, keep::both).as_source().to(all());
    assert_eq!(running.start(&graph), (1, 2));
    running.settle();
}

#[test]
fn failures_fail_the_stream_and_are_mapped() {
    let failing = || numbers(3).try_map(|n| if n == 10 { Err(StreamError::text("ten")) } else { Ok(n) });
    assert_eq!(outcome(failing().as_source()).unwrap_err().to_string(), "ten");
    let mapped = failing().map_error(|error| StreamError::text(format!("not {error}")));
    assert_eq!(outcome(mapped.as_source()).unwrap_err().to_string(), "not ten");
    let later = numbers(3).try_map_async(2, async |_| Err::<u32, _>(StreamError::text("later")));
    assert_eq!(outcome(later.as_source()).unwrap_err().to_string(), "later");
}

#[test]
fn what_a_decider_drops_takes_its_context_along() {
    let supervision = Supervision::new(|_| Directive::Resume);
    let given = numbers(4).map(|n| if n == 10 { panic!("ten") } else { n }).supervised(supervision);
    assert_eq!(collect(given.as_source()), [(0, 0), (20, 2), (30, 3)]);
}

#[test]
fn a_throttle_delays_elements_and_contexts() {
    let mut running = Running::new();
    let throttled = numbers(2).throttle(Rate::new(1, Duration::from_secs(1)));
    let mut elements = running.start(&throttled.as_source().to_right(all()));
    running.settle();
    assert!(!elements.is_done());
    running.pass(Duration::from_secs(1));
    assert_eq!(elements.try_take().unwrap().unwrap(), [(0, 0), (10, 1)]);
}
