//! The table of materialized values, as far as builders express it.
//!
//! Not here: the outlet that emits the materialized value, which is an operator of the graph DSL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use atoll::stream::materializer::MaterializationError;
use atoll::stream::traversal::builder::{CompositeBuilder, LinearBuilder, TraversalBuilder};
use atoll::stream::traversal::{Combine, TransformFunction};

use super::support::{composite, is_unit, linear, text, trace, try_trace};

/// Counts how often it is called.
fn counting(count: &Arc<AtomicUsize>) -> TransformFunction {
    let count = Arc::clone(count);
    TransformFunction::new(move |value: String| {
        count.fetch_add(1, Relaxed);
        value
    })
}

#[test]
fn transformations_are_executed_even_when_their_value_is_dropped() {
    let count = Arc::new(AtomicUsize::new(0));
    let sink = linear("K").transform(counting(&count));
    let flow = linear("F1").transform(counting(&count));
    let chain = linear("S").append(flow, Combine::Left).unwrap().append(sink, Combine::Left).unwrap();
    assert_eq!(text(trace(&chain.blueprint().unwrap()).1), "S");
    assert_eq!(count.load(Relaxed), 2);

    let mut graph = CompositeBuilder::new();
    let mut source = composite("S");
    source.transform(counting(&count));
    let source = graph.add(source, Combine::Left);
    let mut sink = composite("K");
    sink.transform(counting(&count));
    let sink = graph.add(sink, Combine::Left);
    graph.wire(source.outlet(0), sink.inlet(0)).unwrap();
    assert!(is_unit(&trace(&graph.seal_all().blueprint().unwrap()).1));
    assert_eq!(count.load(Relaxed), 4);
}

#[test]
fn each_materialization_computes_its_own_value() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let numbered = TransformFunction::new(move |_: String| counted.fetch_add(1, Relaxed) + 1);
    let blueprint = linear("S").transform(numbered).append(linear("K"), Combine::Left).unwrap().blueprint().unwrap();
    for expected in [1_usize, 2, 3] {
        assert_eq!(*trace(&blueprint).1.downcast::<usize>().unwrap(), expected);
    }
}

#[test]
fn empty_chains_keep_the_values_that_were_asked_for() {
    let both = || Combine::both::<(), ()>();
    let units = LinearBuilder::empty().append(LinearBuilder::empty(), both()).unwrap();
    assert!(trace(&units.blueprint().unwrap()).1.is::<((), ())>());
    let empty = LinearBuilder::empty;
    let value = |chain: LinearBuilder| {
        let chain = chain.append(linear("K"), Combine::Left).unwrap();
        trace(&chain.blueprint().unwrap()).1
    };
    for part in ["S", "cS"] {
        let source = || TraversalBuilder::from(linear(part)).into_linear().unwrap();
        let graph = || CompositeBuilder::containing(composite(part)).0.seal_all().into_linear().unwrap();
        for source in [source(), graph()] {
            assert_eq!(text(value(source.clone().append(empty(), Combine::Left).unwrap())), part);
            assert!(is_unit(&value(source.clone().append(empty(), Combine::Right).unwrap())));
            let pair = value(source.clone().append(empty(), Combine::both::<String, ()>()).unwrap());
            assert_eq!(*pair.downcast::<(String, ())>().unwrap(), (part.to_owned(), ()));
            assert!(is_unit(&value(empty().append(source.clone(), Combine::Left).unwrap())));
            assert_eq!(text(value(empty().append(source, Combine::Right).unwrap())), part);
        }
    }
}

#[test]
fn empty_chains_after_a_longer_chain_keep_its_value() {
    let flow = CompositeBuilder::containing(composite("cF1")).0.seal_all().into_linear().unwrap();
    let chain = linear("S").append(flow, Combine::Left).unwrap();
    let chain = chain.append(LinearBuilder::empty(), Combine::both::<String, ()>()).unwrap();
    let chain = chain.append(linear("K"), Combine::Left).unwrap();
    let value = trace(&chain.blueprint().unwrap()).1;
    assert_eq!(*value.downcast::<(String, ())>().unwrap(), ("S".to_owned(), ()));
}

#[test]
fn a_function_on_another_type_is_an_error_that_names_what_it_expects() {
    let chain = linear("S").append(linear("K"), Combine::both::<u8, String>()).unwrap();
    let error = try_trace(&chain.blueprint().unwrap()).err().unwrap();
    assert!(matches!(error, MaterializationError::Value(_)));
    assert!(error.to_string().contains("expected `u8`"), "{error}");
}
