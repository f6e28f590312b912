//! The simulated world: pods (each a [`PodControl`] and a model of its cores), the store, the ways between them.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use atoll::base::{Nanos, PodUid, ShardId, Token};
use atoll::control::membership::{ControlEffect, ControlEvent, ControlNotice, PodControl, RequestId, Step};
use atoll::control::store::{Operation, StoreEvent, StoreRequest, WatchId};
use atoll::control::store_state::LeaseMode;
use atoll::control::{ControlConfig, MemoryStore, Order, Store};
use atoll::sharding::ShardTable;

pub const TTL: Duration = Duration::from_secs(5);
const SHARDS: u32 = 70;
/// Simulated time with faults.
const FAULTS: Duration = Duration::from_secs(60);
/// After the faults all shards have to be served within this: a lease that was renewed last lapses, another manager
/// takes over (its lease, too), and the shards settle and are claimed.
const RECOVERY: Duration = Duration::from_secs(13);
/// Then the plan has to come to rest within this: ten rounds of rebalancing at most.
const REST: Duration = Duration::from_secs(30);

/// A bug in the way between a machine and the store, or in the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    ClaimWithoutCompare,
    FreezeIgnored,
    ReleasedTooEarly,
    NeverReleased,
}

/// What happened.
#[derive(Debug, Default)]
pub struct Report {
    pub kills: u32,
    pub pauses: u32,
    pub partitions: u32,
    pub stalls: u32,
    pub outages: u32,
    pub drains: u32,
    pub lost: u32,
    pub frozen: u32,
    pub moves: u32,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.kills += other.kills;
        self.pauses += other.pauses;
        self.partitions += other.partitions;
        self.stalls += other.stalls;
        self.outages += other.outages;
        self.drains += other.drains;
        self.lost += other.lost;
        self.frozen += other.frozen;
        self.moves += other.moves;
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least + 1))
    }

    fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(least + self.below(most - least + 1))
    }
}

/// Something that reaches a pod or the store.
#[derive(Debug)]
enum Happening {
    /// At the store, from the incarnation of a process.
    Request { pod: usize, process: u64, uid: PodUid, request: RequestId, body: StoreRequest },
    /// At the pod's control thread.
    Control { pod: usize, process: u64, uid: PodUid, event: ControlEvent },
    /// A process starts.
    Start { pod: usize, process: u64 },
    /// A pod that lost its lease joins again.
    Rejoin { pod: usize, process: u64 },
}

