//! Operators on single elements: in a stage of their own, fused with neighbours, and with the whole stream in one loop.
//! All three must be the same.

use std::sync::{Arc, Mutex};

use atoll::stream::StreamError;
use atoll::stream::attributes::{Attributes, Directive};
use atoll::stream::completion::Completion;
use atoll::stream::dsl::{FlowOps, RunnableGraph, Sink, Source};
use atoll::stream::error::StreamLimitReached;
use atoll::stream::operators::{ElementwiseOps, SelectionOps, StatefulOps};
use atoll::stream::stage::elementwise::Step;
use atoll::stream::traversal::print_traversal;
use proptest::prelude::*;

use crate::drive::{always, core, run};

/// Elements and failure of the three ways to run the same operators on 1 to `n`.
macro_rules! gives {
    ($n:expr, $directive:expr, $(.$operator:ident($($argument:expr),*))+) => {{
        let n: i64 = $n;
        let attributes = $directive.map_or(Attributes::none(), |directive| Attributes::of(always(directive)));
        let source = || Source::from_iterator(move || 1..=n);
        let whole = source()$(.$operator($($argument),*))+.into_seq();
        let fused = source().seal()$(.$operator($($argument),*))+.to_right(Sink::seq());
        let apart = source().seal()$(.$operator($($argument),*).seal())+.to_right(Sink::seq());
        let outcomes = [whole, fused, apart].map(|graph| outcome(&graph.add_attributes(&attributes)));
        assert_eq!(outcomes[0], outcomes[1]);
        assert_eq!(outcomes[0], outcomes[2]);
        let [outcome, ..] = outcomes;
        outcome
    }};
}

fn outcome<T: Send + 'static>(graph: &RunnableGraph<Completion<Vec<T>>>) -> Result<Vec<T>, String> {
    run(graph).map_err(|error| error.to_string())
}

const STOP: Option<Directive> = None;

#[test]
fn what_they_emit() {
    assert_eq!(gives!(6, STOP, .filter_not(|n| n % 3 == 0)).unwrap(), [1, 2, 4, 5]);
    assert_eq!(gives!(4, STOP, .map_option(|n| (n % 2 == 0).then_some(n * 10))).unwrap(), [20, 40]);
    assert_eq!(gives!(9, STOP, .collect_first(|n| (n > 3).then_some(n * 10))).unwrap(), [40]);
    assert_eq!(gives!(2, STOP, .collect_first(|n| (n > 3).then_some(n * 10))).unwrap(), [0_i64; 0]);
    assert_eq!(gives!(9, STOP, .collect_while(|n| (n < 3).then_some(n * 10))).unwrap(), [10, 20]);
    assert_eq!(gives!(9, STOP, .take_while(|n| *n < 3)).unwrap(), [1, 2]);
    assert_eq!(gives!(9, STOP, .take_while_inclusive(|n| *n < 3)).unwrap(), [1, 2, 3]);
    assert_eq!(gives!(9, STOP, .take_until(|n| *n == 3)).unwrap(), [1, 2, 3]);
    assert_eq!(gives!(9, STOP, .take(0)).unwrap(), [0_i64; 0]);
    assert_eq!(gives!(9, STOP, .take(2)).unwrap(), [1, 2]);
    assert_eq!(gives!(2, STOP, .take(5)).unwrap(), [1, 2]);
    assert_eq!(gives!(4, STOP, .drop(0)).unwrap(), [1, 2, 3, 4]);
    assert_eq!(gives!(4, STOP, .drop(3)).unwrap(), [4]);
    assert_eq!(gives!(4, STOP, .drop(9)).unwrap(), [0_i64; 0]);
    assert_eq!(gives!(6, STOP, .map(|n| n % 4).drop_while(|n| *n < 3)).unwrap(), [3, 0, 1, 2]);
    assert_eq!(gives!(7, STOP, .map(|n| n / 3).drop_repeated()).unwrap(), [0, 1, 2]);
    assert_eq!(gives!(7, STOP, .drop_repeated_by(|a, b| a / 4 == b / 4)).unwrap(), [1, 4]);
    assert_eq!(gives!(2, STOP, .zip_with_index()).unwrap(), [(1, 0), (2, 1)]);
    let difference = || {
        let mut last = 0;
        move |n: i64| Step::Emit(n * n - std::mem::replace(&mut last, n * n))
    };
    assert_eq!(gives!(4, STOP, .stateful(difference)).unwrap(), [1, 3, 5, 7]);
}

