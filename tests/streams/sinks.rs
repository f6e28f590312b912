//! What sinks give, and how they end streams. Each also as the method that closes a source.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use atoll::stream::StreamError;
use atoll::stream::attributes::Directive;
use atoll::stream::completion::Completion;
use atoll::stream::dsl::{FlowOps, RunnableGraph, Sink, Source};
use atoll::stream::error::{AbruptTermination, NoSuchElement};
use atoll::stream::operators::ElementwiseOps;

use crate::drive::{always, core, panic_of, run, settle};

fn numbers(n: u64) -> Source<u64> {
    Source::from_iterator(move || 1..=n).seal()
}

fn failing(n: u64) -> Source<u64> {
    numbers(n + 1).try_map(move |i| if i <= n { Ok(i) } else { Err(StreamError::text("upstream")) }).seal()
}

/// The outcome with elements 1 to `n`, of the sink and of the method, which must be the same.
fn both<T: PartialEq + std::fmt::Debug + 'static>(
    sink: RunnableGraph<Completion<T>>,
    method: RunnableGraph<Completion<T>>,
) -> Result<T, StreamError> {
    let (sink, method) = (run(&sink), run(&method));
    match (&sink, &method) {
        (Ok(sink), Ok(method)) => assert_eq!(sink, method),
        (Err(sink), Err(method)) => assert_eq!(sink.to_string(), method.to_string()),
        _ => panic!("{sink:?} is not {method:?}"),
    }
    sink
}

macro_rules! both {
    ($n:expr, $sink:expr, $method:ident($($argument:expr),*)) => {{
        let n: u64 = $n;
        both(numbers(n).to_right($sink), Source::from_iterator(move || 1..=n).$method($($argument),*))
    }};
}

fn is_missing<T: std::fmt::Debug>(outcome: Result<T, StreamError>) -> bool {
    outcome.unwrap_err().downcast_ref::<NoSuchElement>().is_some()
}

#[test]
fn gatherings_of_none_one_and_some() {
    assert_eq!(both!(0, Sink::fold(7, |a, b| a + b), into_fold(7, |a, b| a + b)).unwrap(), 7);
    assert_eq!(both!(3, Sink::fold(7, |a, b| a + b), into_fold(7, |a, b| a + b)).unwrap(), 13);
    assert!(is_missing(both!(0, Sink::reduce(|a, b| a * b), into_reduce(|a, b| a * b))));
    assert_eq!(both!(1, Sink::reduce(|a, b| a * b), into_reduce(|a, b| a * b)).unwrap(), 1);
    assert_eq!(both!(4, Sink::reduce(|a, b| a * b), into_reduce(|a, b| a * b)).unwrap(), 24);
    assert!(is_missing(both!(0, Sink::head(), into_head())));
    assert_eq!(both!(3, Sink::head(), into_head()).unwrap(), 1);
    assert_eq!(both!(0, Sink::head_option(), into_head_option()).unwrap(), None);
    assert_eq!(both!(3, Sink::head_option(), into_head_option()).unwrap(), Some(1));
    assert!(is_missing(both!(0, Sink::last(), into_last())));
    assert_eq!(both!(3, Sink::last(), into_last()).unwrap(), 3);
    assert_eq!(both!(0, Sink::last_option(), into_last_option()).unwrap(), None);
    assert_eq!(both!(3, Sink::last_option(), into_last_option()).unwrap(), Some(3));
    assert_eq!(both!(0, Sink::seq(), into_seq()).unwrap(), Vec::<u64>::new());
    assert_eq!(both!(3, Sink::seq(), into_seq()).unwrap(), [1, 2, 3]);
    assert_eq!(both!(0, Sink::count(), into_count()).unwrap(), 0);
    assert_eq!(both!(3, Sink::count(), into_count()).unwrap(), 3);
    both!(3, Sink::ignore(), into_ignore()).unwrap();
    let small = |state: &u64| *state < 4;
    assert_eq!(both!(9, Sink::fold_while(0, small, |a, b| a + b), into_fold_while(0, small, |a, b| a + b)).unwrap(), 6);
    assert_eq!(both!(2, Sink::fold_while(0, small, |a, b| a + b), into_fold_while(0, small, |a, b| a + b)).unwrap(), 3);
    let set: std::collections::BTreeSet<u64> = run(&numbers(3).into_collection()).unwrap();
    assert_eq!(set.len(), 3);
}

#[test]
fn the_last_ones() {
    for (wanted, expected) in [(0, vec![]), (2, vec![3, 4]), (4, vec![1, 2, 3, 4]), (9, vec![1, 2, 3, 4])] {
        assert_eq!(run(&numbers(4).to_right(Sink::take_last(wanted))).unwrap(), expected);
    }
}

