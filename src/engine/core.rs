//! One core's state machine: host, links, queues and table, composed.
//!
//! The shell calls it with events and the time, and carries out what it leaves behind: output of links, commands for
//! sockets, parcels for other cores. Called by the loop (through the adapter in `pod`) and by tests, which need no shell.
//! Invariants: `host.enter()` surrounds everything that can run user code; a turn takes at most a batch from each queue.

use core::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::counters::EngineCounters;
use super::held::WaitingRoom;
use super::link::{LinkLimits, Phase};
use super::parcel::{AnswerParcel, CallParcel, Notice, Opened, Parcel};
use super::routes::{Identity, LinkCommand, PeerCore, Routes};
use crate::base::limits::{FROZEN_LOOK, MESH_BATCH};
use crate::base::{ClusterError, CoreIndex, LinkId, Nanos, PodUid, ShardId, Token};
use crate::entity::foreign::Job;
use crate::entity::router::Router;
use crate::entity::{
    Call, CallChain, Clock, Delivered, Delivery, Host, HostOptions, Lease, PendingKey, ReplyTo, StopReason, TypeHost,
};
use crate::mesh::{Consumer, Doorbell, ForeignInbox, InPlace, Producer};
use crate::sharding::ShardTable;
use crate::stream::host::{HostInbox, StreamHost, current};
use crate::wire::Inspect;

/// Things that run between two looks at the clock and at the news.
const CHECKPOINT: u32 = 8;
/// Events of one run of an island. Each may be followed by 64 more, so a run of ordinary stages takes some microseconds; an
/// element that runs through dozens of element-wise stages each time can make it a hundred. The clock is looked at after
/// each run.
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
    /// Stop the entities of these shards, which move to other pods. Each shard is reported once by
    /// [`CoreParts::released`].
    Release {
        /// The shards.
        shards: Vec<ShardId>,
    },
    /// The lease is lost: drop all entities without `Entity::stop`, answer nobody, close all links.
    Abandon,
    /// The process is a new member of the cluster. After [`Command::Abandon`], before the next table.
    Identity(PodUid),
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

/// Is told of each shard that was to be released when its last entity is gone: the shard, and the token under which it
/// was owned; zero if the core did not own it.
pub type Released = Arc<dyn Fn(ShardId, Token) + Send + Sync>;

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
    /// Until when the pod may serve, in nanoseconds on `clock`; `u64::MAX` for ever. The control thread extends it; what
    /// it must have said before (that the old lease was lost) it says by commands before.
    pub validity: Arc<AtomicU64>,
    /// The clock of `validity` and of all times that the core is told.
    pub clock: Clock,
    /// Is told of shards that are released.
    pub released: Released,
    /// How the streams of each core of the process are reached, those of this core included.
    pub streams: Vec<Arc<HostInbox>>,
}