#[test]
fn limits() {
    let text = |limit| StreamLimitReached { limit }.to_string();
    assert_eq!(gives!(3, STOP, .limit(3)).unwrap(), [1, 2, 3]);
    assert_eq!(gives!(4, STOP, .limit(3)), Err(text(3)));
    assert_eq!(gives!(3, STOP, .limit_weighted(6, |n| *n as u64)).unwrap(), [1, 2, 3]);
    assert_eq!(gives!(4, STOP, .limit_weighted(6, |n| *n as u64)), Err(text(6)));
    // Restart begins to count anew, without the element that was too much.
    assert_eq!(gives!(8, Some(Directive::Restart), .limit(3)).unwrap(), [1, 2, 3, 5, 6, 7]);
    assert_eq!(gives!(8, Some(Directive::Resume), .limit(3)).unwrap(), [1, 2, 3]);
}

#[test]
fn each_operator_is_supervised_for_itself() {
    let fails = |n: i64| if n % 4 == 2 { panic!("no") } else { n };
    let gathers = || {
        let mut sum = 0;
        move |n: i64| {
            sum += n;
            if n == 5 { Step::Fail(StreamError::text("five")) } else { Step::Emit(sum) }
        }
    };
    assert_eq!(gives!(3, STOP, .map(fails)).unwrap_err(), "a function of the stream panicked: no");
    assert_eq!(gives!(6, STOP, .stateful(gathers)).unwrap_err(), "five");
    assert_eq!(gives!(7, Some(Directive::Resume), .map(fails).stateful(gathers)).unwrap(), [1, 4, 8, 20]);
    // The state of the one that failed begins anew, that of the other stays.
    assert_eq!(gives!(7, Some(Directive::Restart), .map(fails).stateful(gathers)).unwrap(), [1, 4, 8, 7]);
}

#[test]
fn inspection_sees_what_passes() {
    let seen: Arc<Mutex<Vec<i64>>> = Arc::default();
    let seeing = Arc::clone(&seen);
    let graph = Source::from_iterator(|| 1..=9_i64).inspect(move |n| seeing.lock().unwrap().push(*n)).take(2);
    assert_eq!(run(&graph.into_seq()).unwrap(), [1, 2]);
    assert_eq!(*seen.lock().unwrap(), [1, 2]);
}

#[test]
fn a_whole_stream_leaves_the_core_to_others_and_can_be_stopped() {
    let host = core();
    let mut long =
        Source::from_iterator(|| 0_u64..1_000_000_000_000).map(|n| n + 1).into_count().run_on(&host).unwrap();
    let mut short = Source::from_iterator(|| 0..3).into_seq().run_on(&host).unwrap();
    for _ in 0..6 {
        assert!(host.run_one(atoll::base::Nanos::ZERO));
    }
    assert_eq!(short.try_take().unwrap().unwrap(), [0, 1, 2]);
    assert_eq!((host.islands(), host.running_stages()), (1, 1));
    host.abort();
    assert!(long.try_take().unwrap().is_err());
}

#[test]
fn a_whole_stream_over_several_slices_and_times() {
    let graph =
        Source::from_iterator(|| 0_u64..100_000).filter(|n| n % 2 == 0).map(|n| n + 1).into_fold(0, |a, b| a + b);
    for _ in 0..2 {
        assert_eq!(run(&graph).unwrap(), (0..100_000).filter(|n| n % 2 == 0).map(|n| n + 1).sum::<u64>());
    }
}

#[test]
fn a_whole_stream_is_one_stage() {
    let text = |graph: RunnableGraph<Completion<u64>>| print_traversal(graph.blueprint().unwrap().traversal());
    let whole = text(Source::from_iterator(|| 0_u64..9).map(|n| n + 1).into_count());
    let apart = text(Source::from_iterator(|| 0_u64..9).seal().map(|n| n + 1).into_count());
    assert!(!whole.contains("map") && apart.contains("map"), "{whole}\n{apart}");
}

/// Without a line in the output for each of thousands.
fn panic_quietly() -> ! {
    std::panic::resume_unwind(Box::new("panic"))
}

/// A random operator, chosen at run time: all take and give `i64`.
#[derive(Clone, Debug)]
enum Any {
    Add(i64),
    Keep(i64),
    Take(u64),
    Drop(u64),
    Sums,
    Deduplicate,
    Limit(u64),
    PanicAt(i64),
    FailAt(i64),
    While(i64),
}

