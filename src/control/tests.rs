//! The machine against the model of a store: one pod, several pods, lost answers, lapsed leases.

use core::time::Duration;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::config::{ControlConfig, Refusal};
use super::membership::{ControlEffect, ControlEvent, ControlNotice, PodControl, Step};
use super::store::{Store, StoreError, StoreEvent, StoreRequest, StoreResponse, WatchId};
use super::store_state::LeaseMode;
use super::{ControlDriver, LEASE_TTL, MemoryStore, StartError};
use crate::base::{Nanos, PodUid, ShardId, Token};
use crate::sharding::{Owner, ShardTable};

const SHARDS: u32 = 130;

/// A store that several pods share. Watch ids are those of one connection, so each has its own range of them here.
#[derive(Clone)]
struct Shared {
    store: Rc<RefCell<MemoryStore>>,
    inbox: Rc<RefCell<BTreeMap<u64, Vec<StoreEvent>>>>,
    connection: u64,
}

impl Shared {
    fn new() -> Shared {
        let store = Rc::new(RefCell::new(MemoryStore::new(LeaseMode::Expiring)));
        Shared { store, inbox: Rc::default(), connection: 0 }
    }

    fn connect(&self, connection: u64) -> Shared {
        Shared { connection, ..self.clone() }
    }
}

impl Store for Shared {
    fn handle(&mut self, mut request: StoreRequest, now: Nanos) -> StoreResponse {
        if let StoreRequest::Watch { watch, .. } | StoreRequest::CancelWatch { watch } = &mut request {
            watch.0 |= self.connection << 32;
        }
        self.store.borrow_mut().handle(request, now)
    }

    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>) {
        let mut all = Vec::new();
        self.store.borrow_mut().poll_events(now, &mut all);
        let mut inbox = self.inbox.borrow_mut();
        for mut event in all {
            let (StoreEvent::Changed { watch, .. } | StoreEvent::Progress { watch, .. } | StoreEvent::Gap { watch }) =
                &mut event;
            let connection = watch.0 >> 32;
            *watch = WatchId(watch.0 & 0xffff_ffff);
            inbox.entry(connection).or_default().push(event);
        }
        events.append(inbox.entry(self.connection).or_default());
    }
}

fn config(uid: u128) -> ControlConfig {
    let mut config = ControlConfig::new(PodUid(uid), &format!("10.0.0.{uid}:7500"), 2);
    config.number_of_shards = SHARDS;
    config.rebalance_rate_per_mille = 500;
    config
}

fn driver(store: &Shared, config: ControlConfig) -> ControlDriver<Shared> {
    let connection = config.uid.0 as u64;
    ControlDriver::new(PodControl::new(config).expect("valid"), store.connect(connection))
}

fn start(driver: &mut ControlDriver<Shared>, now: &mut Nanos) -> Result<Arc<ShardTable>, StartError> {
    let deadline = *now + Duration::from_secs(20);
    let time = RefCell::new(*now);
    let outcome = driver.start(&mut || *time.borrow(), &mut |until| *time.borrow_mut() = until, deadline);
    *now = time.into_inner();
    outcome
}

fn started(store: &Shared, uid: u128, now: &mut Nanos) -> (ControlDriver<Shared>, Arc<ShardTable>) {
    let mut driver = driver(store, config(uid));
    let table = start(&mut driver, now).expect("starts");
    (driver, table)
}

fn owned_by(table: &ShardTable, uid: u128) -> Vec<Owner> {
    let index = table.pod_index_of(PodUid(uid));
    table.owners().iter().copied().filter(|owner| Some(owner.pod) == index).collect()
}

/// A clock that stands.
fn at(now: Nanos) -> impl FnMut() -> Nanos {
    move || now
}

fn step(now: &mut Nanos) -> Nanos {
    *now = *now + Duration::from_millis(250);
    *now
}

