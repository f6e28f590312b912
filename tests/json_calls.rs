//! Calls in JSON from the client to the owner, on cores in memory whose time the test moves: how they end, and what is
//! left of them.

#[path = "support/cluster.rs"]
mod cluster;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use atoll::base::hash::{entity_hash, shard_of_hash, stable_hash};
use atoll::base::limits::{LINK_QUESTIONS_MAX, SEND_TIMEOUT};
use atoll::base::{CoreIndex, LinkId, PodUid, ShardId, Token};
use atoll::engine::{Command, Core, LinkCommand};
use atoll::entity::{EntityDefaults, TypeHost};
use atoll::wire::control::{Introduce, JsonCall};
use atoll::wire::{
    ControlMessage, FrameDecoder, FrameFlags, FrameKind, Hello, JsonOutcome, Lane, PROTOCOL_VERSIONS, SendBuffer,
    decode_control, encode_control,
};
use atoll::{ClusterError, Entity, EntityId, EntityOptions, Scope, StartError};
use cluster::{Cluster, HASH_SEED, ProcessOptions, SHARDS, address};

thread_local! {
    static BEGUN: Cell<u32> = const { Cell::new(0) };
    static DROPPED: Cell<u32> = const { Cell::new(0) };
    static FINISHED: Cell<u32> = const { Cell::new(0) };
}

/// Handlers that began, that were dropped before their end, and that came to it.
fn handlers() -> (u32, u32, u32) {
    (BEGUN.get(), DROPPED.get(), FINISHED.get())
}

struct Witness {
    finished: bool,
}

impl Witness {
    fn new() -> Witness {
        BEGUN.set(BEGUN.get() + 1);
        Witness { finished: false }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let counter = if self.finished { &FINISHED } else { &DROPPED };
        counter.set(counter.get() + 1);
    }
}

#[derive(atoll::Wire, serde::Serialize, serde::Deserialize, Debug, Clone, PartialEq)]
pub struct Refusal {
    why: String,
}

#[atoll::protocol(json)]
pub trait Work {
    async fn nap(&mut self, milliseconds: u64) -> u64;
    #[uninterruptible]
    async fn finish(&mut self, milliseconds: u64) -> u64;
    async fn refuse(&mut self) -> Result<u64, Refusal>;
    async fn zeros(&mut self, count: u64) -> Vec<u64>;
    async fn panic(&mut self) -> u64;
}

struct WorkEntity;

impl Entity for WorkEntity {
    type Protocol = WorkProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(WorkEntity)
    }
}

async fn work(milliseconds: u64) -> u64 {
    let mut witness = Witness::new();
    atoll::entity::sleep(Duration::from_millis(milliseconds)).await;
    witness.finished = true;
    milliseconds
}

impl Work for WorkEntity {
    async fn nap(&mut self, milliseconds: u64) -> u64 {
        work(milliseconds).await
    }

    async fn finish(&mut self, milliseconds: u64) -> u64 {
        work(milliseconds).await
    }

    async fn refuse(&mut self) -> Result<u64, Refusal> {
        Err(Refusal { why: "no".to_owned() })
    }

    async fn zeros(&mut self, count: u64) -> Vec<u64> {
        vec![0; count as usize]
    }

    async fn panic(&mut self) -> u64 {
        panic!("part of a test")
    }
}

fn types() -> Vec<TypeHost> {
    vec![TypeHost::new::<WorkEntity>(0, EntityOptions::default(), &EntityDefaults::default())]
}

const SECOND: Duration = Duration::from_secs(1);
const HOUR_MS: u64 = 3_600_000;

type Outcome = Rc<RefCell<Option<Result<JsonOutcome, ClusterError>>>>;

/// One pod of two cores and a client.
struct World {
    cluster: Cluster,
}

fn call(entity_id: &str, method: &str, body: &str) -> JsonCall {
    let (entity_type, entity_id) = ("work".to_owned(), entity_id.to_owned());
    JsonCall { entity_type, entity_id, method: method.to_owned(), body: body.to_owned(), timeout_ms: 0 }
}

fn nap(entity_id: &str, milliseconds: u64) -> JsonCall {
    call(entity_id, "nap", &format!("{{\"milliseconds\":{milliseconds}}}"))
}

