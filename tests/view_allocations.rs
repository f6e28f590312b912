//! A handler with a view handles a request from a link without a single allocation: a plain one however long it is, an
//! async one as long as its body fits a block of the pool.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use atoll::{Entity, EntityId, EntityOptions, Scope, StartError, View};

#[path = "support/host.rs"]
mod host;
#[path = "support/wire.rs"]
mod wire;

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

#[atoll::protocol]
trait Summer {
    fn view(&mut self, bytes: View<'_, Vec<u8>>) -> u64;
    async fn view_async(&mut self, bytes: View<'_, Vec<u8>>) -> u64;
    fn own(&mut self, bytes: Vec<u8>) -> u64;
}

struct SummerEntity;

impl Entity for SummerEntity {
    type Protocol = SummerProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(SummerEntity)
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

impl Summer for SummerEntity {
    fn view(&mut self, bytes: View<'_, Vec<u8>>) -> u64 {
        sum(bytes.as_bytes())
    }

    async fn view_async(&mut self, bytes: View<'_, Vec<u8>>) -> u64 {
        sum(bytes.as_bytes())
    }

    fn own(&mut self, bytes: Vec<u8>) -> u64 {
        sum(&bytes)
    }
}

/// Allocations of the pod while it takes in the request that the client has sent.
fn allocations(wire: &wire::Wire) -> usize {
    let mut counted = 0;
    for (link, bytes) in wire.take_requests() {
        let before = ALLOCATIONS.get();
        wire.give_to_pod(link, &bytes);
        counted += ALLOCATIONS.get() - before;
    }
    wire.run();
    counted
}

#[test]
fn a_view_allocates_nothing() {
    let wire = wire::Wire::new::<SummerEntity>(EntityOptions::default());
    let entity: SummerRef = wire.entity("s");
    let bytes = vec![1_u8; if cfg!(miri) { 100 } else { 16_000 }];
    for _ in 0..20 {
        wire.block(entity.view(bytes.clone())).unwrap();
    }
    let view = wire.send(entity.view(bytes.clone()));
    assert_eq!(allocations(&wire), 0);
    assert_eq!(view.take().unwrap().unwrap(), bytes.len() as u64);
    let in_a_block = vec![1_u8; 8000];
    wire.block(entity.view_async(in_a_block.clone())).unwrap();
    let view = wire.send(entity.view_async(in_a_block.clone()));
    assert_eq!(allocations(&wire), 0);
    assert_eq!(view.take().unwrap().unwrap(), in_a_block.len() as u64);
    let own = wire.send(entity.own(bytes.clone()));
    assert!(allocations(&wire) > 0, "the counter counts nothing");
    assert_eq!(own.take().unwrap().unwrap(), bytes.len() as u64);
    let in_parts = vec![1_u8; 100_000];
    let view = wire.send(entity.view(in_parts.clone()));
    assert!(allocations(&wire) <= 3, "the buffer that its parts are put together in, which grows with them");
    assert_eq!(view.take().unwrap().unwrap(), in_parts.len() as u64);
}
