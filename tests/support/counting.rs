//! An allocator that counts what each thread allocates, readable from any thread.
//!
//! A test binary installs it with `#[global_allocator]`. With the variable `ATOLL_TEST_ALLOCATIONS` set, each counted
//! allocation of a traced thread is printed with its stack.
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Threads that have a counter of their own; those of later ones are counted together in the last.
const THREADS_MAX: usize = 512;

static COUNTS: [AtomicU64; THREADS_MAX] = [const { AtomicU64::new(0) }; THREADS_MAX];
static TRACED: [AtomicBool; THREADS_MAX] = [const { AtomicBool::new(false) }; THREADS_MAX];
static NEXT_THREAD: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
    static PRINTING: Cell<bool> = const { Cell::new(false) };
}

/// Counts allocations, and growth in place as one.
pub struct Counting;

/// The counter of one thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCount(usize);

impl ThreadCount {
    /// Of the calling thread.
    pub fn here() -> ThreadCount {
        ThreadCount(this_thread())
    }

    /// Allocations so far.
    pub fn get(self) -> u64 {
        COUNTS[self.0].load(Ordering::Relaxed)
    }

    /// From now on (or no more) prints where this thread allocates, if the environment asks for it.
    pub fn trace(self, on: bool) {
        TRACED[self.0].store(on && std::env::var_os("ATOLL_TEST_ALLOCATIONS").is_some(), Ordering::Relaxed);
    }
}

fn this_thread() -> usize {
    let known = THREAD.get();
    if known != usize::MAX {
        return known;
    }
    let new = NEXT_THREAD.fetch_add(1, Ordering::Relaxed).min(THREADS_MAX - 1);
    THREAD.set(new);
    new
}

fn count() {
    let thread = this_thread();
    COUNTS[thread].fetch_add(1, Ordering::Relaxed);
    if TRACED[thread].load(Ordering::Relaxed) && !PRINTING.replace(true) {
        eprintln!("allocation of thread {thread}:\n{}", Backtrace::force_capture());
        PRINTING.set(false);
    }
}

// SAFETY: everything is passed on to the system's allocator unchanged; the thread's cells have no destructor and the
// counters are statics, so counting neither allocates (unless it prints, which does not count itself) nor outlives its
// thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the rules of `alloc`, which are the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count();
        // SAFETY: `at` came from `System` with this layout, by the caller's promise.
        unsafe { System.realloc(at, layout, new_bytes) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` with this layout, by the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}