/// Ticks all pods for a while, releasing what they are asked to; returns the newest table.
fn run(pods: &mut [&mut ControlDriver<Shared>], now: &mut Nanos, time: Duration) -> Option<Arc<ShardTable>> {
    let until = *now + time;
    let mut newest: Option<Arc<ShardTable>> = None;
    while *now < until {
        step(now);
        for pod in pods.iter_mut() {
            let mut notices = pod.tick(&mut at(*now));
            while let Some(notice) = notices.pop() {
                match notice {
                    ControlNotice::Publish(table)
                        if newest.as_ref().is_none_or(|newest| table.is_newer_than(newest)) =>
                    {
                        newest = Some(table);
                    }
                    ControlNotice::Release { shard, token, .. } => {
                        notices.extend(pod.released([(shard, token)], &mut at(*now)))
                    }
                    _ => {}
                }
            }
        }
    }
    newest
}

#[test]
fn a_lone_pod_owns_all_shards_spread_over_its_cores() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (mut pod, table) = started(&store, 1, &mut now);
    assert_eq!(owned_by(&table, 1).len(), SHARDS as usize);
    assert_eq!(table.owners().iter().filter(|owner| owner.core.0 == 1).count(), SHARDS as usize / 2);
    let notices = pod.tick(&mut at(step(&mut now)));
    assert!(matches!(notices.first(), Some(ControlNotice::ValidUntil(until)) if *until > now));
}

#[test]
fn a_pod_that_joins_gets_its_share_and_tokens_grow() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (mut one, before) = started(&store, 1, &mut now);
    let (mut two, first) = started(&store, 2, &mut now);
    assert!(first.is_newer_than(&before));
    assert!(owned_by(&first, 2).is_empty(), "the first pod owns everything still");
    let after = run(&mut [&mut one, &mut two], &mut now, Duration::from_secs(60)).expect("a table");
    assert_eq!((owned_by(&after, 1).len(), owned_by(&after, 2).len()), (65, 65));
    let newest_before = before.owners().iter().map(|owner| owner.token).max();
    assert!(owned_by(&after, 2).iter().all(|owner| Some(owner.token) > newest_before));
    for shard in (0..SHARDS).map(ShardId) {
        let (old, new) = (before.owner(shard).expect("owned"), after.owner(shard).expect("owned"));
        let stayed = after.pod(new.pod).is_some_and(|pod| pod.uid == PodUid(1));
        assert_eq!(stayed, old.token == new.token, "a token changes with the owner");
    }
}

#[test]
fn a_shard_is_not_claimed_before_its_owner_released_it() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (mut one, _) = started(&store, 1, &mut now);
    let (mut two, _) = started(&store, 2, &mut now);
    let mut asked = 0;
    for _ in 0..200 {
        let notices = one.tick(&mut at(step(&mut now)));
        asked += notices.iter().filter(|notice| matches!(notice, ControlNotice::Release { .. })).count();
        for notice in two.tick(&mut at(now)) {
            if let ControlNotice::Publish(table) = notice {
                assert_eq!(owned_by(&table, 1).len(), SHARDS as usize);
            }
        }
    }
    assert_eq!(asked, super::RELEASES_IN_FLIGHT_MAX, "the others wait for these");
}

#[test]
fn the_shards_of_a_silent_pod_are_served_by_another_one_after_its_lease_and_it_froze_before() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (mut one, _) = started(&store, 1, &mut now);
    let (mut two, _) = started(&store, 2, &mut now);
    run(&mut [&mut one, &mut two], &mut now, Duration::from_secs(30));
    let silent_since = now;
    let valid_until = one.next_wake().max(now + Duration::from_secs(4));
    let mut taken_at = None;
    let mut newest = None;
    while taken_at.is_none() && now < silent_since + Duration::from_secs(20) {
        if let Some(table) = run(&mut [&mut two], &mut now, Duration::from_millis(250)) {
            taken_at = (owned_by(&table, 2).len() == SHARDS as usize).then_some(now);
            newest = Some(table);
        }
    }
    let taken_at = taken_at.expect("taken over");
    assert!(taken_at > valid_until && taken_at <= silent_since + LEASE_TTL + Duration::from_secs(2), "{taken_at:?}");
    assert_eq!(newest.expect("a table").pods().len(), 1);
    let notices = one.tick(&mut at(now));
    let freeze = notices.iter().position(|notice| *notice == ControlNotice::Freeze);
    let lost = notices.iter().position(|notice| *notice == ControlNotice::Lost);
    assert!(freeze.is_some() && lost > freeze, "{notices:?}");
    assert!(one.tick(&mut at(step(&mut now))).is_empty());
}

