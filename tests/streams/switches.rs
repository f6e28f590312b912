//! Streams that are ended or watched from outside.

use atoll::stream::StreamError;
use atoll::stream::dsl::{BidiFlow, Flow, FlowOps, Sink, Source, keep};
use atoll::stream::error::AbruptTermination;
use atoll::stream::operators::{ElementwiseOps, KillSwitches, MonitorState, SharedKillSwitch, TerminationOps};

use crate::hand::Hand;
use crate::running::{Running, all};

fn endless() -> Source<u32> {
    Source::from_iterator(|| 0_u32..3).seal().via(Flow::from_sink_and_source(Sink::ignore(), Source::never()))
}

#[test]
fn a_unique_switch_ends_its_stream_and_its_first_word_counts() {
    for aborts in [false, true] {
        let running = Running::new();
        let graph = endless().via_mat(KillSwitches::single(), keep::right).to_mat(all(), keep::both);
        let (switch, mut end) = running.start(&graph);
        let (other, mut other_end) = running.start(&graph);
        running.settle();
        assert!(end.try_take().is_none() && !switch.is_used());
        let used = if aborts { switch.abort(StreamError::text("stop")) } else { switch.shutdown() };
        assert!(used && switch.is_used());
        assert!(!switch.shutdown() && !switch.abort(StreamError::text("again")));
        running.settle();
        match end.try_take().unwrap() {
            Ok(_) => assert!(!aborts),
            Err(error) => assert!(aborts && error.to_string() == "stop"),
        }
        assert!(other_end.try_take().is_none(), "each run has a switch of its own");
        other.shutdown();
        running.settle();
        assert_eq!(running.host.islands(), 0);
    }
}

#[test]
fn a_switch_that_is_used_before_the_start_works() {
    let running = Running::new();
    let graph = endless().via_mat(KillSwitches::single(), keep::right).to_mat(all(), keep::both);
    let (switch, mut end) = running.start(&graph);
    switch.shutdown();
    running.settle();
    assert!(end.try_take().unwrap().unwrap().is_empty());
}

#[test]
fn a_switch_cancels_upstream() {
    let shared = SharedKillSwitch::new("test");
    let hand = Hand::hold(Flow::<u32, u32>::new().via(shared.flow()));
    hand.request(5).give_all([1, 2]);
    assert_eq!(hand.received(), [1, 2]);
    shared.shutdown();
    hand.settle();
    assert_eq!(hand.end().as_deref(), Some("complete"));
    assert!(hand.cancelled().is_some());
}

#[test]
fn a_shared_switch_ends_all_its_streams_and_those_that_come_later() {
    let running = Running::new();
    let (switch, other) = (SharedKillSwitch::new("a"), SharedKillSwitch::new("b"));
    let numbers = endless().via(switch.flow()).to_right(all());
    let texts = endless().map(|n| n.to_string()).via(switch.flow()).to_right(all());
    let others = endless().via(other.flow()).to_right(all());
    let mut ends = [running.start(&numbers), running.start(&numbers)];
    let (mut text_end, mut other_end) = (running.start(&texts), running.start(&others));
    running.settle();
    assert_eq!((switch.streams(), other.streams()), (3, 1));
    assert!(switch.abort(StreamError::text("stop")));
    running.settle();
    for end in &mut ends {
        assert_eq!(end.try_take().unwrap().unwrap_err().to_string(), "stop");
    }
    assert!(text_end.try_take().unwrap().is_err());
    assert!(other_end.try_take().is_none());
    let mut late = running.start(&numbers);
    running.settle();
    assert_eq!(late.try_take().unwrap().unwrap_err().to_string(), "stop");
    assert_eq!(switch.streams(), 0);
    other.shutdown();
    running.settle();
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn a_stream_that_has_ended_leaves_nothing_in_a_shared_switch() {
    let running = Running::new();
    let switch = SharedKillSwitch::new("a");
    let graph = Source::from_iterator(|| 0_u32..3).via(switch.flow()).to_right(all());
    for _ in 0..10 {
        drop(running.start(&graph));
        running.settle();
        assert_eq!(switch.streams(), 0);
    }
}

#[test]
fn a_switch_for_a_pair_of_flows_ends_both() {
    let running = Running::new();
    let lower = Flow::from_sink_and_source(Sink::<u32, _>::ignore(), Source::<u32>::never());
    let flow = KillSwitches::single_bidi().join(lower);
    let graph = endless().via_mat(flow, keep::right).to_mat(all(), keep::both);
    let (switch, mut end) = running.start(&graph);
    running.settle();
    assert!(end.try_take().is_none());
    switch.shutdown();
    running.settle();
    assert!(end.try_take().unwrap().is_ok());
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn the_end_of_a_stream_is_watched() {
    let running = Running::new();
    let watched = |source: Source<u32>, taken: u64| {
        let graph = source.watch_termination(keep::right).take(taken).to_mat(all(), keep::left);
        let mut end = running.start(&graph);
        running.settle();
        end.try_take()
    };
    let numbers = || Source::from_iterator(|| 0_u32..5).seal();
    assert!(watched(numbers(), 10).unwrap().is_ok());
    assert!(watched(numbers(), 2).unwrap().is_ok(), "cancelled");
    let failing = numbers().map(|_| -> u32 { panic!("boom") }).seal();
    assert!(watched(failing, 10).unwrap().unwrap_err().to_string().contains("boom"));
    assert!(watched(endless(), 10).is_none());
    let mut end = running.start(&endless().watch_termination(keep::right).to(all()));
    running.settle();
    running.host.abort();
    assert!(end.try_take().unwrap().unwrap_err().downcast_ref::<AbruptTermination>().is_some());
}

#[test]
fn a_monitor_shows_the_last_element_and_the_end() {
    let running = Running::new();
    let graph = endless_monitored();
    let (switch, monitor) = running.start(&graph);
    assert!(matches!(monitor.state(), MonitorState::Initialized));
    running.settle();
    assert!(matches!(monitor.state(), MonitorState::Received(2)));
    switch.abort(StreamError::text("stop"));
    running.settle();
    assert!(matches!(monitor.state(), MonitorState::Failed(error) if error.to_string() == "stop"));
    let (switch, monitor) = running.start(&graph);
    running.settle();
    switch.shutdown();
    running.settle();
    assert!(matches!(monitor.state(), MonitorState::Finished));
}

type Monitored = (atoll::stream::operators::UniqueKillSwitch, atoll::stream::operators::FlowMonitor<u32>);

fn endless_monitored() -> atoll::stream::dsl::RunnableGraph<Monitored> {
    let open = Source::from_iterator(|| 0_u32..3).concat_open();
    open.via_mat(KillSwitches::single(), keep::right).monitor(keep::both).to(Sink::ignore())
}

/// Elements, and then nothing for ever.
trait ConcatOpen {
    fn concat_open(self) -> Source<u32>;
}

impl<M: 'static, P: atoll::stream::dsl::Fusable<Out = u32>> ConcatOpen for Source<u32, M, P> {
    fn concat_open(self) -> Source<u32> {
        use atoll::stream::operators::FanInOps;
        let numbers: Source<u32> = self.seal().map_materialized_value(|_| ());
        numbers.concat(Source::never())
    }
}

#[test]
fn the_halves_of_a_flow_have_nothing_to_do_with_one_another() {
    let halves = Flow::from_sink_and_source(Sink::cancelled(), Source::from_iterator(|| 7_u32..10));
    let hand = Hand::<u32, u32>::hold(halves);
    assert!(hand.cancelled().is_some());
    hand.request(5);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![7, 8, 9], Some("complete")));
}

