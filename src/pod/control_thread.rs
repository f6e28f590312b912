//! The control thread of a pod: membership, ownership, orders of operators, the end.
//!
//! It is never on the path of a message: cores give it what they have without waiting, and it gives them tables and
//! commands. Called by `builder`. Invariants: it waits for nothing but its queue and the store, so that renewals go out
//! in time; the time until which cores may serve is set only from a lease that the store confirmed, and is zero from the
//! moment at which the lease is known to be lost until a new incarnation has its own; a new incarnation joins only
//! after every core has dropped what the old one served.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

use super::admin;
use super::cluster::{Shared, registered_pods};
use super::control_port::{ControlHandle, ControlPort, Done, DoneGuard, Received, Request, Stop};
use super::orders::{self, Asked};
use super::stopping::Phase;
use crate::base::{CoreIndex, Nanos, ShardId};
use crate::client::node::{Node, fresh_uid};
use crate::control::store::{LeaseId, Revision};
use crate::control::{ControlDriver, ControlNotice, Order, Store};
use crate::engine::{Command, Question};
use crate::runtime::Clock;
use crate::sharding::ShardTable;

/// Longest pause of the thread: bounds how late it sees a change of the clock.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Shortest pause: whatever is due, the processor is not kept busy with looking.
const PAUSE_MIN: Duration = Duration::from_micros(200);
/// Requests taken between two looks at the store.
const REQUESTS_PER_TURN: usize = 64;
/// Pause before a pod that lost its lease joins again; doubled each time until it is a member.
const REJOIN_PAUSE_MIN: Duration = Duration::from_millis(100);
const REJOIN_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a core that does not drop its entities is complained about.
const STUCK_CORE_LOG: Duration = Duration::from_secs(5);

pub(super) type Driver = ControlDriver<Box<dyn Store + Send>>;

pub(super) fn start_control(
    port: Arc<ControlPort>,
    received: Received,
    mut driver: Driver,
    clock: Clock,
    node: Arc<Node>,
    shared: Arc<Shared>,
) -> std::io::Result<ControlHandle> {
    driver.store().set_waker(port.waker());
    let (of_questions, questions) = ((Arc::clone(&node), Arc::clone(&shared)), received.questions);
    std::thread::Builder::new().name("questions".to_owned()).spawn(move || {
        let (node, shared) = of_questions;
        for question in questions {
            let answer = admin::answer(&node, &shared, &question.question);
            admin::reply(&node, &question, answer);
        }
    })?;
    let done = Arc::new(Done::default());
    let guard = DoneGuard(Arc::clone(&done));
    let mut state = State {
        driver,
        clock,
        node,
        shared,
        port: Arc::clone(&port),
        phase: Phase::Serving,
        orders: BTreeMap::new(),
        next_ticket: 0,
        loss: None,
        rejoin_pause: REJOIN_PAUSE_MIN,
        pictured: None,
    };
    let requests = received.requests;
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        let _guard = guard;
        state.run(&requests);
    })?;
    Ok(ControlHandle { port, done, thread: Mutex::new(Some(thread)) })
}

/// A lease that was lost, until the pod joins again.
struct Loss {
    /// Cores that have dropped everything.
    dropped: Arc<AtomicU32>,
    rejoin_at: Nanos,
    complain_at: Nanos,
}

/// What the picture of the cluster was made from.
type Pictured = (Option<LeaseId>, Vec<(Revision, Revision)>);

pub(super) struct State {
    pub driver: Driver,
    pub clock: Clock,
    pub node: Arc<Node>,
    shared: Arc<Shared>,
    port: Arc<ControlPort>,
    pub phase: Phase,
    /// Orders that wait for the store, by ticket.
    orders: BTreeMap<u64, (Question, Order)>,
    next_ticket: u64,
    loss: Option<Loss>,
    rejoin_pause: Duration,
    pictured: Option<Pictured>,
}

