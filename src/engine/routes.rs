//! The ways out of a core: the table, the other cores, the links.
//!
//! Implements [`Router`] for the host; `core`, `frames` and `handshake` use the same state. Effects are data: frames in
//! send buffers, commands for sockets, parcels in queues, which the shell carries out at the end of the turn.
//! Invariants: nothing here polls user code; no borrow of a cell outlives a method; a request leaves by the link to the
//! core that the table names and by no other.
#![allow(unsafe_code)]

use core::cell::{Cell, OnceCell, RefCell};
use core::mem::MaybeUninit;
use core::task::Waker;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::counters::EngineCounters;
use super::dialing::{RECENT_LINKS, RecentLink};
use super::json_calls::OpenCalls;
use super::link::{Link, LinkLimits, RequestHead, Written};
use super::moves::{Learned, way_of};
use super::parcel::{AnswerParcel, CallAddress, CallParcel, HomeBlock, Notice, Parcel};
use crate::base::hash::WordMap;
use crate::base::limits::HOME_BLOCKS_MAX;
use crate::base::{ClusterError, CoreIndex, Epoch, LinkId, Nanos, PodUid, ShardId, Token};
use crate::entity::messenger::NOT_HOSTED;
use crate::entity::pool::BlockPool;
use crate::entity::router::Encode;
use crate::entity::{AnswerVtable, Host, Location, Outbound, PendingKey, Router, Sent};
use crate::mesh::{Doorbell, Producer};
use crate::sharding::ShardTable;
use crate::wire::routing::remaining_us;
use crate::wire::{ControlMessage, FrameFlags, FrameKind, JsonOutcome, Lane, Routing, encode_control};

/// What the shell does with sockets for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkCommand {
    /// Connect and say hello.
    Connect {
        /// The link.
        link: LinkId,
        /// `host:port`.
        address: String,
        /// The hello.
        hello: [u8; crate::wire::HELLO_BYTES],
    },
    /// Take over an accepted connection.
    Adopt {
        /// The link.
        link: LinkId,
        /// The connection.
        descriptor: i32,
    },
    /// Close an accepted connection.
    Discard {
        /// The connection.
        descriptor: i32,
    },
    /// Send what waits, then close.
    Close {
        /// The link.
        link: LinkId,
    },
    /// Stop reading.
    Pause {
        /// The link.
        link: LinkId,
    },
    /// Read again.
    Resume {
        /// The link.
        link: LinkId,
    },
}

/// Who a core is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This run of this process.
    pub uid: PodUid,
    /// The core.
    pub core: CoreIndex,
    /// Cores of the process.
    pub cores: u16,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Role of the pod.
    pub role: String,
    /// Version of the program, as operators name it.
    pub version: String,
    /// Whether entities are hosted here; else it is a client.
    pub is_pod: bool,
}

/// The queue to another core.
pub(super) struct PeerCore {
    pub producer: RefCell<Producer<Parcel>>,
    /// What found no room in the queue; bounded by the asks that wait, of both cores.
    pub overflow: RefCell<VecDeque<Parcel>>,
    pub doorbell: Arc<Doorbell>,
    /// Something was pushed since the last flush.
    pub touched: Cell<bool>,
    /// Epoch of the table that it was given last.
    pub told: Cell<Epoch>,
    /// Blocks of that core's messages, which go home with the next answers; [`HOME_BLOCKS_MAX`] at most.
    pub home: RefCell<Vec<HomeBlock>>,
}