impl World {
    fn new() -> World {
        let pod = ProcessOptions { cores: 2, is_pod: true, ignores_freeze: false, bootstrap: Vec::new(), types };
        let client = ProcessOptions {
            cores: 1,
            is_pod: false,
            ignores_freeze: false,
            bootstrap: vec![address(0)],
            types: Vec::new,
        };
        let cluster = Cluster::new(5, vec![pod, client]);
        let owners: Vec<_> = (0..SHARDS as usize).map(|shard| Some((0, shard % 2, 7))).collect();
        let table = cluster.table(2, &[0], &owners);
        cluster.publish(&table, &[0]);
        let world = World { cluster };
        world.rest(20);
        world
    }

    /// Lets everything happen for a while.
    fn rest(&self, milliseconds: u64) {
        self.cluster.come_to_rest(Duration::from_millis(milliseconds));
    }

    fn owner_of(&self, entity_id: &str) -> &Core {
        let shard = shard_of_hash(entity_hash(HASH_SEED, entity_id.as_bytes()), SHARDS).0 as usize;
        &self.cluster.processes[0].cores[shard % 2]
    }

    /// The client calls and waits so long.
    fn call(&self, call: JsonCall, timeout: Duration) -> Outcome {
        let core = &self.cluster.processes[1].cores[0];
        let (routes, outcome) = (core.routes(), Outcome::default());
        let into = Rc::clone(&outcome);
        core.host().spawn(async move {
            let result = routes.call_json(call, HASH_SEED, timeout).await;
            *into.borrow_mut() = Some(result);
        });
        outcome
    }

    /// The client calls, and drops the future after a while.
    fn call_and_drop(&self, call: JsonCall, after: Duration) {
        let core = &self.cluster.processes[1].cores[0];
        let routes = core.routes();
        core.host().spawn(async move {
            let mut call = Box::pin(routes.call_json(call, HASH_SEED, Duration::from_secs(3600)));
            let mut time = Box::pin(atoll::entity::sleep(after));
            std::future::poll_fn(|context| {
                assert!(call.as_mut().poll(context).is_pending());
                time.as_mut().poll(context)
            })
            .await;
        });
    }

    fn open_calls(&self) -> u64 {
        self.cluster.count(0, |counters| &counters.json_calls_open)
    }

    /// Nothing is left of any call, at the client nor at the pod.
    fn nothing_is_left(&self) {
        assert_eq!(self.open_calls(), 0);
        assert_eq!(self.cluster.processes[1].cores[0].host().waiting_asks(), 0, "at the client");
        for core in &self.cluster.processes[0].cores {
            assert_eq!(core.host().waiting_asks(), 0, "at the pod: neither sleeps nor asks");
        }
        assert_eq!(self.cluster.count(0, |counters| &counters.links_open), 2 + self.bootstrap_links(), "no link broke");
    }

    /// Besides the link to each core, by which it calls.
    fn bootstrap_links(&self) -> u64 {
        self.cluster.count(1, |counters| &counters.links_open) - 2
    }

    /// Links to both cores are there.
    fn linked(self) -> World {
        for id in ["a", "b", "c", "d", "e", "f"] {
            let outcome = self.call(nap(id, 0), SECOND);
            self.rest(5);
            assert_eq!(*outcome.borrow(), Some(Ok(JsonOutcome::Reply("0".to_owned()))), "{id}");
        }
        [&BEGUN, &DROPPED, &FINISHED].into_iter().for_each(|counter| counter.set(0));
        self
    }
}

fn failed(error: ClusterError) -> JsonOutcome {
    JsonOutcome::Failed { code: error.code(), text: error.to_string() }
}

#[test]
fn a_call_that_times_out_interrupts_its_handler_and_takes_its_message_out_of_the_mailbox() {
    let world = World::new().linked();
    let running = world.call(nap("a", HOUR_MS), Duration::from_millis(20));
    world.rest(1);
    let queued = world.call(nap("a", 1), Duration::from_millis(10));
    let behind = world.call(nap("a", 2), SECOND);
    world.rest(5);
    assert_eq!((handlers(), world.open_calls()), ((1, 0, 0), 3));
    world.rest(10);
    assert_eq!(*queued.borrow(), Some(Err(ClusterError::SendTimeout)));
    assert_eq!((handlers(), world.open_calls()), ((1, 0, 0), 2), "it never began");
    world.rest(20);
    assert_eq!(*running.borrow(), Some(Err(ClusterError::SendTimeout)));
    assert_eq!(*behind.borrow(), Some(Ok(JsonOutcome::Reply("2".to_owned()))), "the entity goes on");
    assert_eq!(handlers(), (2, 1, 1));
    world.nothing_is_left();
}

