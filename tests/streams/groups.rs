//! Operators that make groups, take them apart, and accumulate.

use std::sync::{Arc, Mutex};

use atoll::stream::attributes::{Attributes, Directive};
use atoll::stream::dsl::{Flow, FlowOps, Plain, Sink, Source};
use atoll::stream::error::{IllegalArgument, NoSuchElement};
use atoll::stream::operators::{AccumulatingOps, ElementwiseOps, GroupOps};
use atoll::stream::{StreamError, dsl};
use proptest::prelude::*;

use crate::drive::{always, run};
use crate::hand::Hand;

type Numbers = Source<i64>;

fn numbers(n: i64) -> Numbers {
    Source::from_iterator(move || 1..=n).seal()
}

fn all<T: Send + 'static>(source: Source<T>) -> Result<Vec<T>, StreamError> {
    run(&source.to_right(Sink::seq()))
}

fn under<T: Send + 'static>(directive: Directive, source: Source<T>) -> Result<Vec<T>, StreamError> {
    run(&source.to_right(Sink::seq()).add_attributes(&Attributes::of(always(directive))))
}

fn is_illegal<T: std::fmt::Debug>(outcome: Result<T, StreamError>) -> bool {
    outcome.unwrap_err().downcast_ref::<IllegalArgument>().is_some()
}

fn bad(n: i64) -> i64 {
    if n % 4 == 3 { panic!("bad") } else { n }
}

#[test]
fn groups() {
    assert_eq!(all(numbers(5).grouped(2)).unwrap(), [vec![1, 2], vec![3, 4], vec![5]]);
    assert_eq!(all(numbers(4).grouped(2)).unwrap(), [vec![1, 2], vec![3, 4]]);
    assert_eq!(all(numbers(0).grouped(2)).unwrap(), [[0; 0]; 0]);
    assert!(is_illegal(all(numbers(4).grouped(0))));
    let weighted = |n, min| all(numbers(n).grouped_weighted(min, |n| *n as u64)).unwrap();
    assert_eq!(weighted(6, 5), [vec![1, 2, 3], vec![4, 5], vec![6]]);
    assert_eq!(weighted(5, 5), [vec![1, 2, 3], vec![4, 5]]);
    assert!(is_illegal(all(numbers(4).grouped_weighted(0, |_| 1))));
    let costs = |directive| under(directive, numbers(6).grouped_weighted(6, |n| bad(*n) as u64)).unwrap();
    assert_eq!(costs(Directive::Resume), [vec![1, 2, 4], vec![5, 6]]);
    assert_eq!(costs(Directive::Restart), [vec![4, 5], vec![6]]);
}

#[test]
fn groups_of_neighbours() {
    assert_eq!(all(numbers(7).grouped_adjacent_by(|n| n / 3)).unwrap(), [vec![1, 2], vec![3, 4, 5], vec![6, 7]]);
    let weighted = |elements: &'static [i64]| {
        let source = Source::from_iterator(move || elements.iter().copied());
        all(source.grouped_adjacent_by_weighted(|n| n % 2, 10, |n| *n as u64)).unwrap()
    };
    assert_eq!(weighted(&[1, 3, 5, 7, 2]), [vec![1, 3, 5], vec![7], vec![2]]);
    assert_eq!(weighted(&[1, 21, 31, 3]), [vec![1], vec![21], vec![31], vec![3]]);
    assert_eq!(weighted(&[21]), [[21]]);
    assert_eq!(weighted(&[]), [[0; 0]; 0]);
}

/// Windows of a slice: each `step` further, as long as it has an element that was in none before.
fn windows(n: i64, size: usize, step: usize) -> Vec<Vec<i64>> {
    let elements: Vec<i64> = (1..=n).collect();
    let (mut windows, mut at, mut seen) = (Vec::new(), 0, 0);
    while at < elements.len() && seen < elements.len() {
        let end = (at + size).min(elements.len());
        if end > seen {
            windows.push(elements[at..end].to_vec());
        }
        (seen, at) = (end, at + step);
    }
    windows
}

proptest! {
    #[test]
    fn sliding_is_what_it_is_for_slices(n in 0..20_i64, size in 1..6_usize, step in 1..6_usize) {
        prop_assert_eq!(all(numbers(n).sliding(size, step)).unwrap(), windows(n, size, step));
    }
}