/// The ways out of a core.
pub struct Routes {
    pub(super) identity: Identity,
    /// The member of the cluster that the process is now; begins as the identity's.
    pub(super) uid: Cell<PodUid>,
    pub(super) limits: LinkLimits,
    pub(super) table: RefCell<Option<Arc<ShardTable>>>,
    /// Owners that are newer than the table.
    pub(super) learned: RefCell<HashMap<ShardId, Learned>>,
    /// Messages under way to a former owner, by the shard whose later messages wait for them; how many of each shard,
    /// large ones that are not sent to their end included.
    pub(super) gated: RefCell<HashMap<PendingKey, ShardId>>,
    pub(super) gates: RefCell<HashMap<ShardId, u32>>,
    /// Shards whose gate has opened.
    pub(super) opened: RefCell<Vec<ShardId>>,
    /// Those who wait for a way have to be woken.
    pub(super) wake_due: Cell<bool>,
    /// Those who wait for a way, by shard and order.
    pub(super) unsent: RefCell<HashMap<ShardId, BTreeMap<u64, PendingKey>>>,
    /// [`Router::woken_have_run`] is to come.
    pub(super) barrier: Cell<bool>,
    pub(super) peers: Vec<Option<PeerCore>>,
    pub(super) links: RefCell<Vec<(u32, Option<Rc<Link>>)>>,
    pub(super) free_links: RefCell<Vec<u32>>,
    pub(super) by_peer: RefCell<WordMap<(PodUid, CoreIndex), LinkId>>,
    /// Where messages went last, by core: saves most of them the look-up in `by_peer`.
    pub(super) recent: [Cell<RecentLink>; RECENT_LINKS],
    /// Peers that could not be reached, and when to dial them again.
    pub(super) unreachable: RefCell<HashMap<(PodUid, CoreIndex), Nanos>>,
    pub(super) commands: RefCell<Vec<LinkCommand>>,
    pub(super) dirty: RefCell<Vec<LinkId>>,
    /// A client has lost all its links: the pods of its table may be gone for good, and their store with them.
    pub(super) table_in_doubt: Cell<bool>,
    /// The overflow of some peer is not empty.
    overflows: Cell<bool>,
    /// Asks that found no way; each once.
    pub(super) route_waiters: RefCell<Vec<PendingKey>>,
    /// Questions that found none; asked by few, and not often.
    question_waiters: RefCell<Vec<Waker>>,
    /// Some waiter waits for room in a link.
    pub(super) starved: Cell<bool>,
    sequence: Cell<u64>,
    host: OnceCell<Weak<Host>>,
    pub(super) counters: Arc<EngineCounters>,
    pub(super) open_calls: OpenCalls,
    /// Where clients learn the table.
    pub(super) bootstrap: Vec<String>,
    /// Which address a client dials next.
    pub(super) next_dial: Cell<usize>,
}

impl Routes {
    pub(super) fn new(
        identity: Identity,
        limits: LinkLimits,
        peers: Vec<Option<PeerCore>>,
        bootstrap: Vec<String>,
    ) -> Routes {
        Routes {
            uid: Cell::new(identity.uid),
            learned: RefCell::default(),
            gated: RefCell::default(),
            gates: RefCell::default(),
            opened: RefCell::default(),
            wake_due: Cell::new(false),
            unsent: RefCell::default(),
            barrier: Cell::new(false),
            next_dial: Cell::new(0),
            identity,
            limits,
            table: RefCell::default(),
            peers,
            links: RefCell::default(),
            free_links: RefCell::default(),
            by_peer: RefCell::default(),
            recent: [const { Cell::new(None) }; RECENT_LINKS],
            unreachable: RefCell::default(),
            commands: RefCell::default(),
            dirty: RefCell::default(),
            table_in_doubt: Cell::new(false),
            overflows: Cell::new(false),
            route_waiters: RefCell::default(),
            question_waiters: RefCell::default(),
            starved: Cell::new(false),
            sequence: Cell::new(0),
            host: OnceCell::new(),
            counters: Arc::default(),
            open_calls: OpenCalls::default(),
            bootstrap,
        }
    }

    pub(super) fn set_host(&self, host: &Rc<Host>) {
        assert!(self.host.set(Rc::downgrade(host)).is_ok(), "the host of a core is set once");
    }

    fn host(&self) -> Option<Rc<Host>> {
        self.host.get()?.upgrade()
    }

    /// Puts a link on the list of those with new output.
    pub(super) fn mark_dirty(&self, link: &Link) {
        if !link.dirty.replace(true) {
            self.dirty.borrow_mut().push(link.id);
        }
    }

