//! The store of a pod that shares it with others: every request goes to an `atoll manager`.
//!
//! Called by the control thread of the pod, which also freezes the pod and so must not wait for long. Invariants: all
//! requests made at one time of the caller's clock share one deadline, so one turn of the caller waits for one deadline
//! at most; after a failure requests fail at once until there is a connection again; a watch goes on after a new
//! connection where it was, or reports a gap; events of a cancelled or replaced watch never follow.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::mpsc;

use super::link::{self, Session};
use super::protocol::{Asked, Broken, CONTROL_SCHEMA, REQUEST_BYTES_MAX, Service, Told, frame, read};
use crate::base::Nanos;
use crate::control::store::{
    Limit, Revision, Store, StoreError, StoreEvent, StoreRequest, StoreResponse, StoreWaker, WatchId,
};
use crate::control::store_state::HISTORY_CHANGES_MAX;

/// Requests that wait for the connection's thread; the control thread has one at a time.
const COMMANDS_MAX: usize = 64;
/// Changes that wait for the control thread before the watch gets a gap: as many as every store keeps for a late watch.
const EVENTS_MAX: usize = HISTORY_CHANGES_MAX;
/// Ids of requests that the session makes itself.
const OWN_IDS: u64 = 1 << 63;

/// Why there is no connection to a manager.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers.
    #[error(
        "no manager answers at {address} ({why}); start one with `atoll manager --listen {address} --data-directory \
         DIR`, or pass another --store"
    )]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// What happened.
        why: Broken,
    },
    /// Something else answers.
    #[error("what answers at {address} is no manager for this pod: {why}")]
    Other {
        /// Where.
        address: SocketAddr,
        /// What happened.
        why: Broken,
    },
    /// A thread could not be made.
    #[error("a thread could not be started: {0}; check `ulimit -u`")]
    Thread(String),
}

/// Called when events wait.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The store. Dropping it closes the connection.
#[derive(Debug)]
pub struct ServedStore {
    address: SocketAddr,
    timeout: Duration,
    commands: Option<mpsc::Sender<Command>>,
    responses: Receiver<(u64, StoreResponse)>,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    last: u64,
    turn: Option<(Nanos, Instant)>,
}

impl ServedStore {
    /// Begins to connect. `timeout` bounds each request (and all that one turn of the caller makes): a third of the
    /// lease's time to live.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(address: SocketAddr, timeout: Duration) -> Result<ServedStore, ConnectError> {
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let (answers, responses) = channel();
        let shared = Arc::new(Shared::default());
        let session = ControlSession {
            timeout,
            shared: Arc::clone(&shared),
            answers,
            pending: BTreeMap::new(),
            waiting: Vec::new(),
            watches: BTreeMap::new(),
            last_own: OWN_IDS,
        };
        let thread = link::start(session, "store-client", address, timeout, received)
            .map_err(|error| ConnectError::Thread(error.to_string()))?;
        Ok(ServedStore {
            address,
            timeout,
            commands: Some(commands),
            responses,
            shared,
            thread: Some(thread),
            last: 0,
            turn: None,
        })
    }

    /// Waits until there is a connection.
    ///
    /// # Errors
    /// If there is none in time; at once if what answers is no store of this version.
    pub fn wait_connected(&self, timeout: Duration) -> Result<(), ConnectError> {
        let address = self.address;
        let give_up = Instant::now() + timeout;
        let mut status = self.shared.status();
        loop {
            match &*status {
                Status::Connected => return Ok(()),
                Status::Lost(why @ (Broken::NotAtoll | Broken::OtherVersion)) => {
                    return Err(ConnectError::Other { address, why: why.clone() });
                }
                Status::First | Status::Lost(_) => {}
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = match &*status {
                    Status::Lost(why) => why.clone(),
                    _ => Broken::LateHello,
                };
                return Err(ConnectError::Unreachable { address, why });
            }
            status = self.shared.changed.wait_timeout(status, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has `wake` called (on another thread) whenever events wait for [`Store::poll_events`], and after each change of
    /// the connection.
    pub fn wake_with(&self, wake: Wake) {
        *self.shared.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
    }

    fn unavailable(&self, why: &str) -> StoreResponse {
        StoreResponse::Failed(StoreError::Unavailable(format!("the manager at {}: {why}", self.address)))
    }

    fn ask(&mut self, request: StoreRequest, deadline: Instant) -> StoreResponse {
        self.last += 1;
        let id = self.last;
        let asked = Asked { id, request };
        let mut bytes = Vec::new();
        if frame(&asked, &mut bytes, REQUEST_BYTES_MAX).is_err() {
            return StoreResponse::Failed(StoreError::OutOfBounds(Limit::Request));
        }
        if deadline <= Instant::now() {
            return self.unavailable("the time of this turn is spent");
        }
        let command = Command { id, bytes, request: Followed::of(&asked.request) };
        let sent = self.commands.as_ref().is_some_and(|commands| commands.try_send(command).is_ok());
        if !sent {
            return self.unavailable("too many requests wait");
        }
        loop {
            match self.responses.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((answered, response)) if answered == id => return response,
                // A late answer to a request that was given up.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return self.unavailable("no answer in time"),
                Err(RecvTimeoutError::Disconnected) => return self.unavailable("its thread ended"),
            }
        }
    }
}

impl Drop for ServedStore {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the store's connection panicked");
        }
    }
}

