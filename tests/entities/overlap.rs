//! Turn × borrow: which handlers of one entity are in progress at the same time.

use atoll::EntityOptions;

use crate::host::{Core, Started};
use crate::probe::*;

type Outcome = Result<(), atoll::SendError<atoll::Never>>;

/// W: `&mut self`, R: `&self`, C: `#[concurrent] &self`; the message is named by its letter and position.
fn send(core: &Core, kinds: &str) -> Vec<Started<Outcome>> {
    let probe = probe(core);
    kinds
        .chars()
        .enumerate()
        .map(|(at, kind)| {
            let name = format!("{kind}{at}");
            match kind {
                'W' => core.start(probe.write(name)),
                'R' => core.start(probe.read(name)),
                _ => core.start(probe.glance(name)),
            }
        })
        .collect()
}

/// Which of the messages are in progress once all were sent.
fn running(concurrency: u16, kinds: &str) -> String {
    let core = core(EntityOptions::default().concurrency(concurrency));
    let asks = send(&core, kinds);
    let begun: Vec<String> =
        lines().into_iter().filter(|line| line.starts_with('+')).map(|line| line[1..].into()).collect();
    // All of them end, whatever came first.
    for (at, kind) in kinds.chars().enumerate() {
        signal(&format!("{kind}{at}")).fire();
    }
    core.run();
    assert!(asks.iter().all(|ask| ask.take() == Some(Ok(()))), "{concurrency} {kinds}: not all were answered");
    assert_eq!(core.host().blocks_in_use(), 0, "{concurrency} {kinds}");
    drop(core);
    lines();
    world(|world| *world = World::default());
    begun.join(" ")
}

#[test]
fn the_table_of_turn_and_borrow() {
    let table = [
        (1, "W", "W0"),
        (1, "WW", "W0"),
        (1, "WR", "W0"),
        (1, "WC", "W0"),
        (1, "RR", "R0"),
        (1, "RC", "R0 C1"),
        (1, "RW", "R0"),
        (1, "CR", "C0 R1"),
        (1, "CC", "C0 C1"),
        (1, "CW", "C0"),
        (2, "RR", "R0 R1"),
        (2, "RRR", "R0 R1"),
        (2, "RRC", "R0 R1 C2"),
        (2, "RW", "R0"),
        (2, "WR", "W0"),
        // One in turn that cannot start holds back those behind it.
        (2, "RWR", "R0"),
        (1, "RRCW", "R0 C2"),
        // A writer that waits only for readers is not overtaken by new ones, else it might wait for ever.
        (1, "CWC", "C0"),
        (2, "RWC", "R0"),
        // A writer that waits for its permit does not mind readers without one.
        (1, "RWC", "R0 C2"),
        (1, "WWC", "W0"),
    ];
    for (concurrency, kinds, expected) in table {
        assert_eq!(running(concurrency, kinds), expected, "concurrency {concurrency}, messages {kinds}");
    }
}

#[test]
fn a_concurrent_message_waits_for_a_writer_and_for_no_turn() {
    let core = plain_core();
    let asks = send(&core, "WWC");
    lines();
    signal("W0").fire();
    core.run();
    assert_eq!(lines(), ["-W0", "+W1"], "the order of arrival decides between those that can start");
    signal("W1").fire();
    core.run();
    signal("C2").fire();
    core.run();
    assert_eq!(lines(), ["-W1", "+C2", "-C2"]);
    assert!(asks.iter().all(|ask| ask.take() == Some(Ok(()))));
}
