//! How a pod joins, stays in and leaves a cluster: a state machine between the pod and its store.
//!
//! Called with each response and event of the store, and in time ([`PodControl::next_wake`]). What it wants is in the
//! returned effects: requests for the store, and notices for the pod. [`super::ownership`] has the other half of the
//! same machine: what a member does about shards.
//!
//! The way in: bind the store to the cluster, create the records of cluster and role if there are none, list all
//! records and watch them, compare what is stored with the own configuration, take a lease, register under it. A watch
//! with a gap lists again. Every request that fails is sent again after a pause; writes are conditional, so sending one
//! twice does no harm.
//!
//! Invariants: one request of the way in is in flight at a time; the lease counts from the *sending* of the last
//! renewal that was answered, less a margin, so the pod is frozen before anybody else can claim its shards; after
//! [`ControlNotice::Lost`], `Refused` or `Stopped` nothing happens any more: a new incarnation is a new machine with a
//! new uid.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::config::{ControlConfig, Refusal};
use super::keys::{CLUSTER_KEY, KeySpace, RecordKey, pages_of};
use super::orders::{Order, OrderError};
use super::records::{self, ClusterRecord, MetaRecord, PlanPage, PodEntry, PodState, RoleRecord};
use super::store::{
    Compare, LeaseId, Operation, Revision, StoreError, StoreEvent, StoreRequest, StoreResponse, Transaction, WatchId,
};
use super::view::{ClusterView, Stored};
use super::{FREEZE_MARGIN_MIN, LIST_PAGE, REQUEST_TIMEOUT, RETRY_PAUSE};
use crate::base::hash::ENTITY_HASH_NAME;
use crate::base::{CoreIndex, Nanos, PodUid, ShardId, Token};
use crate::sharding::ShardTable;

/// Names a request until its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happened.
#[derive(Clone, Debug)]
pub enum ControlEvent {
    /// Begin; once, first.
    Start,
    /// The store answered.
    Response {
        /// The request.
        request: RequestId,
        /// The answer.
        response: StoreResponse,
    },
    /// The store reports on the watch.
    Store(StoreEvent),
    /// Time passed.
    Tick,
    /// All entities of a shard that was to be [released](ControlNotice::Release) are stopped.
    Released {
        /// The shard.
        shard: ShardId,
        /// As in the [`ControlNotice::Release`].
        token: Token,
    },
    /// Give all shards to other pods: say in the store that the pod drains, and release what the manager then plans
    /// elsewhere. [`PodControl::hand_over`] says how far it is.
    Drain,
    /// An order of an admin; [`ControlNotice::Ordered`] with the same ticket follows.
    Order {
        /// Names it.
        ticket: u64,
        /// The order.
        order: Order,
    },
    /// Leave. The entities are stopped already: other pods claim the shards as soon as the store knows.
    Stop,
}

/// What to do.
#[derive(Clone, Debug)]
pub enum ControlEffect {
    /// Send this to the store and report the response, or nothing if it is lost.
    Request {
        /// Its id.
        request: RequestId,
        /// What to send.
        body: StoreRequest,
    },
    /// Tell the pod.
    Notice(ControlNotice),
}

/// What the pod has to know.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlNotice {
    /// A table with a newer epoch, of the pod's role or another one: hand it to every core. The first one of the own
    /// role says that the pod owns its shards and can serve.
    Publish(Arc<ShardTable>),
    /// Until then (on the clock that the machine is told) entities may be dispatched and replies submitted;
    /// [`Nanos::NEVER`] with a store that only this process uses.
    ValidUntil(Nanos),
    /// The lease may lapse: no dispatch and no replies from now on.
    Freeze,
    /// The lease was renewed: go on.
    Thaw,
    /// Stop all entities of a shard, then report [`ControlEvent::Released`].
    Release {
        /// The shard.
        shard: ShardId,
        /// Under which token the pod owns it.
        token: Token,
        /// The core that serves it.
        core: CoreIndex,
        /// Who takes it.
        to: PodUid,
    },
    /// An order was given to the store, or not.
    Ordered {
        /// Names it.
        ticket: u64,
        /// How it went.
        outcome: Result<(), OrderError>,
    },
    /// The lease is lost, others may own the shards: drop all entities without saving, and join with a new uid.
    Lost,
    /// The pod may not join. Final.
    Refused(Refusal),
    /// The pod left the cluster. Final.
    Stopped,
}

