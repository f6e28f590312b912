//! The life of entities in a pod of two cores, seen through the public interface only.
#![cfg(feature = "runtime")]

mod support;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use atoll::base::CoreIndex;
use atoll::{
    Client, ClusterError, Entity, EntityId, EntityOptions, Messenger, Pod, Scope, SendError, StartError, StopReason,
};
use support::*;

/// What happened to entities, by id; ids are different in each test.
static EVENTS: Mutex<Option<HashMap<String, Vec<String>>>> = Mutex::new(None);

fn record(id: &str, event: impl Into<String>) {
    let mut events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    events.get_or_insert_default().entry(id.to_owned()).or_default().push(event.into());
}

fn events(id: &str) -> Vec<String> {
    let events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    events.as_ref().and_then(|events| events.get(id).cloned()).unwrap_or_default()
}

/// Messages of every access, and ways to call other entities.
#[atoll::protocol]
pub trait Probe {
    /// Starts, waits, ends; both are recorded.
    async fn write(&mut self, name: String, milliseconds: u64);
    async fn read(&self, name: String, milliseconds: u64);
    #[concurrent]
    async fn peek(&self, name: String, milliseconds: u64);
    #[uninterruptible]
    async fn pay(&mut self, name: String, milliseconds: u64);
    async fn count(&mut self) -> u32;
    /// Asks the next of the path to go on; the last one answers with 0, each adds 1.
    async fn follow(&mut self, path: Vec<String>) -> Result<u32, String>;
    async fn token(&mut self) -> Option<u64>;
    async fn stop_yourself(&mut self);
    async fn panics(&mut self);
    /// Keeps the scope's finalizers, newest first.
    async fn finalizers(&mut self);
    async fn knock(&mut self);
}

pub struct ProbeEntity {
    id: EntityId,
    scope: Scope<Self>,
    count: Cell<u32>,
    trace: RefCell<Vec<String>>,
}

impl Entity for ProbeEntity {
    type Protocol = ProbeProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        record(id.as_str(), "start");
        if id.as_str().starts_with("broken") {
            return Err(StartError::new("this one never starts"));
        }
        Ok(ProbeEntity { id: id.clone(), scope, count: Cell::new(0), trace: RefCell::default() })
    }

    async fn stop(&mut self, reason: StopReason) {
        record(self.id.as_str(), format!("stop {reason:?}"));
    }
}

impl ProbeEntity {
    async fn work(&self, name: String, milliseconds: u64) {
        record(self.id.as_str(), format!("+{name}"));
        self.trace.borrow_mut().push(name.clone());
        self.scope.sleep(Duration::from_millis(milliseconds)).await;
        record(self.id.as_str(), format!("-{name}"));
    }
}

impl Probe for ProbeEntity {
    async fn write(&mut self, name: String, milliseconds: u64) {
        self.work(name, milliseconds).await;
    }
    async fn read(&self, name: String, milliseconds: u64) {
        self.work(name, milliseconds).await;
    }
    async fn peek(&self, name: String, milliseconds: u64) {
        self.work(name, milliseconds).await;
    }
    async fn pay(&mut self, name: String, milliseconds: u64) {
        self.work(name, milliseconds).await;
    }
    async fn count(&mut self) -> u32 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }
    async fn follow(&mut self, mut path: Vec<String>) -> Result<u32, String> {
        if path.is_empty() {
            return Ok(0);
        }
        let next = path.remove(0);
        let probes = self.scope.messenger::<ProbeRef>().map_err(|gone| gone.to_string())?;
        match probes.entity(&next).follow(path).await {
            Ok(steps) => Ok(steps + 1),
            Err(SendError::Declared(text)) => Err(text),
            Err(SendError::Cluster(error)) => Err(format!("{}: {error:?}", self.id)),
        }
    }
    async fn token(&mut self) -> Option<u64> {
        self.scope.fence().ok().map(|token| token.0)
    }
    async fn stop_yourself(&mut self) {
        // It lives, since this handler runs.
        let _ = self.scope.stop();
    }
    async fn panics(&mut self) {
        panic!("this text is part of a test");
    }
    async fn finalizers(&mut self) {
        for name in ["first", "second"] {
            let id = self.id.clone();
            let kept = self.scope.on_close(move || record(id.as_str(), name));
            assert!(kept.is_ok());
        }
    }
    async fn knock(&mut self) {}
}