impl Store for ServedStore {
    fn set_waker(&mut self, waker: StoreWaker) {
        self.wake_with(waker);
    }

    fn handle(&mut self, request: StoreRequest, now: Nanos) -> StoreResponse {
        let deadline = match self.turn {
            Some((turn, deadline)) if turn == now => deadline,
            _ => Instant::now() + self.timeout,
        };
        self.turn = Some((now, deadline));
        self.ask(request, deadline)
    }

    fn poll_events(&mut self, _: Nanos, events: &mut Vec<StoreEvent>) {
        let mut queue = self.shared.events();
        queue.changes = 0;
        events.extend(queue.events.drain(..));
    }
}

#[derive(Debug, Default)]
enum Status {
    /// The first attempt is under way: requests wait for it.
    #[default]
    First,
    Connected,
    Lost(Broken),
}

#[derive(Default)]
struct Shared {
    events: Mutex<Queue>,
    status: Mutex<Status>,
    changed: Condvar,
    wake: Mutex<Option<Wake>>,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<StoreEvent>,
    changes: usize,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Shared {
    fn events(&self) -> MutexGuard<'_, Queue> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_status(&self, status: Status) {
        *self.status() = status;
        self.changed.notify_all();
        self.call();
    }

    fn call(&self) {
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(wake) = wake {
            wake();
        }
    }

    /// Drops the events of a watch that is replaced or cancelled.
    fn purge(&self, watch: WatchId) {
        let mut queue = self.events();
        queue.events.retain(|event| watch_of(event) != watch);
        queue.changes = queue.events.iter().map(changes_of).sum();
    }
}

fn watch_of(event: &StoreEvent) -> WatchId {
    match event {
        StoreEvent::Changed { watch, .. } | StoreEvent::Progress { watch, .. } | StoreEvent::Gap { watch } => *watch,
    }
}

fn changes_of(event: &StoreEvent) -> usize {
    match event {
        StoreEvent::Changed { changes, .. } => changes.len(),
        _ => 1,
    }
}

/// What the session has to know of a request.
enum Followed {
    Watch(WatchId, Watched),
    Cancel(WatchId),
    Other,
}

impl Followed {
    fn of(request: &StoreRequest) -> Followed {
        match request {
            StoreRequest::Watch { watch, prefix, from } => {
                Followed::Watch(*watch, Watched { prefix: prefix.clone(), next: *from })
            }
            StoreRequest::CancelWatch { watch } => Followed::Cancel(*watch),
            _ => Followed::Other,
        }
    }
}

struct Command {
    id: u64,
    bytes: Vec<u8>,
    request: Followed,
}

#[derive(Clone)]
struct Watched {
    prefix: String,
    /// The next revision to deliver.
    next: Revision,
}

struct Pending {
    deadline: Instant,
    request: Followed,
}

struct ControlSession {
    timeout: Duration,
    shared: Arc<Shared>,
    answers: Sender<(u64, StoreResponse)>,
    pending: BTreeMap<u64, Pending>,
    /// What was asked before the first connection, with the end of its time.
    waiting: Vec<(Command, Instant)>,
    watches: BTreeMap<WatchId, Watched>,
    last_own: u64,
}

impl ControlSession {
    fn answer(&self, id: u64, response: StoreResponse) {
        if id < OWN_IDS {
            // Nobody waits if the store was dropped.
            let _ = self.answers.send((id, response));
        }
    }

    fn send(&mut self, command: Command, out: &mut Vec<u8>) {
        let Command { id, bytes, request } = command;
        match request {
            Followed::Watch(watch, _) | Followed::Cancel(watch) => {
                self.watches.remove(&watch);
                self.shared.purge(watch);
            }
            Followed::Other => {}
        }
        out.extend_from_slice(&bytes);
        self.pending.insert(id, Pending { deadline: Instant::now() + self.timeout, request });
    }

