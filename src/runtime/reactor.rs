//! The sockets of a core: turns completions into calls of the engine, and its commands into operations.
//!
//! Called by the pump only. Decisions about a link are made by [`Links`], once per turn, in [`Reactor::flush`]; what arrives is
//! delivered at once. Safe code throughout: memory and descriptors in flight are owned by the ring and the tables.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::base::limits::COMPLETIONS_PER_TURN;
use crate::base::{LinkId, Nanos};

use super::counters::CoreCounters;
use super::engine_port::{CloseReason, Engine, HELLO_BYTES, SocketCommand};
use super::greetings::Greetings;
use super::links::{Links, Step};
use super::operations::OperationId;
use super::options::{LinkLimits, PumpOptions};
use super::transit::Transit;
use super::uring::buffers::Received;
use super::uring::error::RingError;
use super::uring::ring::{Completion, Outcome, Ring};
use super::uring::sockets;

/// How long accepting rests after it failed (no descriptors left, most likely).
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// Longest sleep without looking at the clock.
const TIMER_MAX: Duration = Duration::from_secs(3600);
/// Send buffers that are kept for the next send, and how large one may be to be kept.
const SPARE_BUFFERS_MAX: usize = 64;
const SPARE_BUFFER_BYTES_MAX: usize = 256 << 10;
/// Bytes of requests in one batch after which the answers so far are sent: a hundred small ones, whose handling takes
/// several times as long as the system call.
const ANSWER_EARLY_BYTES: usize = 16 << 10;

/// What an operation of this core is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Accept,
    Hello(u32),
    Receive(LinkId),
    /// A send, and how much of its bytes was sent before.
    Send(LinkId, usize),
    Connect(LinkId),
    /// A wake-up for this time.
    Timer(Nanos),
}

/// The sockets of one core.
pub(crate) struct Reactor {
    ring: Ring<Purpose>,
    links: Links<TcpStream>,
    greetings: Greetings<TcpStream>,
    listener: Option<TcpListener>,
    accepting: Option<OperationId>,
    accept_cancelled: bool,
    accept_after: Nanos,
    accept_no_more: bool,
    /// Hellos of links that are connecting.
    hellos: HashMap<LinkId, [u8; HELLO_BYTES]>,
    /// Links whose connect or linger time runs.
    timed: Vec<LinkId>,
    /// No deadline of ours is before this.
    sweep_at: Nanos,
    timer: Option<(OperationId, Nanos)>,
    /// Bytes received in this batch since answers were sent.
    unanswered_bytes: usize,
    /// Links that something happened to in this turn.
    touched: Vec<LinkId>,
    to_resolve: Vec<(LinkId, String)>,
    spare: Vec<Vec<u8>>,
    commands: Vec<SocketCommand>,
    dirty: Vec<LinkId>,
    /// Links whose output gathers, each once: looked at in each turn, so the core does not sleep meanwhile.
    gathering: VecDeque<LinkId>,
    transit: Transit,
    limits: LinkLimits,
    counters: Arc<CoreCounters>,
}

impl Reactor {
    /// Sets up the ring of this thread. `bell` is rung by completions while [`enable_bell`](Reactor::enable_bell) is on.
    ///
    /// # Errors
    /// When the host does not allow it.
    pub fn new(
        options: &PumpOptions,
        listener: Option<TcpListener>,
        bell: BorrowedFd<'_>,
        transit: Transit,
        counters: Arc<CoreCounters>,
    ) -> Result<Reactor, RingError> {
        let limits = options.limits;
        // Each link has at most a receive and a send, each greeting one receive; the backlog may come on top of their limit.
        let operations_max = 2 * limits.links_max + 2 * limits.hello_pending_max + 2048;
        let mut ring = Ring::new(options.receive_buffers, options.receive_buffer_bytes, operations_max)?;
        ring.register_bell(bell).map_err(|error| RingError::of(error, "completion bells (IORING_REGISTER_EVENTFD)"))?;
        Ok(Reactor {
            ring,
            links: Links::new(limits.links_max),
            greetings: Greetings::new(),
            listener,
            accepting: None,
            accept_cancelled: false,
            accept_after: Nanos::ZERO,
            accept_no_more: false,
            hellos: HashMap::new(),
            timed: Vec::new(),
            sweep_at: Nanos::NEVER,
            timer: None,
            unanswered_bytes: 0,
            touched: Vec::new(),
            to_resolve: Vec::new(),
            spare: Vec::new(),
            commands: Vec::new(),
            dirty: Vec::new(),
            gathering: VecDeque::new(),
            transit,
            limits,
            counters,
        })
    }