struct Scheduled {
    at: Nanos,
    order: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// A pod's process, as far as its cores and its control thread matter.
struct Pod {
    address: String,
    /// Counts its processes: what was sent to an earlier one is dropped.
    process: u64,
    control: Option<PodControl>,
    table: Option<Arc<ShardTable>>,
    valid_until: Nanos,
    /// Largest token under which a shard was released.
    released: BTreeMap<ShardId, Token>,
    paused_until: Nanos,
    cut_until: Nanos,
    /// Until then the watch delivers nothing, while requests are answered.
    stalled_until: Nanos,
    /// What came while it was paused, in order.
    held: Vec<(PodUid, ControlEvent)>,
    tick_at: Nanos,
}

pub struct World {
    pub now: Nanos,
    seed: Random,
    bug: Bug,
    /// Whether one message of a hundred takes long.
    slow: bool,
    /// A pod whose claims arrive three seconds late.
    pub late_claims: Option<usize>,
    noticed: bool,
    store: MemoryStore,
    store_away_until: Nanos,
    pods: Vec<Pod>,
    schedule: BinaryHeap<Scheduled>,
    order: u64,
    next_uid: u128,
    next_process: u64,
    /// Until when the last message of each way is on its way: they keep their order.
    last_arrival: BTreeMap<(usize, bool), Nanos>,
    last_event: BTreeMap<usize, Nanos>,
    pub report: Report,
    plan_writes_at: Nanos,
    /// Since when a shard has no owner record, and the longest such time while all pods were well.
    without_owner: BTreeMap<ShardId, Nanos>,
    longest_gap: Duration,
}

impl World {
    /// Pods that start at the same time on an empty store.
    pub fn new(seed: u64, bug: Bug, pods: usize) -> World {
        let mut world = World {
            now: Nanos(1_000_000),
            seed: Random(seed),
            bug,
            slow: false,
            late_claims: None,
            noticed: false,
            store: MemoryStore::new(LeaseMode::Expiring),
            store_away_until: Nanos::ZERO,
            pods: Vec::new(),
            schedule: BinaryHeap::new(),
            order: 0,
            next_uid: 0,
            next_process: 0,
            last_arrival: BTreeMap::new(),
            last_event: BTreeMap::new(),
            report: Report::default(),
            plan_writes_at: Nanos::ZERO,
            without_owner: BTreeMap::new(),
            longest_gap: Duration::ZERO,
        };
        for pod in 0..pods {
            world.pods.push(Pod {
                address: format!("10.0.0.{pod}:7400"),
                process: 0,
                control: None,
                table: None,
                valid_until: Nanos::ZERO,
                released: BTreeMap::new(),
                paused_until: Nanos::ZERO,
                cut_until: Nanos::ZERO,
                stalled_until: Nanos::ZERO,
                held: Vec::new(),
                tick_at: Nanos::NEVER,
            });
            let delay = world.seed.millis(0, 500);
            world.start_later(pod, delay);
        }
        world
    }

    fn push(&mut self, at: Nanos, what: Happening) {
        self.order += 1;
        self.schedule.push(Scheduled { at, order: self.order, what });
    }

    /// When a message that is sent now arrives; it does not overtake an earlier one of the same way.
    fn arrival(&mut self, pod: usize, to_store: bool) -> Nanos {
        // Mostly a millisecond, seldom much longer.
        let delay =
            if self.slow && self.seed.below(100) == 0 { self.seed.millis(1, 300) } else { self.seed.micros(100, 1500) };
        let last = self.last_arrival.entry((pod, to_store)).or_insert(Nanos::ZERO);
        *last = (self.now + delay).max(*last);
        *last
    }

    /// The same for an event of the watch, which has a way of its own.
    fn event_arrival(&mut self, pod: usize) -> Nanos {
        let delay = self.seed.micros(100, 1500);
        let last = self.last_event.entry(pod).or_insert(Nanos::ZERO);
        *last = (self.now + delay).max(*last).max(self.pods[pod].stalled_until);
        *last
    }

    fn start_later(&mut self, pod: usize, delay: Duration) {
        self.next_process += 1;
        self.pods[pod].process = self.next_process;
        self.push(self.now + delay, Happening::Start { pod, process: self.next_process });
    }

    fn fresh_uid(&mut self) -> PodUid {
        self.next_uid += 1;
        PodUid(self.next_uid)
    }

    fn config(&mut self, pod: usize) -> ControlConfig {
        let mut config = ControlConfig::new(self.fresh_uid(), &self.pods[pod].address, 2);
        config.number_of_shards = SHARDS;
        config.lease_ttl = TTL;
        config.rebalance_interval = Duration::from_secs(2);
        config.rebalance_rate_per_mille = 200;
        config
    }

    // ---- faults ----

    pub fn kill(&mut self, pod: usize) {
        let pod = &mut self.pods[pod];
        self.next_process += 1;
        pod.process = self.next_process;
        (pod.control, pod.table, pod.tick_at, pod.valid_until) = (None, None, Nanos::NEVER, Nanos::ZERO);
        pod.held.clear();
        pod.released.clear();
        self.report.kills += 1;
    }

    /// A new process of a pod, a moment after the old one is killed.
    pub fn restart(&mut self, pod: usize) {
        self.kill(pod);
        self.start_later(pod, Duration::from_millis(100));
    }