/// Where the machine is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Not started.
    Idle,
    /// Binds the store to the cluster.
    BindStore,
    /// Reads to which cluster it is bound.
    ReadBinding,
    /// Creates the record of the cluster.
    CreateMeta,
    /// Creates the record of the role.
    CreateRole,
    /// Lists the records.
    List,
    /// Opens the watch.
    Watch,
    /// Waits until the watch has caught up with the list.
    CatchUp,
    /// Asks for a lease.
    Grant,
    /// Registers the pod.
    Register,
    /// Is a member.
    Member,
    /// Gives the lease back.
    Leave,
    /// Is done.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Step(Step),
    Renew,
    Write,
    CancelWatch,
    Order(u64),
}

#[derive(Debug)]
struct Pending {
    purpose: Purpose,
    sent: Nanos,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    ttl: Option<Duration>,
    valid_until: Nanos,
    /// When the next renewal is sent.
    renew_at: Nanos,
}

#[derive(Debug, Default)]
struct Listing {
    after: Option<String>,
    first: Option<Revision>,
    last: Revision,
    /// How far the watch has come.
    watched: Revision,
}

/// The machine. See the [module](self).
#[derive(Debug)]
pub struct PodControl {
    pub(super) config: ControlConfig,
    pub(super) keys: KeySpace,
    step: Step,
    step_pending: Option<RequestId>,
    /// When the present step is taken (again).
    step_at: Nanos,
    next_request: u64,
    pending: BTreeMap<RequestId, Pending>,
    pub(super) writes_pending: usize,
    listing: Listing,
    building: Option<ClusterView>,
    pub(super) view: ClusterView,
    watch: WatchId,
    pub(super) lease: Option<Lease>,
    pub(super) registered: Option<Revision>,
    frozen: bool,
    pub(super) draining: bool,
    pub(super) shards: super::ownership::ShardState,
    effects: Vec<ControlEffect>,
}

impl PodControl {
    /// A machine for one incarnation of a pod.
    ///
    /// # Errors
    /// If the configuration is not usable.
    pub fn new(config: ControlConfig) -> Result<PodControl, Refusal> {
        let keys = config.check()?;
        Ok(PodControl::with_keys(config, keys))
    }

    /// The machine for the next incarnation, after this one was [lost](ControlNotice::Lost): the same pod with a new
    /// uid, on the same connection to the store.
    #[must_use]
    pub fn successor(&self, uid: PodUid) -> PodControl {
        let config = ControlConfig { uid, ..self.config.clone() };
        let mut next = PodControl::with_keys(config, self.keys.clone());
        // The old watch is still open: the next listing cancels it, and its events are not taken for those of the new one.
        next.watch = self.watch;
        next.next_request = self.next_request;
        next.draining = self.draining;
        next
    }

    fn with_keys(config: ControlConfig, keys: KeySpace) -> PodControl {
        PodControl {
            step: Step::Idle,
            step_pending: None,
            step_at: Nanos::ZERO,
            next_request: 0,
            pending: BTreeMap::new(),
            writes_pending: 0,
            listing: Listing::default(),
            building: None,
            view: ClusterView::new(keys.clone()),
            watch: WatchId(0),
            lease: None,
            registered: None,
            frozen: false,
            draining: false,
            shards: super::ownership::ShardState::default(),
            effects: Vec::new(),
            keys,
            config,
        }
    }

    /// Where the machine is.
    #[must_use]
    pub fn current_step(&self) -> Step {
        self.step
    }

    /// The records as far as they are known.
    #[must_use]
    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &ControlConfig {
        &self.config
    }

    /// Takes an event; returns what to do, in order.
    pub fn step(&mut self, event: ControlEvent, now: Nanos) -> Vec<ControlEffect> {
        if self.step != Step::Ended {
            match event {
                ControlEvent::Start if self.step == Step::Idle => {
                    let first = if self.config.one_cluster_store { Step::BindStore } else { Step::CreateMeta };
                    self.go(first, now);
                }
                ControlEvent::Start | ControlEvent::Tick => {}
                ControlEvent::Response { request, response } => self.on_response(request, response, now),
                ControlEvent::Store(event) => self.on_store_event(event, now),
                ControlEvent::Released { shard, token } => self.on_released(shard, token),
                ControlEvent::Drain => self.draining = true,
                ControlEvent::Order { ticket, order } => self.on_order(ticket, order, now),
                ControlEvent::Stop => self.on_stop(now),
            }
            self.advance(now);
        }
        core::mem::take(&mut self.effects)
    }