    /// Is there anything for [`complete`](Reactor::complete)? Reads memory only.
    #[inline]
    pub fn ready(&self) -> bool {
        self.ring.ready()
    }

    /// Is there anything that the kernel has not been told of? (It may refuse for a moment.)
    pub fn has_submissions(&self) -> bool {
        self.ring.has_submissions()
    }

    /// Has completions ring the bell, or not.
    pub fn enable_bell(&mut self, enabled: bool) {
        self.ring.enable_bell(enabled);
    }

    /// Takes a batch of completions. True if there were any.
    ///
    /// # Errors
    /// Only such that leave the ring unusable.
    #[inline]
    pub fn complete<E: Engine>(&mut self, engine: &E, now: Nanos) -> io::Result<bool> {
        if !self.ring.ready() {
            return Ok(false);
        }
        if self.ring.needs_enter() {
            self.counters.enters(1);
            self.ring.enter()?;
        }
        let mut count = self.ring.reap();
        self.unanswered_bytes = 0;
        while let Some(completion) = self.ring.next_completion() {
            self.completed(engine, completion, now);
            // Of many requests in one batch the first are answered while the others are handled: else a peer with a
            // full window and this core would work in turns.
            if count < COMPLETIONS_PER_TURN && self.unanswered_bytes >= ANSWER_EARLY_BYTES {
                self.unanswered_bytes = 0;
                self.flush(engine, now);
                self.submit()?;
                count += self.ring.reap();
            }
        }
        self.counters.completions(count as u64);
        self.ring.publish_buffers();
        Ok(count > 0)
    }

    fn completed<E: Engine>(&mut self, engine: &E, completion: Completion<Purpose>, now: Nanos) {
        match (completion.purpose, completion.outcome) {
            (Purpose::Receive(link), Outcome::Received(result)) => {
                self.received(engine, link, result, completion.more, now);
            }
            (Purpose::Send(link, before), Outcome::Moved(bytes, result)) => self.sent(link, before, bytes, result, now),
            (Purpose::Accept, Outcome::Accepted(result)) => self.accepted(result, completion.more, now),
            (Purpose::Hello(key), Outcome::Moved(bytes, result)) => self.greeted(engine, key, bytes, result),
            (Purpose::Connect(link), Outcome::Connected(result)) => self.connected(engine, link, result, now),
            (Purpose::Timer(at), _) => self.timer = self.timer.filter(|timer| timer.1 != at),
            (purpose, outcome) => debug_assert!(false, "{purpose:?} cannot come to {outcome:?}"),
        }
    }

    #[inline]
    fn received<E: Engine>(
        &mut self,
        engine: &E,
        link: LinkId,
        result: Result<Option<Received>, i32>,
        more: bool,
        now: Nanos,
    ) {
        match result {
            Ok(Some(received)) => {
                let bytes = self.ring.bytes(&received);
                self.counters.bytes_received(bytes.len() as u64);
                self.unanswered_bytes += bytes.len();
                if self.links.is_open(link) {
                    engine.received(link, bytes, now);
                }
                self.ring.give_back(received);
            }
            Ok(None) => self.end(link, CloseReason::PeerClosed),
            // All buffers were in use for a moment, or we ended it ourselves: the link decides whether to start another.
            Err(libc::ENOBUFS | libc::ECANCELED | libc::EAGAIN | libc::EINTR) => {}
            Err(error) => self.end(link, CloseReason::Failed(error)),
        }
        if !more {
            self.links.receive_ended(link);
            self.counters.receives_restarted(u64::from(self.links.is_open(link)));
            self.touched.push(link);
        }
    }

    fn end(&mut self, link: LinkId, reason: CloseReason) {
        self.links.close(link, reason);
        self.touched.push(link);
    }

    fn sent(&mut self, link: LinkId, before: usize, bytes: Vec<u8>, result: Result<usize, i32>, now: Nanos) {
        self.touched.push(link);
        self.links.send_ended(link);
        match result {
            Ok(0) => self.links.close(link, CloseReason::Failed(libc::EPIPE)),
            Ok(count) => {
                self.counters.bytes_sent(count as u64);
                let sent = before + count;
                if sent < bytes.len() && self.links.may_send(link) {
                    return self.start_send(link, bytes, sent, now);
                }
            }
            Err(libc::EAGAIN | libc::EINTR) if self.links.may_send(link) => {
                return self.start_send(link, bytes, before, now);
            }
            Err(libc::ECANCELED) => {}
            Err(error) => self.links.close(link, CloseReason::Failed(error)),
        }
        self.keep_spare(bytes);
    }