    /// An admin asks a pod to have another one drained.
    pub fn order_drain(&mut self, asked: usize, drained: usize) {
        let uid = self.uid(drained).expect("runs");
        self.give(asked, ControlEvent::Order { ticket: 1, order: Order::Drain(uid) });
    }

    pub fn drain(&mut self, pod: usize) {
        self.report.drains += 1;
        self.give(pod, ControlEvent::Drain);
    }

    fn fault(&mut self) {
        let pod = self.seed.below(self.pods.len() as u64) as usize;
        match self.seed.below(16) {
            0..=2 => {
                self.kill(pod);
                let delay = self.seed.millis(100, 9000);
                self.start_later(pod, delay);
            }
            3..=5 => {
                self.report.pauses += 1;
                let time = self.seed.millis(50, 9000);
                self.pods[pod].paused_until = self.now + time;
            }
            6..=8 => {
                self.report.partitions += 1;
                let time = self.seed.millis(50, 9000);
                self.pods[pod].cut_until = self.now + time;
            }
            9 => {
                self.report.outages += 1;
                let time = self.seed.millis(50, 7000);
                self.store_away_until = self.now + time;
            }
            10..=13 => {
                self.report.stalls += 1;
                let time = self.seed.millis(50, 6000);
                self.pods[pod].stalled_until = self.now + time;
            }
            _ => self.drain(pod),
        }
    }

    // ---- the ways ----

    fn send(&mut self, pod: usize, request: RequestId, body: StoreRequest) {
        if self.pods[pod].cut_until > self.now {
            return;
        }
        let Some(uid) = self.uid(pod) else { return };
        let process = self.pods[pod].process;
        let claims =
            |operation: &Operation| matches!(operation, Operation::Put { .. }) && operation.key().contains("/own/");
        let late = matches!(&body, StoreRequest::Transaction(transaction) if transaction.operations.iter().any(claims));
        let at = if late && self.late_claims == Some(pod) {
            self.now + Duration::from_secs(3)
        } else {
            self.arrival(pod, true)
        };
        self.push(at, Happening::Request { pod, process, uid, request, body });
    }

    fn at_store(&mut self, pod: usize, process: u64, uid: PodUid, request: RequestId, mut body: StoreRequest) {
        if self.store_away_until > self.now {
            return;
        }
        if let StoreRequest::Watch { watch, .. } | StoreRequest::CancelWatch { watch } = &mut body {
            *watch = WatchId((process << 24) | watch.0);
        }
        if let StoreRequest::Transaction(transaction) = &mut body {
            let puts = |kind: &str| {
                let of_kind = |operation: &Operation| {
                    matches!(operation, Operation::Put { .. }) && operation.key().contains(kind)
                };
                transaction.operations.iter().any(of_kind)
            };
            if puts("/plan/") {
                self.plan_writes_at = self.now;
            }
            if self.bug == Bug::ClaimWithoutCompare && puts("/own/") {
                transaction.compares.clear();
            }
        }
        let response = self.store.handle(body, self.now);
        if self.pods[pod].process == process && self.pods[pod].cut_until <= self.now {
            let at = self.arrival(pod, false);
            let event = ControlEvent::Response { request, response };
            self.push(at, Happening::Control { pod, process, uid, event });
        }
        self.store_events();
    }