fn pod_with(options: EntityOptions<ProbeProtocol>) -> Pod {
    Pod::builder().config(config(2)).entity::<ProbeEntity>(options).start().unwrap()
}

/// A pod of two cores, its messenger, and two ids that no other test has, one on each core.
fn two_cores(test: &str, options: EntityOptions<ProbeProtocol>) -> (Pod, Messenger<ProbeRef>, [String; 2]) {
    let pod = pod_with(options);
    let probes = pod.messenger::<ProbeRef>();
    let id = |core| named_id_on(&pod, test, core);
    let ids = [id(0), id(1)];
    (pod, probes, ids)
}

fn named_id_on(pod: &Pod, name: &str, core: u16) -> String {
    let table = pod.assignments();
    let mut ids = (0..1000).map(|n| format!("{name}-{n}"));
    ids.find(|id| table.owner(pod.shard_of(id)).is_some_and(|owner| owner.core == CoreIndex(core))).unwrap()
}

fn is_listed(pod: &Pod, id: &str) -> bool {
    pod.local_entities("probe", 1000).unwrap().iter().any(|listed| listed.as_str() == id)
}

#[test]
fn an_idle_entity_stops_and_the_next_message_starts_it_again() {
    let options = EntityOptions::default().max_idle(Duration::from_millis(100));
    let (pod, probes, ids) = two_cores("idle", options);
    for id in &ids {
        assert_eq!(block_on(probes.entity(id).count()), Ok(1));
        until("it stops when it is idle", || (!is_listed(&pod, id)).then_some(()));
        assert_eq!(events(id), ["start", "stop Idle"]);
        assert_eq!(block_on(probes.entity(id).count()), Ok(1), "a new one");
        // A message in progress is no idleness.
        assert_eq!(block_on(probes.entity(id).write("long".into(), 700)), Ok(()));
        let seen = events(id);
        let last = &seen[seen.len() - 2..];
        assert_eq!(last, ["+long", "-long"], "{seen:?}");
    }
}

#[test]
fn an_entity_can_stop_itself_after_what_it_received() {
    let (pod, probes, ids) = two_cores("stops", EntityOptions::default());
    for id in &ids {
        let probe = probes.entity(id);
        assert_eq!(block_on(probe.stop_yourself()), Ok(()));
        until("it is gone", || (!is_listed(&pod, id)).then_some(()));
        assert_eq!(events(id), ["start", "stop Requested"]);
        assert_eq!(block_on(probe.count()), Ok(1));
    }
}

#[test]
fn finalizers_run_last_and_newest_first_also_after_a_panic() {
    let (pod, probes, [stopped, panicked]) = two_cores("closes", EntityOptions::default());
    let probe = probes.entity(&stopped);
    block_on(probe.finalizers()).unwrap();
    block_on(probe.stop_yourself()).unwrap();
    until("it is gone", || (!is_listed(&pod, &stopped)).then_some(()));
    assert_eq!(events(&stopped), ["start", "stop Requested", "second", "first"]);
    let probe = probes.entity(&panicked);
    block_on(probe.finalizers()).unwrap();
    assert_eq!(block_on(probe.panics()), Err(SendError::Cluster(ClusterError::EntityDefect)));
    assert_eq!(block_on(probe.count()), Ok(1), "a new one");
    assert_eq!(events(&panicked), ["start", "second", "first", "start"], "no `stop` after a defect");
}