    /// Whether a link has new output.
    pub(super) fn has_output(&self) -> bool {
        !self.dirty.borrow().is_empty()
    }

    /// Writes a frame, and stops reading from a peer that does not take its answers.
    pub(super) fn write(
        &self,
        link: &Link,
        kind: FrameKind,
        tag: u32,
        token: Token,
        correlation: u64,
        body: impl FnOnce(&mut Vec<u8>, usize) -> Result<(), ClusterError>,
    ) -> Result<(), ClusterError> {
        let lane = if kind == FrameKind::Control { Lane::Control } else { Lane::Messages };
        let written = link.write_frame(kind, FrameFlags::new(lane), tag, token, correlation, body)?;
        if kind != FrameKind::Control {
            link.has_messages.set(true);
        }
        if matches!(kind, FrameKind::Reply | FrameKind::Failure | FrameKind::Ack | FrameKind::Moved)
            && written == Written::Sent
            && let Some((lane, grant)) = link.release_request(correlation)
        {
            link.write_credit(lane, grant)?;
        }
        self.wrote(link);
        Ok(())
    }

    fn wrote(&self, link: &Link) {
        self.mark_dirty(link);
        if link.is_over_limit() && !link.paused.replace(true) {
            self.commands.borrow_mut().push(LinkCommand::Pause { link: link.id });
        }
    }

    /// Refuses a frame of a stream, and gives its credit back.
    pub(super) fn refuse_stream(&self, link: &Link, correlation: u64, bytes: u64) {
        let (flags, code) = (FrameFlags::new(Lane::Streams), ClusterError::NotServed.code());
        // Small frames always fit.
        let _ = link.write_frame(FrameKind::Failure, flags, code, Token(0), correlation, |_, _| Ok(()));
        if let Some(grant) = link.incoming(Lane::Streams).release(bytes) {
            let _ = link.write_credit(Lane::Streams, grant);
        }
        link.has_messages.set(true);
        self.wrote(link);
    }

    pub(super) fn write_control(&self, link: &Link, correlation: u64, message: &ControlMessage) {
        if let Err(error) = self.try_write_control(link, correlation, message) {
            tracing::warn!(%error, "a control message could not be written");
        }
    }

    /// As [`Routes::write_control`], for messages that may be larger than a frame.
    pub(super) fn try_write_control(
        &self,
        link: &Link,
        correlation: u64,
        message: &ControlMessage,
    ) -> Result<(), ClusterError> {
        self.write(link, FrameKind::Control, 0, Token(0), correlation, |bytes, _| {
            encode_control(message, bytes).map_err(|_| ClusterError::Serialization)
        })
    }

    /// Asks the peer for a table newer than ours. Pods learn theirs from the store.
    pub(super) fn ask_for_table(&self, link: &Link) {
        if self.identity.is_pod {
            return;
        }
        let known_epoch = match &*self.table.borrow() {
            Some(table) if !self.table_in_doubt.get() => table.epoch().0,
            _ => 0,
        };
        let role = self.identity.role.clone();
        self.write_control(link, 0, &ControlMessage::TableRequest { role, known_epoch });
    }

    // ---- waiting for a way ----

    /// Has a question tried again when a way opens.
    pub(super) fn wait_with_question(&self, waker: &Waker) {
        let mut waiters = self.question_waiters.borrow_mut();
        if !waiters.iter().any(|known| known.will_wake(waker)) {
            waiters.push(waker.clone());
        }
    }

    /// Lets all who found no way try again, before those who have not tried yet: messages of one sender keep their
    /// order.
    pub(super) fn wake_route_waiters(&self) {
        self.starved.set(false);
        let mut waiters = core::mem::take(&mut *self.route_waiters.borrow_mut());
        let questions = core::mem::take(&mut *self.question_waiters.borrow_mut());
        if let Some(host) = self.host() {
            waiters.sort_by_cached_key(|key| host.order_of(*key));
            let any = !waiters.is_empty();
            host.wake_first(|| waiters.into_iter().for_each(|key| host.route_opened(key)));
            if any && !self.barrier.replace(true) {
                host.queue_barrier();
            }
        }
        for waker in questions {
            waker.wake();
        }
    }

