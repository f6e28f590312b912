//! What sources give, and how they end.

use std::sync::{Arc, Mutex};

use atoll::stream::StreamError;
use atoll::stream::attributes::{Attributes, Directive};
use atoll::stream::dsl::{FlowOps, Sink, Source, keep};
use atoll::stream::error::IllegalArgument;
use atoll::stream::operators::{ElementwiseOps, SelectionOps};

use crate::drive::{always, core, run, settle};

fn all<T: Send + 'static>(source: Source<T>) -> Result<Vec<T>, StreamError> {
    run(&source.to_right(Sink::seq()))
}

#[test]
fn elements_of_simple_sources() {
    assert_eq!(all(Source::<u8>::empty()).unwrap(), [0; 0]);
    assert_eq!(all(Source::single(7)).unwrap(), [7]);
    assert_eq!(all(Source::from_option(None::<u8>)).unwrap(), [0; 0]);
    assert_eq!(all(Source::from_option(Some(7))).unwrap(), [7]);
    assert_eq!(all(Source::lazy_single(|| 7)).unwrap(), [7]);
    assert_eq!(all(Source::repeat(7).take(3).seal()).unwrap(), [7, 7, 7]);
    assert_eq!(all(Source::cycle(|| [1, 2]).take(5).seal()).unwrap(), [1, 2, 1, 2, 1]);
    assert_eq!(all(Source::iterate(1, |n| *n < 20, |n| n * 2)).unwrap(), [1, 2, 4, 8, 16]);
    assert_eq!(all(Source::iterate(30, |n| *n < 20, |n| n * 2)).unwrap(), [0; 0]);
    assert_eq!(all(Source::from_iterator(|| 0..3).seal()).unwrap(), [0, 1, 2]);
    let countdown = Source::unfold(3_u32, |left| {
        *left = left.checked_sub(1)?;
        Some(*left)
    });
    // A blueprint begins anew each time.
    for _ in 0..2 {
        assert_eq!(all(countdown.clone()).unwrap(), [2, 1, 0]);
    }
}

#[test]
fn failures_of_sources() {
    let text = |outcome: Result<Vec<u8>, StreamError>| outcome.unwrap_err().to_string();
    assert_eq!(text(all(Source::failed(StreamError::text("no")))), "no");
    assert!(all(Source::<u8>::cycle(Vec::new)).unwrap_err().downcast_ref::<IllegalArgument>().is_some());
    assert_eq!(text(all(Source::try_unfold((), |()| Err(StreamError::text("no"))))), "no");
    // The element before the failure is delivered.
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let seeing = Arc::clone(&seen);
    let source = Source::from_iterator(|| (0_u8..).map(|n| if n == 2 { panic!("two") } else { n }));
    let graph = source.seal().to_right(Sink::for_each(move |n| seeing.lock().unwrap().push(n)));
    assert_eq!(crate::drive::panic_of(run(&graph)), "two");
    assert_eq!(*seen.lock().unwrap(), [0, 1]);
}

#[test]
fn nothing_is_made_before_it_is_asked_for() {
    let host = core();
    let lazy = Source::<u8>::lazy_single(|| panic!("nobody asked")).to_right(Sink::never());
    let unfold = Source::<u8>::unfold((), |()| panic!("nobody asked")).to_right(Sink::never());
    let (_lazy, _unfold) = (lazy.run_on(&host).unwrap(), unfold.run_on(&host).unwrap());
    settle(&host);
    assert_eq!(host.islands(), 2);
}

#[test]
fn a_source_that_never_ends_can_be_cancelled() {
    let host = core();
    let mut never = Source::<u8>::never().to_right(Sink::ignore()).run_on(&host).unwrap();
    Source::<u8>::never().to(Sink::cancelled()).run_on(&host).unwrap();
    settle(&host);
    assert_eq!((host.islands(), never.try_take().is_none()), (1, true));
}

