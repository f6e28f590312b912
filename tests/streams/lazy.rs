//! What is made later: when it is made, what its materialized value becomes, and how ends get through.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use atoll::stream::StreamError;
use atoll::stream::completion::{Completion, Promise, completion};
use atoll::stream::dsl::{FlowOps, Sink, Source, keep};
use atoll::stream::operators::nested::{NeverMaterialized, SubstreamUsed};
use atoll::stream::operators::{Concat, ElementwiseOps, FanInOps, Merge};

use crate::running::{Running, all, collect, outcome};

fn numbers(from: u32, to: u32) -> Source<u32> {
    Source::from_iterator(move || from..to).seal()
}

fn failing() -> Source<u32> {
    numbers(0, 1).try_map(|_| Err::<u32, _>(StreamError::text("inner"))).seal()
}

/// A source that counts how often it is made, with a materialized value.
fn counted(made: &Arc<AtomicUsize>) -> impl FnOnce() -> Source<u32, u8> + Clone + Send + Sync + 'static {
    let made = Arc::clone(made);
    move || {
        made.fetch_add(1, Ordering::Relaxed);
        numbers(0, 3).map_materialized_value(|()| 7)
    }
}

fn is_never<M>(value: &mut Completion<M>) -> bool {
    match value.try_take() {
        Some(Err(error)) => error.downcast_ref::<NeverMaterialized>().is_some(),
        _ => false,
    }
}

/// A future of a source that the test ends.
type Given = Completion<Source<u32, u8>>;

/// Makes the future once, and counts that.
fn gate(made: &Arc<AtomicUsize>) -> (Promise<Source<u32, u8>>, impl FnOnce() -> Given + Clone + Send + Sync + 'static) {
    let (promise, value) = completion();
    let (made, value) = (Arc::clone(made), Arc::new(Mutex::new(Some(value))));
    let factory = move || {
        made.fetch_add(1, Ordering::Relaxed);
        value.lock().unwrap().take().unwrap()
    };
    (promise, factory)
}

#[test]
fn a_lazy_source_gives_what_the_inner_one_gives() {
    let made = Arc::default();
    let running = Running::new();
    let graph = Source::lazy_source(counted(&made)).to_mat(all(), keep::both);
    for run in 1..=2 {
        let (mut value, mut elements) = running.start(&graph);
        assert!(!value.is_done(), "nothing has run yet");
        running.settle();
        assert_eq!(value.try_take().unwrap().unwrap(), 7);
        assert_eq!(elements.try_take().unwrap().unwrap(), [0, 1, 2]);
        assert_eq!(made.load(Ordering::Relaxed), run, "each run makes its own");
    }
    assert_eq!(running.host.islands(), 0);
    assert_eq!(collect(Source::lazy_source(|| numbers(0, 0))), [0_u32; 0]);
    assert_eq!(collect(Source::lazy_source(|| numbers(0, 100_000))).len(), 100_000);
    assert_eq!(collect(Source::lazy_source(|| Source::from_iterator(|| 0_u32..)).take(3)), [0, 1, 2]);
    assert_eq!(outcome(Source::lazy_source(failing)).unwrap_err().to_string(), "inner");
}