    /// When to step with [`ControlEvent::Tick`] at the latest.
    #[must_use]
    pub fn next_wake(&self) -> Nanos {
        if matches!(self.step, Step::Idle | Step::Ended) {
            return Nanos::NEVER;
        }
        let mut wake =
            self.pending.values().map(|pending| pending.sent + REQUEST_TIMEOUT).min().unwrap_or(Nanos::NEVER);
        if let Some(lease) = &self.lease {
            wake = wake.min(lease.renew_at);
            if !self.frozen {
                wake = wake.min(lease.valid_until);
            }
        }
        if self.step == Step::Member {
            wake = wake.min(self.shards_wake());
        } else if self.step == Step::CatchUp {
            wake = wake.min(self.step_at + REQUEST_TIMEOUT);
        } else if self.step_pending.is_none() {
            wake = wake.min(self.step_at);
        }
        wake
    }

    /// Until when the pod may serve, as far as is known now.
    #[must_use]
    pub fn valid_until(&self) -> Nanos {
        self.lease.as_ref().map_or(Nanos::ZERO, |lease| lease.valid_until)
    }

    /// Whether the pod gives its shards away.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    pub(super) fn notice(&mut self, notice: ControlNotice) {
        self.effects.push(ControlEffect::Notice(notice));
    }

    /// Whether the lease may have lapsed, as far as this pod knows.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    fn go(&mut self, step: Step, now: Nanos) {
        self.step = step;
        self.step_pending = None;
        self.step_at = now;
    }

    fn end(&mut self, notice: ControlNotice) {
        self.step = Step::Ended;
        self.pending.clear();
        self.notice(notice);
    }

    pub(super) fn request(&mut self, purpose: Purpose, body: StoreRequest, now: Nanos) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        self.pending.insert(request, Pending { purpose, sent: now });
        self.effects.push(ControlEffect::Request { request, body });
        request
    }

    /// Sends a transaction about shards or the plan; its outcome comes to [`PodControl::on_write`].
    pub(super) fn write(&mut self, transaction: Transaction, now: Nanos) {
        self.request(Purpose::Write, StoreRequest::Transaction(transaction), now);
        self.writes_pending += 1;
    }

    fn advance(&mut self, now: Nanos) {
        self.fail_late_requests(now);
        self.keep_lease(now);
        if self.step == Step::Member {
            self.reconcile(now);
        } else if self.step == Step::CatchUp {
            if now >= self.step_at + REQUEST_TIMEOUT {
                self.list_again(now);
            }
        } else if self.step_pending.is_none() && now >= self.step_at {
            self.take_step(now);
        }
    }

    fn fail_late_requests(&mut self, now: Nanos) {
        let late = |pending: &Pending| pending.sent + REQUEST_TIMEOUT <= now;
        let late: Vec<RequestId> = self.pending.iter().filter(|(_, p)| late(p)).map(|(id, _)| *id).collect();
        for request in late {
            let error = StoreError::Unavailable("no answer in time".to_owned());
            self.on_response(request, StoreResponse::Failed(error), now);
        }
    }

    fn keep_lease(&mut self, now: Nanos) {
        let Some(lease) = &self.lease else {
            return;
        };
        if matches!(self.step, Step::Ended | Step::Leave) {
            return;
        }
        let (id, due, valid_until) = (lease.id, lease.renew_at, lease.valid_until);
        if now >= valid_until && !self.frozen {
            self.frozen = true;
            self.notice(ControlNotice::Freeze);
        }
        if now >= due {
            self.request(Purpose::Renew, StoreRequest::RenewLease { lease: id }, now);
            if let Some(lease) = &mut self.lease {
                lease.renew_at = renewal_due(lease.ttl, now);
            }
        }
    }

    /// Sends the request of the present step.
    fn take_step(&mut self, now: Nanos) {
        let absent_put = |key: String, value: Vec<u8>| {
            let compares = vec![Compare::Absent(key.clone())];
            let operations = vec![Operation::Put { key, value, lease: None }];
            StoreRequest::Transaction(Transaction { compares, operations })
        };
        let body = match self.step {
            Step::Idle | Step::CatchUp | Step::Member | Step::Ended => return,
            Step::BindStore => {
                let record = ClusterRecord { cluster: self.config.cluster.clone() };
                absent_put(CLUSTER_KEY.to_owned(), records::encode(record))
            }
            Step::ReadBinding => StoreRequest::Range { prefix: CLUSTER_KEY.to_owned(), after: None, limit: 1 },
            Step::CreateMeta => {
                let cluster = self.config.cluster.clone();
                let record = MetaRecord { cluster, token_base: 0, created_unix_ms: self.config.unix_ms(now) };
                absent_put(self.keys.key(RecordKey::Meta), records::encode(record))
            }
            Step::CreateRole => absent_put(self.role_key(), records::encode(self.own_role_record())),
            Step::List => {
                let (prefix, after) = (self.keys.prefix().to_owned(), self.listing.after.clone());
                StoreRequest::Range { prefix, after, limit: LIST_PAGE }
            }
            Step::Watch => {
                self.watch = WatchId(self.watch.0 + 1);
                let from = self.listing.first.unwrap_or_default().next();
                StoreRequest::Watch { watch: self.watch, prefix: self.keys.prefix().to_owned(), from }
            }
            Step::Grant => StoreRequest::GrantLease { ttl: self.config.lease_ttl },
            Step::Register => match self.registration() {
                Some(transaction) => StoreRequest::Transaction(transaction),
                None => return self.list_again(now),
            },
            Step::Leave => match &self.lease {
                Some(lease) => StoreRequest::RevokeLease { lease: lease.id },
                None => return self.end(ControlNotice::Stopped),
            },
        };
        self.step_pending = Some(self.request(Purpose::Step(self.step), body, now));
    }

    fn role_key(&self) -> String {
        self.keys.key(RecordKey::Role(&self.config.role))
    }

    pub(super) fn pod_key(&self) -> String {
        self.keys.key(RecordKey::Pod(&self.config.role, self.config.uid))
    }

    fn own_role_record(&self) -> RoleRecord {
        let (number_of_shards, hash_seed) = (self.config.number_of_shards, self.config.hash_seed);
        RoleRecord { number_of_shards, hash: ENTITY_HASH_NAME.to_owned(), hash_seed }
    }

    fn registration(&self) -> Option<Transaction> {
        let lease = self.lease.as_ref()?.id;
        let role = self.view.role(&self.config.role)?.role.as_ref()?;
        let entry = PodEntry {
            address: self.config.address.clone(),
            version: self.config.version.clone(),
            cores: self.config.cores,
            weight: self.config.weight,
            zone: self.config.zone.clone(),
            state: if self.draining { PodState::Draining } else { PodState::Active },
        };
        let key = self.pod_key();
        let compares = vec![Compare::Absent(key.clone()), Compare::ModRevision(self.role_key(), role.mod_revision)];
        let operations = vec![Operation::Put { key, value: records::encode(entry), lease: Some(lease) }];
        Some(Transaction { compares, operations })
    }

    fn on_response(&mut self, request: RequestId, response: StoreResponse, now: Nanos) {
        let Some(Pending { purpose, sent }) = self.pending.remove(&request) else {
            return; // Answered too late, or asked by a step that was left.
        };
        match purpose {
            Purpose::Step(step) if self.step_pending == Some(request) => {
                self.step_pending = None;
                self.on_step_response(step, response, sent, now);
            }
            Purpose::Step(_) => {}
            Purpose::Renew => self.on_renewal(response, sent, now),
            Purpose::Write => {
                self.writes_pending = self.writes_pending.saturating_sub(1);
                self.on_write(response, now);
            }
            Purpose::CancelWatch => {}
            Purpose::Order(ticket) => self.on_order_response(ticket, response),
        }
    }

    fn on_step_response(&mut self, step: Step, response: StoreResponse, sent: Nanos, now: Nanos) {
        match (step, response) {
            (Step::BindStore, StoreResponse::Transaction { .. }) => self.go(Step::ReadBinding, now),
            (Step::ReadBinding, StoreResponse::Range { records, .. }) => {
                self.on_binding(records.first().map(|record| record.value.as_slice()), now);
            }
            (Step::CreateMeta, StoreResponse::Transaction { .. }) => self.go(Step::CreateRole, now),
            (Step::CreateRole, StoreResponse::Transaction { .. }) => self.list_again(now),
            (Step::List, StoreResponse::Range { records, more, revision }) => {
                self.listing.first.get_or_insert(revision);
                self.listing.last = revision;
                self.listing.after = records.last().map(|record| record.key.clone());
                let building = self.building.get_or_insert_with(|| ClusterView::new(self.keys.clone()));
                for record in &records {
                    building.put(record);
                }
                self.go(if more { Step::List } else { Step::Watch }, now);
            }
            (Step::Watch, StoreResponse::Watching { .. }) => {
                self.go(Step::CatchUp, now);
                self.catch_up(now);
            }
            (Step::Grant, StoreResponse::Lease { lease, ttl }) => {
                let mut granted = Lease { id: lease, ttl, valid_until: Nanos::ZERO, renew_at: renewal_due(ttl, sent) };
                granted.valid_until = valid_until(ttl, sent);
                self.notice(ControlNotice::ValidUntil(granted.valid_until));
                self.lease = Some(granted);
                self.go(Step::Register, now);
            }
            (Step::Register, StoreResponse::Transaction { succeeded: true, revision }) => {
                self.registered = Some(revision);
                self.await_revision(revision);
                self.go(Step::Member, now);
            }
            (Step::Register, StoreResponse::Transaction { succeeded: false, .. }) => {
                self.list_again(now + RETRY_PAUSE);
            }
            (Step::Leave, StoreResponse::Revoked | StoreResponse::Failed(StoreError::LeaseNotFound)) => {
                self.end(ControlNotice::Stopped);
            }
            (_, StoreResponse::Failed(StoreError::LeaseNotFound)) => self.end(ControlNotice::Lost),
            _ => self.step_at = now + RETRY_PAUSE,
        }
    }

    fn on_binding(&mut self, stored: Option<&[u8]>, now: Nanos) {
        let Some(stored) = stored else {
            return self.go(Step::BindStore, now + RETRY_PAUSE);
        };
        match records::decode::<ClusterRecord>(stored) {
            Ok(record) if record.cluster == self.config.cluster => self.go(Step::CreateMeta, now),
            Ok(record) => {
                self.refuse(Refusal::OtherCluster { stored: record.cluster, configured: self.config.cluster.clone() })
            }
            Err(error) => self.refuse(Refusal::Record { key: CLUSTER_KEY.to_owned(), error }),
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.end(ControlNotice::Refused(refusal));
    }

    fn list_again(&mut self, now: Nanos) {
        if self.watch != WatchId(0) {
            self.request(Purpose::CancelWatch, StoreRequest::CancelWatch { watch: self.watch }, now);
        }
        self.listing = Listing::default();
        self.building = None;
        self.go(Step::List, now);
    }

    fn on_store_event(&mut self, event: StoreEvent, now: Nanos) {
        match event {
            StoreEvent::Changed { watch, revision, changes } if watch == self.watch => match &mut self.building {
                Some(building) => building.apply(revision, changes),
                None => {
                    self.view.apply(revision, changes);
                    self.on_view_changed(now);
                }
            },
            StoreEvent::Progress { watch, revision } if watch == self.watch => {
                if self.building.is_some() {
                    self.listing.watched = revision;
                    self.catch_up(now);
                } else {
                    self.view.revision = self.view.revision.max(revision);
                }
            }
            StoreEvent::Gap { watch } if watch == self.watch && !matches!(self.step, Step::List | Step::Leave) => {
                self.list_again(now);
            }
            _ => {} // Of a watch that was replaced.
        }
    }

    /// Takes the new view into use once the watch has come as far as the list.
    fn catch_up(&mut self, now: Nanos) {
        if self.step != Step::CatchUp || self.listing.watched < self.listing.last {
            return;
        }
        if let Some(mut building) = self.building.take() {
            building.listed(self.listing.watched);
            self.view = building;
            self.on_listed(now);
        }
    }

    /// The view is complete (again): compare it with the configuration, and go on where it was left.
    fn on_listed(&mut self, now: Nanos) {
        if let Err(refusal) = self.compare() {
            return self.refuse(refusal);
        }
        if self.view.role(&self.config.role).is_none_or(|role| role.role.is_none()) {
            return self.go(Step::CreateRole, now + RETRY_PAUSE); // Deleted since it was created.
        }
        let Some(lease) = self.lease.as_ref().map(|lease| lease.id) else {
            return self.go(Step::Grant, now);
        };
        let pods = self.view.role(&self.config.role).map(|role| &role.pods);
        let own = pods.and_then(|pods| pods.get(&self.config.uid)).map(|own| (own.lease, own.create_revision));
        match (own, self.registered) {
            (Some((holder, created)), _) if holder == Some(lease) => {
                self.registered = Some(created);
                self.go(Step::Member, now);
                self.on_view_changed(now);
            }
            (Some(_), _) => self.refuse(Refusal::UidTaken(self.config.uid)),
            (None, Some(_)) => self.end(ControlNotice::Lost),
            (None, None) => self.go(Step::Register, now),
        }
    }

    fn compare(&self) -> Result<(), Refusal> {
        for key in [self.keys.key(RecordKey::Meta), self.role_key()] {
            if let Some(error) = self.view.unreadable.get(&key) {
                return Err(Refusal::Record { key, error: error.clone() });
            }
        }
        let stored = self.view.meta.as_ref().map(|meta| meta.record.cluster.clone());
        if let Some(stored) = stored.filter(|stored| *stored != self.config.cluster) {
            return Err(Refusal::OtherCluster { stored, configured: self.config.cluster.clone() });
        }
        let Some(stored) = self.view.role(&self.config.role).and_then(|role| role.role.as_ref()) else {
            return Ok(());
        };
        let (role, stored, own) = (self.config.role.clone(), &stored.record, self.own_role_record());
        if stored.hash != own.hash {
            return Err(Refusal::OtherHash { role, stored: stored.hash.clone(), configured: own.hash });
        }
        if stored.number_of_shards != own.number_of_shards {
            let (stored, configured) = (stored.number_of_shards, own.number_of_shards);
            return Err(Refusal::OtherNumberOfShards { role, stored, configured });
        }
        if stored.hash_seed != own.hash_seed {
            let (stored, configured) = (stored.hash_seed, own.hash_seed);
            return Err(Refusal::OtherHashSeed { role, stored, configured });
        }
        Ok(())
    }

    /// A member whose registration vanished was evicted: its lease was revoked.
    pub(super) fn lost_registration(&self) -> bool {
        let Some(registered) = self.registered else {
            return false;
        };
        let present = self.view.role(&self.config.role).is_some_and(|role| role.pods.contains_key(&self.config.uid));
        self.view.revision >= registered && !present
    }

    pub(super) fn lose(&mut self) {
        self.end(ControlNotice::Lost);
    }

    fn on_renewal(&mut self, response: StoreResponse, sent: Nanos, now: Nanos) {
        match response {
            StoreResponse::Lease { lease, ttl } => {
                let Some(held) = self.lease.as_mut().filter(|held| held.id == lease) else {
                    return;
                };
                held.ttl = ttl;
                let until = valid_until(ttl, sent);
                if until > held.valid_until {
                    held.valid_until = until;
                    self.notice(ControlNotice::ValidUntil(until));
                }
                if self.frozen && now < until {
                    self.frozen = false;
                    self.notice(ControlNotice::Thaw);
                }
            }
            StoreResponse::Failed(StoreError::LeaseNotFound) => self.end(ControlNotice::Lost),
            _ => {
                // Soon again: the store may be back long before the next third of the time to live.
                if let Some(held) = &mut self.lease {
                    held.renew_at = held.renew_at.min(now + RETRY_PAUSE);
                }
            }
        }
    }

    fn on_stop(&mut self, now: Nanos) {
        if self.step == Step::Idle || self.lease.is_none() {
            return self.end(ControlNotice::Stopped);
        }
        if self.step != Step::Leave {
            self.go(Step::Leave, now);
        }
    }

    /// Whether every shard is planned for somebody. The manager may have made a plan before this pod, the first one of
    /// its role, was registered: then there is another one to come.
    pub(super) fn own_plan_is_complete(&self) -> bool {
        let role = self.view.role(&self.config.role);
        role.is_some_and(|role| {
            let planned = |page: &Stored<PlanPage>| page.record.shards.iter().all(|shard| shard.owner.is_some());
            let takes_none = self.config.weight == 0 || self.draining;
            role.pages.len() >= pages_of(role.number_of_shards()) as usize
                && (takes_none || role.pages.values().all(planned))
        })
    }
}

fn renewal_due(ttl: Option<Duration>, sent: Nanos) -> Nanos {
    ttl.map_or(Nanos::NEVER, |ttl| sent + ttl / 3)
}

/// The store counts from when it handles the request, which is after `sent`: others see the lapse later than this.
fn valid_until(ttl: Option<Duration>, sent: Nanos) -> Nanos {
    ttl.map_or(Nanos::NEVER, |ttl| sent + ttl.saturating_sub(FREEZE_MARGIN_MIN.max(ttl / 5)))
}
