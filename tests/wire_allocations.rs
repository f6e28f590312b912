//! Encoding into a buffer that is large enough and decoding a value without heap parts allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use atoll::wire::codec::{Checked, decode, encode};

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

fn allocations(action: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    action();
    ALLOCATIONS.get() - before
}

#[derive(atoll::Wire, Debug, PartialEq, Clone, Copy)]
struct Plain {
    numbers: [u64; 7],
    last: (u32, i32),
}

#[derive(atoll::Wire, Debug, PartialEq)]
struct Named {
    name: String,
    coins: u64,
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1]))) >= 1);
}

#[test]
fn encoding_into_a_warm_buffer_allocates_nothing() {
    let plain = Plain { numbers: [1; 7], last: (2, -2) };
    let named = Named { name: "a name of 20 letters".to_string(), coins: 3 };
    let list = vec![named, Named { name: "b".to_string(), coins: 4 }];
    let mut out = Vec::with_capacity(4096);
    encode(&list, &mut out, 4096).unwrap();
    let counted = allocations(|| {
        for _ in 0..100 {
            out.clear();
            encode(&plain, &mut out, 4096).unwrap();
            encode(&list[0], &mut out, 4096).unwrap();
            encode(&list, &mut out, 4096).unwrap();
            assert!(encode(&list, &mut out, 3).is_err());
        }
    });
    assert_eq!(counted, 0);
}

#[test]
fn decoding_allocates_what_the_value_holds() {
    let plain = Plain { numbers: [1; 7], last: (2, -2) };
    let named = Named { name: "a name of 20 letters".to_string(), coins: 3 };
    let (mut plain_bytes, mut named_bytes) = (Vec::new(), Vec::new());
    encode(&plain, &mut plain_bytes, 4096).unwrap();
    encode(&named, &mut named_bytes, 4096).unwrap();
    assert_eq!(plain_bytes.len(), 64);
    assert_eq!(allocations(|| assert_eq!(decode::<Plain>(&plain_bytes), Ok(plain))), 0);
    assert_eq!(allocations(|| assert!(Checked::<Named>::new(&named_bytes).is_ok())), 0);
    assert_eq!(allocations(|| assert!(decode::<Named>(&named_bytes[1..]).is_err() || cfg!(miri))), 0);
    assert_eq!(allocations(|| assert_eq!(decode::<Named>(&named_bytes).as_ref(), Ok(&named))), 1);
}
