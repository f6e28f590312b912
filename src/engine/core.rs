//! One core's state machine: host, links, queues and table, composed.
//!
//! The shell calls it with events and the time, and carries out what it leaves behind: output of links, commands for
//! sockets, parcels for other cores. Called by the loop (through the adapter in `pod`) and by tests, which need no shell.
//! Invariants: `host.enter()` surrounds everything that can run user code; a turn takes at most a batch from each queue.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::link::{LinkLimits, Phase};
use super::parcel::{CallParcel, Parcel};
use super::routes::{EngineCounters, Identity, LinkCommand, PeerCore, Routes};
use crate::base::hash::shard_of_hash;
use crate::base::limits::{MESH_BATCH, MISPLACED_MAX};
use crate::base::{ClusterError, CoreIndex, LinkId, Nanos};
use crate::entity::foreign::Job;
use crate::entity::router::Router;
use crate::entity::{
    Call, CallChain, Delivered, Delivery, Host, HostOptions, PendingKey, ReplyTo, StopReason, TypeHost,
};
use crate::mesh::{Consumer, Doorbell, ForeignInbox, Producer};
use crate::sharding::ShardTable;
use crate::stream::host::{HostInbox, StreamHost, current};
use crate::wire::Inspect;

/// Things that run between two looks at the clock and at the news.
const CHECKPOINT: u32 = 8;
/// Events of one run of an island. Each may be followed by up to 256 more, which take about a microsecond together, so a
/// run takes no longer than a slice.
const STREAM_EVENTS_PER_RUN: u32 = 16;
/// How often handshakes are looked at that take too long.
const GREETING_CHECK: core::time::Duration = core::time::Duration::from_millis(250);

/// What other threads have a core do.
pub enum Command {
    /// Anything that needs only the host.
    Job(Job),
    /// Anything that needs the core.
    OnCore(Box<dyn FnOnce(&Core) + Send>),
    /// A new table.
    Table(Arc<ShardTable>),
    /// Finish what was received and stop the entities. The core goes on: others may still need it to pass answers on.
    Drain,
    /// End.
    Stop,
}

/// A question about the pod that came over a link.
pub struct Question {
    /// The question.
    pub question: Inspect,
    /// The core that got it and must send the answer.
    pub core: CoreIndex,
    /// The link that it came over.
    pub link: LinkId,
    /// What the answer carries.
    pub correlation: u64,
}

/// Takes questions off the core, to be answered by [`Core::answer_question`]. False if too many wait already.
pub type Inspector = Arc<dyn Fn(Question) -> bool + Send + Sync>;

/// The queues of one core.
pub struct CoreQueues {
    /// To each core of the pod; `None` for itself.
    pub to: Vec<Option<(Producer<Parcel>, Arc<Doorbell>)>>,
    /// From each core of the pod; `None` for itself.
    pub from: Vec<Option<Consumer<Parcel>>>,
    /// From other threads.
    pub foreign: Arc<ForeignInbox<Command>>,
}

/// What a core is made of.
pub struct CoreParts {
    /// Who it is.
    pub identity: Identity,
    /// For its host.
    pub host: HostOptions,
    /// For its links.
    pub limits: LinkLimits,
    /// Its queues.
    pub queues: CoreQueues,
    /// The entity types that it hosts.
    pub types: Vec<TypeHost>,
    /// Who answers questions about the pod; `None` at a client.
    pub inspector: Option<Inspector>,
    /// Where a client learns the table.
    pub bootstrap: Vec<String>,
    /// How the streams of each core of the process are reached, those of this core included.
    pub streams: Vec<Arc<HostInbox>>,
}

