//! Operators between a fast and a slow side, and those that watch the end.

use std::sync::{Arc, Mutex};

use atoll::stream::attributes::{Attributes, Directive, LogLevels};
use atoll::stream::dsl::{Flow, FlowOps, Plain, Sink, Source};
use atoll::stream::error::IllegalArgument;
use atoll::stream::operators::OverflowStrategy::{self, Backpressure, DropBuffer, DropHead, DropTail, Fail};
use atoll::stream::operators::{BufferOps, ElementwiseOps, WatchingOps};
use atoll::stream::{Cancellation, StreamError};

use crate::drive::{always, run};
use crate::hand::Hand;

type F = Flow<i64, i64>;

fn buffer(capacity: usize, strategy: OverflowStrategy) -> Hand<i64, i64> {
    Hand::hold(F::new().buffer(capacity, strategy))
}

#[test]
fn what_a_full_buffer_does() {
    for (strategy, waiting, kept) in [
        (Backpressure, 2, vec![1, 2, 3, 4, 5]),
        (DropHead, 0, vec![3, 4, 5]),
        (DropTail, 0, vec![1, 2, 5]),
        (DropBuffer, 0, vec![4, 5]),
    ] {
        let hand = buffer(3, strategy);
        hand.give_all(1..=5);
        assert_eq!(hand.waiting(), waiting, "{strategy:?}");
        hand.complete().request(9);
        assert_eq!((hand.received(), hand.end().as_deref()), (kept, Some("complete")), "{strategy:?}");
    }
    let hand = buffer(3, Fail);
    hand.give_all(1..=3);
    assert_eq!(hand.end(), None);
    hand.give(4);
    assert!(hand.end().unwrap().contains("overflowed"));
}

#[test]
fn a_buffer_drains_when_upstream_completes_and_is_dropped_when_it_fails() {
    let hand = buffer(3, Backpressure);
    hand.give_all([1, 2]).complete();
    assert_eq!(hand.end(), None);
    hand.request(1);
    assert_eq!((hand.received(), hand.end()), (vec![1], None));
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![2], Some("complete")));
    let hand = buffer(3, Backpressure);
    hand.give_all([1, 2]).fail("no");
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![], Some("no")));
    let hand = buffer(3, DropHead);
    hand.request(1).give_all([1, 2]);
    assert_eq!(hand.received(), [1]);
    hand.cancel();
    assert!(hand.cancelled().is_some());
    let outcome = run(&Source::single(1).buffer(0, DropHead).to_right(Sink::seq()));
    assert!(outcome.unwrap_err().downcast_ref::<IllegalArgument>().is_some());
}

#[test]
fn a_batch_grows_while_nobody_asks() {
    let hand = Hand::hold(F::new().batch(3, |n| vec![n], |batch, n| batch.push(n)));
    hand.give_all(1..=6);
    // One batch is full and one element waits for the next.
    assert_eq!(hand.waiting(), 2);
    hand.request(1);
    assert_eq!((hand.received(), hand.waiting()), (vec![vec![1, 2, 3]], 0));
    hand.complete().request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![vec![4, 5, 6]], Some("complete")));
    // With demand each element is a batch.
    hand_of_demand();
}

fn hand_of_demand() {
    let hand = Hand::hold(F::new().batch(3, |n| vec![n], |batch, n| batch.push(n)));
    hand.request(3).give_all([1, 2]).complete();
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![vec![1], vec![2]], Some("complete")));
}

#[test]
fn a_batch_has_a_cost() {
    let weighted = F::new().batch_weighted(10, |n| *n as u64, |n| vec![n], |batch, n| batch.push(n));
    let hand = Hand::hold(weighted);
    hand.give_all([4, 6, 1, 30, 2]).complete();
    let mut batches = Vec::new();
    for _ in 0..9 {
        batches.extend(hand.request(1).received());
    }
    assert_eq!(batches, [vec![4, 6], vec![1], vec![30], vec![2]]);
    assert_eq!(hand.end().as_deref(), Some("complete"));
}

#[test]
fn conflation_never_holds_upstream_up() {
    let hand = Hand::hold(F::new().conflate(|sum, n| *sum += n));
    hand.give_all(1..=100);
    assert_eq!(hand.waiting(), 0);
    hand.request(1);
    assert_eq!(hand.received(), [5050]);
    hand.request(1).give(7).complete();
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![7], Some("complete")));
    let hand = Hand::hold(F::new().conflate_with_seed(|n| n.to_string(), |text, n| text.push_str(&n.to_string())));
    hand.give_all(1..=3).fail("no");
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![], Some("no")));
}

#[test]
fn a_batch_is_supervised() {
    let flow = |directive| {
        let add = |sum: &mut i64, n| if n == 3 { panic!("three") } else { *sum += n };
        Hand::hold(F::new().conflate(add).add_attributes(&Attributes::of(always(directive))))
    };
    for (directive, expected) in [(Directive::Resume, 7), (Directive::Restart, 4)] {
        let hand = flow(directive);
        hand.give_all(1..=4).request(1);
        assert_eq!(hand.received(), [expected]);
    }
    let hand = flow(Directive::Stop);
    hand.give_all(1..=3);
    assert!(hand.end().unwrap().contains("three"));
}