#[test]
fn a_pod_that_stops_leaves_its_shards_to_others_at_once() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (mut one, _) = started(&store, 1, &mut now);
    let (mut two, _) = started(&store, 2, &mut now);
    assert_eq!(one.stop(&mut at(now)).last(), Some(&ControlNotice::Stopped));
    let table = run(&mut [&mut two], &mut now, Duration::from_secs(1)).expect("a table");
    assert_eq!(owned_by(&table, 2).len(), SHARDS as usize);
    assert!(one.tick(&mut at(now)).is_empty());
}

#[test]
fn a_pod_freezes_while_the_store_is_away_and_thaws_when_it_is_back() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let mut inner = store.connect(1);
    let mut pod = PodControl::new(config(1)).expect("valid");
    let mut away = false;
    let mut seen = Vec::new();
    let mut feed = |pod: &mut PodControl, event, now: Nanos, away: bool, seen: &mut Vec<ControlNotice>| {
        let mut waiting = vec![event];
        while let Some(event) = waiting.pop() {
            for effect in pod.step(event, now) {
                match effect {
                    ControlEffect::Notice(notice) => seen.push(notice),
                    ControlEffect::Request { .. } if away => {}
                    ControlEffect::Request { request, body } => {
                        let response = inner.handle(body, now);
                        waiting.insert(0, ControlEvent::Response { request, response });
                    }
                }
            }
            if waiting.is_empty() && !away {
                let mut events = Vec::new();
                inner.poll_events(now, &mut events);
                waiting.extend(events.into_iter().rev().map(ControlEvent::Store));
            }
        }
    };
    feed(&mut pod, ControlEvent::Start, now, away, &mut seen);
    assert_eq!(pod.current_step(), Step::Member);
    assert!(seen.iter().any(|notice| matches!(notice, ControlNotice::Publish(_))));
    away = true;
    seen.clear();
    let away_since = now;
    while !seen.contains(&ControlNotice::Freeze) {
        feed(&mut pod, ControlEvent::Tick, step(&mut now), away, &mut seen);
    }
    assert!(now < away_since + LEASE_TTL, "before the lease can lapse");
    away = false;
    while !seen.contains(&ControlNotice::Thaw) {
        feed(&mut pod, ControlEvent::Tick, step(&mut now), away, &mut seen);
        assert!(now < away_since + LEASE_TTL * 3, "{seen:?}");
    }
    assert!(!seen.contains(&ControlNotice::Lost));
}

/// A store whose every third answer is lost, after the request was done.
struct LosesAnswers(Shared, u32);

impl Store for LosesAnswers {
    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse {
        let response = self.0.handle(request, now);
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return StoreResponse::Failed(StoreError::Unavailable("lost".to_owned()));
        }
        response
    }

    fn poll_events(&mut self, now: Nanos, events: &mut Vec<StoreEvent>) {
        self.0.poll_events(now, events);
    }
}

#[test]
fn lost_answers_delay_the_start_and_break_nothing() {
    for offset in 0..3 {
        let store = Shared::new();
        let control = PodControl::new(config(1)).expect("valid");
        let mut driver = ControlDriver::new(control, LosesAnswers(store.connect(1), offset));
        let time = RefCell::new(Nanos(1));
        let deadline = Nanos(1) + Duration::from_secs(20);
        let table = driver.start(&mut || *time.borrow(), &mut |until| *time.borrow_mut() = until, deadline);
        let table = table.expect("starts");
        assert_eq!(owned_by(&table, 1).len(), SHARDS as usize);
        assert_eq!(table.pods().len(), 1);
    }
}

/// A store that does nothing; for good, or until it is back.
struct Away(bool);

