//! Pictures of what runs: who waits for whom.

use atoll::stream::dsl::{FlowOps, Sink, Source};
use atoll::stream::interpreter::snapshot::{Waits, draw_dot, draw_mermaid};
use atoll::stream::operators::{BoundedQueue, BufferOps, ElementwiseOps};

use crate::running::Running;

#[test]
fn a_stream_that_stands_still_shows_who_waits() {
    let running = Running::new();
    let queue = running
        .start(&Source::<u32, BoundedQueue<u32>>::queue(4).named("orders").detach().to(Sink::never().named("printer")));
    running.settle();
    let snapshots = running.host.snapshots();
    assert_eq!(snapshots.len(), 1);
    let names: Vec<&str> = snapshots[0].stages.iter().map(|stage| stage.name.as_str()).collect();
    assert!(names.contains(&"printer"), "{names:?}");
    assert!(snapshots[0].stages.iter().all(|stage| stage.is_running));
    let at = |name: &str| names.iter().position(|known| known == &name).unwrap();
    let into = |stage: usize| snapshots[0].connections.iter().find(|connection| connection.to == stage).unwrap();
    // The sink never asks; the buffer before it has asked for one element ahead.
    assert_eq!(into(at("printer")).state, Waits::ForPull);
    assert_eq!(into(into(at("printer")).from).state, Waits::ForPush);
    let (dot, mermaid) = (draw_dot(&snapshots), draw_mermaid(&snapshots));
    assert!(dot.starts_with("digraph waits {") && dot.contains("waits for an element"), "{dot}");
    assert!(mermaid.contains("printer") && mermaid.contains("pull?"), "{mermaid}");
    drop(queue);
    running.settle();
}

#[test]
fn a_stream_that_has_ended_is_not_shown() {
    let running = Running::new();
    let count = running.start(&Source::from_iterator(|| 0..3).map(|n| n + 1).to_right(Sink::count()));
    running.settle();
    assert!(count.is_done());
    assert!(running.host.snapshots().is_empty());
}