    // ---- other cores ----

    pub(super) fn notify(&self, core: CoreIndex, notice: Notice) {
        // SAFETY: the notice is written.
        unsafe { self.push_with(core, |slot| Parcel::write_notice(slot, notice)) };
    }

    /// Has `write` make a parcel in the queue to another core.
    ///
    /// # Safety
    /// `write` initialises the parcel.
    #[inline]
    unsafe fn push_with(&self, core: CoreIndex, write: impl FnOnce(*mut Parcel)) {
        EngineCounters::add(&self.counters.parcels_sent, 1);
        let peer = self.peers.get(usize::from(core.0)).and_then(Option::as_ref);
        let write = match peer {
            Some(peer) if peer.overflow.borrow().is_empty() => {
                peer.touched.set(true);
                // SAFETY: passed on from the caller.
                let Err(write) = (unsafe { peer.producer.borrow_mut().push_with(write) }) else { return };
                write
            }
            _ => write,
        };
        let mut parcel = MaybeUninit::uninit();
        write(parcel.as_mut_ptr());
        // SAFETY: it is initialised, by the caller's promise.
        let parcel: Parcel = unsafe { parcel.assume_init() };
        // There is no such core of a table that is valid: then it is dropped.
        if let Some(peer) = peer {
            peer.overflow.borrow_mut().push_back(parcel);
            self.overflows.set(true);
        }
    }

    /// A block that another core waits for.
    fn home_block(&self, core: CoreIndex) -> Option<HomeBlock> {
        self.peers.get(usize::from(core.0))?.as_ref()?.home.borrow_mut().pop()
    }

    /// Has a block go back to its core with the next answer; into the pool here if many wait already.
    pub(super) fn send_home(&self, core: CoreIndex, block: HomeBlock, pool: &BlockPool) {
        let peer = self.peers.get(usize::from(core.0)).and_then(Option::as_ref);
        match peer.map(|peer| peer.home.borrow_mut()) {
            Some(mut home) if home.len() < HOME_BLOCKS_MAX => home.push(block),
            _ => block.arrive(pool),
        }
    }

    /// Pushes what found no room before.
    #[inline]
    pub(super) fn push_overflow(&self) {
        if !self.overflows.get() {
            return;
        }
        self.overflows.set(false);
        for peer in self.peers.iter().flatten() {
            let mut overflow = peer.overflow.borrow_mut();
            while let Some(parcel) = overflow.pop_front() {
                if let Err(parcel) = peer.producer.borrow_mut().push(parcel) {
                    overflow.push_front(parcel);
                    self.overflows.set(true);
                    break;
                }
                peer.touched.set(true);
            }
        }
    }

    pub(super) fn has_overflow(&self) -> bool {
        self.overflows.get()
    }

    fn send_to_core(
        &self,
        host: &Host,
        core: CoreIndex,
        outbound: &Outbound<'_>,
        token: Token,
    ) -> Result<Sent, ClusterError> {
        let target = outbound.target;
        if target.type_index == NOT_HOSTED {
            return Err(ClusterError::NotServed);
        }
        let address = CallAddress {
            discard: outbound.discard,
            type_index: target.type_index,
            token,
            hash: target.hash,
            id: &target.id,
            key: outbound.key.to_number(),
            chain: outbound.call.chain,
        };
        // No message comes before the table that it was sent by: else a core that has an older one would return this
        // message, and take the next one if the newer table comes between them.
        if let Some(table) = self.table.borrow().as_ref() {
            self.tell_core(core, table);
        }
        let (message_type, message) = (outbound.message_type, outbound.message);
        // SAFETY: the message is initialised, of the stated type, and `taken` tells its owner that it moved.
        unsafe { self.push_with(core, |slot| CallParcel::write(slot, &address, message_type, message, host.pool())) };
        Ok(Sent { location: Location::Core(core), taken: true })
    }

