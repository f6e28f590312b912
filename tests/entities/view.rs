//! Arguments that handlers read where they lie.

use std::collections::BTreeMap;

use atoll::{ClusterError, Entity, EntityId, EntityOptions, Scope, StartError, View, ViewOf};

use crate::host::Core;
use crate::probe::{cluster, lines, log, signal};
use crate::wire::Wire;

#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Blob {
    pub name: String,
    pub numbers: Vec<u32>,
    pub counts: BTreeMap<String, u32>,
}

/// What a handler saw of its argument.
#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Seen {
    pub archived: bool,
    pub address: u64,
    pub sum: u32,
    pub limit: u32,
}

#[atoll::protocol]
pub trait Scanner {
    fn scan(&mut self, body: View<'_, Blob>, limit: u32) -> Seen;
    fn peek(&self, bytes: View<'_, Vec<u8>>, text: atoll::View<'_, String>) -> Result<Seen, String>;
    #[concurrent]
    fn beside(&self, body: View<'_, Blob>) -> Seen;
    async fn scan_slowly(&mut self, body: View<'_, Blob>, wait_for: String) -> Seen;
    async fn try_slowly(&self, body: View<'_, Blob>) -> Result<Seen, String>;
    fn keep(&mut self, body: View<'_, Blob>);
    fn kept(&self) -> Vec<Blob>;
    fn defect(&mut self, body: View<'_, Blob>) -> u32;
    async fn hold(&self, name: String);
}

pub struct ScannerEntity {
    kept: Vec<Blob>,
}

impl Entity for ScannerEntity {
    type Protocol = ScannerProtocol;

    async fn start(id: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        if id.as_str() == "slow" {
            signal("start").fired().await;
        }
        Ok(ScannerEntity { kept: Vec::new() })
    }
}

fn see(body: View<'_, Blob>, limit: u32) -> Seen {
    match body.get() {
        ViewOf::Owned(blob) => Seen {
            archived: false,
            address: &raw const *blob as u64,
            sum: blob.numbers.iter().take(limit as usize).sum(),
            limit,
        },
        ViewOf::Archived(blob) => Seen {
            archived: true,
            address: blob.numbers.as_ptr() as u64,
            sum: blob.numbers.iter().take(limit as usize).map(|number| number.to_native()).sum(),
            limit,
        },
    }
}

impl Scanner for ScannerEntity {
    fn scan(&mut self, body: View<'_, Blob>, limit: u32) -> Seen {
        see(body, limit)
    }

    fn peek(&self, bytes: View<'_, Vec<u8>>, text: View<'_, String>) -> Result<Seen, String> {
        if bytes.as_bytes().is_empty() {
            return Err(text.as_str().to_owned());
        }
        let sum = bytes.as_bytes().iter().map(|byte| u32::from(*byte)).sum();
        let archived = matches!((bytes.get(), text.get()), (ViewOf::Archived(_), ViewOf::Archived(_)));
        Ok(Seen { archived, address: text.as_str().as_ptr() as u64, sum, limit: 0 })
    }

    fn beside(&self, body: View<'_, Blob>) -> Seen {
        see(body, 100)
    }

    async fn scan_slowly(&mut self, body: View<'_, Blob>, wait_for: String) -> Seen {
        signal(&wait_for).fired().await;
        see(body, 100)
    }

    async fn try_slowly(&self, body: View<'_, Blob>) -> Result<Seen, String> {
        Ok(see(body, 100))
    }

    fn keep(&mut self, body: View<'_, Blob>) {
        self.kept.push(body.to_owned().expect("it is derived"));
        log("kept");
    }

    fn kept(&self) -> Vec<Blob> {
        self.kept.clone()
    }

    fn defect(&mut self, body: View<'_, Blob>) -> u32 {
        panic!("a handler that panics (a test wants it): {}", see(body, 1).sum);
    }

    async fn hold(&self, name: String) {
        signal(&name).fired().await;
    }
}

fn blob() -> Blob {
    Blob {
        name: "a name that is too long to be kept in place".to_owned(),
        numbers: (1..=50).collect(),
        counts: BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]),
    }
}

fn scanner() -> (Wire, ScannerRef) {
    let wire = Wire::new::<ScannerEntity>(EntityOptions::default());
    let entity = wire.entity("s");
    // The entity runs.
    assert!(wire.block(async move { wire_entity_kept(entity).await }).is_empty());
    let entity = wire.entity("s");
    (wire, entity)
}

async fn wire_entity_kept(entity: ScannerRef) -> Vec<Blob> {
    entity.kept().await.expect("it lives")
}

#[test]
fn in_the_same_process_a_view_borrows_what_was_sent() {
    let core = Core::new().with::<ScannerEntity>(EntityOptions::default()).ready();
    let entity: ScannerRef = core.entity("s");
    let seen = core.block(entity.scan(blob(), 3)).unwrap();
    assert_eq!((seen.archived, seen.sum, seen.limit), (false, 6, 3));
    let seen = core.block(entity.peek(vec![1, 2], "text".to_owned())).unwrap();
    assert_eq!((seen.archived, seen.sum), (false, 3));
    signal("go").fire();
    assert_eq!(core.block(entity.scan_slowly(blob(), "go".to_owned())).unwrap().sum, 1275);
    core.block(entity.keep(blob())).unwrap();
    assert_eq!(core.block(entity.kept()).unwrap(), [blob()]);
}

#[test]
fn from_a_link_a_plain_handler_reads_the_received_bytes() {
    let (wire, entity) = scanner();
    let seen = wire.block(entity.scan(blob(), 3)).unwrap();
    assert_eq!((seen.archived, seen.sum, seen.limit), (true, 6, 3));
    assert!(wire.was_in_last_piece(seen.address), "it was copied");
    let text = "a text that is too long to be kept in place".to_owned();
    let seen = wire.block(entity.peek(vec![1, 2], text.clone())).unwrap();
    assert_eq!((seen.archived, seen.sum), (true, 3));
    assert!(wire.was_in_last_piece(seen.address), "it was copied");
    assert_eq!(wire.block(entity.peek(Vec::new(), text.clone())), Err(atoll::SendError::Declared(text)));
    assert!(wire.block(entity.beside(blob())).unwrap().archived);
}

#[test]
fn a_frame_in_pieces_is_read_where_it_was_collected() {
    let (wire, entity) = scanner();
    for piece_bytes in [1, 7, 100] {
        wire.set_piece_bytes(piece_bytes);
        let seen = wire.block(entity.scan(blob(), 50)).unwrap();
        assert_eq!((seen.archived, seen.sum), (true, 1275));
        assert!(!wire.was_in_last_piece(seen.address));
    }
}

#[test]
fn a_message_that_waits_is_moved_once_and_read_there() {
    let (wire, entity) = scanner();
    let hold = wire.start(entity.hold("reader".to_owned()));
    let first = wire.start(entity.scan(blob(), 2));
    let second = wire.start(entity.scan(blob(), 50));
    assert!(first.waits() && second.waits());
    signal("reader").fire();
    wire.run();
    assert!(hold.take().unwrap().is_ok());
    for (scan, sum) in [(first, 3), (second, 1275)] {
        let seen = scan.take().unwrap().unwrap();
        assert_eq!((seen.archived, seen.sum), (true, sum));
        assert!(!wire.was_in_last_piece(seen.address));
    }
}

#[test]
fn a_message_may_wait_for_the_start_of_its_entity() {
    let wire = Wire::new::<ScannerEntity>(EntityOptions::default());
    let entity: ScannerRef = wire.entity("slow");
    let scan = wire.start(entity.scan(blob(), 50));
    assert!(scan.waits());
    signal("start").fire();
    wire.run();
    let seen = scan.take().unwrap().unwrap();
    assert_eq!((seen.archived, seen.sum), (true, 1275));
}

#[test]
fn a_waiting_message_that_nobody_wants_any_more_is_forgotten() {
    let (wire, entity) = scanner();
    let blocks = wire.pod.host().blocks_in_use();
    let hold = wire.start(entity.hold("reader".to_owned()));
    let mut keep = Box::pin(entity.keep(blob()));
    let started = wire.start(std::future::poll_fn(move |context| {
        // Polled once, then dropped with this future.
        let _ = keep.as_mut().poll(context);
        std::task::Poll::Ready(())
    }));
    assert!(!started.waits());
    signal("reader").fire();
    wire.run();
    assert!(hold.take().is_some());
    assert!(lines().is_empty());
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn an_async_handler_reads_a_copy_of_the_bytes_as_long_as_it_runs() {
    let (wire, entity) = scanner();
    let scan = wire.start(entity.scan_slowly(blob(), "go".to_owned()));
    assert!(scan.waits());
    signal("go").fire();
    wire.run();
    let seen = scan.take().unwrap().unwrap();
    assert_eq!((seen.archived, seen.sum), (true, 1275));
    assert!(!wire.was_in_last_piece(seen.address));
    assert_eq!(wire.block(entity.try_slowly(blob())).unwrap().sum, 1275);
}

#[test]
fn a_view_can_be_made_ones_own() {
    let (wire, entity) = scanner();
    wire.block(entity.keep(blob())).unwrap();
    assert_eq!(wire.block(entity.kept()).unwrap(), [blob()]);
    assert_eq!(lines(), ["kept"]);
    wire.block(entity.keep(blob()).discard()).unwrap();
    assert_eq!(wire.block(entity.kept()).unwrap().len(), 2);
}

#[test]
fn a_panic_while_reading_is_a_defect() {
    let (wire, entity) = scanner();
    wire.block(entity.keep(blob())).unwrap();
    assert_eq!(cluster(Some(wire.block(entity.defect(blob())))), ClusterError::EntityDefect);
    assert!(wire.block(entity.kept()).unwrap().is_empty());
}

#[test]
fn a_rule_sees_the_message_that_would_start_its_entity() {
    let options = EntityOptions::default()
        .load_entity(|message: ScannerMessage<'_>| matches!(message, ScannerMessage::Scan(scan) if scan.limit > 1));
    let wire = Wire::new::<ScannerEntity>(options);
    let entity: ScannerRef = wire.entity("s");
    assert_eq!(cluster(Some(wire.block(entity.scan(blob(), 1)))), ClusterError::MessageDiscarded);
    assert!(wire.block(entity.scan(blob(), 2)).unwrap().archived);
}