#[test]
fn sliding_at_its_limits() {
    assert_eq!(all(numbers(4).sliding(3, 2)).unwrap(), [vec![1, 2, 3], vec![3, 4]]);
    assert_eq!(all(numbers(5).sliding(3, 2)).unwrap(), [vec![1, 2, 3], vec![3, 4, 5]]);
    assert_eq!(all(numbers(3).sliding(2, 1)).unwrap(), [[1, 2], [2, 3]]);
    assert_eq!(all(numbers(1).sliding(2, 1)).unwrap(), [[1]]);
    assert!(is_illegal(all(numbers(4).sliding(0, 1))) && is_illegal(all(numbers(4).sliding(1, 0))));
}

#[test]
fn what_was_one_becomes_several() {
    assert_eq!(all(numbers(3).map_concat(|n| 0..n)).unwrap(), [0, 0, 1, 0, 1, 2]);
    assert_eq!(all(numbers(3).map_concat(|n| (n == 2).then_some(n))).unwrap(), [2]);
    assert_eq!(all(numbers(3).map_concat(|_| [0; 0])).unwrap(), [0; 0]);
    let stateful = |source: Numbers| {
        source.stateful_map_concat(|| {
            let mut seen = 0;
            move |n| {
                seen += 1;
                [bad(n), seen]
            }
        })
    };
    assert_eq!(all(stateful(numbers(2))).unwrap(), [1, 1, 2, 2]);
    assert_eq!(under(Directive::Resume, stateful(numbers(4))).unwrap(), [1, 1, 2, 2, 4, 4]);
    assert_eq!(under(Directive::Restart, stateful(numbers(4))).unwrap(), [1, 1, 2, 2, 4, 1]);
}

#[test]
fn leftovers_come_before_the_next_element_and_before_the_end() {
    let hand = Hand::hold(Flow::<i64, i64>::new().map_concat(|n| vec![n; 2]));
    hand.give_all([1, 2]).request(1);
    assert_eq!((hand.received(), hand.waiting()), (vec![1], 1));
    hand.request(2);
    assert_eq!(hand.received(), [1, 2]);
    hand.complete();
    assert_eq!(hand.end(), None);
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![2], Some("complete")));
    // The end is not held up if nothing is left.
    let hand = Hand::hold(Flow::<i64, i64>::new().map_concat(|n| vec![n; 2]));
    hand.give(1).request(2).complete();
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![1, 1], Some("complete")));
    // A failure overtakes.
    let hand = Hand::hold(Flow::<i64, i64>::new().map_concat(|n| vec![n; 2]));
    hand.give(1).request(1).fail("no");
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![1], Some("no")));
}

#[test]
fn the_last_group_waits_for_demand() {
    let hand = Hand::hold(Flow::<i64, i64>::new().grouped(3));
    hand.give_all([1, 2, 3, 4]).request(1);
    assert_eq!(hand.received(), [[1, 2, 3]]);
    hand.request(1).complete();
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![vec![4]], Some("complete")));
    let hand = Hand::hold(Flow::<i64, i64>::new().grouped(3));
    hand.request(1).give(1).cancel();
    assert_eq!(hand.cancelled().as_deref(), Some("NoMoreElementsNeeded"));
}

#[test]
fn scan_begins_with_zero() {
    let sums = |source: Numbers| -> dsl::Source<i64> { source.scan(0, |sum: &i64, n| sum + bad(n)) };
    assert_eq!(all(sums(numbers(0))).unwrap(), [0]);
    assert_eq!(all(sums(numbers(2))).unwrap(), [0, 1, 3]);
    assert_eq!(under(Directive::Resume, sums(numbers(5))).unwrap(), [0, 1, 3, 7, 12]);
    assert_eq!(under(Directive::Restart, sums(numbers(5))).unwrap(), [0, 1, 3, 0, 4, 9]);
    assert!(all(sums(numbers(3))).is_err());
    let fails = |_: &i64, _: i64| Err(StreamError::text("no"));
    assert_eq!(all(numbers(1).try_scan(0, fails)).unwrap_err().to_string(), "no");
    let hand = Hand::hold(Flow::<i64, i64>::new().scan(7, |a, b| a + b));
    hand.complete();
    assert_eq!(hand.end(), None);
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![7], Some("complete")));
}