impl State {
    fn run(&mut self, requests: &Receiver<Request>) {
        loop {
            let clock = self.clock;
            let released = self.port.take_released();
            let notices = self.driver.released(released, &mut || clock.now());
            self.take(notices);
            self.rejoin_when_due();
            self.picture();
            if self.advance_stop() {
                return;
            }
            let wake = self.driver.next_wake().min(self.phase.next_look(clock.now())).min(self.rejoin_wake());
            match requests.recv_timeout(wake.since(clock.now()).clamp(PAUSE_MIN, PAUSE_MAX)) {
                Ok(first) => {
                    self.handle(first);
                    for request in requests.try_iter().take(REQUESTS_PER_TURN) {
                        self.handle(request);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.begin_stop(Stop::Now),
            }
        }
    }

    fn handle(&mut self, request: Request) {
        match request {
            Request::Wake => {}
            Request::Stop(how) => self.begin_stop(how),
            Request::Order(question) => self.order(question),
        }
    }

    pub fn take(&mut self, notices: Vec<ControlNotice>) {
        let mut releases: BTreeMap<CoreIndex, Vec<ShardId>> = BTreeMap::new();
        for notice in notices {
            match notice {
                ControlNotice::Publish(table) => self.publish(&table),
                ControlNotice::ValidUntil(until) => self.valid_until(until),
                ControlNotice::Freeze => {
                    tracing::warn!("the lease was not renewed in time: the pod is frozen until the store answers");
                }
                ControlNotice::Thaw => tracing::info!("the lease is renewed: the pod goes on"),
                ControlNotice::Release { shard, core, .. } => releases.entry(core).or_default().push(shard),
                ControlNotice::Lost => {
                    releases.clear();
                    self.lose();
                }
                ControlNotice::Refused(refusal) => {
                    tracing::error!(%refusal, "the cluster refuses this pod");
                    self.lose();
                }
                ControlNotice::Ordered { ticket, outcome } => {
                    if let Some((question, order)) = self.orders.remove(&ticket) {
                        let answer = match outcome {
                            Ok(()) => orders::done(&order, self.driver.control().view()),
                            Err(error) => json!({ "error": error.to_string() }),
                        };
                        admin::reply(&self.node, &question, answer);
                    }
                }
                ControlNotice::Stopped => {}
            }
        }
        for (core, shards) in releases {
            tracing::debug!(core = core.0, shards = shards.len(), "shards leave");
            if let Err(error) = self.node.command(core, Command::Release { shards }) {
                tracing::warn!(core = core.0, %error, "a core did not take the order to release shards");
            }
        }
    }

    fn publish(&mut self, table: &Arc<ShardTable>) {
        if table.role() != self.driver.control().config().role {
            return;
        }
        self.rejoin_pause = REJOIN_PAUSE_MIN;
        *self.shared.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(table);
        self.node.command_all(|| Command::Table(Arc::clone(table)));
    }

    fn valid_until(&self, until: Nanos) {
        let before = self.shared.validity.swap(until.0, Ordering::AcqRel);
        if Nanos(before) <= self.clock.now() {
            // A core that slept while it was frozen has to look at what waits.
            self.node.command_all(|| Command::OnCore(Box::new(|_| ())));
        }
    }

    fn lose(&mut self) {
        self.shared.validity.store(0, Ordering::Release);
        tracing::warn!(
            "the lease is lost: others may own the shards, so all entities are dropped, and the pod joins anew"
        );
        self.node.command_all(|| Command::Abandon);
        let dropped = Arc::new(AtomicU32::new(0));
        self.node.command_all(|| {
            let (dropped, port) = (Arc::clone(&dropped), Arc::clone(&self.port));
            Command::OnCore(Box::new(move |_| {
                dropped.fetch_add(1, Ordering::AcqRel);
                port.wake();
            }))
        });
        let now = self.clock.now();
        self.loss = Some(Loss { dropped, rejoin_at: now + self.rejoin_pause, complain_at: now + STUCK_CORE_LOG });
        self.rejoin_pause = (self.rejoin_pause * 2).min(REJOIN_PAUSE_MAX);
    }

    fn rejoin_wake(&self) -> Nanos {
        self.loss.as_ref().map_or(Nanos::NEVER, |loss| match self.all_dropped(loss) {
            true => loss.rejoin_at,
            false => loss.complain_at,
        })
    }

    fn all_dropped(&self, loss: &Loss) -> bool {
        loss.dropped.load(Ordering::Acquire) >= u32::from(self.node.cores())
    }

    fn rejoin_when_due(&mut self) {
        let now = self.clock.now();
        let Some(loss) = &mut self.loss else { return };
        if loss.dropped.load(Ordering::Acquire) < u32::from(self.node.cores()) {
            if now >= loss.complain_at {
                loss.complain_at = now + STUCK_CORE_LOG;
                tracing::error!(
                    "a core does not return, so its entities cannot be dropped; the pod stays out until it does"
                );
            }
            return;
        }
        if now < loss.rejoin_at || !matches!(self.phase, Phase::Serving) {
            return;
        }
        self.loss = None;
        let uid = fresh_uid();
        tracing::info!(%uid, "joining as a new incarnation");
        *self.shared.uid.lock().unwrap_or_else(PoisonError::into_inner) = uid;
        self.node.command_all(|| Command::Identity(uid));
        let clock = self.clock;
        let notices = self.driver.rejoin(uid, &mut || clock.now());
        self.take(notices);
    }

    /// Copies what other threads may look at, if it changed.
    fn picture(&mut self) {
        let view = self.driver.control().view();
        let changes = view.roles.values().map(|role| (role.table_changed, role.plan_changed)).collect();
        let pictured = Some((view.manager(), changes));
        if self.pictured != pictured {
            let pods = Arc::new(registered_pods(view));
            *self.shared.registered.lock().unwrap_or_else(PoisonError::into_inner) = pods;
            self.pictured = pictured;
        }
    }

    fn order(&mut self, question: Question) {
        let control = self.driver.control();
        let order = match orders::read(&question.question, control.view(), control.config()) {
            Asked::Order(order) => order,
            Asked::Answer(answer) => return admin::reply(&self.node, &question, answer),
        };
        tracing::info!(?order, "an operator orders");
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.orders.insert(ticket, (question, order.clone()));
        let clock = self.clock;
        let notices = self.driver.order(ticket, order, &mut || clock.now());
        self.take(notices);
    }
}
