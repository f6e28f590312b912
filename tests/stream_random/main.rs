//! Random graphs against a naive reference: each block as a function of lists.
//!
//! A case is a graph of the language's blocks with boundaries anywhere, attributes, an event budget, one host or two that
//! take turns at random on this thread, and maybe a cancel, a failing sink or an abort at a random turn. Deterministic
//! graphs must give equal output; failing ones a prefix of the output and one of the failures that can arrive; merges an
//! interleaving that keeps each input's order. In any case: no hang, no island left, each stage stopped and dropped
//! exactly once, no element left.
//!
//! `ATOLL_STREAM_CASES` is the number of cases, `ATOLL_STREAM_SEED` the first seed. A failing case is made smaller and
//! printed with its graph.

mod build;
mod generate;
mod graph;
mod reference;
mod run;
mod stages;

use std::panic::{AssertUnwindSafe, catch_unwind};

use atoll::stream::traversal::print_traversal;
use generate::{Random, case};
use graph::{Case, shrunk};

/// Cases of one test thread.
const CASES: u64 = if cfg!(miri) { 6 } else { 30_000 };
/// Test threads: each has tallies of its own.
const THREADS: u64 = if cfg!(miri) { 1 } else { 4 };

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The complaint about a case, if there is one.
fn complaint(case: &Case) -> Option<String> {
    let judged = catch_unwind(AssertUnwindSafe(|| run::judge(case)));
    stages::forget_tally();
    match judged {
        Ok(Ok(())) => None,
        Ok(Err(complaint)) => Some(complaint),
        Err(payload) => Some(match payload.downcast::<String>() {
            Ok(text) => format!("panic: {text}"),
            Err(payload) => format!("panic: {:?}", payload.downcast_ref::<&str>()),
        }),
    }
}

fn report(case: Case, first: String) -> ! {
    let (mut case, mut complained) = (case, first);
    'smaller: for _ in 0..1_000 {
        for smaller in shrunk(&case) {
            if let Some(next) = complaint(&smaller) {
                (case, complained) = (smaller, next);
                continue 'smaller;
            }
        }
        break;
    }
    let (graph, _) = build::runnable(&case);
    let traversal = graph.blueprint().map(|blueprint| print_traversal(blueprint.traversal()).to_string());
    panic!("{complained}\n{case:#?}\n{}", traversal.unwrap_or_default());
}

#[test]
fn random_graphs_do_what_the_reference_says() {
    let cases = number("ATOLL_STREAM_CASES", CASES * THREADS) / THREADS;
    let first = number("ATOLL_STREAM_SEED", 1);
    let threads = (0..THREADS).map(|thread| {
        std::thread::spawn(move || {
            for seed in (0..cases).map(|at| first + at * THREADS + thread) {
                let case = case(&mut Random::new(seed), seed);
                if let Some(complaint) = complaint(&case) {
                    report(case, complaint);
                }
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        if let Err(payload) = thread.join() {
            std::panic::resume_unwind(payload);
        }
    }
}