    fn send_own(&mut self, request: StoreRequest, followed: Followed, out: &mut Vec<u8>) {
        self.last_own += 1;
        let id = self.last_own;
        // A watch or its end is far below the limit.
        if frame(&Asked { id, request }, out, REQUEST_BYTES_MAX).is_ok() {
            self.pending.insert(id, Pending { deadline: Instant::now() + self.timeout, request: followed });
        }
    }

    fn gap(&mut self, watch: WatchId) {
        self.watches.remove(&watch);
        self.shared.purge(watch);
        self.shared.events().events.push_back(StoreEvent::Gap { watch });
        self.shared.call();
    }

    fn on_answer(&mut self, id: u64, response: StoreResponse) {
        let Some(pending) = self.pending.remove(&id) else { return };
        match (pending.request, &response) {
            (Followed::Watch(watch, watched), StoreResponse::Watching { revision }) => {
                self.shared.purge(watch);
                // A store that does not know this revision yet is another one, or was restored from a backup.
                let unknown = watched.next > revision.next();
                if id >= OWN_IDS && unknown {
                    self.gap(watch);
                } else {
                    self.watches.insert(watch, watched);
                }
            }
            (Followed::Watch(watch, _), _) if id >= OWN_IDS => self.gap(watch),
            (Followed::Cancel(watch), _) => {
                // It may have been opened again by a new connection while this was on its way.
                self.watches.remove(&watch);
                self.shared.purge(watch);
            }
            _ => {}
        }
        self.answer(id, response);
    }

    fn on_event(&mut self, event: StoreEvent, out: &mut Vec<u8>) {
        let watch = watch_of(&event);
        let Some(watched) = self.watches.get_mut(&watch) else { return };
        match &event {
            StoreEvent::Changed { revision, .. } | StoreEvent::Progress { revision, .. } => {
                watched.next = watched.next.max(revision.next());
            }
            StoreEvent::Gap { .. } => return self.gap(watch),
        }
        let mut queue = self.shared.events();
        queue.changes += changes_of(&event);
        let full = queue.changes > EVENTS_MAX;
        let first = queue.events.is_empty();
        if !full {
            queue.events.push_back(event);
        }
        drop(queue);
        if full {
            self.send_own(StoreRequest::CancelWatch { watch }, Followed::Other, out);
            return self.gap(watch);
        }
        if first {
            self.shared.call();
        }
    }
}

impl Session for ControlSession {
    type Command = Command;
    const SERVICE: Service = Service::Control;
    const SCHEMA: u64 = CONTROL_SCHEMA;

    fn command(&mut self, command: Command, out: Option<&mut Vec<u8>>) {
        let Some(out) = out else {
            let reason = match &*self.shared.status() {
                Status::Lost(why) => Some(why.to_string()),
                _ => None,
            };
            if let Followed::Watch(watch, _) | Followed::Cancel(watch) = command.request {
                self.watches.remove(&watch);
                self.shared.purge(watch);
            }
            match reason {
                Some(reason) => self.answer(command.id, StoreResponse::Failed(StoreError::Unavailable(reason))),
                None => self.waiting.push((command, Instant::now() + self.timeout)),
            }
            return;
        };
        self.send(command, out);
    }

    fn connected(&mut self, out: &mut Vec<u8>) {
        self.shared.set_status(Status::Connected);
        for (watch, watched) in self.watches.clone() {
            let request = StoreRequest::Watch { watch, prefix: watched.prefix.clone(), from: watched.next };
            self.send_own(request, Followed::Watch(watch, watched), out);
        }
        for (command, _) in core::mem::take(&mut self.waiting) {
            self.send(command, out);
        }
    }

    fn received(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
        match read::<Told>(body)? {
            Told::Answer { id, response } => self.on_answer(id, response),
            Told::Event(event) => self.on_event(event, out),
        }
        Ok(())
    }

    fn disconnected(&mut self, why: &Broken) {
        let waiting = core::mem::take(&mut self.waiting).into_iter().map(|(command, _)| command.id);
        let ids: Vec<u64> = core::mem::take(&mut self.pending).into_keys().chain(waiting).collect();
        self.shared.set_status(Status::Lost(why.clone()));
        for id in ids {
            self.answer(id, StoreResponse::Failed(StoreError::Unavailable(why.to_string())));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let pending = self.pending.values().map(|pending| pending.deadline).min();
        let waiting = self.waiting.iter().map(|(_, deadline)| *deadline).min();
        pending.into_iter().chain(waiting).min()
    }

    fn expire(&mut self, now: Instant) -> Result<(), Broken> {
        self.waiting.retain(|(_, deadline)| *deadline > now);
        let late = self.pending.values().any(|pending| pending.deadline <= now);
        if late { Err(Broken::LateAnswer) } else { Ok(()) }
    }
}