#[test]
fn a_call_whose_caller_drops_it_is_cancelled_at_once() {
    let world = World::new().linked();
    world.call_and_drop(nap("a", HOUR_MS), Duration::from_millis(10));
    world.rest(1);
    world.call_and_drop(nap("a", HOUR_MS), Duration::from_millis(3));
    world.rest(1);
    assert_eq!((handlers(), world.open_calls()), ((1, 0, 0), 2));
    world.rest(20);
    assert_eq!(handlers(), (1, 1, 0), "the one behind it never began");
    world.nothing_is_left();
}

#[test]
fn a_call_ends_with_its_connection() {
    let world = World::new().linked();
    let asleep = world.call(nap("a", HOUR_MS), Duration::from_secs(3600));
    let behind = world.call(nap("a", 1), Duration::from_secs(3600));
    world.rest(5);
    assert_eq!((handlers(), world.open_calls()), ((1, 0, 0), 2));
    world.cluster.break_connections(1, 0);
    world.rest(5);
    assert_eq!((handlers(), world.open_calls()), ((1, 1, 0), 0));
    for outcome in [asleep, behind] {
        assert_eq!(*outcome.borrow(), Some(Err(ClusterError::Transport)), "it is not made twice");
    }
}

#[test]
fn what_is_uninterruptible_runs_to_its_end_whoever_waits() {
    let world = World::new().linked();
    let body = r#"{"milliseconds":50}"#;
    let late = world.call(call("a", "finish", body), Duration::from_millis(20));
    let queued = world.call(call("a", "finish", body), Duration::from_millis(20));
    world.rest(30);
    for outcome in [late, queued] {
        assert_eq!(*outcome.borrow(), Some(Err(ClusterError::SendTimeout)));
    }
    assert_eq!((handlers(), world.open_calls()), ((1, 0, 0), 0), "it goes on, and nobody waits for it");
    world.call_and_drop(call("b", "finish", body), Duration::from_millis(5));
    world.rest(200);
    assert_eq!(handlers(), (3, 0, 3));
    world.nothing_is_left();
}