    fn send_to_link(
        &self,
        link: &Link,
        table: &ShardTable,
        outbound: &Outbound<'_>,
        token: Token,
    ) -> Result<Sent, ClusterError> {
        if !link.is_open() {
            return Ok(UNROUTED);
        }
        if !link.has_room() && !link.may_try() {
            self.starved.set(true);
            return Ok(UNROUTED);
        }
        let message_type = outbound.message_type;
        link.agrees(message_type.tag, message_type.schema)?;
        let flags = FrameFlags::new(Lane::Messages);
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        let shard = table.shard_of(outbound.target.hash);
        let head = RequestHead {
            kind: if outbound.discard { FrameKind::Tell } else { FrameKind::Ask },
            flags: if message_type.uninterruptible { flags.with(FrameFlags::UNINTERRUPTIBLE) } else { flags },
            tag: message_type.tag,
            shard,
            token,
            correlation: outbound.key.to_number(),
            routing: Routing {
                remaining_us: remaining_us(outbound.remaining),
                hops: 0,
                chain: outbound.call.chain.calls(),
                role: table.role(),
                entity_id: outbound.target.id.as_str(),
                sender_incarnation: self.uid.get().0 as u64 ^ u64::from(self.identity.core.0),
                sender_sequence: sequence,
            },
        };
        // SAFETY: the message is initialised and of the stated type.
        let body = |bytes: &mut Vec<u8>, limit| unsafe { (message_type.encode)(outbound.message, bytes, limit) };
        match link.write_request(&head, body)? {
            Written::Sent => {}
            // It arrives with its last part. What comes after it to its entity must not arrive before.
            Written::Leaving => self.close_gate(shard),
            Written::NoRoom => {
                self.starved.set(true);
                return Ok(UNROUTED);
            }
        }
        link.has_messages.set(true);
        self.mark_dirty(link);
        EngineCounters::add(&self.counters.requests_sent, 1);
        Ok(Sent { location: Location::Link(link.id), taken: false })
    }

    /// Where a call in JSON goes: to the owner of the shard.
    pub(super) fn link_for_hash(&self, hash: u64, now: Nanos) -> Option<Rc<Link>> {
        let table = self.table.borrow().clone()?;
        let learned = self.learned.borrow();
        let way = way_of(&table, &learned, table.shard_of(hash))?;
        self.link_to(way.uid, way.core, way.address, now).filter(|link| link.is_open())
    }

    /// Any open link; for questions that every pod answers.
    pub(super) fn any_open_link(&self) -> Option<Rc<Link>> {
        self.links.borrow().iter().find_map(|(_, link)| link.clone().filter(|link| link.is_open()))
    }
}

impl Routes {
    fn send_now(&self, host: &Host, outbound: &Outbound<'_>) -> Result<Sent, ClusterError> {
        // A borrow instead of a count: nothing below changes the table.
        let table = self.table.borrow();
        let Some(table) = table.as_deref() else { return Ok(UNROUTED) };
        let shard = table.shard_of(outbound.target.hash);
        let learned = self.learned.borrow();
        let Some(way) = way_of(table, &learned, shard) else { return Ok(UNROUTED) };
        if self.is_gated(shard) || self.has_earlier(host, outbound.key, shard) {
            return Ok(UNROUTED);
        }
        if way.uid == self.uid.get() {
            if way.core == self.identity.core {
                // The table says here: the type is not registered, or this core does not serve the shard now.
                let served = outbound.target.type_index != NOT_HOSTED;
                return if served { Ok(UNROUTED) } else { Err(ClusterError::NotServed) };
            }
            return self.send_to_core(host, way.core, outbound, way.token);
        }
        match self.link_to(way.uid, way.core, way.address, host.now()) {
            Some(link) => self.send_to_link(&link, table, outbound, way.token),
            None => Ok(UNROUTED),
        }
    }
}

const UNROUTED: Sent = Sent { location: Location::Unrouted, taken: false };