    /// Sends out what the watches have; a pod that cannot be reached lost its connection, so it gets a gap later.
    fn store_events(&mut self) {
        let mut events = Vec::new();
        self.store.poll_events(self.now, &mut events);
        for mut event in events {
            let (StoreEvent::Changed { watch, .. } | StoreEvent::Progress { watch, .. } | StoreEvent::Gap { watch }) =
                &mut event;
            let (process, own) = (watch.0 >> 24, WatchId(watch.0 & 0x00ff_ffff));
            let global = *watch;
            *watch = own;
            let Some(pod) = self.pods.iter().position(|pod| pod.process == process) else {
                self.store.handle(StoreRequest::CancelWatch { watch: global }, self.now);
                continue;
            };
            let Some(uid) = self.uid(pod) else { continue };
            if self.pods[pod].cut_until > self.now {
                self.store.handle(StoreRequest::CancelWatch { watch: global }, self.now);
                let at = self.event_arrival(pod).max(self.pods[pod].cut_until);
                let event = ControlEvent::Store(StoreEvent::Gap { watch: own });
                self.push(at, Happening::Control { pod, process, uid, event });
                continue;
            }
            let at = self.event_arrival(pod);
            self.push(at, Happening::Control { pod, process, uid, event: ControlEvent::Store(event) });
        }
    }

    fn uid(&self, pod: usize) -> Option<PodUid> {
        self.pods[pod].control.as_ref().map(|control| control.config().uid)
    }

    // ---- a pod ----

    fn give(&mut self, at: usize, event: ControlEvent) {
        let now = self.now;
        let Some(uid) = self.uid(at) else { return };
        let pod = &mut self.pods[at];
        if pod.paused_until > now {
            pod.held.push((uid, event));
            pod.tick_at = pod.tick_at.min(pod.paused_until);
            return;
        }
        let Some(control) = &mut pod.control else { return };
        let effects = control.step(event, now);
        pod.tick_at = control.next_wake().max(now + Duration::from_micros(10));
        for effect in effects {
            match effect {
                ControlEffect::Request { request, body } => self.send(at, request, body),
                ControlEffect::Notice(notice) => self.notice(at, uid, notice),
            }
        }
    }

    fn notice(&mut self, at: usize, uid: PodUid, notice: ControlNotice) {
        let now = self.now;
        self.noticed = true;
        let process = self.pods[at].process;
        let pod = &mut self.pods[at];
        match notice {
            ControlNotice::Publish(table) => pod.table = Some(table),
            ControlNotice::ValidUntil(until) => pod.valid_until = until,
            ControlNotice::Freeze => self.report.frozen += 1,
            ControlNotice::Release { shard, token, .. } => {
                self.report.moves += 1;
                if self.bug == Bug::NeverReleased {
                    return;
                }
                let stops = if self.slow && self.seed.below(50) == 0 {
                    self.seed.millis(1, 2000)
                } else {
                    self.seed.micros(50, 900)
                };
                let reported = if self.bug == Bug::ReleasedTooEarly { Duration::ZERO } else { stops };
                let event = ControlEvent::Released { shard, token };
                self.push(now + reported, Happening::Control { pod: at, process, uid, event });
            }
            ControlNotice::Lost => {
                self.report.lost += 1;
                (pod.table, pod.valid_until) = (None, Nanos::ZERO);
                pod.released.clear();
                let delay = self.seed.millis(10, 200);
                self.push(now + delay, Happening::Rejoin { pod: at, process });
            }
            ControlNotice::Refused(refusal) => panic!("refused: {refusal}"),
            ControlNotice::Thaw | ControlNotice::Stopped | ControlNotice::Ordered { .. } => {}
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Request { pod, process, uid, request, body } => self.at_store(pod, process, uid, request, body),
            Happening::Control { pod, process, uid, event } => {
                if self.pods[pod].process != process || self.uid(pod) != Some(uid) {
                    return;
                }
                if let (ControlEvent::Released { shard, token }, true) =
                    (&event, self.bug != Bug::ReleasedTooEarly && self.pods[pod].paused_until <= self.now)
                {
                    self.pods[pod].released.insert(*shard, *token);
                }
                self.give(pod, event);
            }
            Happening::Start { pod, process } if self.pods[pod].process == process => {
                let config = self.config(pod);
                self.pods[pod].control = Some(PodControl::new(config).expect("usable"));
                self.give(pod, ControlEvent::Start);
            }
            Happening::Rejoin { pod, process } if self.pods[pod].process == process => {
                let uid = self.fresh_uid();
                let next = self.pods[pod].control.as_ref().map(|control| control.successor(uid));
                self.pods[pod].control = next;
                self.give(pod, ControlEvent::Start);
            }
            Happening::Start { .. } | Happening::Rejoin { .. } => {}
        }
    }

