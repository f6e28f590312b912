//! Views that live over an await: what a handler reads late is what was sent, and nothing stays when it is gone.
//!
//! Each handler keeps a [`Reader`] that reads the whole argument once more when it is dropped, in whatever way: bytes that
//! were released too early, and used again, show as another value there.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use atoll::entity::Ask;
use atoll::{ClusterError, Entity, EntityId, EntityOptions, Scope, SendError, StartError, StopReason, View, ViewOf};

use crate::host::{Core, Started};
use crate::probe::{cluster, lines, log, signal};
use crate::wire::Wire;

#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Page {
    pub title: String,
    pub words: Vec<String>,
    pub numbers: Vec<u64>,
}

/// What a handler read of its argument, at its end.
#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Read {
    pub archived: bool,
    pub page: Page,
}

#[atoll::protocol]
pub trait Library {
    fn plain(&mut self, page: View<'_, Page>, name: String) -> Read;
    async fn turn(&mut self, page: View<'_, Page>, name: String) -> Read;
    async fn at_once(&mut self, page: View<'_, Page>) -> Read;
    async fn shared(&self, name: String, page: View<'_, Page>) -> Result<Read, String>;
    async fn two(&self, page: View<'_, Page>, text: View<'_, String>, name: String) -> Result<Read, String>;
    #[concurrent]
    async fn beside(&self, page: View<'_, Page>, name: String) -> Read;
    #[uninterruptible]
    async fn finish(&mut self, page: View<'_, Page>, name: String) -> Read;
    async fn tell(&mut self, page: View<'_, Page>, name: String);
    async fn defect(&mut self, page: View<'_, Page>, name: String);
    #[concurrent]
    async fn defect_beside(&self, page: View<'_, Page>, name: String);
    async fn defect_eagerly(&mut self, page: View<'_, Page>) -> u32;
    async fn defect_at_once(&mut self, page: View<'_, Page>) -> u32;
    async fn defect_when_dropped(&self, page: View<'_, Page>, name: String);
    #[concurrent]
    fn stop(&self);
    async fn hold(&mut self, name: String);
}

pub struct LibraryEntity {
    scope: Scope<Self>,
}

impl Entity for LibraryEntity {
    type Protocol = LibraryProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        if id.as_str() == "slow" {
            signal("start").fired().await;
        }
        Ok(LibraryEntity { scope })
    }

    async fn stop(&mut self, _: StopReason) {
        log("stop");
    }
}

/// Logs what its view says when it is dropped.
struct Reader<'a>(View<'a, Page>);

impl Reader<'_> {
    fn read(&self) -> Read {
        let page = self.0.to_owned().expect("it is derived");
        Read { archived: matches!(self.0.get(), ViewOf::Archived(_)), page }
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        log(format!("read {}", digest(&self.read().page)));
    }
}

/// Says all of a page in short.
fn digest(page: &Page) -> String {
    let letters: usize = page.words.iter().map(String::len).sum();
    let sum = page.numbers.iter().fold(0_u64, |sum, number| sum.wrapping_mul(31).wrapping_add(*number));
    format!("{} {} {letters} {sum}", page.title, page.words.join("-"))
}

async fn read(page: View<'_, Page>, name: &str) -> Read {
    let reader = Reader(page);
    signal(name).fired().await;
    reader.read()
}

impl Library for LibraryEntity {
    fn plain(&mut self, page: View<'_, Page>, _: String) -> Read {
        Reader(page).read()
    }

    async fn turn(&mut self, page: View<'_, Page>, name: String) -> Read {
        read(page, &name).await
    }

    async fn at_once(&mut self, page: View<'_, Page>) -> Read {
        Reader(page).read()
    }

    async fn shared(&self, name: String, page: View<'_, Page>) -> Result<Read, String> {
        Ok(read(page, &name).await)
    }

    async fn two(&self, page: View<'_, Page>, text: View<'_, String>, name: String) -> Result<Read, String> {
        read(page, &name).await;
        Err(text.as_str().to_owned())
    }

    async fn beside(&self, page: View<'_, Page>, name: String) -> Read {
        read(page, &name).await
    }

    async fn finish(&mut self, page: View<'_, Page>, name: String) -> Read {
        read(page, &name).await
    }

    async fn tell(&mut self, page: View<'_, Page>, name: String) {
        read(page, &name).await;
    }

    async fn defect(&mut self, page: View<'_, Page>, name: String) {
        let _reader = Reader(page);
        signal(&name).fired().await;
        panic!("a handler that panics (a test wants it)");
    }

    async fn defect_beside(&self, page: View<'_, Page>, name: String) {
        let _reader = Reader(page);
        signal(&name).fired().await;
        panic!("a handler that panics (a test wants it)");
    }

    // The trait says `async fn`; what the entity writes may do something before it returns its future.
    #[allow(clippy::manual_async_fn, unreachable_code)]
    fn defect_eagerly(&mut self, page: View<'_, Page>) -> impl Future<Output = u32> {
        drop(Reader(page));
        panic!("a handler that panics (a test wants it)");
        async { 0 }
    }

    async fn defect_at_once(&mut self, page: View<'_, Page>) -> u32 {
        let _reader = Reader(page);
        panic!("a handler that panics (a test wants it)");
    }

    async fn defect_when_dropped(&self, page: View<'_, Page>, name: String) {
        struct Bomb<'a>(Reader<'a>);
        impl Drop for Bomb<'_> {
            fn drop(&mut self) {
                panic!("a drop that panics (a test wants it): {}", digest(&self.0.read().page));
            }
        }
        let _bomb = Bomb(Reader(page));
        signal(&name).fired().await;
    }

    fn stop(&self) {
        self.scope.stop().expect("it lives");
    }

    async fn hold(&mut self, name: String) {
        signal(&name).fired().await;
    }
}

/// A page of so many words, different from all others with another title.
fn page(title: &str, words: usize) -> Page {
    let word = |at: usize| format!("{title}{at}, a word that is too long to be kept in place");
    Page {
        title: title.to_owned(),
        words: (0..words).map(word).collect(),
        numbers: (0..words as u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ title.len() as u64).collect(),
    }
}

/// What a dropped reader of a page logs.
fn line(page: &Page) -> String {
    format!("read {}", digest(page))
}

/// Numbers of words whose bodies lie in blocks of different sizes, the largest in none of the pool's. (Miri is slow.)
const SIZES: &[usize] = if cfg!(miri) { &[3] } else { &[0, 1, 20, 200] };

/// A pod whose entity `s` runs, over a link.
fn library(options: EntityOptions<LibraryProtocol>) -> (Wire, LibraryRef) {
    let wire = Wire::new::<LibraryEntity>(options);
    let entity: LibraryRef = wire.entity("s");
    signal("warm").fire();
    wire.block(entity.hold("warm".to_owned())).unwrap();
    (wire, entity)
}

/// Uses the memory of the core for something else: blocks that were released by mistake are overwritten.
fn overwrite(wire: &Wire) {
    let other: LibraryRef = wire.entity("other");
    for &words in SIZES {
        wire.block(other.at_once(page("other", words))).unwrap();
        let waits = (0..3).map(|_| wire.start(other.turn(page("other", words), "noise".to_owned())));
        let waits: Vec<_> = waits.collect();
        signal("noise").fire();
        wire.run();
        assert!(waits.iter().all(|wait| wait.take().is_some_and(|read| read.is_ok())));
    }
    lines();
}

/// An ask that the test can drop.
struct Held<M: atoll::entity::Message>(Rc<RefCell<Option<Ask<M>>>>);

impl<M: atoll::entity::Message + 'static> Held<M> {
    /// Sends it, and keeps it.
    fn send(wire: &Wire, ask: Ask<M>) -> Held<M> {
        let held = Rc::new(RefCell::new(Some(ask)));
        let polled = Rc::clone(&held);
        let sent = wire.start(std::future::poll_fn(move |context| {
            let mut ask = polled.borrow_mut();
            std::task::Poll::Ready(std::pin::Pin::new(ask.as_mut().expect("it is there")).poll(context).is_pending())
        }));
        assert_eq!(sent.take(), Some(true), "it waits");
        Held(held)
    }

    /// Stops waiting for it.
    fn drop(self, wire: &Wire) {
        wire.start(async move { drop(self.0.take()) });
    }
}

type Outcome = Result<Read, String>;

fn flat<E: std::fmt::Debug>(outcome: Result<Read, SendError<E>>) -> Outcome {
    outcome.map_err(|error| format!("{error:?}"))
}

/// The ways to read, by what they wait for.
type Way = fn(&LibraryRef, Page, String) -> std::pin::Pin<Box<dyn Future<Output = Outcome>>>;

const WAYS: [(&str, Way); 6] = [
    ("plain", |entity, page, name| {
        let ask = entity.plain(page, name);
        Box::pin(async { flat(ask.await) })
    }),
    ("turn", |entity, page, name| {
        let ask = entity.turn(page, name);
        Box::pin(async { flat(ask.await) })
    }),
    ("at_once", |entity, page, _| {
        let ask = entity.at_once(page);
        Box::pin(async { flat(ask.await) })
    }),
    ("shared", |entity, page, name| {
        let ask = entity.shared(name, page);
        Box::pin(async { flat(ask.await) })
    }),
    ("beside", |entity, page, name| {
        let ask = entity.beside(page, name);
        Box::pin(async { flat(ask.await) })
    }),
    ("finish", |entity, page, name| {
        let ask = entity.finish(page, name);
        Box::pin(async { flat(ask.await) })
    }),
];

/// What is in the way of a message when it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Nothing,
    AHandler,
    TheStart,
}

#[test]
fn over_a_link_each_handler_reads_what_was_sent_whenever_it_reads() {
    for (name, way) in WAYS {
        for before in [Before::Nothing, Before::AHandler, Before::TheStart] {
            for &words in SIZES {
                let case = format!("{name} after {before:?}, {words} words");
                let (wire, entity) = library(EntityOptions::default());
                let blocks = wire.pod.host().blocks_in_use();
                let (entity, hold) = match before {
                    Before::Nothing => (entity, None),
                    Before::AHandler => (entity.clone(), Some(wire.start(entity.hold("first".to_owned())))),
                    Before::TheStart => (wire.entity("slow"), None),
                };
                let sent = page("sent", words);
                let read = wire.start(way(&entity, sent.clone(), "go".to_owned()));
                overwrite(&wire);
                signal("first").fire();
                signal("start").fire();
                wire.run();
                overwrite(&wire);
                signal("go").fire();
                wire.run();
                assert_eq!(read.take(), Some(Ok(Read { archived: true, page: sent.clone() })), "{case}");
                assert!(hold.is_none_or(|hold| hold.take().is_some()), "{case}");
                assert_eq!(wire.pod.host().blocks_in_use(), blocks, "{case}");
                crate::probe::world(|world| *world = crate::probe::World::default());
            }
        }
    }
}

#[test]
fn in_the_same_process_the_same_lines_read_the_value() {
    for (name, way) in WAYS {
        for &words in SIZES {
            let core = Core::new().with::<LibraryEntity>(EntityOptions::default()).ready();
            let entity: LibraryRef = core.entity("s");
            let sent = page("sent", words);
            let reads = [0, 1].map(|_| core.start(way(&entity, sent.clone(), "go".to_owned())));
            signal("go").fire();
            core.run();
            for read in reads {
                assert_eq!(
                    read.take(),
                    Some(Ok(Read { archived: false, page: sent.clone() })),
                    "{name}, {words} words"
                );
            }
            assert_eq!(core.host().blocks_in_use(), 0, "{name}, {words} words");
            crate::probe::world(|world| *world = crate::probe::World::default());
        }
    }
}

#[test]
fn handlers_that_overlap_read_each_its_own() {
    let (wire, entity) = library(EntityOptions::default().concurrency(3));
    let blocks = wire.pod.host().blocks_in_use();
    let pages = ["a", "b", "c", "d"].map(|title| page(title, 5));
    let reads: Vec<Started<Outcome>> = (0..4)
        .map(|at| {
            let (page, name) = (pages[at].clone(), pages[at].title.clone());
            wire.start(if at < 2 { WAYS[3].1(&entity, page, name) } else { WAYS[4].1(&entity, page, name) })
        })
        .collect();
    overwrite(&wire);
    for at in [2, 0, 3, 1] {
        assert!(reads[at].waits());
        signal(&pages[at].title).fire();
        wire.run();
        assert_eq!(reads[at].take(), Some(Ok(Read { archived: true, page: pages[at].clone() })));
        overwrite(&wire);
    }
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn two_views_of_a_message_lie_in_one_block() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let text = "a text that is too long to be kept in place".to_owned();
    let two = wire.start(entity.two(page("sent", 3), text.clone(), "go".to_owned()));
    // The handler's cell, and its body.
    assert_eq!(wire.pod.host().blocks_in_use(), blocks + 2);
    overwrite(&wire);
    signal("go").fire();
    wire.run();
    assert_eq!(two.take(), Some(Err(SendError::Declared(text))));
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn a_message_that_waited_is_not_moved_again() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let hold = wire.start(entity.hold("first".to_owned()));
    assert_eq!(wire.pod.host().blocks_in_use(), blocks + 1);
    let turn = wire.start(entity.turn(page("sent", 3), "go".to_owned()));
    assert_eq!(wire.pod.host().blocks_in_use(), blocks + 2);
    signal("first").fire();
    wire.run();
    assert!(hold.take().is_some() && turn.waits());
    // The cell of its handler, and the block in which it waited.
    assert_eq!(wire.pod.host().blocks_in_use(), blocks + 2);
    signal("go").fire();
    wire.run();
    assert!(turn.take().is_some());
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn an_interrupted_handler_reads_until_it_is_dropped() {
    for waited in [false, true] {
        let (wire, entity) = library(EntityOptions::default());
        let blocks = wire.pod.host().blocks_in_use();
        let hold = waited.then(|| wire.start(entity.hold("first".to_owned())));
        // The larger body lies in memory of its own, whose early end Miri sees; a pool keeps its blocks.
        let sent = page("sent", if waited { 3 } else { 200 });
        let ask = Held::send(&wire, entity.turn(sent.clone(), "go".to_owned()));
        signal("first").fire();
        wire.run();
        assert!(hold.is_none_or(|hold| hold.take().is_some()));
        overwrite(&wire);
        ask.drop(&wire);
        assert_eq!(lines(), [line(&sent)], "waited: {waited}");
        assert_eq!(wire.pod.host().blocks_in_use(), blocks);
        crate::probe::world(|world| *world = crate::probe::World::default());
    }
}

#[test]
fn a_queued_message_without_its_sender_is_released_unread() {
    let (wire, entity) = library(EntityOptions::default());
    let hold = wire.start(entity.hold("first".to_owned()));
    let blocks = wire.pod.host().blocks_in_use();
    let turn = Held::send(&wire, entity.turn(page("turn", 3), "go".to_owned()));
    let finish = Held::send(&wire, entity.finish(page("finish", 3), "go".to_owned()));
    assert_eq!(wire.pod.host().blocks_in_use(), blocks + 2);
    turn.drop(&wire);
    finish.drop(&wire);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks + 1, "the uninterruptible one stays");
    overwrite(&wire);
    signal("go").fire();
    signal("first").fire();
    wire.run();
    assert!(hold.take().is_some());
    assert_eq!(lines(), [line(&page("finish", 3))]);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks - 1);
}

#[test]
fn an_uninterruptible_handler_reads_on_without_its_sender() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let sent = page("sent", 3);
    let ask = Held::send(&wire, entity.finish(sent.clone(), "go".to_owned()));
    ask.drop(&wire);
    overwrite(&wire);
    signal("go").fire();
    wire.run();
    assert_eq!(lines(), [line(&sent)]);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn a_panic_releases_what_was_read_and_what_waits_is_read_by_the_next_instance() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let [broken, beside, queued] = ["broken", "beside", "queued"].map(|title| page(title, 3));
    let defect = wire.start(entity.defect_beside(broken.clone(), "panic".to_owned()));
    let cut_off = wire.start(entity.beside(beside.clone(), "never".to_owned()));
    // These wait for the readers.
    let next = wire.start(entity.plain(queued.clone(), String::new()));
    let later = wire.start(entity.turn(queued.clone(), "go".to_owned()));
    assert!(defect.waits() && cut_off.waits() && next.waits() && later.waits());
    overwrite(&wire);
    signal("panic").fire();
    wire.run();
    assert_eq!(cluster(defect.take()), ClusterError::EntityDefect);
    assert_eq!(cluster(cut_off.take()), ClusterError::EntityDefect);
    assert_eq!(next.take().unwrap().unwrap().page, queued);
    assert!(later.waits());
    assert_eq!(lines(), [line(&broken), line(&beside), line(&queued)]);
    overwrite(&wire);
    signal("go").fire();
    wire.run();
    assert_eq!(later.take().unwrap().unwrap().page, queued);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn a_panic_in_the_turn_before_the_future_or_at_its_first_poll() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let sent = page("sent", 3);
    let late = wire.start(entity.defect(sent.clone(), "panic".to_owned()));
    // This one waits for the other.
    let waited = wire.start(entity.defect_eagerly(sent.clone()));
    signal("panic").fire();
    wire.run();
    assert_eq!(cluster(late.take()), ClusterError::EntityDefect);
    assert_eq!(cluster(waited.take()), ClusterError::EntityDefect);
    assert_eq!(cluster(Some(wire.block(entity.defect_eagerly(sent.clone())))), ClusterError::EntityDefect);
    assert_eq!(cluster(Some(wire.block(entity.defect_at_once(sent.clone())))), ClusterError::EntityDefect);
    assert_eq!(lines(), vec![line(&sent); 4]);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn a_panic_while_it_is_dropped_releases_the_bytes_too() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let sent = page("sent", 3);
    Held::send(&wire, entity.defect_when_dropped(sent.clone(), "never".to_owned())).drop(&wire);
    assert_eq!(lines(), [line(&sent)]);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn a_stopping_entity_reads_what_it_had_received() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let pages = ["runs", "waits", "waits too", "comes later"].map(|title| page(title, 3));
    let runs = wire.start(WAYS[1].1(&entity, pages[0].clone(), "go".to_owned()));
    let waits = wire.start(WAYS[1].1(&entity, pages[1].clone(), "go".to_owned()));
    let plain = wire.start(WAYS[0].1(&entity, pages[2].clone(), "go".to_owned()));
    // It waits for the writer, so all the others came before the stop.
    let stop = wire.start(entity.stop());
    overwrite(&wire);
    signal("go").fire();
    wire.run();
    let later = wire.start(WAYS[1].1(&entity, pages[3].clone(), "go".to_owned()));
    for (read, page) in [runs, waits, plain, later].into_iter().zip(&pages) {
        assert_eq!(read.take(), Some(Ok(Read { archived: true, page: page.clone() })));
    }
    assert!(stop.take().is_some());
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn a_stop_that_takes_too_long_releases_what_runs_and_what_waits() {
    let timeout = Duration::from_secs(1);
    let (wire, entity) = library(EntityOptions::default().termination_timeout(timeout));
    let blocks = wire.pod.host().blocks_in_use();
    let [runs, beside, waits] = ["runs", "beside", "waits"].map(|title| page(title, 3));
    let shared = wire.start(entity.shared("never".to_owned(), runs.clone()));
    let concurrent = wire.start(entity.beside(beside.clone(), "never".to_owned()));
    wire.block(entity.stop()).unwrap();
    let queued = wire.start(entity.turn(waits.clone(), "go".to_owned()));
    signal("go").fire();
    assert!(shared.waits() && concurrent.waits() && queued.waits());
    overwrite(&wire);
    wire.pass(2 * timeout);
    assert_eq!(cluster(shared.take()), ClusterError::EntityInterrupted);
    assert_eq!(cluster(concurrent.take()), ClusterError::EntityInterrupted);
    // It came after the stop, so the next instance reads it.
    assert_eq!(queued.take().unwrap().unwrap().page, waits);
    let mut read = lines();
    read.sort();
    assert_eq!(read, [line(&beside), line(&runs), line(&waits)]);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

#[test]
fn a_stop_that_takes_too_long_fails_what_it_had_received() {
    let timeout = Duration::from_secs(1);
    let (wire, entity) = library(EntityOptions::default().termination_timeout(timeout));
    let blocks = wire.pod.host().blocks_in_use();
    let shared = wire.start(entity.shared("never".to_owned(), page("runs", 3)));
    let queued = [1, 20].map(|words| wire.start(entity.turn(page("waits", words), "go".to_owned())));
    wire.pod.host().stop_entities(StopReason::Shutdown);
    overwrite_nothing_starts(&wire);
    wire.pass(2 * timeout);
    assert_eq!(cluster(shared.take()), ClusterError::EntityInterrupted);
    for queued in queued {
        assert_eq!(cluster(queued.take()), ClusterError::EntityInterrupted);
    }
    assert_eq!(lines(), [line(&page("runs", 3))]);
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}

/// Of a host that stops.
fn overwrite_nothing_starts(wire: &Wire) {
    let other: LibraryRef = wire.entity("other");
    assert_eq!(cluster(Some(wire.block(other.at_once(page("other", 3))))), ClusterError::EntityInterrupted);
}

#[test]
fn a_host_that_ends_drops_what_runs_and_what_waits() {
    let (wire, entity) = library(EntityOptions::default());
    let turn = wire.start(entity.turn(page("runs", 3), "never".to_owned()));
    let queued = SIZES.iter().map(|words| wire.start(entity.turn(page("waits", *words), "never".to_owned())));
    let queued: Vec<_> = queued.collect();
    overwrite(&wire);
    drop(wire);
    assert!(turn.waits() && queued.iter().all(Started::waits));
    assert_eq!(lines(), [line(&page("runs", 3))]);
}

#[test]
fn a_tell_is_read_after_its_sender_has_gone_on() {
    let (wire, entity) = library(EntityOptions::default());
    let blocks = wire.pod.host().blocks_in_use();
    let sent: Vec<_> = SIZES.iter().map(|words| page("told", *words)).collect();
    for page in &sent {
        wire.block(entity.tell(page.clone(), "go".to_owned()).discard()).unwrap();
    }
    overwrite(&wire);
    signal("go").fire();
    wire.run();
    assert_eq!(lines(), sent.iter().map(line).collect::<Vec<_>>());
    assert_eq!(wire.pod.host().blocks_in_use(), blocks);
}
