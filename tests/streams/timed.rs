//! Operators that time decides, with a clock that the test moves.

use std::time::Duration;

use atoll::stream::attributes::{Directive, InputBuffer};
use atoll::stream::dsl::{Flow, FlowOps, Source, keep};
use atoll::stream::operators::{
    DelayStrategy, OverflowStrategy, Rate, RateExceeded, RateOps, StreamTimeout, ThrottleMode, TimeoutOps, WithinOps,
};

use crate::drive::always;
use crate::hand::Hand;
use crate::running::{Running, all, outcome};

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn flow() -> Flow<u32, u32> {
    Flow::new()
}

fn numbers(to: u32) -> Source<u32> {
    Source::from_iterator(move || 0..to).seal()
}

#[test]
fn elements_pass_within_the_window_and_then_the_stream_completes() {
    let hand = Hand::hold(flow().take_within(ms(500)));
    hand.request(10).give_all([1, 2]).pass(499).give(3);
    assert_eq!((hand.received(), hand.end()), (vec![1, 2, 3], None));
    hand.pass(1);
    assert_eq!(hand.end().as_deref(), Some("complete"));
    assert!(hand.cancelled().is_some());
}

#[test]
fn elements_are_dropped_within_the_window_and_pass_later() {
    let hand = Hand::hold(flow().drop_within(ms(500)));
    hand.request(10).give_all([1, 2]).pass(499).give(3).pass(1).give_all([4, 5]).complete();
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![4, 5], Some("complete")));
}

#[test]
fn the_first_element_is_asked_for_after_the_initial_delay() {
    let hand = Hand::hold(flow().initial_delay(ms(200)));
    hand.request(2).give(1).pass(199);
    assert!(hand.received().is_empty() && !hand.is_asked());
    hand.pass(1).give(2);
    assert_eq!(hand.received(), [1, 2]);
    let hand = Hand::hold(flow().initial_delay(ms(200)));
    hand.complete();
    assert_eq!(hand.end().as_deref(), Some("complete"));
}

#[test]
fn groups_go_when_they_are_full_or_their_time_is_over() {
    let hand = Hand::hold(flow().grouped_within(3, ms(100)));
    hand.request(10).give_all([1, 2, 3, 4]);
    assert_eq!(hand.received(), [vec![1, 2, 3]]);
    hand.pass(99).give(5);
    assert!(hand.received().is_empty());
    hand.pass(1);
    assert_eq!(hand.received(), [vec![4, 5]]);
    hand.pass(1000);
    assert!(hand.received().is_empty(), "an empty group is not emitted");
    hand.give(6).complete();
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![vec![6]], Some("complete")));
}

#[test]
fn a_group_waits_for_demand_with_one_element_asked_for_ahead() {
    let hand = Hand::hold(flow().grouped_within(2, ms(100)));
    hand.give_all([1, 2, 3, 4, 5]);
    assert_eq!(hand.waiting(), 2, "a group and one more are taken");
    hand.request(1);
    assert_eq!((hand.received(), hand.waiting()), (vec![vec![1, 2]], 0));
    hand.complete();
    assert_eq!(hand.end(), None);
    hand.request(2);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![vec![3, 4], vec![5]], Some("complete")));
    let hand = Hand::hold(flow().grouped_within(10, ms(100)));
    hand.give(1).pass(150).give(2).request(1);
    assert_eq!(hand.received(), [vec![1, 2]], "its time was over before there was demand");
    let hand = Hand::hold(flow().grouped_within(10, ms(100)));
    hand.request(1).complete();
    assert_eq!((hand.received().len(), hand.end().as_deref()), (0, Some("complete")));
}

#[test]
fn groups_are_weighed() {
    let weighed = |elements: &[u32], weight_max, number_max| {
        let hand = Hand::hold(flow().grouped_weighted_within(weight_max, number_max, ms(100), |n| u64::from(*n)));
        hand.request(20).give_all(elements.iter().copied()).complete();
        assert_eq!(hand.end().as_deref(), Some("complete"));
        hand.received()
    };
    assert_eq!(weighed(&[1, 2, 3, 4, 5, 6], 6, 10), [vec![1, 2, 3], vec![4], vec![5], vec![6]]);
    assert_eq!(weighed(&[100, 1, 200, 300], 10, 10), [vec![100], vec![1], vec![200], vec![300]]);
    assert_eq!(weighed(&[0, 0, 0, 0], 10, 3), [vec![0, 0, 0], vec![0]]);
    let costly = |n: &u32| if *n == 2 { panic!("two") } else { 1 };
    let groups = Source::from_iterator(|| 0_u32..5).grouped_weighted_within(2, 9, ms(1), costly);
    assert!(outcome(groups.clone()).is_err());
    assert_eq!(outcome(groups.supervised(always(Directive::Resume))).unwrap(), [vec![0, 1], vec![3, 4]]);
    assert!(outcome(numbers(3).grouped_within(0, ms(1))).is_err());
}