/// One core's state machine.
pub struct Core {
    pub(super) host: Rc<Host>,
    pub(super) routes: Rc<Routes>,
    inboxes: Vec<Option<RefCell<Consumer<Parcel>>>>,
    next_inbox: Cell<usize>,
    foreign: Arc<ForeignInbox<Command>>,
    streams: Rc<StreamHost>,
    pub(super) inspector: Option<Inspector>,
    /// Messages from other cores for shards that the table here does not give to this core yet.
    misplaced: RefCell<VecDeque<(CoreIndex, CallParcel)>>,
    next_greeting_check: Cell<Nanos>,
    draining: Cell<bool>,
    stopped: Cell<bool>,
    /// Why a peer refused us, for whoever waits for the first table.
    pub(super) refused: RefCell<Option<String>>,
}

impl Core {
    /// A core that has no table yet.
    pub fn new(parts: CoreParts) -> Core {
        let host = Rc::new(Host::new(parts.host));
        host.set_types(parts.types);
        let peers = parts.queues.to.into_iter().map(|peer| {
            peer.map(|(producer, doorbell)| PeerCore {
                producer: RefCell::new(producer),
                overflow: RefCell::default(),
                doorbell,
                touched: Cell::new(false),
            })
        });
        let streams = stream_host(parts.identity.core, parts.streams, host.doorbell());
        let routes = Rc::new(Routes::new(parts.identity, parts.limits, peers.collect(), parts.bootstrap));
        routes.set_host(&host);
        host.set_router(routes.clone());
        Core {
            host,
            routes,
            inboxes: parts.queues.from.into_iter().map(|from| from.map(RefCell::new)).collect(),
            next_inbox: Cell::new(0),
            foreign: parts.queues.foreign,
            streams,
            inspector: parts.inspector,
            misplaced: RefCell::default(),
            next_greeting_check: Cell::new(Nanos::ZERO),
            draining: Cell::new(false),
            stopped: Cell::new(false),
            refused: RefCell::default(),
        }
    }

    /// The entities of the core.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The streams of the core.
    pub fn streams(&self) -> &Rc<StreamHost> {
        &self.streams
    }

    /// Counters of links and queues, for any thread.
    pub fn counters(&self) -> &Arc<EngineCounters> {
        &self.routes.counters
    }

    /// The table that the core uses.
    pub fn table(&self) -> Option<Arc<ShardTable>> {
        self.routes.table.borrow().clone()
    }

    /// Why a peer refused this process, if one did.
    pub fn refusal(&self) -> Option<String> {
        self.refused.borrow().clone()
    }

    // ---- the turn ----

    /// Takes a batch from each queue. True if there was anything.
    pub fn inboxes(&self, now: Nanos) -> bool {
        let _entered = self.host.enter();
        let _streams = current::enter(&self.streams);
        self.host.set_now(now);
        let mut took = !self.streams.inbox().is_empty() && self.streams.take_events(now);
        let cores = self.inboxes.len();
        let first = self.next_inbox.get();
        for offset in 0..cores {
            let at = (first + offset) % cores;
            let Some(inbox) = &self.inboxes[at] else { continue };
            for _ in 0..MESH_BATCH {
                let Some(parcel) = inbox.borrow_mut().pop() else { break };
                took = true;
                self.parcel(CoreIndex(at as u16), parcel);
            }
        }
        if cores > 0 {
            self.next_inbox.set((first + 1) % cores);
        }
        for _ in 0..MESH_BATCH {
            // Looking is two loads; an empty queue's `pop` is a fence, which would be most of an idle turn.
            if self.foreign.is_empty() {
                break;
            }
            let Some(command) = self.foreign.pop() else { break };
            took = true;
            self.command(command);
        }
        self.host.take_woken() || took
    }

    /// Runs what is ready until `until` at most, and returns early when `news` says so. True if anything ran.
    pub fn work(&self, now: Nanos, until: Nanos, clock: &dyn Fn() -> Nanos, news: &dyn Fn() -> bool) -> bool {
        let _entered = self.host.enter();
        let _streams = current::enter(&self.streams);
        self.host.set_now(now);
        let mut now = now;
        let mut ran = 0_u32;
        // One of each in turn: neither entities nor streams wait for all of the others.
        while self.host.run_one() | self.streams.run_one(now) {
            ran += 1;
            if ran.is_multiple_of(CHECKPOINT) {
                now = clock();
                self.host.set_now(now);
                if now >= until || news() {
                    break;
                }
            }
        }
        ran > 0
    }