impl Store for Away {
    fn handle(&mut self, _: StoreRequest, _: Nanos) -> StoreResponse {
        StoreResponse::Failed(StoreError::Unavailable("it is away".to_owned()))
    }

    fn poll_events(&mut self, _: Nanos, _: &mut Vec<StoreEvent>) {}

    fn failure(&self) -> Option<&str> {
        self.0.then_some("the disk failed")
    }
}

#[test]
fn a_start_waits_for_a_store_that_may_come_back_and_not_for_one_that_failed() {
    let deadline = Nanos(1) + Duration::from_secs(20);
    for for_good in [true, false] {
        let mut driver = ControlDriver::new(PodControl::new(config(1)).expect("valid"), Away(for_good));
        let time = RefCell::new(Nanos(1));
        let started = driver.start(&mut || *time.borrow(), &mut |until| *time.borrow_mut() = until, deadline);
        let text = started.expect_err("there is no store").to_string();
        assert!(text.contains(if for_good { "the disk failed" } else { "it is away" }), "{text}");
        assert_eq!(*time.borrow() >= deadline, !for_good, "{text}");
    }
}

#[test]
fn a_pod_that_disagrees_is_refused_with_the_reason_and_leaves_no_trace() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (_one, before) = started(&store, 1, &mut now);
    let mut refused = |change: &dyn Fn(&mut ControlConfig)| {
        let mut config = config(2);
        change(&mut config);
        match start(&mut driver(&store, config), &mut now) {
            Err(StartError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(refused(&|config| config.number_of_shards = 7), Refusal::OtherNumberOfShards { stored: 130, .. }));
    assert!(matches!(refused(&|config| config.hash_seed = 7), Refusal::OtherHashSeed { stored: 0, configured: 7, .. }));
    assert!(matches!(refused(&|config| config.cluster = "other".into()), Refusal::OtherCluster { .. }));
    assert_eq!(refused(&|config| config.uid = PodUid(1)), Refusal::UidTaken(PodUid(1)));
    let (_three, table) = started(&store, 3, &mut now);
    assert_eq!(owned_by(&table, 1).len(), owned_by(&before, 1).len());
    assert_eq!(table.pods().len(), 2);
}

#[test]
fn unusable_configurations_are_refused() {
    let refused = |change: &dyn Fn(&mut ControlConfig)| {
        let mut config = config(1);
        change(&mut config);
        PodControl::new(config).expect_err("refused")
    };
    assert!(matches!(refused(&|config| config.cluster = "a/b".into()), Refusal::Name(_)));
    assert!(matches!(refused(&|config| config.role = String::new()), Refusal::Name(_)));
    assert!(matches!(refused(&|config| config.number_of_shards = 0), Refusal::Config(_)));
    assert!(matches!(refused(&|config| config.cores = 0), Refusal::Config(_)));
    assert!(matches!(refused(&|config| config.lease_ttl = Duration::from_secs(1)), Refusal::Config(_)));
}

#[test]
fn a_pod_lists_again_after_a_gap_and_keeps_its_shards() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (mut one, before) = started(&store, 1, &mut now);
    // The store forgets the watch and says so, as after its restart.
    let gaps = (1..4).map(|watch| StoreEvent::Gap { watch: WatchId(watch) }).collect();
    store.inbox.borrow_mut().insert(1, gaps);
    run(&mut [&mut one], &mut now, Duration::from_secs(2));
    assert_eq!(one.control().current_step(), Step::Member);
    let _two = started(&store, 2, &mut now);
    let table = run(&mut [&mut one], &mut now, Duration::from_secs(2)).expect("it watches again");
    assert_eq!(table.pods().len(), 2);
    let tokens = |table: &ShardTable| table.owners().iter().map(|owner| owner.token).collect::<Vec<Token>>();
    assert_eq!(tokens(&table), tokens(&before));
}

#[test]
fn the_driver_is_quiet_between_renewals() {
    let (mut now, store) = (Nanos(1), Shared::new());
    let (mut one, _) = started(&store, 1, &mut now);
    one.tick(&mut at(now));
    assert!(one.next_wake() > now + Duration::from_secs(1));
}