#[test]
fn a_start_that_fails_is_a_defect_for_all_who_wait() {
    let (_pod, probes, ids) = two_cores("broken", EntityOptions::default());
    for id in &ids {
        let probe = probes.entity(id);
        for outcome in block_on(all((0..5).map(|_| probe.count()))) {
            assert_eq!(outcome, Err(SendError::Cluster(ClusterError::EntityDefect)));
        }
        assert_eq!(block_on(probe.count()), Err(SendError::Cluster(ClusterError::EntityDefect)), "each tries again");
        assert!(events(id).iter().all(|event| event == "start"));
    }
}

#[test]
fn what_does_not_end_within_the_termination_timeout_is_interrupted() {
    let options = EntityOptions::default().termination_timeout(Duration::from_millis(200));
    let (pod, probes, ids) = two_cores("terminated", options);
    let client = Client::connect([pod.address()]).unwrap();
    let asks: Vec<_> = [(&ids[0], probes), (&ids[1], client.messenger::<ProbeRef>())]
        .into_iter()
        .map(|(id, probes)| {
            let probe = probes.entity(id);
            std::thread::spawn(move || {
                block_on(all([probe.write("long".into(), 3_600_000), probe.write("behind".into(), 0)]))
            })
        })
        .collect();
    until("both have received both", || (sum_of(&counters(&client), "messages") >= 4).then_some(()));
    pod.stop();
    for ask in asks {
        assert_eq!(ask.join().unwrap(), vec![Err(SendError::Cluster(ClusterError::EntityInterrupted)); 2]);
    }
    for id in &ids {
        assert_eq!(events(id)[..2], ["start", "+long"], "{:?}", events(id));
        assert!(!events(id).contains(&"-long".to_owned()));
    }
}

#[test]
fn a_rule_says_which_messages_start_an_entity() {
    let options = EntityOptions::default().load_entity(|message| matches!(message, ProbeMessage::Count(_)));
    let (pod, probes, ids) = two_cores("loaded", options);
    for id in &ids {
        let probe = probes.entity(id);
        assert_eq!(block_on(probe.token()), Err(SendError::Cluster(ClusterError::MessageDiscarded)));
        assert_eq!(block_on(probe.knock().discard()), Ok(()), "a discard succeeds");
        assert!(!is_listed(&pod, id) && events(id).is_empty());
        assert_eq!(block_on(probe.count()), Ok(1));
        assert!(block_on(probe.token()).is_ok(), "it runs now");
    }
    let client = Client::connect([pod.address()]).unwrap();
    let probe = client.messenger::<ProbeRef>().entity("loaded-from-afar");
    assert_eq!(block_on(probe.token()), Err(SendError::Cluster(ClusterError::MessageDiscarded)));
    assert_eq!(block_on(probe.knock().discard()), Ok(()));
}

/// The most handlers that ran at the same time, from the records of an entity.
fn most_at_once(id: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for event in events(id) {
        match event.as_bytes()[0] {
            b'+' => now += 1,
            b'-' => now -= 1,
            _ => {}
        }
        most = most.max(now);
    }
    most
}

#[test]
fn handlers_run_one_at_a_time_unless_more_is_allowed() {
    let (_pod, probes, ids) = two_cores("alone", EntityOptions::default());
    for id in &ids {
        let probe = probes.entity(id);
        block_on(all((0..5).map(|n| probe.read(n.to_string(), 10)))).into_iter().for_each(|read| read.unwrap());
        assert_eq!(most_at_once(id), 1);
        let order: Vec<_> = events(id).into_iter().filter(|event| event.starts_with('+')).collect();
        assert_eq!(order, ["+0", "+1", "+2", "+3", "+4"]);
    }
    let (_pod, probes, ids) = two_cores("three", EntityOptions::default().concurrency(3));
    for id in &ids {
        let probe = probes.entity(id);
        block_on(all((0..9).map(|n| probe.read(n.to_string(), 50)))).into_iter().for_each(|read| read.unwrap());
        assert_eq!(most_at_once(id), 3);
    }
    let (_pod, probes, ids) = two_cores("writers", EntityOptions::default().concurrency(3));
    for id in &ids {
        let probe = probes.entity(id);
        block_on(all((0..5).map(|n| probe.write(n.to_string(), 10)))).into_iter().for_each(|write| write.unwrap());
        assert_eq!(most_at_once(id), 1, "`&mut self` is exclusive whatever the permits");
    }
}