    /// Lets time pass.
    pub fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let until = self.now + time;
        loop {
            let scheduled = self.schedule.peek().map_or(Nanos::NEVER, |next| next.at);
            let wake = |pod: &Pod| pod.tick_at.max(pod.paused_until);
            let (tick, pod) = self.pods.iter().enumerate().map(|(at, pod)| (wake(pod), at)).min().expect("pods");
            let next = scheduled.min(tick);
            if next > until {
                self.now = until;
                self.store_due();
                return Ok(());
            }
            // The store ends leases in time whatever else happens.
            if next > self.now + Duration::from_millis(20) {
                self.now = self.now + Duration::from_millis(20);
                self.store_due();
                self.check()?;
                continue;
            }
            self.now = self.now.max(next);
            if scheduled <= tick {
                let Some(next) = self.schedule.pop() else { continue };
                self.happen(next.what);
            } else {
                self.tick(pod);
            }
            self.check()?;
        }
    }

    fn store_due(&mut self) {
        if self.store_away_until <= self.now {
            self.store_events();
        }
    }

    /// A tick; after a pause first what came meanwhile, as a process finds it in its sockets.
    fn tick(&mut self, pod: usize) {
        self.give(pod, ControlEvent::Tick);
        for (uid, event) in core::mem::take(&mut self.pods[pod].held) {
            if self.uid(pod) == Some(uid) {
                if let ControlEvent::Released { shard, token } = &event {
                    self.pods[pod].released.insert(*shard, *token);
                }
                self.give(pod, event);
            }
        }
    }

    // ---- what is seen ----

    /// Whether a pod's core would start a handler for the shard now.
    fn serves(&self, at: usize, shard: ShardId) -> bool {
        let pod = &self.pods[at];
        let (Some(uid), Some(table)) = (self.uid(at), &pod.table) else { return false };
        let Some(owner) = table.owner(shard) else { return false };
        let mine = table.pod(owner.pod).is_some_and(|pod| pod.uid == uid);
        let valid = self.now < pod.valid_until || self.bug == Bug::FreezeIgnored;
        let released = pod.released.get(&shard).is_some_and(|token| *token >= owner.token);
        mine && valid && !released
    }

    /// A pod begins to serve only with a notice, so that is when two could.
    fn check(&mut self) -> Result<(), String> {
        if !core::mem::take(&mut self.noticed) {
            return Ok(());
        }
        for shard in (0..SHARDS).map(ShardId) {
            let serving: Vec<usize> = (0..self.pods.len()).filter(|pod| self.serves(*pod, shard)).collect();
            if serving.len() > 1 {
                return Err(format!("shard {} has two owners at {:?}: pods {serving:?}", shard.0, self.now));
            }
            if serving.is_empty() {
                self.without_owner.entry(shard).or_insert(self.now);
            } else if let Some(since) = self.without_owner.remove(&shard) {
                self.longest_gap = self.longest_gap.max(self.now.since(since));
            }
        }
        Ok(())
    }

    /// Longest time that a shard was not served since [`World::forget_gaps`].
    pub fn longest_gap(&self) -> Duration {
        self.longest_gap
    }

    pub fn forget_gaps(&mut self) {
        self.longest_gap = Duration::ZERO;
    }

    pub fn all_served(&self) -> bool {
        let served = |shard| (0..self.pods.len()).any(|pod| self.serves(pod, shard));
        (0..SHARDS).map(ShardId).all(served)
    }

    pub fn owned_by(&self, pod: usize) -> usize {
        (0..SHARDS).map(ShardId).filter(|shard| self.serves(pod, *shard)).count()
    }

