//! What building and materializing allocates: one node for an operator, and nothing for an operator that is materialized.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use atoll::stream::materializer::{Materializer, Phases};
use atoll::stream::traversal::Combine;
use atoll::stream::traversal::builder::LinearBuilder;

use super::long_chains::{Counter, Link};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator unchanged; the counter is a plain cell without a
// destructor, so counting neither allocates nor outlives its thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the rules of `alloc`, which are the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System.alloc` with this layout, by the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations<R>(action: impl FnOnce() -> R) -> (usize, R) {
    let before = ALLOCATIONS.get();
    let result = action();
    (ALLOCATIONS.get() - before, result)
}

fn chain(length: usize, combine: impl Fn() -> Combine) -> LinearBuilder {
    let source = LinearBuilder::of(Link("source", 0, 1));
    let append = |chain: LinearBuilder, _| chain.append_operator(Link("map", 1, 1), combine()).unwrap();
    (0..length).fold(source, append).append_operator(Link("sink", 1, 0), Combine::Left).unwrap()
}

#[test]
fn an_operator_is_one_allocation_in_a_chain() {
    for length in [1, 10, 100] {
        assert_eq!(allocations(|| chain(length, || Combine::Left)).0, length + 2);
    }
}

#[test]
fn materializing_one_island_allocates_nothing() {
    for length in [0, 1, 10, 1_000] {
        let blueprint = chain(length, || Combine::Left).blueprint().unwrap();
        let phases = Phases::new();
        let mut counter = Counter::default();
        let (count, value) = allocations(|| Materializer::new(&phases).materialize(&blueprint, &mut counter));
        assert_eq!((count, value.is_ok()), (0, true), "{length} operators");
    }
}

#[test]
fn walking_allocates_nothing() {
    let blueprint = chain(1_000, || Combine::Left).blueprint().unwrap();
    assert_eq!(allocations(|| blueprint.traversal().walk().count()), (0, 1_002));
}