#[test]
fn concurrent_messages_overlap_with_readers_outside_of_the_permits() {
    let (_pod, probes, ids) = two_cores("overlaps", EntityOptions::default());
    for id in &ids {
        let probe = probes.entity(id);
        block_on(async {
            let mut read = pin!(probe.read("read".into(), 3_600_000));
            assert!(started(read.as_mut()).await.is_none());
            // The reader holds the only permit; these do not need one.
            for outcome in all((0..3).map(|n| probe.peek(format!("peek{n}"), 20))).await {
                assert_eq!(outcome, Ok(()));
            }
        });
        assert_eq!(most_at_once(id), 4);
        assert_eq!(block_on(probe.count()), Ok(1), "the reader ended when its future was dropped");
    }
}

#[test]
fn what_is_uninterruptible_runs_to_its_end_when_nobody_waits() {
    let (pod, probes, ids) = two_cores("pays", EntityOptions::default());
    let client = Client::connect([pod.address()]).unwrap();
    for (probes, at) in [(probes, 0), (probes, 1), (client.messenger::<ProbeRef>(), 0)] {
        let id = &ids[at];
        let probe = probes.entity(id);
        let before = events(id).len();
        let late = block_on(probe.pay("pay".into(), 300).timeout(Duration::from_millis(50)));
        assert_eq!(late, Err(SendError::Cluster(ClusterError::SendTimeout)));
        assert_eq!(block_on(probe.write("next".into(), 0)), Ok(()));
        let seen = events(id)[before..].join(" ");
        assert!(seen.ends_with("+pay -pay +next -next"), "{seen}");
    }
}

#[test]
fn what_can_be_interrupted_leaves_no_end_behind() {
    let (_pod, probes, ids) = two_cores("interrupted", EntityOptions::default());
    for id in &ids {
        let probe = probes.entity(id);
        let late = block_on(probe.write("write".into(), 3_600_000).timeout(Duration::from_millis(100)));
        assert_eq!(late, Err(SendError::Cluster(ClusterError::SendTimeout)));
        assert_eq!(block_on(probe.count()), Ok(1));
        assert_eq!(events(id), ["start", "+write"]);
    }
}

#[test]
fn what_waits_for_its_turn_is_withdrawn_when_its_sender_stops_waiting() {
    let (pod, probes, ids) = two_cores("withdrawn", EntityOptions::default());
    let client = Client::connect([pod.address()]).unwrap();
    for (probes, at) in [(probes, 0), (probes, 1), (client.messenger::<ProbeRef>(), 0)] {
        let id = &ids[at];
        let probe = probes.entity(id);
        block_on(probe.count()).unwrap();
        let before = events(id).len();
        block_on(async {
            let mut first = pin!(probe.write("first".into(), 3_600_000).no_timeout());
            assert!(started(first.as_mut()).await.is_none());
            let late = probe.write("late".into(), 0).timeout(Duration::from_millis(50)).await;
            assert_eq!(late, Err(SendError::Cluster(ClusterError::SendTimeout)));
        });
        assert_eq!(block_on(probe.write("next".into(), 0)), Ok(()));
        assert_eq!(events(id)[before..], ["+first", "+next", "-next"]);
    }
}