impl Any {
    fn function(&self) -> Box<dyn FnMut(i64) -> Step<i64>> {
        let text = || StreamError::text("limit");
        match *self {
            Any::Add(add) => Box::new(move |n| Step::Emit(n + add)),
            Any::Keep(divisor) => Box::new(move |n| if n % divisor == 0 { Step::Emit(n) } else { Step::Skip }),
            Any::Take(mut left) => Box::new(move |n| {
                left -= 1;
                if left == 0 { Step::Last(n) } else { Step::Emit(n) }
            }),
            Any::Drop(mut left) => Box::new(move |n| {
                if left == 0 {
                    return Step::Emit(n);
                }
                left -= 1;
                Step::Skip
            }),
            Any::Sums => {
                let mut sum = 0;
                Box::new(move |n| {
                    sum += n;
                    Step::Emit(sum)
                })
            }
            Any::Deduplicate => {
                let mut last = None;
                Box::new(move |n| if last.replace(n) == Some(n) { Step::Skip } else { Step::Emit(n) })
            }
            Any::Limit(mut left) => Box::new(move |n| {
                if left == 0 {
                    return Step::Fail(text());
                }
                left -= 1;
                Step::Emit(n)
            }),
            Any::PanicAt(at) => Box::new(move |n| if n == at { panic_quietly() } else { Step::Emit(n) }),
            Any::FailAt(at) => Box::new(move |n| if n == at { Step::Fail(text()) } else { Step::Emit(n) }),
            Any::While(end) => Box::new(move |n| if n < end { Step::Emit(n) } else { Step::Done }),
        }
    }
}

fn any_operator() -> impl Strategy<Value = Any> {
    prop_oneof![
        (-3..4_i64).prop_map(Any::Add),
        (1..4_i64).prop_map(Any::Keep),
        (1..30_u64).prop_map(Any::Take),
        (0..5_u64).prop_map(Any::Drop),
        Just(Any::Sums),
        Just(Any::Deduplicate),
        (0..60_u64).prop_map(Any::Limit),
        (0..80_i64).prop_map(Any::PanicAt),
        (0..80_i64).prop_map(Any::FailAt),
        (0..80_i64).prop_map(Any::While),
    ]
}

fn any_directive() -> impl Strategy<Value = Option<Directive>> {
    prop_oneof![Just(None), Just(Some(Directive::Stop)), Just(Some(Directive::Resume)), Just(Some(Directive::Restart))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]

    /// A chain gives the same elements and the same failure in one loop, as fused stage, and as stages of their own.
    #[test]
    fn random_chains_are_the_same_however_they_run(
        chain in prop::array::uniform4(any_operator()),
        n in 0..60_i64,
        directive in any_directive(),
    ) {
        let [a, b, c, d] = chain.map(|any| move || any.function());
        let seen: [Arc<Mutex<Vec<i64>>>; 3] = Default::default();
        let [see_whole, see_fused, see_apart] = seen.clone().map(|seen| move |n| seen.lock().unwrap().push(n));
        let source = || Source::from_iterator(move || 0..n);
        let (a1, b1, c1, d1) = (a.clone(), b.clone(), c.clone(), d.clone());
        let whole = source().stateful(a1).stateful(b1).stateful(c1).stateful(d1).into_for_each(see_whole);
        let (a1, b1, c1, d1) = (a.clone(), b.clone(), c.clone(), d.clone());
        let fused = source().seal().stateful(a1).stateful(b1).stateful(c1).stateful(d1)
            .to_right(Sink::for_each(see_fused));
        let apart = source().seal().stateful(a).seal().stateful(b).seal().stateful(c).seal().stateful(d).seal()
            .to_right(Sink::for_each(see_apart));
        let attributes = directive.map_or(Attributes::none(), |directive| Attributes::of(always(directive)));
        let [whole, fused, apart] = [whole, fused, apart].map(|graph| {
            run(&graph.add_attributes(&attributes)).map_err(|error| error.to_string())
        });
        prop_assert_eq!(&whole, &fused);
        prop_assert_eq!(&whole, &apart);
        let [whole, fused, apart] = seen.map(|seen| seen.lock().unwrap().clone());
        prop_assert_eq!(&whole, &fused);
        // A failure overtakes what is on its way between stages, so these may have seen less.
        prop_assert!(whole.starts_with(&apart), "{whole:?} {apart:?}");
    }
}