    /// Fires what is due.
    pub fn advance(&self, now: Nanos) {
        let _entered = self.host.enter();
        let _streams = current::enter(&self.streams);
        self.host.set_now(now);
        self.host.advance();
        if self.streams.next_deadline() <= now {
            self.streams.take_events(now);
        }
        if self.routes.forgive(now) {
            self.routes.wake_route_waiters();
        }
        if now >= self.next_greeting_check.get() {
            self.next_greeting_check.set(now + GREETING_CHECK);
            self.check_greetings(now);
        }
    }

    fn check_greetings(&self, now: Nanos) {
        let links = self.routes.all_links();
        for link in &links {
            let greets = matches!(link.phase.get(), Phase::Connecting | Phase::Greeting);
            if greets && now >= link.greeting_until {
                self.close_link(link, "handshake_timeout");
            }
        }
        if self.routes.is_lost() && !self.draining.get() {
            self.routes.dial_bootstrap(now);
        }
    }

    /// When [`Core::advance`] must be called next.
    pub fn next_deadline(&self) -> Nanos {
        let deadline = self.host.next_deadline().min(self.routes.next_forgiveness());
        deadline.min(self.next_greeting_check.get()).min(self.streams.next_deadline())
    }

    /// Whether anything is runnable or in an inbox.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.host.has_work()
            || self.inboxes.iter().flatten().any(|inbox| inbox.borrow().has_next())
            || !self.foreign.is_empty()
            || self.streams.has_work()
            || self.routes.has_overflow()
    }

    /// Makes what was pushed to other cores known: at most one ring for each that sleeps.
    #[inline]
    pub fn flush_peers(&self) {
        self.routes.push_overflow();
        for peer in self.routes.peers.iter().flatten() {
            if peer.touched.replace(false) {
                peer.doorbell.ring_if_sleeping();
            }
        }
    }

    /// What the shell has to do with sockets.
    pub fn take_commands(&self, into: &mut Vec<LinkCommand>) {
        into.append(&mut self.routes.commands.borrow_mut());
    }

    /// Links with new output.
    pub fn take_dirty(&self, into: &mut Vec<LinkId>) {
        let mut dirty = self.routes.dirty.borrow_mut();
        for id in dirty.drain(..) {
            if let Some(link) = self.routes.link(id) {
                link.dirty.set(false);
                into.push(id);
            }
        }
    }

    /// Swaps out the output of a link.
    pub fn take_output(&self, id: LinkId, into: &mut Vec<u8>) {
        let Some(link) = self.routes.link(id) else { return };
        link.send.borrow_mut().take(into);
        if link.paused.replace(false) {
            self.routes.commands.borrow_mut().push(LinkCommand::Resume { link: id });
        }
        if self.routes.starved.get() && link.has_room() {
            let _entered = self.host.enter();
            self.routes.wake_route_waiters();
        }
    }

    /// The doorbell of this core, for announcing its sleep.
    pub fn doorbell(&self) -> &Arc<Doorbell> {
        self.host.doorbell()
    }

    /// Whether the core is done.
    pub fn stopped(&self) -> bool {
        self.stopped.get()
    }

    // ---- events ----

    fn command(&self, command: Command) {
        match command {
            Command::Job(job) => job(&self.host),
            Command::OnCore(job) => job(self),
            Command::Table(table) => self.set_table(table),
            Command::Drain => {
                self.draining.set(true);
                self.host.stop_entities(StopReason::Shutdown);
            }
            Command::Stop => self.stopped.set(true),
        }
    }

    /// Uses a table from now on, if it is newer.
    pub fn set_table(&self, table: Arc<ShardTable>) {
        let _entered = self.host.enter();
        let known = self.routes.table.borrow().clone();
        if known.is_some_and(|known| !table.is_newer_than(&known)) {
            return;
        }
        let identity = &self.routes.identity;
        if identity.is_pod {
            let here = table.pod_index_of(identity.uid);
            let owned = table.owners().iter().enumerate().filter_map(|(shard, owner)| {
                let mine = Some(owner.pod) == here && owner.core == identity.core;
                mine.then_some((crate::base::ShardId(shard as u32), owner.token))
            });
            self.host.set_shards(owned, table.number_of_shards());
        }
        *self.routes.table.borrow_mut() = Some(Arc::clone(&table));
        self.spread_table(&table);
        self.routes.wake_route_waiters();
        let misplaced = core::mem::take(&mut *self.misplaced.borrow_mut());
        for (from, call) in misplaced {
            self.call(from, call);
        }
    }

    fn parcel(&self, from: CoreIndex, parcel: Parcel) {
        match parcel {
            Parcel::Call(call) => self.call(from, call),
            Parcel::Answer(answer) => answer.open(self.host.pool(), |key, answer_type, answer| {
                self.host.complete_from_core(PendingKey::from_number(key), answer_type, answer);
            }),
            Parcel::Acknowledged { key } => self.host.acknowledge(PendingKey::from_number(key)),
            Parcel::Failed { key, error } => self.host.fail_local(PendingKey::from_number(key), error),
            Parcel::Cancel { key } => {
                self.host.cancel_caller(ReplyTo::Core(from, key));
            }
            Parcel::Socket(socket) => self.adopt(*socket),
        }
    }

    fn call(&self, from: CoreIndex, call: CallParcel) {
        let (key, discard) = (call.key, call.discard);
        let shard = shard_of_hash(call.hash, self.host.number_of_shards());
        if self.host.shard_token(shard).is_none() {
            let mut misplaced = self.misplaced.borrow_mut();
            if misplaced.len() < MISPLACED_MAX {
                misplaced.push_back((from, call));
            } else {
                self.routes.fail_core(from, key, ClusterError::Busy);
            }
            return;
        }
        let reply_to = if discard { ReplyTo::Nobody } else { ReplyTo::Core(from, key) };
        let delivered = call.open(self.host.pool(), |call, message| {
            let method = &self.host.types()[usize::from(call.type_index)].methods()[call.method_index()];
            let chain = call.chain.as_deref().copied().unwrap_or(CallChain::EMPTY);
            let delivery = Delivery {
                type_index: call.type_index,
                hash: call.hash,
                id: &call.id,
                method,
                call: Call { reply_to, chain },
            };
            self.host.deliver_from_core(&delivery, message)
        });
        match delivered {
            Delivered::Failed(ClusterError::MessageDiscarded) if discard => self.routes.acknowledge_core(from, key),
            Delivered::Failed(error) => self.routes.fail_core(from, key, error),
            _ if discard => self.routes.acknowledge_core(from, key),
            _ => {}
        }
    }

    /// Sends the answer to a question.
    pub fn answer_question(&self, link: LinkId, correlation: u64, json: String) {
        if let Some(link) = self.routes.link(link) {
            link.questions.set(link.questions.get().saturating_sub(1));
            self.routes.write_control(&link, correlation, &crate::wire::ControlMessage::InspectReply { json });
        }
    }
}

/// The streams of a core, woken as everything else of the core is.
fn stream_host(core: CoreIndex, inboxes: Vec<Arc<HostInbox>>, doorbell: &Arc<Doorbell>) -> Rc<StreamHost> {
    let own = inboxes.get(usize::from(core.0)).cloned().unwrap_or_default();
    let doorbell = Arc::clone(doorbell);
    own.set_bell(move || {
        doorbell.ring_if_sleeping();
    });
    let streams = StreamHost::new(own);
    if !inboxes.is_empty() {
        streams.set_cores(core.0, inboxes);
    }
    streams.set_events_per_run(STREAM_EVENTS_PER_RUN);
    streams
}

impl Drop for Core {
    fn drop(&mut self) {
        self.streams.abort();
        self.foreign.close();
    }
}