#[test]
fn predicates_decide_as_soon_as_they_can() {
    type Of = fn(fn(&u64) -> bool) -> Sink<u64, Completion<bool>>;
    let (forall, exists, none): (Of, Of, Of) = (Sink::forall, Sink::exists, Sink::none);
    // Elements 1 to n, elements that are seen, outcome.
    for (sink, n, seen, expected) in [
        (forall, 0, 0, true),
        (forall, 2, 2, true),
        (forall, 9, 3, false),
        (exists, 0, 0, false),
        (exists, 2, 2, false),
        (exists, 9, 3, true),
        (none, 0, 0, true),
        (none, 2, 2, true),
        (none, 9, 3, false),
    ] {
        let counted = Arc::new(AtomicU64::new(0));
        let counting = Arc::clone(&counted);
        let source = numbers(n).map(move |element| {
            counting.fetch_add(1, Ordering::Relaxed);
            element
        });
        let is_forall = std::ptr::fn_addr_eq(sink, forall);
        let predicate: fn(&u64) -> bool = if is_forall { |i| *i != 3 } else { |i| *i == 3 };
        assert_eq!(run(&source.to_right(sink(predicate))).unwrap(), expected);
        assert_eq!(counted.load(Ordering::Relaxed), seen);
    }
}

#[test]
fn a_failure_of_upstream_is_that_of_the_sink() {
    let text = |outcome: StreamError| outcome.to_string();
    assert_eq!(text(run(&failing(2).to_right(Sink::ignore())).unwrap_err()), "upstream");
    assert_eq!(text(run(&failing(2).to_right(Sink::seq())).unwrap_err()), "upstream");
    assert_eq!(text(run(&failing(2).to_right(Sink::last())).unwrap_err()), "upstream");
    assert_eq!(run(&failing(2).to_right(Sink::head())).unwrap(), 1);
    assert_eq!(text(run(&failing(0).to_right(Sink::head())).unwrap_err()), "upstream");
}

#[test]
fn a_sink_whose_function_fails() {
    let panics = |sum: u64, n: u64| if n == 2 { panic!("two") } else { sum + n };
    assert_eq!(panic_of(run(&numbers(3).to_right(Sink::fold(0, panics)))), "two");
    let fails = |n: u64| if n == 2 { Err(StreamError::text("two")) } else { Ok(()) };
    assert_eq!(run(&numbers(3).to_right(Sink::try_for_each(fails))).unwrap_err().to_string(), "two");
    for (directive, expected) in [(Directive::Resume, 4), (Directive::Restart, 3)] {
        let graph = numbers(3).to_right(Sink::fold(0, panics));
        assert_eq!(run(&graph.add_attributes(&attributes(directive))).unwrap(), expected);
        let reduce = numbers(3).to_right(Sink::reduce(panics));
        assert_eq!(run(&reduce.add_attributes(&attributes(directive))).unwrap(), expected);
        let graph = numbers(3).to_right(Sink::try_for_each(fails));
        run(&graph.add_attributes(&attributes(directive))).unwrap();
    }
}

fn attributes(directive: Directive) -> atoll::stream::Attributes {
    atoll::stream::Attributes::of(always(directive))
}

#[test]
fn a_stream_that_is_stopped_fails_its_sink() {
    let is_abrupt = |outcome: Option<Result<(), StreamError>>| {
        outcome.unwrap().unwrap_err().downcast_ref::<AbruptTermination>().is_some()
    };
    let ends: Arc<Mutex<Vec<bool>>> = Arc::default();
    let told = Arc::clone(&ends);
    let host = core();
    host.set_events_per_run(1);
    let endless = || Source::from_iterator(|| 0_u64..).seal();
    let mut ignored = endless().to_right(Sink::ignore()).run_on(&host).unwrap();
    let mut never = endless().to_right(Sink::never()).run_on(&host).unwrap();
    let mut whole = Source::from_iterator(|| 0_u64..).into_ignore().run_on(&host).unwrap();
    let on_complete = Sink::on_complete(move |end: Result<(), StreamError>| {
        told.lock().unwrap().push(end.unwrap_err().downcast_ref::<AbruptTermination>().is_some());
    });
    endless().to(on_complete).run_on(&host).unwrap();
    for _ in 0..20 {
        host.run_one(atoll::base::Nanos::ZERO);
    }
    assert!(!ignored.is_done() && !never.is_done() && !whole.is_done());
    host.abort();
    assert!(is_abrupt(ignored.try_take()) && is_abrupt(never.try_take()) && is_abrupt(whole.try_take()));
    assert_eq!(*ends.lock().unwrap(), [true]);
}

#[test]
fn the_end_is_told_once() {
    for (source, expected) in [(numbers(3), "Ok(())"), (failing(2), "Err(Text(\"upstream\"))")] {
        let ends: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&ends);
        let host = core();
        let sink = Sink::on_complete(move |end: Result<(), StreamError>| told.lock().unwrap().push(format!("{end:?}")));
        source.to(sink).run_on(&host).unwrap();
        settle(&host);
        assert_eq!(*ends.lock().unwrap(), [expected]);
    }
}

#[test]
fn a_cancelled_sink_takes_nothing() {
    let seen = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&seen);
    let host = core();
    let source = numbers(3).map(move |_| counting.fetch_add(1, Ordering::Relaxed));
    source.to(Sink::cancelled()).run_on(&host).unwrap();
    settle(&host);
    assert_eq!((host.islands(), seen.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn a_sink_can_make_its_elements_of_others() {
    let graph = numbers(3).to_right(Sink::seq().contramap(|n: u64| n.to_string()));
    assert_eq!(run(&graph).unwrap(), ["1", "2", "3"]);
}