#[test]
fn ticks_without_demand_are_dropped_and_the_handle_ends_them() {
    let mut running = Running::new();
    let graph = Source::tick(ms(100), ms(50), 'x').to_mat(all(), keep::both);
    let (handle, mut ticks) = running.start(&graph);
    running.settle();
    for _ in 0..10 {
        running.pass(ms(50));
    }
    assert!(handle.cancel());
    assert!(!handle.cancel());
    running.settle();
    assert_eq!(ticks.try_take().unwrap().unwrap().len(), 9);
    assert_eq!(running.host.islands(), 0);
    // Nobody asks for a while.
    let hand = Hand::hold(Flow::<u32, u32>::from_sink_and_source(
        atoll::stream::dsl::Sink::never(),
        Source::tick(ms(10), ms(10), 7),
    ));
    hand.pass(10).pass(10).pass(10).request(5);
    assert!(hand.received().is_empty());
    hand.pass(10).pass(10);
    assert_eq!(hand.received(), [7, 7]);
    assert!(outcome(Source::tick(ms(1), ms(0), 1)).is_err());
}

#[test]
fn a_throttle_spreads_elements_and_lets_bursts_pass() {
    let hand = Hand::hold(flow().throttle(Rate::new(10, ms(1000)).burst(2)));
    hand.request(100).give_all(0..6);
    assert_eq!(hand.received(), [0, 1], "the burst");
    for expected in [2, 3, 4] {
        hand.pass(99);
        assert!(hand.received().is_empty());
        hand.pass(1);
        assert_eq!(hand.received(), [expected]);
    }
    hand.pass(100);
    assert_eq!(hand.received(), [5]);
    // After a pause there are tokens for a burst again, and no more.
    hand.pass(10_000).give_all(6..10);
    assert_eq!(hand.received(), [6, 7]);
    hand.complete();
    assert_eq!(hand.end(), None, "one waits");
    hand.pass(100).pass(100);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![8, 9], Some("complete")));
}

#[test]
fn a_throttle_counts_the_time_since_the_last_token() {
    let hand = Hand::hold(flow().throttle(Rate::new(10, ms(1000)).burst(1)));
    hand.request(10).give(1).pass(50).give(2).pass(49);
    assert_eq!(hand.received(), [1]);
    hand.pass(1);
    assert_eq!(hand.received(), [2]);
}

#[test]
fn a_throttle_without_a_burst_of_its_own_allows_what_comes_in_100_ms() {
    for (cost, per, burst) in [(1, 1000, 1), (10, 1000, 1), (100, 1000, 10), (1000, 1000, 100)] {
        let hand = Hand::hold(flow().throttle(Rate::new(cost, ms(per))));
        hand.request(1000).give_all(0..200);
        assert_eq!(hand.received().len(), burst, "{cost} in {per} ms");
    }
}

#[test]
fn elements_may_cost_more() {
    let hand = Hand::hold(flow().throttle_by(Rate::new(10, ms(1000)).burst(0), |n| u64::from(*n)));
    hand.request(10).give_all([5, 0, 1]);
    hand.pass(499);
    assert!(hand.received().is_empty());
    hand.pass(1);
    assert_eq!(hand.received(), [5, 0]);
    hand.pass(100);
    assert_eq!(hand.received(), [1]);
}

#[test]
fn an_enforcing_throttle_fails() {
    let rate = Rate::new(10, ms(1000)).burst(2).mode(ThrottleMode::Enforcing);
    let hand = Hand::hold(flow().throttle(rate));
    hand.request(10).give_all([1, 2]);
    assert_eq!(hand.end(), None);
    hand.pass(100).give_all([3]);
    assert_eq!(hand.received(), [1, 2, 3]);
    hand.give(4);
    assert_eq!(hand.end(), Some(RateExceeded.to_string()));
    assert!(outcome(numbers(3).throttle(Rate::new(0, ms(1)))).is_err());
}

fn delayed(strategy: DelayStrategy) -> Hand<u32, u32> {
    let buffer = InputBuffer::new(2, 2).unwrap();
    Hand::hold(flow().delay(ms(100), strategy).input_buffer(buffer))
}

#[test]
fn each_element_is_held_for_the_delay() {
    let hand = delayed(DelayStrategy::Overflow(OverflowStrategy::Backpressure));
    hand.request(10).give(1).pass(50).give(2).give(3);
    assert_eq!(hand.waiting(), 1, "there is room for two");
    hand.pass(49);
    assert!(hand.received().is_empty());
    hand.pass(1);
    assert_eq!((hand.received(), hand.waiting()), (vec![1], 0));
    hand.pass(50);
    assert_eq!(hand.received(), [2]);
    hand.complete();
    assert_eq!(hand.end(), None, "what is held is emitted first");
    hand.pass(50);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![3], Some("complete")));
}