#[test]
fn replies_and_errors_come_back_as_what_they_are() {
    let world = World::new().linked();
    let outcome = |call| {
        let outcome = world.call(call, SECOND);
        world.rest(10);
        let outcome = outcome.borrow_mut().take();
        outcome.expect("it is answered").expect("by the pod")
    };
    assert_eq!(outcome(nap("a", 1)), JsonOutcome::Reply("1".to_owned()));
    assert_eq!(outcome(call("a", "refuse", "{}")), JsonOutcome::Declared(r#"{"why":"no"}"#.to_owned()));
    assert_eq!(outcome(call("a", "panic", "{}")), failed(ClusterError::EntityDefect));
    let code_of = |outcome| match outcome {
        JsonOutcome::Failed { code, .. } => ClusterError::from_code(code).unwrap(),
        other => panic!("{other:?}"),
    };
    for wrong in ["{", "[]", r#"{"milliseconds":-1}"#, r#"{"seconds":1}"#] {
        assert_eq!(code_of(outcome(call("a", "nap", wrong))), ClusterError::Serialization, "{wrong}");
    }
    assert_eq!(code_of(outcome(call("a", "snooze", "{}"))), ClusterError::NotServed);
    assert_eq!(code_of(outcome(call("", "refuse", "{}"))), ClusterError::InvalidEntityId);
    let too_large = outcome(call("a", "zeros", r#"{"count":2000000}"#));
    assert_eq!(too_large, failed(ClusterError::PayloadTooLarge), "a reply that fits no frame");
    let larger_still = world.call(call("a", "zeros", &" ".repeat(4 << 20)), SECOND);
    world.rest(2);
    assert_eq!(*larger_still.borrow(), Some(Err(ClusterError::PayloadTooLarge)), "a call that fits none is not sent");
    world.nothing_is_left();
}

#[test]
fn a_thousand_calls_that_time_out_leave_nothing_open() {
    let world = World::new().linked();
    let timeouts = (0..1000_u64).map(|n| Duration::from_millis(1 + n % 40));
    let calls = timeouts.enumerate().map(|(n, timeout)| world.call(nap(&format!("e{}", n % 50), HOUR_MS), timeout));
    let calls: Vec<_> = calls.collect();
    let mut most = 0;
    for _ in 0..100 {
        world.rest(1);
        most = most.max(world.open_calls());
    }
    for outcome in calls {
        assert_eq!(*outcome.borrow(), Some(Err(ClusterError::SendTimeout)));
    }
    let bound = 2 * u64::from(LINK_QUESTIONS_MAX);
    assert!((bound / 2..=bound).contains(&most), "{most} were open at once; {LINK_QUESTIONS_MAX} may be for each link");
    let (begun, dropped, finished) = handlers();
    assert!(
        begun > 0 && begun == dropped && finished == 0,
        "{begun} began, {dropped} were dropped, {finished} finished"
    );
    world.nothing_is_left();
    let outcome = world.call(nap("e0", 1), SECOND);
    world.rest(5);
    assert_eq!(*outcome.borrow(), Some(Ok(JsonOutcome::Reply("1".to_owned()))), "its entity is free");
}

#[test]
fn calls_beyond_the_bound_of_a_link_wait_for_their_turn() {
    let world = World::new().linked();
    let calls: Vec<_> = (0..300).map(|n| world.call(nap(&format!("f{n}"), 5), SECOND)).collect();
    for _ in 0..60 {
        world.rest(1);
        assert!(world.open_calls() <= 2 * u64::from(LINK_QUESTIONS_MAX));
    }
    for outcome in calls {
        assert_eq!(*outcome.borrow(), Some(Ok(JsonOutcome::Reply("5".to_owned()))));
    }
    world.nothing_is_left();
}

/// The shard of `a` is on its way from one core to the other.
fn released() -> (World, usize) {
    let world = World::new().linked();
    let shard = shard_of_hash(entity_hash(HASH_SEED, b"a"), SHARDS).0;
    world.cluster.command(0, shard as usize % 2, Command::Release { shards: vec![ShardId(shard)] });
    world.rest(5);
    (world, shard as usize)
}

#[test]
fn a_call_waits_for_a_shard_on_its_way_and_follows_it() {
    let (world, moving) = released();
    let outcome = world.call(nap("a", 2), SECOND);
    world.rest(50);
    assert_eq!((outcome.borrow().clone(), handlers()), (None, (0, 0, 0)));
    let owner = |shard| if shard == moving { (0, 1 - shard % 2, 9) } else { (0, shard % 2, 7) };
    let table = world.cluster.table(3, &[0], &(0..SHARDS as usize).map(|shard| Some(owner(shard))).collect::<Vec<_>>());
    world.cluster.publish(&table, &[0]);
    world.rest(40);
    assert_eq!(*outcome.borrow(), Some(Ok(JsonOutcome::Reply("2".to_owned()))));
    assert_eq!(handlers(), (1, 0, 1), "it ran once");
    world.nothing_is_left();
}

#[test]
fn a_call_for_a_shard_that_nobody_serves_ends_with_its_timeout() {
    let (world, _) = released();
    let outcome = world.call(nap("a", 2), Duration::from_millis(100));
    world.rest(90);
    assert_eq!(*outcome.borrow(), None);
    world.rest(20);
    assert_eq!(*outcome.borrow(), Some(Err(ClusterError::SendTimeout)));
    assert_eq!(handlers(), (0, 0, 0));
    world.nothing_is_left();
}

#[test]
fn the_answer_of_an_entity_waits_for_the_lease() {
    let world = World::new().linked();
    let outcome = world.call(nap("a", 2), SECOND);
    world.rest(1);
    // The handler ends within the lease; its answer has not left when that is over.
    world.cluster.pass(Duration::from_millis(3));
    for core in [0, 1, 0, 1] {
        world.cluster.run_without_flush((0, core));
    }
    assert_eq!(handlers(), (1, 0, 1));
    world.cluster.set_validity(0, world.cluster.now().0);
    world.rest(10);
    assert_eq!(*outcome.borrow(), None, "a later owner may have said otherwise by now");
    world.cluster.set_validity(0, u64::MAX - 1);
    world.rest(10);
    assert_eq!(*outcome.borrow(), Some(Ok(JsonOutcome::Reply("2".to_owned()))));
}

// ---- peers that write their own bytes ----

/// A connection to a core of the pod, whose other end is the test.
struct Peer<'a> {
    world: &'a World,
    core: &'a Core,
    link: LinkId,
}

fn frame(kind: FrameKind, correlation: u64, body: &[u8]) -> Vec<u8> {
    let lane = if kind == FrameKind::Control { Lane::Control } else { Lane::Messages };
    let mut buffer = SendBuffer::new(1 << 20);
    let start = buffer.begin_frame(kind, FrameFlags::new(lane), 0, ShardId(0), Token(0), correlation);
    buffer.bytes_mut().extend_from_slice(body);
    buffer.finish_frame(start, 0).unwrap();
    let mut bytes = Vec::new();
    buffer.take(&mut bytes);
    bytes
}

impl<'a> Peer<'a> {
    /// To the owner of an entity.
    fn new(world: &'a World, entity_id: &str) -> Peer<'a> {
        let core = world.owner_of(entity_id);
        let at = world.cluster.processes[0].cores.iter().position(|known| std::ptr::eq(known, core)).unwrap();
        let hello = Hello {
            versions: PROTOCOL_VERSIONS,
            target_core: CoreIndex(at as u16),
            sender_core: CoreIndex(0),
            cluster_name_hash: stable_hash("test"),
            sender_uid: PodUid(99),
            is_pod: false,
        };
        core.accepted(&hello.encode(), 1000);
        let mut commands = Vec::new();
        core.take_commands(&mut commands);
        let Some(LinkCommand::Adopt { link, .. }) = commands.pop() else { panic!("the connection is taken") };
        let peer = Peer { world, core, link };
        let introduce = Introduce {
            cluster_name: "test".to_owned(),
            uid: 99,
            role: String::new(),
            version: String::new(),
            is_pod: false,
            schemas: Vec::new(),
        };
        peer.says(0, &ControlMessage::Introduce(introduce));
        peer.hears();
        peer
    }

    fn sends(&self, bytes: &[u8]) {
        let now = self.world.cluster.now();
        self.world.cluster.within(0, || self.core.received(self.link, bytes, now));
    }

    fn says(&self, correlation: u64, message: &ControlMessage) {
        let mut body = Vec::new();
        encode_control(message, &mut body).unwrap();
        self.sends(&frame(FrameKind::Control, correlation, &body));
    }

    fn calls(&self, correlation: u64, mut call: JsonCall, timeout_ms: u32) {
        call.timeout_ms = timeout_ms;
        self.says(correlation, &ControlMessage::JsonCall(call));
    }

    fn cancels(&self, correlation: u64) {
        self.sends(&frame(FrameKind::Cancel, correlation, &[]));
    }

    /// Time passes at the core, and nothing comes to it.
    fn waits(&self, milliseconds: u64) {
        self.world.cluster.pass(Duration::from_millis(milliseconds));
        let at = usize::from(self.core.host().core().0);
        for _ in 0..3 {
            self.world.cluster.run_without_flush((0, at));
        }
    }

    /// The results that the core wrote: correlation and outcome.
    fn hears(&self) -> Vec<(u64, JsonOutcome)> {
        let mut bytes = Vec::new();
        self.core.take_output(self.link, &mut bytes);
        let mut decoder = FrameDecoder::new(16 << 20);
        let mut frames = decoder.feed(&bytes);
        let mut results = Vec::new();
        while let Some(frame) = frames.next() {
            let frame = frame.unwrap();
            assert_eq!(frame.header.kind, FrameKind::Control, "nothing but control frames answers these");
            if let Ok(ControlMessage::JsonResult { outcome }) = decode_control(frame.body) {
                results.push((frame.header.correlation, outcome));
            }
        }
        results
    }

    fn refusals(&self, reason: &str) -> u64 {
        self.core.counters().refusals.lock().unwrap().get(reason).copied().unwrap_or(0)
    }

    fn open_calls(&self) -> u64 {
        self.core.counters().json_calls_open.load(Ordering::Relaxed)
    }
}

#[test]
fn the_owner_ends_a_call_whose_caller_says_nothing_more() {
    let world = World::new();
    let peer = Peer::new(&world, "a");
    peer.calls(1, nap("a", HOUR_MS), 20);
    peer.calls(2, nap("a", HOUR_MS), 30);
    peer.waits(19);
    assert_eq!((peer.hears(), handlers()), (vec![], (1, 0, 0)));
    assert!(peer.core.next_deadline() <= world.cluster.now() + Duration::from_millis(1), "the core wakes up for it");
    peer.waits(2);
    assert_eq!(peer.hears(), [(1, failed(ClusterError::SendTimeout))]);
    assert_eq!(handlers(), (2, 1, 0), "the next one begins, with what is left of its time");
    peer.waits(10);
    assert_eq!(peer.hears(), [(2, failed(ClusterError::SendTimeout))]);
    assert_eq!((handlers(), peer.open_calls()), ((2, 2, 0), 0));
}

#[test]
fn any_remaining_time_has_a_meaning() {
    let world = World::new();
    let peer = Peer::new(&world, "a");
    peer.calls(1, nap("a", HOUR_MS), 0);
    peer.waits(SEND_TIMEOUT.as_millis() as u64 - 1);
    assert_eq!(peer.hears(), [], "none is the default of the owner");
    peer.waits(2);
    assert_eq!(peer.hears(), [(1, failed(ClusterError::SendTimeout))]);
    peer.calls(2, nap("a", HOUR_MS), 1);
    peer.waits(1);
    assert_eq!(peer.hears(), [(2, failed(ClusterError::SendTimeout))]);
    peer.calls(3, nap("a", HOUR_MS), u32::MAX);
    peer.waits(HOUR_MS + 1);
    assert_eq!(peer.hears(), [(3, JsonOutcome::Reply(HOUR_MS.to_string()))]);
    assert_eq!(peer.open_calls(), 0);
    // The bytes of the time are the last of the message; without them it is none.
    let mut body = Vec::new();
    encode_control(&ControlMessage::JsonCall(nap("a", 0)), &mut body).unwrap();
    for cut in 1..=8 {
        let peer = Peer::new(&world, "a");
        let before = peer.refusals("control_message");
        peer.sends(&frame(FrameKind::Control, 4, &body[..body.len() - cut]));
        assert_eq!((peer.refusals("control_message"), peer.open_calls()), (before + 1, 0), "{cut} bytes less");
    }
}

#[test]
fn a_call_is_answered_once_whatever_its_caller_says() {
    let world = World::new();
    let peer = Peer::new(&world, "a");
    peer.calls(1, nap("a", HOUR_MS), 1000);
    peer.cancels(1);
    assert_eq!(peer.hears(), [(1, failed(ClusterError::EntityInterrupted))]);
    peer.cancels(1);
    peer.cancels(77);
    assert_eq!((peer.hears(), handlers()), (vec![], (1, 1, 0)));
    peer.calls(2, call("a", "finish", r#"{"milliseconds":5}"#), 1000);
    peer.cancels(2);
    peer.waits(10);
    assert_eq!(peer.hears(), [(2, failed(ClusterError::EntityInterrupted))], "its reply is nobody's");
    assert_eq!((handlers(), peer.open_calls()), ((2, 1, 1), 0));
    peer.calls(3, nap("a", HOUR_MS), 1000);
    peer.calls(3, nap("a", HOUR_MS), 1000);
    assert_eq!(peer.refusals("call_twice"), 1, "two calls that cannot be told apart close the link");
    let now = world.cluster.now();
    world.cluster.within(0, || peer.core.closed(peer.link, now));
    assert_eq!((handlers(), peer.open_calls()), ((3, 2, 1), 0));
}

#[test]
fn a_link_has_a_bounded_number_of_calls_and_a_cancelled_one_makes_room() {
    let world = World::new();
    let peer = Peer::new(&world, "a");
    let most = u64::from(LINK_QUESTIONS_MAX);
    (0..most).for_each(|n| peer.calls(n, nap("a", HOUR_MS), 0));
    for n in 0..1000 {
        peer.cancels(n);
        peer.calls(most + n, nap("a", HOUR_MS), 0);
        assert_eq!(peer.hears().len(), 1);
    }
    assert_eq!((peer.refusals("questions_max"), peer.open_calls()), (0, most));
    peer.calls(5000, nap("a", HOUR_MS), 0);
    assert_eq!(peer.refusals("questions_max"), 1);
}