    fn start_send(&mut self, link: LinkId, bytes: Vec<u8>, from: usize, now: Nanos) {
        let Some(socket) = self.links.descriptor(link) else { return };
        self.counters.sends(1);
        match self.ring.send(Purpose::Send(link, from), socket.as_fd(), bytes, from) {
            Ok(operation) => self.links.send_started(link, operation, now),
            Err(_) => self.end(link, CloseReason::NoRoom),
        }
    }

    fn keep_spare(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_BUFFERS_MAX && bytes.capacity() <= SPARE_BUFFER_BYTES_MAX {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    fn accepted(&mut self, result: Result<OwnedFd, i32>, more: bool, now: Nanos) {
        match result {
            Ok(descriptor) => self.greet(TcpStream::from(descriptor), now),
            Err(libc::ECANCELED) => {}
            Err(error) => {
                tracing::warn!(error = %io::Error::from_raw_os_error(error), "accepting failed; is `ulimit -n` large enough?");
                self.accept_after = now + ACCEPT_REST;
                self.sweep_at = self.sweep_at.min(self.accept_after);
            }
        }
        if !more {
            self.accepting = None;
            self.accept_cancelled = false;
        }
        if let Some(operation) = self.accepting
            && self.greetings.len() >= self.limits.hello_pending_max
            && !self.accept_cancelled
        {
            self.accept_cancelled = true;
            self.ring.cancel(operation);
        }
    }

    fn greet(&mut self, socket: TcpStream, now: Nanos) {
        self.counters.accepted(1);
        let deadline = now + self.limits.hello_timeout;
        let key = self.greetings.add(socket, deadline);
        self.sweep_at = self.sweep_at.min(deadline);
        self.receive_hello(key, vec![0; HELLO_BYTES]);
    }

    fn receive_hello(&mut self, key: u32, bytes: Vec<u8>) {
        let Some(greeting) = self.greetings.get_mut(key) else { return };
        let socket = greeting.descriptor.as_fd();
        greeting.operation = self.ring.receive_into(Purpose::Hello(key), socket, bytes, greeting.filled);
        if greeting.operation.is_none() {
            self.counters.hellos_broken(1);
            self.greetings.take(key);
        }
    }

    fn greeted<E: Engine>(&mut self, engine: &E, key: u32, bytes: Vec<u8>, result: Result<usize, i32>) {
        let Some(greeting) = self.greetings.get_mut(key) else { return };
        greeting.operation = None;
        greeting.filled += result.unwrap_or(0);
        let (complete, expired) = (greeting.filled >= HELLO_BYTES, greeting.expired);
        let interrupted = matches!(result, Err(libc::EAGAIN | libc::EINTR));
        if !complete && !expired && (result.is_ok_and(|count| count > 0) || interrupted) {
            return self.receive_hello(key, bytes);
        }
        let Some(greeting) = self.greetings.take(key) else { return };
        let (Ok(peer), Ok(hello), true) = (greeting.descriptor.peer_addr(), bytes.as_slice().try_into(), complete)
        else {
            return if expired { self.counters.hellos_late(1) } else { self.counters.hellos_broken(1) };
        };
        engine.accepted(hello, self.transit.hand_over(greeting.descriptor), peer);
    }

    fn connected<E: Engine>(&mut self, engine: &E, link: LinkId, result: Result<(), i32>, now: Nanos) {
        self.touched.push(link);
        let hello = self.hellos.remove(&link);
        if self.links.connect_ended(link, result.err().map(CloseReason::ConnectFailed)) {
            self.counters.links_opened(1);
            if let Some(hello) = hello {
                self.start_send(link, hello.to_vec(), 0, now);
            }
            engine.connected(link, now);
        }
    }

    /// Are there names that have to be resolved?
    #[inline]
    pub fn has_unresolved(&self) -> bool {
        !self.to_resolve.is_empty()
    }

    /// Names that have to be resolved; answered by [`resolved`](Reactor::resolved).
    pub fn take_unresolved(&mut self) -> Vec<(LinkId, String)> {
        std::mem::take(&mut self.to_resolve)
    }

    /// The address of a name, if it has one.
    pub fn resolved(&mut self, link: LinkId, address: Option<SocketAddr>) {
        // The engine may have closed it meanwhile.
        if !self.links.is_connecting(link) {
            return;
        }
        self.touched.push(link);
        let started = match address {
            Some(address) => self.start_connect(link, address),
            None => Err(CloseReason::AddressUnknown),
        };
        if let Err(reason) = started {
            self.links.connect_ended(link, Some(reason));
        }
    }

    fn start_connect(&mut self, link: LinkId, address: SocketAddr) -> Result<(), CloseReason> {
        let socket = sockets::socket_for(address)
            .map_err(|error| CloseReason::ConnectFailed(error.raw_os_error().unwrap_or(libc::EIO)))?;
        let operation =
            self.ring.connect(Purpose::Connect(link), socket.as_fd(), address).ok_or(CloseReason::NoRoom)?;
        self.links.connect_started(link, socket, operation);
        Ok(())
    }

    /// Takes the engine's commands and output and starts what follows from them and from the completions. True if there was
    /// anything. The kernel hears of it in [`submit`](Reactor::submit).
    #[inline]
    pub fn flush<E: Engine>(&mut self, engine: &E, now: Nanos) -> bool {
        engine.take_commands(&mut self.commands);
        engine.take_dirty(&mut self.dirty);
        self.accept();
        if self.commands.is_empty() && self.dirty.is_empty() && self.touched.is_empty() && self.gathering.is_empty() {
            return false;
        }
        let mut commands = std::mem::take(&mut self.commands);
        for command in commands.drain(..) {
            self.command(engine, command, now);
        }
        self.commands = commands;
        for _ in 0..self.gathering.len() {
            let Some(link) = self.gathering.pop_front() else { break };
            self.links.gather(link, false);
            self.settle(engine, link, now);
        }
        let mut dirty = std::mem::take(&mut self.dirty);
        for link in dirty.drain(..) {
            self.links.dirty(link);
            self.settle(engine, link, now);
        }
        self.dirty = dirty;
        let mut touched = std::mem::take(&mut self.touched);
        for link in touched.drain(..) {
            self.settle(engine, link, now);
        }
        // Settling may touch links again (a send that could not start): the next turn sees to them.
        touched.append(&mut self.touched);
        self.touched = touched;
        true
    }

    /// Tells the kernel of all new operations: one entry for all of them.
    ///
    /// # Errors
    /// Only such that leave the ring unusable.
    #[inline]
    pub fn submit(&mut self) -> io::Result<()> {
        if self.ring.has_submissions() {
            self.counters.enters(1);
            self.ring.enter()?;
        }
        Ok(())
    }

    fn command<E: Engine>(&mut self, engine: &E, command: SocketCommand, now: Nanos) {
        match command {
            SocketCommand::Connect { link, address, hello } => {
                let deadline = now + self.limits.connect_timeout;
                if !self.links.connecting(link, deadline) {
                    return engine.closed(link, CloseReason::NoRoom, now);
                }
                self.hellos.insert(link, hello);
                self.watch(link, deadline);
                match address.parse() {
                    Ok(address) => self.resolved(link, Some(address)),
                    Err(_) => self.to_resolve.push((link, address)),
                }
            }
            SocketCommand::Adopt { link, descriptor } => {
                let Some(socket) = self.transit.claim(descriptor) else {
                    return engine.closed(link, CloseReason::UnknownDescriptor, now);
                };
                if self.links.adopt(link, socket).is_err() {
                    return engine.closed(link, CloseReason::NoRoom, now);
                }
                self.counters.links_opened(1);
                self.touched.push(link);
            }
            SocketCommand::Discard { descriptor } => drop(self.transit.claim(descriptor)),
            SocketCommand::Close { link } => {
                let deadline = now + self.limits.linger;
                self.links.linger(link, CloseReason::Requested, deadline);
                self.watch(link, deadline);
                self.touched.push(link);
            }
            SocketCommand::PauseReceive { link } => {
                self.links.pause(link, true);
                self.touched.push(link);
            }
            SocketCommand::ResumeReceive { link } => {
                self.links.pause(link, false);
                self.touched.push(link);
            }
        }
    }

    fn watch(&mut self, link: LinkId, deadline: Nanos) {
        if self.timed.len() >= 2 * self.limits.links_max {
            // Links that opened or went meanwhile are still in the list.
            self.timed.retain(|link| self.links.deadline(*link) != Nanos::NEVER);
        }
        self.timed.push(link);
        self.sweep_at = self.sweep_at.min(deadline);
    }

    /// Does all that the state of a link asks for.
    fn settle<E: Engine>(&mut self, engine: &E, link: LinkId, now: Nanos) {
        // Bounded: each step but the last starts or cancels something that is then in flight.
        for _ in 0..8 {
            match self.links.next_step(link) {
                Step::Wait => return,
                Step::Receive => self.start_receive(link),
                Step::Send if self.links.has_just_sent(link, now) && engine.may_gather(link) => {
                    if self.links.gather(link, true) {
                        self.gathering.push_back(link);
                    }
                    return;
                }
                Step::Send => {
                    let mut bytes = self.spare.pop().unwrap_or_default();
                    engine.take_output(link, &mut bytes);
                    self.links.output_taken(link);
                    if bytes.is_empty() {
                        self.keep_spare(bytes);
                    } else {
                        self.start_send(link, bytes, 0, now);
                    }
                }
                Step::ShutdownWrite => {
                    if let Some(socket) = self.links.descriptor(link) {
                        // It may be reset already; then the receive ends too.
                        let _ = socket.shutdown(Shutdown::Write);
                    }
                }
                Step::CancelReceive(operation) => self.ring.cancel(operation),
                Step::CancelAll(in_flight) => {
                    if let Some(socket) = self.links.descriptor(link) {
                        // It may be unconnected or reset already.
                        let _ = socket.shutdown(Shutdown::Both);
                    }
                    for operation in [in_flight.receive, in_flight.send, in_flight.connect].into_iter().flatten() {
                        self.ring.cancel(operation);
                    }
                }
                Step::Release => self.release(engine, link, now),
            }
        }
    }

    fn start_receive(&mut self, link: LinkId) {
        let Some(socket) = self.links.descriptor(link) else { return };
        match self.ring.receive_many(Purpose::Receive(link), socket.as_fd()) {
            Some(operation) => self.links.receive_started(link, operation),
            None => self.end(link, CloseReason::NoRoom),
        }
    }

    fn release<E: Engine>(&mut self, engine: &E, link: LinkId, now: Nanos) {
        if let Some((socket, reason)) = self.links.release(link) {
            drop(socket);
            self.hellos.remove(&link);
            self.counters.links_closed(1);
            engine.closed(link, reason, now);
        }
    }

    fn accept(&mut self) {
        if self.accept_no_more {
            // The descriptor stays open as long as an operation names it.
            if self.accepting.is_none() {
                self.listener = None;
            }
        } else if self.accepting.is_none()
            && self.accept_after == Nanos::ZERO
            && self.greetings.len() < self.limits.hello_pending_max
            && let Some(listener) = &self.listener
        {
            self.accepting = self.ring.accept_many(Purpose::Accept, listener.as_fd());
        }
    }

    /// Ends what took too long. True if there was anything.
    #[inline]
    pub fn sweep(&mut self, now: Nanos) -> bool {
        if now < self.sweep_at {
            return false;
        }
        let (late, mut next) = self.greetings.expire(now);
        for operation in late {
            self.ring.cancel(operation);
        }
        if self.accept_after <= now {
            self.accept_after = Nanos::ZERO;
        } else {
            next = next.min(self.accept_after);
        }
        let mut timed = std::mem::take(&mut self.timed);
        timed.retain(|link| {
            let deadline = self.links.deadline(*link);
            if deadline > now {
                next = next.min(deadline);
                return deadline != Nanos::NEVER;
            }
            self.links.close(*link, CloseReason::ConnectTimeout);
            self.touched.push(*link);
            false
        });
        self.timed = timed;
        self.sweep_at = next;
        true
    }

    /// When [`sweep`](Reactor::sweep) must be called next.
    pub fn next_deadline(&self) -> Nanos {
        self.sweep_at
    }

    /// Sees to it that something completes at `deadline`, so that a sleeping core wakes up.
    pub fn arm_timer(&mut self, deadline: Nanos, now: Nanos) {
        if deadline == Nanos::NEVER {
            return;
        }
        if let Some((operation, at)) = self.timer {
            if at <= deadline {
                return;
            }
            self.ring.cancel(operation);
        }
        let after = deadline.since(now).min(TIMER_MAX);
        let at = now + after;
        self.timer = self.ring.timeout(Purpose::Timer(at), after).map(|operation| (operation, at));
    }

    /// Takes no new connections any more.
    pub fn stop_accepting(&mut self) {
        if !self.accept_no_more {
            self.accept_no_more = true;
            if let Some(operation) = self.accepting {
                self.ring.cancel(operation);
            }
        }
    }

    /// Is everything sent that the engine produced?
    pub fn all_sent(&self) -> bool {
        self.touched.is_empty() && self.links.all_sent()
    }

    /// Links in the table.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Ends all links; they go as their operations complete.
    pub fn close_all(&mut self) {
        for link in self.links.ids() {
            self.links.close(link, CloseReason::Stopped);
            self.touched.push(link);
        }
    }

    /// Tells the engine of links that would not go in time. The ring ends their operations when it is dropped.
    pub fn abandon_all<E: Engine>(&mut self, engine: &E, now: Nanos) {
        for link in self.links.ids() {
            engine.closed(link, CloseReason::Stopped, now);
        }
    }
}
