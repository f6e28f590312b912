//! Streams of streams: what comes out, in which order, and how ends and failures spread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll::stream::StreamError;
use atoll::stream::dsl::{FlowOps, Source};
use atoll::stream::operators::{ElementwiseOps, FanInOps, FlattenOps, NestedOps};

use crate::running::{Running, all, collect, outcome};

fn numbers(from: u32, to: u32) -> Source<u32> {
    Source::from_iterator(move || from..to).seal()
}

fn failing(text: &'static str) -> Source<u32> {
    numbers(0, 1).try_map(move |_| Err(StreamError::text(text))).seal()
}

#[test]
fn sources_are_run_one_after_the_other() {
    let given = collect(numbers(0, 5).flat_map_concat(|n| numbers(n * 10, n * 10 + n)));
    assert_eq!(given, [10, 20, 21, 30, 31, 32, 40, 41, 42, 43]);
    assert_eq!(collect(numbers(0, 0).flat_map_concat(|n| numbers(0, n))), [0_u32; 0]);
    assert_eq!(collect(numbers(0, 100).flat_map_concat(|_| numbers(0, 0))), [0_u32; 0]);
    let sources = Source::from_iterator(|| (0..3).map(|n| numbers(n, n + 2)).collect::<Vec<_>>());
    assert_eq!(collect(sources.flatten()), [0, 1, 1, 2, 2, 3]);
}

#[test]
fn sources_that_run_together_give_everything_and_keep_their_own_order() {
    for breadth in [1, 2, 7, 100] {
        let given = collect(numbers(0, 20).flat_map_merge(breadth, |n| numbers(n * 100, n * 100 + n)));
        for n in 0..20 {
            let own: Vec<u32> = given.iter().copied().filter(|x| x / 100 == n).collect();
            assert_eq!(own, (n * 100..n * 100 + n).collect::<Vec<_>>(), "breadth {breadth}");
        }
        assert_eq!(given.len(), (0..20).sum::<u32>() as usize);
    }
}

#[test]
fn no_more_sources_run_than_allowed() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, most_seen) = (Arc::clone(&running), Arc::clone(&most));
    let given = collect(numbers(0, 50).flat_map_merge(3, move |_| {
        let (counted, most_seen) = (Arc::clone(&counted), Arc::clone(&most_seen));
        let now = counted.fetch_add(1, Ordering::Relaxed) + 1;
        most_seen.fetch_max(now, Ordering::Relaxed);
        numbers(0, 10).map(move |n| {
            if n == 9 {
                counted.fetch_sub(1, Ordering::Relaxed);
            }
            n
        })
    }));
    assert_eq!(given.len(), 500);
    assert!(most.load(Ordering::Relaxed) <= 4, "three run, and the next may begin as the last element is under way");
}

#[test]
fn a_failing_source_fails_all() {
    let error = outcome(numbers(0, 5).flat_map_concat(|n| if n == 2 { failing("inner") } else { numbers(0, 3) }));
    assert_eq!(error.unwrap_err().to_string(), "inner");
    assert!(outcome(failing("outer").flat_map_concat(|_| numbers(0, 3))).is_err());
}

#[test]
fn cancelling_ends_the_sources_that_run() {
    let endless = numbers(0, 4).flat_map_merge(4, |_| Source::from_iterator(|| 0_u32..));
    assert_eq!(collect(endless.take(10)).len(), 10);
}

#[test]
fn the_latest_source_takes_the_place_of_the_one_before() {
    let given = collect(numbers(0, 3).switch_map(|n| numbers(n * 10, n * 10 + 3)));
    assert_eq!(given[given.len() - 3..], [20, 21, 22], "the last one is complete");
    assert!(given.windows(2).all(|two| two[0] < two[1]));
}