#[test]
fn maybe_does_what_its_promise_says() {
    type Outcome = Result<Option<u8>, StreamError>;
    for tell_first in [true, false] {
        for outcome in [Ok(Some(7)), Ok(None), Err(StreamError::text("no"))] {
            let host = core();
            let graph = Source::<u8, _>::maybe().to_mat(Sink::head_option(), keep::both);
            let (promise, mut result) = graph.run_on(&host).unwrap();
            if !tell_first {
                settle(&host);
                assert!(!result.is_done());
            }
            let told = outcome.clone();
            assert!(match told {
                Ok(element) => promise.succeed(element),
                Err(error) => promise.fail(error),
            });
            assert!(!promise.succeed(None) && promise.is_closed());
            settle(&host);
            let same = |outcome: Outcome| outcome.map_err(|error| error.to_string());
            assert_eq!(same(result.try_take().unwrap()), same(outcome));
            assert_eq!(host.islands(), 0);
        }
    }
    // Cancelled before it was told.
    let host = core();
    let promise = Source::<u8, _>::maybe().to(Sink::cancelled()).run_on(&host).unwrap();
    settle(&host);
    assert!(promise.is_closed() && !promise.succeed(Some(1)));
}

/// What happened to resources, and the elements that came out.
fn resource(fails_at: u32, directive: Directive, take: u64) -> (String, Result<Vec<u32>, String>) {
    let events: Arc<Mutex<String>> = Arc::default();
    let event = |name: &'static str| {
        let events = Arc::clone(&events);
        move || events.lock().unwrap().push_str(name)
    };
    let (opened, read, closed) = (event("o"), event("r"), event("c"));
    let source = Source::unfold_resource(
        move || {
            opened();
            Ok(0_u32)
        },
        move |next: &mut u32| {
            read();
            *next += 1;
            match *next {
                n if n == fails_at => Err(StreamError::text("reading")),
                n if n > 3 => Ok(None),
                n => Ok(Some(n)),
            }
        },
        move |_| {
            closed();
            Ok(())
        },
    );
    let graph = source.take(take).to_right(Sink::seq()).add_attributes(&Attributes::of(always(directive)));
    let outcome = run(&graph).map_err(|error| error.to_string());
    let events = events.lock().unwrap().clone();
    (events, outcome)
}

#[test]
fn a_resource_is_closed_once() {
    use Directive::{Restart, Resume, Stop};
    for (fails_at, directive, take, events, elements) in [
        (9, Stop, 9, "orrrrc", Ok(vec![1, 2, 3])),
        // Cancelled.
        (9, Stop, 2, "orrc", Ok(vec![1, 2])),
        (9, Stop, 0, "oc", Ok(vec![])),
        (2, Stop, 9, "orrc", Err("reading".to_owned())),
        (2, Resume, 9, "orrrrc", Ok(vec![1, 3])),
        (2, Restart, 3, "orrcorrcorc", Ok(vec![1, 1, 1])),
    ] {
        assert_eq!(
            resource(fails_at, directive, take),
            (events.to_owned(), elements),
            "{fails_at} {directive:?} {take}"
        );
    }
}

#[test]
fn a_resource_is_closed_when_the_stream_is_stopped() {
    let closed: Arc<Mutex<u32>> = Arc::default();
    let closing = Arc::clone(&closed);
    let host = core();
    let close = move |_| {
        *closing.lock().unwrap() += 1;
        Ok(())
    };
    let source = Source::unfold_resource(|| Ok(()), |()| Ok(Some(1_u8)), close);
    source.to(Sink::never()).run_on(&host).unwrap();
    settle(&host);
    host.abort();
    assert_eq!(*closed.lock().unwrap(), 1);
}

#[test]
fn failures_of_opening_and_closing_fail_the_stream() {
    let fail = || StreamError::text("no");
    let opening = Source::unfold_resource(move || Err::<(), _>(fail()), |()| Ok(Some(1_u8)), |()| Ok(()));
    assert_eq!(all(opening).unwrap_err().to_string(), "no");
    let closing = Source::unfold_resource(|| Ok(()), |()| Ok(None::<u8>), move |()| Err(fail()));
    assert_eq!(all(closing).unwrap_err().to_string(), "no");
}

#[test]
fn take_while_of_an_endless_source_ends() {
    let graph = Source::repeat_with({
        let mut next = 0;
        move || {
            next += 1;
            next
        }
    });
    assert_eq!(all(graph.take_while(|n| *n < 4).seal()).unwrap(), [1, 2, 3]);
}