#[test]
fn a_delay_that_is_full_does_what_its_strategy_says() {
    use OverflowStrategy::{Backpressure, DropBuffer, DropHead, DropTail, Fail};
    for (strategy, early, late) in [
        (DelayStrategy::Overflow(Backpressure), vec![], vec![1, 2, 3, 4]),
        (DelayStrategy::EmitEarly, vec![1, 2], vec![3, 4]),
        (DelayStrategy::Overflow(DropHead), vec![], vec![3, 4]),
        (DelayStrategy::Overflow(DropTail), vec![], vec![1, 4]),
        (DelayStrategy::Overflow(DropBuffer), vec![], vec![3, 4]),
    ] {
        let hand = delayed(strategy);
        hand.request(10).give_all([1, 2, 3, 4]);
        assert_eq!(hand.received(), early, "{strategy:?}");
        hand.complete();
        for _ in 0..4 {
            hand.pass(100);
        }
        assert_eq!((hand.received(), hand.end().as_deref()), (late, Some("complete")), "{strategy:?}");
    }
    let hand = delayed(DelayStrategy::Overflow(Fail));
    hand.request(10).give_all([1, 2, 3]);
    assert!(hand.end().unwrap().contains("overflow"));
}

#[test]
fn a_delay_may_differ_for_each_element_and_keeps_their_order() {
    let by_value = flow().delay_by(DelayStrategy::Overflow(OverflowStrategy::DropHead), |n| ms(u64::from(*n)));
    let hand = Hand::hold(by_value);
    hand.request(10).give_all([100, 10, 200]);
    hand.pass(99);
    assert!(hand.received().is_empty());
    hand.pass(1);
    assert_eq!(hand.received(), [100, 10]);
    hand.pass(100);
    assert_eq!(hand.received(), [200]);
}

#[test]
fn elements_are_injected_while_upstream_is_idle() {
    let hand = Hand::hold(flow().keep_alive(ms(100), || 99));
    hand.request(2).pass(99);
    assert!(hand.received().is_empty());
    hand.pass(1);
    assert_eq!(hand.received(), [99]);
    hand.pass(100);
    assert_eq!(hand.received(), [99]);
    // Without demand nothing is injected, and what came from upstream goes first.
    hand.pass(1000).give(1);
    assert!(hand.received().is_empty());
    hand.request(1);
    assert_eq!(hand.received(), [1]);
    hand.request(2).pass(50).give(2).pass(99);
    assert_eq!(hand.received(), [2]);
    hand.pass(1);
    assert_eq!(hand.received(), [99]);
    hand.give(3).complete();
    assert_eq!(hand.end(), None, "an element waits for demand");
    hand.request(1);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![3], Some("complete")));
}

fn timeout(hand: &Hand<u32, u32>) -> Option<String> {
    hand.end()
}

#[test]
fn a_stream_fails_if_its_first_element_or_its_end_does_not_come_in_time() {
    let late = StreamTimeout::Initial(ms(200)).to_string();
    let hand = Hand::hold(flow().initial_timeout(ms(200)));
    hand.request(1).pass(199);
    assert_eq!(timeout(&hand), None);
    assert_eq!(timeout(hand.pass(1)), Some(late));
    let hand = Hand::hold(flow().initial_timeout(ms(200)));
    hand.request(1).pass(199).give(1).pass(10_000);
    assert_eq!(timeout(&hand), None);

    let late = StreamTimeout::Completion(ms(200)).to_string();
    let hand = Hand::hold(flow().completion_timeout(ms(200)));
    hand.request(9).give(1).pass(100).give(2).pass(99);
    assert_eq!(timeout(&hand), None);
    assert_eq!(timeout(hand.pass(1)), Some(late));
    let hand = Hand::hold(flow().completion_timeout(ms(200)));
    hand.pass(199).complete().pass(1000);
    assert_eq!(timeout(&hand).as_deref(), Some("complete"));
}

#[test]
fn a_stream_fails_if_it_is_idle() {
    let hand = Hand::hold(flow().idle_timeout(ms(1000)));
    for n in 0..5 {
        hand.request(1).pass(900).give(n);
    }
    assert_eq!(timeout(&hand), None);
    for _ in 0..12 {
        hand.pass(100);
    }
    assert_eq!(timeout(&hand), Some(StreamTimeout::Idle(ms(1000)).to_string()));
    assert!(hand.cancelled().is_some());
}

#[test]
fn a_stream_fails_if_downstream_does_not_ask() {
    let late = Some(StreamTimeout::Backpressure(ms(1000)).to_string());
    let pass = |hand: &Hand<u32, u32>, times: u32| (0..times).for_each(|_| _ = hand.pass(100));
    let hand = Hand::hold(flow().backpressure_timeout(ms(1000)));
    pass(&hand, 12);
    assert_eq!(timeout(&hand), late, "it never asked");
    let hand = Hand::hold(flow().backpressure_timeout(ms(1000)));
    hand.request(1);
    pass(&hand, 50);
    assert_eq!(timeout(&hand), None, "upstream is slow, downstream is not");
    hand.give(1);
    pass(&hand, 8);
    hand.request(1);
    pass(&hand, 8);
    hand.give(2);
    assert_eq!(timeout(&hand), None);
    pass(&hand, 12);
    assert_eq!(timeout(&hand), late);
}