#[test]
fn gatherings_as_flows() {
    assert_eq!(all(numbers(3).fold(1, |a, b| a + b)).unwrap(), [7]);
    assert_eq!(all(numbers(0).fold(1, |a, b| a + b)).unwrap(), [1]);
    assert_eq!(under(Directive::Resume, numbers(4).fold(0, |a, b| a + bad(b))).unwrap(), [7]);
    assert_eq!(under(Directive::Restart, numbers(4).fold(0, |a, b| a + bad(b))).unwrap(), [4]);
    assert_eq!(all(numbers(9).fold_while(0, |sum| *sum < 4, |a, b| a + b)).unwrap(), [6]);
    assert_eq!(all(numbers(3).reduce(|a, b| a * b)).unwrap(), [6]);
    assert!(all(numbers(0).reduce(|a, b| a * b)).unwrap_err().downcast_ref::<NoSuchElement>().is_some());
    let hand = Hand::hold(Flow::<i64, i64>::new().fold(0, |a, b| a + b));
    hand.request(1).give_all([1, 2]).complete();
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![3], Some("complete")));
    let hand = Hand::hold(Flow::<i64, i64>::new().fold(5, |a, b| a + b));
    hand.complete().request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![5], Some("complete")));
}

#[test]
fn separators() {
    let text = |n: i64| numbers(n).map(|n| n.to_string()).seal();
    let plain = |n| all(text(n).intersperse(",".to_owned())).unwrap().concat();
    assert_eq!((plain(0), plain(1), plain(3)), (String::new(), "1".to_owned(), "1,2,3".to_owned()));
    let within = |n| {
        let [start, separator, end] = ["[", ",", "]"].map(str::to_owned);
        all(text(n).intersperse_within(start, separator, end)).unwrap().concat()
    };
    assert_eq!((within(0), within(1), within(3)), ("[]".to_owned(), "[1]".to_owned(), "[1,2,3]".to_owned()));
}

/// A stateful map that says what happens to its states: `+` new, `-` complete.
fn stateful(events: &Arc<Mutex<String>>) -> Plain<Flow<i64, i64>, i64> {
    let (opened, closed) = (Arc::clone(events), Arc::clone(events));
    Flow::new().stateful_map(
        move || {
            opened.lock().unwrap().push('+');
            0
        },
        |sum: &mut i64, n| {
            *sum += bad(n);
            *sum
        },
        move |sum| {
            closed.lock().unwrap().push('-');
            Some(sum * 100)
        },
    )
}

#[test]
fn a_state_is_completed_once_and_its_last_word_is_emitted() {
    let outcome = |n, directive| {
        let events: Arc<Mutex<String>> = Arc::default();
        let result = under(directive, numbers(n).via(stateful(&events))).map_err(|error| error.to_string());
        let events = events.lock().unwrap().clone();
        (events, result)
    };
    assert_eq!(outcome(2, Directive::Stop), ("+-".to_owned(), Ok(vec![1, 3, 300])));
    assert_eq!(outcome(0, Directive::Stop), ("+-".to_owned(), Ok(vec![0])));
    assert_eq!(outcome(4, Directive::Stop).0, "+-");
    assert!(outcome(4, Directive::Stop).1.is_err());
    assert_eq!(outcome(4, Directive::Resume), ("+-".to_owned(), Ok(vec![1, 3, 7, 700])));
    assert_eq!(outcome(4, Directive::Restart), ("+-+-".to_owned(), Ok(vec![1, 3, 300, 4, 400])));
}

#[test]
fn a_state_is_completed_whatever_ends_the_stream() {
    let events: Arc<Mutex<String>> = Arc::default();
    let hand = Hand::hold(stateful(&events));
    hand.request(1).give(1).fail("no");
    assert_eq!((hand.received(), hand.end()), (vec![1], None), "the last word waits for demand");
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![100], Some("no")));
    let hand = Hand::hold(stateful(&events));
    hand.request(1).give(1).cancel();
    let hand = Hand::hold(stateful(&events));
    hand.host.abort();
    let hand = Hand::hold(stateful(&events));
    hand.complete();
    assert_eq!(*events.lock().unwrap(), "+-+-+-+-");
}

#[test]
fn a_resource_of_a_flow() {
    let no = || StreamError::text("no");
    let ok = numbers(2).map_with_resource(|| Ok(10), |r: &mut i64, n| Ok(*r + n), |r| Ok(Some(r)));
    assert_eq!(all(ok).unwrap(), [11, 12, 10]);
    let opening = numbers(2).map_with_resource(move || Err(no()), |(): &mut (), n| Ok(n), |()| Ok(None));
    assert_eq!(all(opening).unwrap_err().to_string(), "no");
    let closing = numbers(2).map_with_resource(|| Ok(()), |(): &mut (), n| Ok(n), move |()| Err(no()));
    assert_eq!(all(closing).unwrap_err().to_string(), "no");
}