#[test]
fn a_prefix_is_taken_off_and_the_rest_is_a_source() {
    for (wanted, length) in [(0, 5), (2, 5), (5, 5), (7, 5), (0, 0), (3, 0)] {
        let given = collect(numbers(0, length).prefix_and_tail(wanted).flat_map_concat(|(prefix, tail)| {
            let marker = prefix.len() as u32 + 1000;
            Source::from_iterator(move || prefix.clone()).concat(numbers(marker, marker + 1)).concat(tail)
        }));
        let cut = (wanted as u32).min(length);
        let expected: Vec<u32> = (0..cut).chain([cut + 1000]).chain(cut..length).collect();
        assert_eq!(given, expected, "{wanted} of {length}");
    }
}

#[test]
fn the_rest_runs_once() {
    let running = Running::new();
    let mut tails = running.start(&numbers(0, 5).prefix_and_tail(2).to_right(all()));
    running.settle();
    let (_, tail) = tails.try_take().unwrap().unwrap().pop().unwrap();
    let mut first = running.start(&tail.clone().to_right(all()));
    let mut second = running.start(&tail.to_right(all()));
    running.settle();
    assert_eq!(first.try_take().unwrap().unwrap(), [2, 3, 4]);
    let error = second.try_take().unwrap().unwrap_err();
    assert!(error.to_string().contains("more than once"), "{error}");
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn keys_have_their_own_streams() {
    let grouped =
        numbers(0, 100).group_by(10, |n| n % 7).flat_map_merge(10, |(key, numbers)| numbers.map(move |n| (key, n)));
    let mut by_key = BTreeMap::<u32, Vec<u32>>::new();
    for (key, n) in collect(grouped) {
        by_key.entry(key).or_default().push(n);
    }
    for key in 0..7 {
        assert_eq!(by_key[&key], (0..100).filter(|n| n % 7 == key).collect::<Vec<_>>());
    }
    let too_many = outcome(numbers(0, 100).group_by(3, |n| n % 7).flat_map_merge(10, |(_, numbers)| numbers));
    assert!(too_many.unwrap_err().to_string().contains("more than 3"));
}

#[test]
fn elements_of_a_key_whose_stream_was_cancelled_are_dropped() {
    let first_of_each = numbers(0, 100).group_by(10, |n| n % 5).flat_map_merge(10, |(_, numbers)| numbers.take(1));
    let mut given = collect(first_of_each);
    given.sort_unstable();
    assert_eq!(given, [0, 1, 2, 3, 4]);
}

#[test]
fn segments_begin_and_end_where_the_predicate_says() {
    let when = numbers(0, 10).split_when(|n| n % 4 == 0).flat_map_concat(|segment| segment.map(|n| vec![n]));
    assert_eq!(collect(when).concat(), (0..10).collect::<Vec<_>>());
    let cuts = |source: Source<Source<u32>>| {
        let running = Running::new();
        let mut segments = running.start(
            &source.flat_map_concat(|segment| segment.prefix_and_tail(100).map(|(segment, _)| segment)).to_right(all()),
        );
        running.settle();
        segments.try_take().unwrap().unwrap()
    };
    assert_eq!(cuts(numbers(0, 9).split_when(|n| n % 4 == 0)), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8]]);
    assert_eq!(cuts(numbers(1, 10).split_when(|n| n % 4 == 0)), [vec![1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
    assert_eq!(cuts(numbers(1, 9).split_after(|n| n % 4 == 0)), [vec![1, 2, 3, 4], vec![5, 6, 7, 8]]);
    assert_eq!(cuts(numbers(1, 10).split_after(|n| n % 4 == 0)), [vec![1, 2, 3, 4], vec![5, 6, 7, 8], vec![9]]);
}

#[test]
fn alternatives_follow_failures() {
    let twice = |error: &StreamError| (error.to_string() == "first").then(|| failing("second"));
    assert_eq!(outcome(failing("first").recover_with(twice)).unwrap_err().to_string(), "second");
    let recovered = numbers(0, 3).concat_lazy(failing("first")).recover_with(|_| Some(numbers(10, 12)));
    assert_eq!(collect(recovered), [0, 1, 2, 10, 11]);
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let again = failing("first").recover_with_retries(3, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Some(failing("again"))
    });
    assert_eq!(outcome(again).unwrap_err().to_string(), "again");
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
    assert_eq!(outcome(failing("first").recover_with_retries(0, |_| None)).unwrap_err().to_string(), "first");
}