impl Router for Routes {
    #[inline]
    fn send(&self, host: &Host, outbound: &Outbound<'_>) -> Result<Sent, ClusterError> {
        let sent = self.send_now(host, outbound);
        let waits = matches!(&sent, Ok(sent) if sent.location == Location::Unrouted);
        if waits {
            self.enters(host, outbound.key, outbound.target.hash);
        } else if !self.unsent.borrow().is_empty() {
            self.leaves(host, outbound.key, outbound.target.hash);
        }
        sent
    }

    fn is_next(&self, host: &Host, key: PendingKey, hash: u64) -> bool {
        let Some(shard) = self.table.borrow().as_deref().map(|table| table.shard_of(hash)) else { return false };
        !self.is_gated(shard) && !self.has_earlier(host, key, shard)
    }

    fn leaves(&self, host: &Host, key: PendingKey, hash: u64) {
        self.leave(host, key, hash);
    }

    fn woken_have_run(&self, host: &Host) {
        self.barrier.set(false);
        self.pass_over(host);
    }

    fn cancel(&self, location: Location, key: PendingKey) {
        self.arrived(key);
        if let Some(host) = self.host()
            && let Some(hash) = host.hash_of(key)
        {
            self.leave(&host, key, hash);
        }
        match location {
            Location::Core(core) => self.notify(core, Notice::Cancel { key: key.to_number() }),
            Location::Link(id) => {
                if let Some(link) = self.link(id).filter(|link| link.is_open()) {
                    self.cancel_at_link(&link, key.to_number());
                }
            }
            _ => {}
        }
    }

    fn wait_for_route(&self, key: PendingKey) {
        self.route_waiters.borrow_mut().push(key);
    }

    unsafe fn answer_core(&self, core: CoreIndex, key: u64, answer_type: &'static AnswerVtable, answer: *mut ()) {
        if let Some(host) = self.host() {
            let home = self.home_block(core);
            let write = |slot| {
                // SAFETY: passed on from the caller.
                unsafe { AnswerParcel::write(slot, key, answer_type, answer, host.pool(), home) };
            };
            // SAFETY: the answer is written.
            unsafe { self.push_with(core, write) };
        }
    }

    fn acknowledge_core(&self, core: CoreIndex, key: u64) {
        self.notify(core, Notice::Acknowledged { key, home: self.home_block(core) });
    }

    fn fail_core(&self, core: CoreIndex, key: u64, error: ClusterError) {
        self.notify(core, Notice::Failed { key, error });
    }

    fn answer_link(&self, id: LinkId, correlation: u64, token: Token, encode: Encode<'_>) {
        let Some(link) = self.link(id) else { return };
        let written = self.write(&link, FrameKind::Reply, 0, token, correlation, |bytes, limit| {
            encode(bytes, limit).map_err(ClusterError::from)
        });
        if let Err(error) = written {
            self.fail_link(id, correlation, error);
        }
    }

    fn acknowledge_link(&self, id: LinkId, correlation: u64) {
        if let Some(link) = self.link(id) {
            // An empty frame always fits.
            let _ = self.write(&link, FrameKind::Ack, 0, Token(0), correlation, |_, _| Ok(()));
        }
    }

    fn fail_link(&self, id: LinkId, correlation: u64, error: ClusterError) {
        if let Some(link) = self.link(id) {
            // An empty frame always fits.
            let _ = self.write(&link, FrameKind::Failure, error.code(), Token(0), correlation, |_, _| Ok(()));
        }
    }

    fn answer_json(&self, id: LinkId, correlation: u64, outcome: Result<Result<String, String>, String>) {
        let outcome = match outcome {
            Ok(Ok(reply)) => JsonOutcome::Reply(reply),
            Ok(Err(declared)) => JsonOutcome::Declared(declared),
            Err(text) => JsonOutcome::Failed { code: ClusterError::Serialization.code(), text },
        };
        self.end_json(id, correlation, outcome);
    }

    fn fail_json(&self, id: LinkId, correlation: u64, error: ClusterError) {
        self.end_json(id, correlation, JsonOutcome::Failed { code: error.code(), text: error.to_string() });
    }
}