#[test]
fn a_cycle_of_asks_fails_at_once() {
    let (pod, probes, [a, b]) = two_cores("cycle", EntityOptions::default());
    let probes = probes.timeout(PATIENCE);
    let client = Client::connect([pod.address()]).unwrap();
    for probes in [probes, client.messenger::<ProbeRef>().timeout(PATIENCE)] {
        for (first, second) in [(&a, &b), (&b, &a)] {
            let path = |ids: &[&String]| ids.iter().map(|id| (*id).clone()).collect::<Vec<_>>();
            let probe = probes.entity(first);
            assert_eq!(block_on(probe.follow(path(&[second]))), Ok(1), "no cycle");
            let myself = block_on(probe.follow(path(&[first])));
            assert_eq!(myself, Err(SendError::Declared(format!("{first}: Cycle"))));
            let around = block_on(probe.follow(path(&[second, first])));
            assert_eq!(around, Err(SendError::Declared(format!("{second}: Cycle"))));
        }
    }
}

#[test]
fn a_long_chain_over_both_cores_is_no_cycle() {
    let (pod, probes, _) = two_cores("chain", EntityOptions::default());
    let ids: Vec<String> = (0..20).map(|n| named_id_on(&pod, &format!("chain{n}"), n % 2)).collect();
    let steps = block_on(probes.entity(&ids[0]).follow(ids[1..].to_vec()));
    assert_eq!(steps, Ok(19));
}

#[test]
fn the_fencing_token_is_the_one_of_the_table() {
    let (pod, probes, ids) = two_cores("fenced", EntityOptions::default());
    for id in &ids {
        let token = block_on(probes.entity(id).token()).unwrap();
        assert_eq!(token, pod.assignments().owner(pod.shard_of(id)).map(|owner| owner.token.0));
        assert!(token.is_some_and(|token| token > 0));
    }
}

#[test]
fn a_stop_finishes_what_was_received() {
    let (pod, probes, ids) = two_cores("drained", EntityOptions::default());
    let client = Client::connect([pod.address()]).unwrap();
    let asks: Vec<_> = ids
        .iter()
        .flat_map(|id| [(id.clone(), probes), (id.clone(), client.messenger::<ProbeRef>())])
        .map(|(id, probes)| {
            std::thread::spawn(move || block_on(all((0..3).map(|n| probes.entity(&id).write(n.to_string(), 100)))))
        })
        .collect();
    until("all six are in each mailbox", || {
        let seen = sum_of(&counters(&client), "messages");
        (seen >= 12).then_some(())
    });
    pod.stop();
    for ask in asks {
        assert_eq!(ask.join().unwrap(), [Ok(()), Ok(()), Ok(())]);
    }
    for id in &ids {
        assert_eq!(events(id).last().map(String::as_str), Some("stop Shutdown"));
        assert_eq!(events(id).iter().filter(|event| event.starts_with('-')).count(), 6);
    }
    assert_eq!(block_on(probes.entity(&ids[0]).count()), Err(SendError::Cluster(ClusterError::Stopped)));
}

#[test]
fn a_stopping_pod_answers_askers_on_cores_that_have_nothing_left() {
    for owner in [0, 1] {
        let (pod, probes, ids) = two_cores(&format!("answered{owner}"), EntityOptions::default());
        let id = ids[usize::from(owner)].clone();
        let (outcome, outcomes) = std::sync::mpsc::channel();
        let probe = probes.entity(&id);
        pod.spawn_on(CoreIndex(1 - owner), move || async move {
            let _ = outcome.send(probe.write("last".into(), 300).await);
        })
        .unwrap();
        until("it runs", || events(&id).contains(&"+last".to_owned()).then_some(()));
        pod.stop();
        assert_eq!(outcomes.recv_timeout(PATIENCE), Ok(Ok(())));
    }
}

#[test]
fn more_permits_than_a_protocol_can_use_are_refused() {
    let options = EntityOptions::default().concurrency(2);
    let refused = Pod::builder().config(config(1)).entity::<LonelyEntity>(options).start().map(drop);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("`lonely`") && text.contains("concurrency"), "{text}");
}

#[atoll::protocol]
pub trait Lonely {
    async fn write(&mut self);
}

pub struct LonelyEntity;

impl Entity for LonelyEntity {
    type Protocol = LonelyProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(LonelyEntity)
    }
}

impl Lonely for LonelyEntity {
    async fn write(&mut self) {}
}
