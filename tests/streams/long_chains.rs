//! Chains of a million operators are built, walked, materialized and dropped in little stack and linear time.

use std::any::Any;
use std::time::Instant;

use atoll::stream::materializer::{
    InletWire, LocalSlot, MaterializationError, Materializer, OpenWire, OutletWire, PhaseIsland, Phases, Publisher,
};
use atoll::stream::traversal::builder::{CompositeBuilder, LinearBuilder, TraversalBuilder};
use atoll::stream::traversal::{Combine, Step, TransformFunction, draw_dot, print_traversal, print_wiring};
use atoll::stream::{AtomicModule, Attributes, MaterializedValue, not_used};

use super::support::named;

const LENGTH: usize = if cfg!(miri) { 300 } else { 1_000_000 };

/// Less than a chain of this length would need with a frame for each operator.
const STACK_BYTES: usize = 256 * 1024;

/// An operator without memory of its own.
pub struct Link(pub &'static str, pub usize, pub usize);

impl AtomicModule for Link {
    fn name(&self) -> &str {
        self.0
    }

    fn inlets(&self) -> usize {
        self.1
    }

    fn outlets(&self) -> usize {
        self.2
    }

    fn arena_bytes(&self) -> usize {
        8
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn source() -> LinearBuilder {
    LinearBuilder::of(Link("source", 0, 1))
}

fn map() -> Link {
    Link("map", 1, 1)
}

/// Counts and checks what is cheap to check.
#[derive(Default)]
pub struct Counter {
    operators: usize,
    inlets: usize,
    ready: bool,
}

impl PhaseIsland for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn materialize_atomic(
        &mut self,
        _: &dyn AtomicModule,
        inlets: &[InletWire],
        outlets: &[OutletWire],
        _: &Attributes,
    ) -> Result<MaterializedValue, MaterializationError> {
        self.operators += 1;
        for inlet in inlets {
            assert_eq!(*inlet, InletWire { slot: LocalSlot(self.inlets as u32), from: None });
            self.inlets += 1;
        }
        for outlet in outlets {
            let before = self.inlets - inlets.len() - 1;
            assert_eq!(*outlet, OutletWire::Slot(LocalSlot(before as u32)));
        }
        Ok(not_used())
    }

    fn create_publisher(&mut self, _: OpenWire) -> Result<Publisher, MaterializationError> {
        Err(MaterializationError::BoundaryRefused { phase: "counter".to_owned(), operation: "leave its island" })
    }

    fn take_publisher(&mut self, _: LocalSlot, _: Publisher) -> Result<(), MaterializationError> {
        Err(MaterializationError::BoundaryRefused { phase: "counter".to_owned(), operation: "enter its island" })
    }

    fn on_island_ready(&mut self) -> Result<(), MaterializationError> {
        self.ready = true;
        Ok(())
    }
}

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(test).unwrap();
    thread.join().unwrap();
}

fn check(chain: LinearBuilder, operators: usize) {
    let sink = Link("sink", 1, 0);
    let blueprint = chain.append_operator(sink, Combine::Left).unwrap().blueprint().unwrap();
    let size = blueprint.size();
    assert_eq!((size.modules, size.arena_bytes), (operators, operators * 8));
    let steps = blueprint.traversal().walk().filter(|step| matches!(step, Step::Materialize(_)));
    assert_eq!(steps.count(), operators);
    let mut counter = Counter::default();
    Materializer::new(&Phases::new()).materialize(&blueprint, &mut counter).unwrap();
    assert_eq!((counter.operators, counter.inlets, counter.ready), (operators, operators - 1, true));
}

#[test]
fn operators_appended_one_by_one() {
    on_a_small_stack(|| {
        let start = Instant::now();
        let chain = (0..LENGTH).fold(source(), |chain, _| chain.append_operator(map(), Combine::Left).unwrap());
        check(chain, LENGTH + 2);
        println!("{LENGTH} operators built, walked, materialized and dropped in {:?}", start.elapsed());
    });
}

#[test]
fn chains_appended_with_every_way_to_keep_values() {
    on_a_small_stack(|| {
        let chain = (0..LENGTH).fold(source(), |chain, index| {
            let combine = match index % 4 {
                0 => Combine::Left,
                1 => Combine::Right,
                2 => Combine::Neither,
                _ => Combine::with(|(): (), (): ()| ()),
            };
            chain.append(LinearBuilder::of(map()), combine).unwrap()
        });
        check(chain, LENGTH + 2);
    });
}

#[test]
fn levels_with_attributes_and_transformations_nested_in_each_other() {
    on_a_small_stack(|| {
        let unit = TransformFunction::new(|(): ()| ());
        let name = named("level");
        let chain = (0..LENGTH).fold(source(), |chain, index| {
            let chain = chain.append_operator(map(), Combine::Left).unwrap().transform(unit.clone());
            // Each level has a list of all attributes around it, so few of them are enough.
            if index % (LENGTH / 100) == 0 { chain.with_attributes(name.clone()) } else { chain }
        });
        check(chain, LENGTH + 2);
    });
}

#[test]
fn graphs_of_many_parts() {
    on_a_small_stack(|| {
        let mut graph = CompositeBuilder::new();
        let mut before = graph.add(source().into(), Combine::Left);
        for _ in 0..LENGTH / 4 {
            let next = graph.add(TraversalBuilder::operator(map()), Combine::Right);
            graph.wire(before.outlet(0), next.inlet(0)).unwrap();
            before = next;
        }
        let chain = graph.seal(&[], &[before.outlet(0)]).unwrap().into_linear().unwrap();
        let sink = LinearBuilder::of(Link("sink", 1, 0));
        let blueprint = chain.append(sink, Combine::Left).unwrap().blueprint().unwrap();
        assert_eq!(blueprint.size().modules, LENGTH / 4 + 2);
        assert_eq!(print_wiring(blueprint.traversal(), 0).1, (LENGTH / 4 + 1) as i64);
    });
}

#[test]
fn printing_and_drawing() {
    on_a_small_stack(|| {
        let length = LENGTH / 10;
        let append = |chain: LinearBuilder, _| chain.append_operator(map(), Combine::Right).unwrap();
        let chain = (0..length).fold(source(), append).append_operator(Link("sink", 1, 0), Combine::Left).unwrap();
        let blueprint = chain.blueprint().unwrap();
        let printed = print_traversal(blueprint.traversal());
        assert_eq!(printed.matches("materialize map").count(), length);
        assert_eq!(draw_dot(blueprint.traversal()).matches(" -> ").count(), length + 1);
    });
}

#[test]
fn traversals_shared_by_many_are_dropped_by_the_last() {
    on_a_small_stack(|| {
        let append = |chain: LinearBuilder, _| chain.append_operator(map(), Combine::Left).unwrap();
        let chain = (0..LENGTH / 10).fold(source(), append);
        let branches: Vec<LinearBuilder> = (0..4).map(|_| append(chain.clone(), 0)).collect();
        drop(chain);
        let threads = branches.into_iter().map(|branch| std::thread::spawn(move || drop(branch)));
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
}