/// One core's state machine.
pub struct Core {
    pub(super) host: Rc<Host>,
    pub(super) routes: Rc<Routes>,
    inboxes: Vec<Option<RefCell<Consumer<Parcel>>>>,
    next_inbox: Cell<usize>,
    more_to_run: Cell<bool>,
    pub(super) foreign: Arc<ForeignInbox<Command>>,
    streams: Rc<StreamHost>,
    pub(super) inspector: Option<Inspector>,
    pub(super) lease: Lease,
    /// The end of the lease when it was last looked at.
    pub(super) seen_until: Cell<u64>,
    pub(super) released: Released,
    /// Requests for shards on their way.
    pub(super) held: WaitingRoom,
    /// Links whose output waits for the lease.
    pub(super) withheld: RefCell<Vec<LinkId>>,
    /// Addresses that a client has tried since it last had a link.
    pub(super) dials: Cell<usize>,
    next_greeting_check: Cell<Nanos>,
    draining: Cell<bool>,
    stopped: Cell<bool>,
    /// Why a peer refused us, for whoever waits for the first table.
    pub(super) refused: RefCell<Option<String>>,
    /// What came of the address that was dialed last to learn the table, if no table came of it.
    pub(super) dial_outcome: RefCell<Option<String>>,
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
                told: Cell::new(crate::base::Epoch(0)),
                home: RefCell::default(),
            })
        });
        let lease = Lease { until: parts.validity, clock: parts.clock };
        host.set_lease(lease.clone());
        let streams = stream_host(parts.identity.core, parts.streams, host.doorbell());
        let routes = Rc::new(Routes::new(parts.identity, parts.limits, peers.collect(), parts.bootstrap));
        routes.set_host(&host);
        host.set_router(routes.clone());
        Core {
            host,
            routes,
            inboxes: parts.queues.from.into_iter().map(|from| from.map(RefCell::new)).collect(),
            next_inbox: Cell::new(0),
            more_to_run: Cell::new(false),
            foreign: parts.queues.foreign,
            streams,
            inspector: parts.inspector,
            lease,
            seen_until: Cell::new(u64::MAX),
            released: parts.released,
            held: WaitingRoom::default(),
            withheld: RefCell::default(),
            dials: Cell::new(0),
            next_greeting_check: Cell::new(Nanos::ZERO),
            draining: Cell::new(false),
            stopped: Cell::new(false),
            refused: RefCell::default(),
            dial_outcome: RefCell::default(),
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
        current::make_current(&self.streams);
        self.host.set_now(now);
        self.is_frozen_now();
        let mut took = !self.streams.inbox().is_empty() && self.streams.take_events(now);
        took |= self.take_parcels();
        for _ in 0..MESH_BATCH {
            // Looking is two loads; an empty queue's `pop` is a fence, which would be most of an idle turn.
            if self.foreign.is_empty() {
                break;
            }
            let Some(command) = self.foreign.pop() else { break };
            took = true;
            self.command(command);
        }
        if took {
            self.settle();
        }
        self.host.take_woken() || took
    }

    /// A batch from each other core; another one is the first each time.
    #[inline]
    fn take_parcels(&self) -> bool {
        let mut took = false;
        let after = |at: usize| if at + 1 < self.inboxes.len() { at + 1 } else { 0 };
        let mut at = self.next_inbox.get();
        self.next_inbox.set(after(at));
        for _ in 0..self.inboxes.len() {
            let from = CoreIndex(at as u16);
            let inbox = self.inboxes.get(at).and_then(Option::as_ref);
            at = after(at);
            let Some(mut inbox) = inbox.map(RefCell::borrow_mut) else { continue };
            for _ in 0..MESH_BATCH {
                if inbox.pop_with(|parcel| self.parcel(from, parcel)).is_none() {
                    break;
                }
                took = true;
            }
        }
        took
    }

    /// Runs what is ready until `until` at most, and returns early when `news` says so. True if anything ran.
    pub fn work(&self, now: Nanos, until: Nanos, clock: &dyn Fn() -> Nanos, news: &dyn Fn() -> bool) -> bool {
        let _entered = self.host.enter();
        current::make_current(&self.streams);
        self.host.set_now(now);
        let mut now = now;
        let (mut ran, mut left) = (0_u32, self.host.ready_length());
        loop {
            // Before each poll, however long the one before it took.
            self.is_frozen_now();
            // One of each in turn: neither entities nor streams wait for all of the others.
            let polled = self.host.run_one();
            let streamed = self.streams.has_ready() && self.streams.run_one(now);
            if !polled && !streamed {
                break;
            }
            ran += 1;
            left = left.saturating_sub(1);
            if left == 0 {
                // All that was ready has run; what it wrote goes out before what it woke runs.
                if self.routes.has_output() {
                    break;
                }
                left = self.host.ready_length();
            }
            // A run of an island may have taken the rest of the slice.
            if streamed || ran.is_multiple_of(CHECKPOINT) {
                now = clock();
                self.host.set_now(now);
                if now >= until || news() {
                    break;
                }
            }
        }
        if ran > 0 {
            self.settle();
        }
        self.more_to_run.set(ran > 0 && left > 0);
        ran > 0
    }

    /// Whether the last [`Core::work`] left some of what was ready when it began.
    #[inline]
    pub fn has_more_to_run(&self) -> bool {
        self.more_to_run.get()
    }

    /// Fires what is due.
    pub fn advance(&self, now: Nanos) {
        let _entered = self.host.enter();
        current::make_current(&self.streams);
        self.host.set_now(now);
        self.is_frozen_now();
        self.host.advance();
        self.end_late_calls(now);
        if self.streams.next_deadline() <= now {
            self.streams.take_events(now);
        }
        if self.routes.forgive(now) {
            self.routes.wake_due.set(true);
        }
        if now >= self.next_greeting_check.get() {
            self.next_greeting_check.set(now + GREETING_CHECK);
            self.check_greetings(now);
        }
        self.settle();
    }

    fn check_greetings(&self, now: Nanos) {
        let links = self.routes.all_links();
        for link in &links {
            let greets = matches!(link.phase.get(), Phase::Connecting | Phase::Greeting);
            if greets && now >= link.greeting_until {
                self.close_link(link, "handshake_timeout");
            }
            if link.has_late_part(now) {
                self.close_link(link, "part_timeout");
            }
        }
        self.close_orphans(&links, now);
        self.dials.set(0);
        if !self.draining.get() {
            self.look_for_pods(now);
        }
    }

    /// Has a client look for a pod that tells it the table, or for a second one.
    pub(super) fn look_for_pods(&self, now: Nanos) {
        if self.routes.wants_link() && self.dials.get() <= self.routes.dial_addresses() {
            self.dials.set(self.dials.get() + 1);
            self.routes.dial_next(now);
        }
    }

    /// When [`Core::advance`] must be called next.
    pub fn next_deadline(&self) -> Nanos {
        let deadline = self.host.next_deadline().min(self.routes.next_forgiveness());
        let deadline = deadline.min(self.routes.open_calls.next_deadline());
        let look = if self.host.is_frozen() { self.host.now() + FROZEN_LOOK } else { Nanos::NEVER };
        deadline.min(self.next_greeting_check.get()).min(look).min(self.streams.next_deadline())
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

    /// Whether the shell has to do anything with sockets.
    #[inline]
    pub fn has_commands(&self) -> bool {
        !self.routes.commands.borrow().is_empty()
    }

    /// What the shell has to do with sockets.
    pub fn take_commands(&self, into: &mut Vec<LinkCommand>) {
        into.append(&mut self.routes.commands.borrow_mut());
    }

    /// Links with new output.
    #[inline]
    pub fn take_dirty(&self, into: &mut Vec<LinkId>) {
        if !self.routes.has_output() {
            return;
        }
        let mut dirty = self.routes.dirty.borrow_mut();
        for id in dirty.drain(..) {
            if let Some(link) = self.routes.link(id) {
                link.dirty.set(false);
                into.push(id);
            }
        }
    }

    /// Whether the output of a link may wait for more of it.
    #[inline]
    pub fn may_gather(&self, id: LinkId) -> bool {
        !self.stopped.get() && self.routes.link(id).is_some_and(|link| link.may_gather())
    }

    /// Swaps out the output of a link.
    pub fn take_output(&self, id: LinkId, into: &mut Vec<u8>) {
        let Some(link) = self.routes.link(id) else { return };
        if self.withholds(&link) {
            return;
        }
        if !link.leaving.is_empty() {
            self.routes.write_parts(&link);
        }
        link.take_output(into);
        let has_more = !link.leaving.is_empty() && link.is_open();
        if has_more {
            link.has_messages.set(true);
            // The next parts go with the next send, behind what comes to be sent until then.
            self.routes.mark_dirty(&link);
        }
        if link.paused.get() && !link.is_over_limit() {
            link.paused.set(false);
            self.routes.commands.borrow_mut().push(LinkCommand::Resume { link: id });
        }
        if self.routes.starved.get() && link.has_room_again() {
            self.routes.wake_due.set(true);
        }
        if self.routes.wake_due.get() {
            let _entered = self.host.enter();
            self.settle();
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

    /// Finishes what was received and stops the entities.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.host.stop_entities(StopReason::Shutdown);
    }

    /// Ends the core.
    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    #[inline]
    fn parcel(&self, from: CoreIndex, parcel: InPlace<'_, Parcel>) {
        match Parcel::open(parcel) {
            Opened::Call(call) => self.call(from, call),
            Opened::Answer(answer) => AnswerParcel::open(answer, self.host.pool(), |key, answer_type, answer| {
                let key = PendingKey::from_number(key);
                self.host.complete_from_core(key, answer_type, answer);
                self.routes.arrived(key);
            }),
            Opened::Notice(notice) => self.notice(from, notice),
        }
    }

    fn notice(&self, from: CoreIndex, notice: Notice) {
        match notice {
            Notice::Acknowledged { key, home } => {
                if let Some(block) = home {
                    block.arrive(self.host.pool());
                }
                self.host.acknowledge(PendingKey::from_number(key));
                self.routes.arrived(PendingKey::from_number(key));
            }
            Notice::Failed { key, error } => {
                self.host.fail_local(PendingKey::from_number(key), error);
                self.routes.arrived(PendingKey::from_number(key));
            }
            Notice::Cancel { key } => {
                if !self.host.cancel_caller(ReplyTo::Core(from, key)) {
                    self.held.cancel_call(from, key);
                }
            }
            Notice::Socket(socket) => self.adopt(*socket),
            Notice::Returned(call) => self.returned(from, *call),
            Notice::Table(table) => self.set_table(table),
        }
    }

    /// Brings a message of another core to its entity here.
    pub(super) fn deliver_call(&self, from: CoreIndex, call: InPlace<'_, CallParcel>) {
        let (key, discard) = (call.key, call.discard);
        let reply_to = if discard { ReplyTo::Nobody } else { ReplyTo::Core(from, key) };
        let (delivered, block) = CallParcel::open(call, |call, message| {
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
        if let Some(block) = block {
            self.routes.send_home(from, block, self.host.pool());
        }
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
        current::leave(&self.streams);
        self.foreign.close();
    }
}