#[test]
fn coupled_halves_end_together() {
    let coupled = || {
        Flow::from_sink_and_source_coupled_mat(
            Flow::<u32, u32>::new().watch_termination(keep::right).to(Sink::ignore()),
            Source::<u32>::never().watch_termination(keep::right),
            keep::both,
        )
    };
    let ends = |act: &dyn Fn(&Hand<u32, u32>)| {
        let slot = std::sync::Arc::new(std::sync::Mutex::new(None));
        let shared = std::sync::Arc::clone(&slot);
        let hand = Hand::hold(coupled().map_materialized_value(move |value| *shared.lock().unwrap() = Some(value)));
        let (mut sink, mut source) = slot.lock().unwrap().take().unwrap();
        assert!(sink.try_take().is_none() && source.try_take().is_none());
        act(&hand);
        hand.settle();
        assert_eq!(hand.host.islands(), 0);
        (sink.try_take().unwrap().is_ok(), source.try_take().unwrap().is_ok(), hand.end(), hand.cancelled())
    };
    let (sink, source, down, _) = ends(&|hand| _ = hand.complete());
    assert_eq!((sink, source, down.as_deref()), (true, true, Some("complete")));
    let (sink, _, down, _) = ends(&|hand| _ = hand.fail("boom"));
    assert_eq!((sink, down.as_deref()), (false, Some("boom")));
    let (sink, source, _, up) = ends(&|hand| _ = hand.cancel());
    assert!(sink && source && up.is_some());
}

#[test]
fn the_end_of_an_inner_half_ends_the_flow() {
    let source_ends = Flow::from_sink_and_source_coupled(Sink::<u32, _>::ignore(), Source::from_iterator(|| 1_u32..2));
    let hand = Hand::hold(source_ends);
    hand.request(2);
    assert_eq!((hand.received(), hand.end().as_deref()), (vec![1], Some("complete")));
    assert!(hand.cancelled().is_some());
    let sink_cancels = Flow::from_sink_and_source_coupled(Sink::<u32, _>::cancelled(), Source::<u32>::never());
    let hand = Hand::hold(sink_cancels);
    assert_eq!(hand.end().as_deref(), Some("complete"));
    assert!(hand.cancelled().is_some());
}

#[test]
fn a_pair_of_flows_is_idle_only_if_both_directions_are() {
    let lower = Flow::from_sink_and_source(Sink::<u32, _>::ignore(), Source::<u32>::never());
    let idle = std::time::Duration::from_millis(1000);
    let hand = Hand::hold(BidiFlow::bidirectional_idle_timeout(idle).join(lower));
    hand.request(1);
    for n in 0..20 {
        hand.pass(500).give(n);
    }
    assert_eq!(hand.end(), None);
    for _ in 0..15 {
        hand.pass(100);
    }
    assert!(hand.end().unwrap().contains("no element"));
}