#[test]
fn the_last_element_is_expanded() {
    let hand = Hand::hold(F::new().expand(|n| (0..).map(move |i| n * 10 + i)));
    hand.give(1).request(2);
    assert_eq!(hand.received(), [10, 11]);
    hand.give(2).request(1);
    assert_eq!(hand.received(), [20]);
    // An element waits until something of it was emitted; then the next comes in.
    hand.give_all([3, 4]);
    assert_eq!(hand.waiting(), 1);
    hand.request(1);
    assert_eq!((hand.received(), hand.waiting()), (vec![30], 0));
    hand.complete();
    assert_eq!(hand.end(), None, "nothing of the last element was emitted");
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![40], Some("complete")));
    // Nothing comes of an element: it is passed over.
    let hand = Hand::hold(F::new().expand(|n| (n % 2 == 0).then_some(n)));
    hand.request(1).give_all([1, 2]);
    assert_eq!(hand.received(), [2]);
}

#[test]
fn extrapolation_begins_with_the_element() {
    let hand = Hand::hold(F::new().extrapolate(|n| (1..3).map(move |i| n + i)));
    hand.give(10).request(9);
    assert_eq!(hand.received(), [10, 11, 12]);
    hand.give(20);
    assert_eq!(hand.received(), [20, 21, 22]);
    hand.complete();
    assert_eq!(hand.end().as_deref(), Some("complete"));
    let hand = Hand::hold(F::new().extrapolate_from(1, std::iter::repeat));
    hand.request(2);
    assert_eq!(hand.received(), [1, 1]);
    hand.give(5).request(2);
    assert_eq!(hand.received(), [5, 5]);
}

#[test]
fn a_detached_flow_asks_for_one_ahead() {
    let hand = Hand::hold(F::new().detach());
    assert!(hand.is_asked());
    hand.give_all([1, 2]);
    assert_eq!((hand.waiting(), hand.received()), (1, vec![]));
    hand.request(1);
    assert_eq!((hand.waiting(), hand.received()), (0, vec![1]));
    hand.complete();
    assert_eq!(hand.end(), None);
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![2], Some("complete")));
}

#[test]
fn failures_become_something_else() {
    let hold = |flow: Plain<F, i64>| Hand::hold(flow);
    let hand = hold(F::new().map_error(|error| StreamError::text(format!("mapped {error}"))));
    hand.request(9).give(1).fail("no");
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![1], Some("mapped no")));
    // A panic of the operator before is a failure of upstream.
    let hand = hold(F::new().map(|_| panic!("no")).map_error(|_| StreamError::text("mapped")));
    hand.request(9).give(1);
    assert_eq!(hand.end().as_deref(), Some("mapped"));
    let hand = hold(F::new().recover(|_| Some(7)));
    hand.request(1).give(1).fail("no");
    assert_eq!((hand.received(), hand.end()), (vec![1], None), "the last element waits for demand");
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![7], Some("complete")));
    let hand = hold(F::new().recover(|_| None));
    hand.fail("no");
    assert_eq!(hand.end().as_deref(), Some("no"));
    let hand = hold(F::new().on_error_complete());
    hand.fail("no");
    assert_eq!(hand.end().as_deref(), Some("complete"));
    let hand = hold(F::new().on_error_complete_if(|error| error.to_string() == "yes"));
    hand.fail("no");
    assert_eq!(hand.end().as_deref(), Some("no"));
}

#[test]
fn beginning_and_end_are_told() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (first, end) = (Arc::clone(&told), Arc::clone(&told));
    let flow = F::new()
        .do_on_first(move |n: &i64| first.lock().unwrap().push(n.to_string()))
        .do_on_cancel(move |cause: &Cancellation| end.lock().unwrap().push(format!("{cause:?}")));
    let hand = Hand::hold(flow.clone());
    hand.request(9).give_all([1, 2]).cancel();
    assert_eq!(*told.lock().unwrap(), ["1", "NoMoreElementsNeeded"]);
    assert_eq!(hand.received(), [1, 2]);
    Hand::hold(flow).complete();
    assert_eq!(told.lock().unwrap().len(), 2, "completion is no cancellation");
}

#[test]
fn logging_changes_nothing() {
    let levels = LogLevels { on_element: None, on_finish: Some(tracing::Level::INFO), on_failure: None };
    for attributes in [Attributes::none(), Attributes::of(levels)] {
        let hand = Hand::hold(F::new().log("here").add_attributes(&attributes));
        hand.request(9).give_all([1, 2]).fail("no");
        assert_eq!((hand.received(), hand.end().as_deref()), (vec![1, 2], Some("no")));
    }
}