#[test]
fn a_lazy_source_is_not_made_without_demand() {
    let made = Arc::default();
    let running = Running::new();
    let mut value = running.start(&Source::lazy_source(counted(&made)).to(Sink::cancelled()));
    running.settle();
    assert!(is_never(&mut value));
    assert_eq!(made.load(Ordering::Relaxed), 0);
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn only_the_eager_one_runs_without_demand() {
    let running = Running::new();
    let inner = || numbers(0, 0).map_materialized_value(|()| 7_u8);
    let mut lazy = running.start(&Source::lazy_source(inner).to(Sink::never()));
    let mut lazy_future = running.start(&Source::lazy_future_source(move || async move { inner() }).to(Sink::never()));
    running.settle();
    assert!(lazy.try_take().is_none() && lazy_future.try_take().is_none());
    let (mut value, ended) =
        running.start(&Source::future_source(move || async move { inner() }).to_mat(Sink::never(), keep::both));
    running.settle();
    assert_eq!(value.try_take().unwrap().unwrap(), 7);
    assert!(ended.is_done(), "the end needs no demand");
}

#[test]
fn a_panic_of_the_factory_fails_the_stream_and_the_value() {
    let running = Running::new();
    let source = Source::lazy_source(|| -> Source<u32> { panic!("no source") });
    let (mut value, mut elements) = running.start(&source.to_mat(all(), keep::both));
    running.settle();
    assert!(elements.try_take().unwrap().unwrap_err().to_string().contains("no source"));
    assert!(value.try_take().unwrap().unwrap_err().to_string().contains("no source"));
}

#[test]
fn a_source_of_a_future_runs_when_the_future_is_done() {
    for is_lazy in [true, false] {
        let made = Arc::default();
        let (promise, factory) = gate(&made);
        let make = move || {
            let future = factory();
            async move { future.await.unwrap() }
        };
        let source = if is_lazy { Source::lazy_future_source(make) } else { Source::future_source(make) };
        let running = Running::new();
        let (mut value, mut elements) = running.start(&source.to_mat(all(), keep::both));
        running.settle();
        assert_eq!(made.load(Ordering::Relaxed), 1);
        assert!(!value.is_done());
        promise.succeed(numbers(0, 3).map_materialized_value(|()| 9));
        running.settle();
        assert_eq!(value.try_take().unwrap().unwrap(), 9);
        assert_eq!(elements.try_take().unwrap().unwrap(), [0, 1, 2]);
        assert_eq!(running.host.islands(), 0);
    }
}

#[test]
fn a_future_that_fails_fails_the_stream_and_the_value() {
    let (promise, factory) = gate(&Arc::default());
    let running = Running::new();
    let (mut value, mut elements) = running.start(&Source::try_future_source(factory).to_mat(all(), keep::both));
    running.settle();
    promise.fail(StreamError::text("no source"));
    running.settle();
    assert_eq!(elements.try_take().unwrap().unwrap_err().to_string(), "no source");
    assert_eq!(value.try_take().unwrap().unwrap_err().to_string(), "no source");
}

#[test]
fn cancelling_before_the_future_is_done_drops_it() {
    let (made, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
    let (counted, weak) = (Arc::clone(&made), Arc::downgrade(&alive));
    let factory = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let held = weak.upgrade();
        async move {
            std::future::pending::<()>().await;
            drop(held);
            numbers(0, 1)
        }
    };
    let (switch, stopped) = completion::<()>();
    let stopped = Arc::new(Mutex::new(Some(stopped)));
    let running = Running::new();
    let until = Source::lazy_future(move || {
        let stopped = stopped.lock().unwrap().take().unwrap();
        async move { stopped.await.map(|()| 0_u32).unwrap() }
    });
    // The other input gives all that is wanted, so the source is cancelled.
    let source = Source::future_source(factory);
    let graph = source.merge(until).take(1).to(Sink::<u32, _>::ignore());
    let mut value = running.start(&graph);
    running.settle();
    assert_eq!((made.load(Ordering::Relaxed), Arc::strong_count(&alive)), (1, 2), "it is under way");
    switch.succeed(());
    running.settle();
    assert!(is_never(&mut value));
    assert_eq!(Arc::strong_count(&alive), 1, "it was dropped");
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn a_lazy_sink_is_made_for_the_first_element() {
    let running = Running::new();
    let graph = |source: Source<u32>| source.to_right(Sink::lazy_sink(all::<u32>));
    let given = |source| {
        let mut value = running.start(&graph(source));
        running.settle();
        assert_eq!(running.host.islands(), 0);
        value.try_take().unwrap()
    };
    let mut elements = given(numbers(0, 1000)).unwrap();
    assert_eq!(elements.try_take().unwrap().unwrap(), (0..1000).collect::<Vec<_>>());
    let Err(error) = given(numbers(0, 0)) else { panic!("there was no element") };
    assert!(error.downcast_ref::<NeverMaterialized>().is_some());
    let Err(error) = given(failing()) else { panic!("there was no element") };
    assert_eq!(error.to_string(), "inner");
    let late = numbers(0, 3).try_map(|n| if n == 2 { Err(StreamError::text("late")) } else { Ok(n) }).seal();
    assert_eq!(given(late).unwrap().try_take().unwrap().unwrap_err().to_string(), "late");
}

#[test]
fn a_lazy_sink_that_cancels_ends_the_stream() {
    let running = Running::new();
    let endless = Source::from_iterator(|| 0_u32..);
    let mut value = running.start(&endless.to_right(Sink::lazy_sink(Sink::<u32, _>::head)));
    running.settle();
    assert_eq!(value.try_take().unwrap().unwrap().try_take().unwrap().unwrap(), 0);
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn what_is_materialized_before_runs_once_and_ends_with_its_source() {
    let running = Running::new();
    let source = numbers(0, 5).map_materialized_value(|()| 7);
    let (value, source) = source.pre_materialize_on(&running.host).unwrap();
    assert_eq!(value, 7);
    running.settle();
    let mut first = running.start(&source.clone().to_right(all()));
    let mut second = running.start(&source.to_right(all()));
    running.settle();
    assert_eq!(first.try_take().unwrap().unwrap(), [0, 1, 2, 3, 4]);
    assert!(second.try_take().unwrap().unwrap_err().downcast_ref::<SubstreamUsed>().is_some());

    let endless = Source::from_iterator(|| 0_u32..).pre_materialize_on(&running.host).unwrap();
    running.settle();
    assert_eq!(running.host.islands(), 1);
    drop(endless);
    running.settle();
    assert_eq!(running.host.islands(), 0, "nobody can want it any more");
}

#[test]
fn any_number_of_sources_is_combined() {
    let sources = |count: u32| (0..count).map(|n| numbers(n * 10, n * 10 + 2));
    for count in [0, 1, 2, 50] {
        let expected: Vec<u32> = (0..count).flat_map(|n| [n * 10, n * 10 + 1]).collect();
        assert_eq!(collect(Source::combine(sources(count), Concat::new).unwrap()), expected);
        let mut merged = collect(Source::combine(sources(count), Merge::new).unwrap());
        merged.sort_unstable();
        assert_eq!(merged, expected);
    }
    assert!(Source::combine(sources(3), |_| Merge::new(2)).is_err());
    assert!(Source::combine(sources(3), |_| Merge::new(4)).is_err());
}

#[test]
fn rounds_have_one_element_of_each_source() {
    let zipped = |lengths: &[u32]| collect(Source::zip_n(lengths.iter().map(|length| numbers(0, *length))).unwrap());
    assert_eq!(zipped(&[3, 3]), [[0, 0], [1, 1], [2, 2]]);
    assert_eq!(zipped(&[3, 1, 2]), [[0, 0, 0]]);
    assert_eq!(zipped(&[2]), [[0], [1]]);
    assert_eq!(zipped(&[2, 0]), [[0_u32; 0]; 0]);
    assert_eq!(zipped(&[]), [[0_u32; 0]; 0]);
    assert!(outcome(Source::zip_n([numbers(0, 3), failing()]).unwrap()).is_err());
}

#[test]
fn an_element_that_an_ended_source_left_behind_is_in_the_last_round() {
    let (promise, value) = completion::<u32>();
    let value = Arc::new(Mutex::new(Some(value)));
    let slow = Source::try_future(move || value.lock().unwrap().take().unwrap()).concat(numbers(0, 5));
    let running = Running::new();
    let mut rounds = running.start(&Source::zip_n([numbers(0, 1), slow]).unwrap().to_right(all()));
    running.settle();
    assert!(!rounds.is_done());
    promise.succeed(8);
    running.settle();
    assert_eq!(rounds.try_take().unwrap().unwrap(), [[0, 8]]);
    assert_eq!(running.host.islands(), 0);
}