    pub fn has_handed_over(&self, pod: usize) -> bool {
        let hand_over = self.pods[pod].control.as_ref().map(PodControl::hand_over);
        hand_over.is_some_and(|hand_over| hand_over.announced && hand_over.shards_left == 0 && hand_over.heirs > 0)
    }

    pub fn has_no_heirs(&self, pod: usize) -> bool {
        let hand_over = self.pods[pod].control.as_ref().map(PodControl::hand_over);
        hand_over.is_some_and(|hand_over| hand_over.announced && hand_over.heirs == 0)
    }

    /// Whether no two pods that may take shards differ by more than one.
    fn gap_is_small(&self) -> bool {
        let hand_overs = self.pods.iter().map(|pod| pod.control.as_ref().map(PodControl::hand_over));
        let open: Vec<usize> = hand_overs
            .enumerate()
            .filter(|(_, hand_over)| hand_over.is_some_and(|hand_over| !hand_over.announced))
            .map(|(at, _)| self.owned_by(at))
            .collect();
        open.iter().max().zip(open.iter().min()).is_none_or(|(most, least)| most - least <= 1)
    }

    fn describe(&self) -> String {
        let pod = |(at, pod): (usize, &Pod)| match &pod.control {
            None => format!("pod {at}: not running. "),
            Some(control) => {
                let table = pod.table.as_ref().map(|table| table.epoch());
                let (step, hand_over) = (control.current_step(), control.hand_over());
                format!("pod {at}: {step:?}, serves {}, table {table:?}, {hand_over:?}. ", self.owned_by(at))
            }
        };
        self.pods.iter().enumerate().map(pod).collect()
    }

    pub fn is_balanced(&self) -> bool {
        let members = self.pods.iter().all(|pod| {
            pod.control.as_ref().is_some_and(|control| control.current_step() == Step::Member && pod.table.is_some())
        });
        members && self.all_served() && self.gap_is_small()
    }
}

/// One run: a minute of faults, then peace. `Err` says which promise was broken.
pub fn simulate(seed: u64, bug: Bug) -> Result<Report, String> {
    let pods = 2 + (seed % 4) as usize;
    let mut world = World::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d), bug, pods);
    world.slow = true;
    world.run_for(Duration::from_secs(3))?;
    let end = world.now + FAULTS;
    while world.now < end {
        world.fault();
        let pause = world.seed.millis(10, 2500);
        world.run_for(pause)?;
    }
    world.heal();
    world.run_for(RECOVERY)?;
    if !world.all_served() {
        let missing = (0..SHARDS).map(ShardId).filter(|shard| (0..pods).all(|pod| !world.serves(pod, *shard))).count();
        return Err(format!("{missing} shards are not served {RECOVERY:?} after the faults"));
    }
    world.run_for(REST)?;
    let rested_at = world.now;
    world.run_for(Duration::from_secs(10))?;
    if world.plan_writes_at >= rested_at {
        return Err("the plan does not come to rest".to_owned());
    }
    if !world.is_balanced() {
        return Err(format!("not balanced at rest: {}", world.describe()));
    }
    Ok(world.report)
}

impl World {
    /// Ends all faults; pods that were drained start anew, as after a clean stop.
    fn heal(&mut self) {
        self.store_away_until = self.now;
        let drained: BTreeSet<usize> = (0..self.pods.len())
            .filter(|pod| self.pods[*pod].control.as_ref().is_some_and(|control| control.is_draining()))
            .collect();
        for pod in 0..self.pods.len() {
            self.pods[pod].paused_until = self.pods[pod].paused_until.min(self.now);
            self.pods[pod].cut_until = self.pods[pod].cut_until.min(self.now);
            self.pods[pod].stalled_until = self.pods[pod].stalled_until.min(self.now);
            if drained.contains(&pod) {
                self.kill(pod);
            }
            if self.pods[pod].control.is_none() {
                self.start_later(pod, Duration::from_millis(50));
            }
        }
    }
}
