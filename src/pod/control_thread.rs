//! The control thread of a pod: ownership, questions from operators, the end.
//!
//! It is never on the path of a message: cores give it questions without waiting, and it gives them tables and
//! commands. Called by `builder` and `Pod`.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::admin;
use crate::client::node::Node;
use crate::control::{ControlDriver, ControlNotice, Store};
use crate::engine::{Command, Inspector, Question};
use crate::runtime::Clock;
use crate::sharding::ShardTable;

/// Longest pause of the thread: bounds how late it sees a change of the clock.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Questions that wait for the thread, which answers them one at a time.
const REQUESTS_MAX: usize = 256;
/// Pause between looks at cores that drain.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// Turns after which the last answer has left its entity's core, reached the core of its asker, and woken the asker.
const ANSWER_TURNS: u32 = 3;

/// How to stop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// Entities finish what they received, for so long at most.
    Drain(Duration),
    /// At once.
    Now,
}

pub(super) enum Request {
    Question(Question),
    /// The store has events.
    Wake,
    Stop(Stop),
}

/// The way to the control thread.
pub(super) struct ControlThread {
    requests: SyncSender<Request>,
}

impl ControlThread {
    pub fn channel() -> (ControlThread, Receiver<Request>) {
        let (requests, received) = sync_channel(REQUESTS_MAX);
        (ControlThread { requests }, received)
    }

    /// For the cores: hands a question over without waiting; false if too many wait already.
    pub fn inspector(&self) -> Inspector {
        let requests = self.requests.clone();
        Arc::new(move |question| requests.try_send(Request::Question(question)).is_ok())
    }

    /// For a store that others change, too: has its events taken up. A full queue wakes the thread as well.
    pub fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let requests = self.requests.clone();
        Arc::new(move || drop(requests.try_send(Request::Wake)))
    }
}

/// The running control thread.
pub(super) struct ControlHandle {
    requests: SyncSender<Request>,
    thread: JoinHandle<()>,
}

impl ControlHandle {
    /// Stops the pod and waits for it.
    pub fn stop(self, how: Stop) {
        // A thread that is gone has stopped the pod already.
        let _ = self.requests.send(Request::Stop(how));
        if self.thread.join().is_err() {
            tracing::error!("the control thread panicked");
        }
    }
}

pub(super) fn start_control(
    control: ControlThread,
    received: Receiver<Request>,
    driver: ControlDriver<Box<dyn Store + Send>>,
    clock: Clock,
    node: Arc<Node>,
    table: Arc<Mutex<Arc<ShardTable>>>,
) -> std::io::Result<ControlHandle> {
    let mut state = State { driver, clock, node, table };
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || state.run(&received))?;
    Ok(ControlHandle { requests: control.requests, thread })
}

struct State {
    driver: ControlDriver<Box<dyn Store + Send>>,
    clock: Clock,
    node: Arc<Node>,
    table: Arc<Mutex<Arc<ShardTable>>>,
}

impl State {
    fn run(&mut self, requests: &Receiver<Request>) {
        loop {
            let now = self.clock.now();
            let notices = self.driver.tick(now);
            self.take(notices);
            let pause = self.driver.next_wake().since(now).min(PAUSE_MAX);
            match requests.recv_timeout(pause) {
                Ok(Request::Question(question)) => self.answer(question),
                Ok(Request::Stop(how)) => return self.stop(how),
                Ok(Request::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop(Stop::Now),
            }
        }
    }

    fn take(&self, notices: Vec<ControlNotice>) {
        for notice in notices {
            match notice {
                ControlNotice::Publish(table) => {
                    *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&table);
                    self.node.command_all(|| Command::Table(Arc::clone(&table)));
                }
                ControlNotice::Refused(refusal) => tracing::error!(%refusal, "the cluster refuses this pod"),
                // With an embedded store nobody else can take a shard: there is nothing to freeze and nothing to move.
                ControlNotice::ValidUntil(_)
                | ControlNotice::Freeze
                | ControlNotice::Thaw
                | ControlNotice::Release { .. }
                | ControlNotice::Lost
                | ControlNotice::Stopped => {}
            }
        }
    }

    fn answer(&self, question: Question) {
        let table = Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner));
        let json = admin::answer(&self.node, &table, &question.question).to_string();
        let (link, correlation) = (question.link, question.correlation);
        let answered = self.node.command(
            question.core,
            Command::OnCore(Box::new(move |core| core.answer_question(link, correlation, json))),
        );
        if let Err(error) = answered {
            tracing::debug!(%error, "an answer found no core");
        }
    }

    fn stop(&mut self, how: Stop) {
        if let Stop::Drain(timeout) = how {
            self.node.command_all(|| Command::Drain);
            let give_up = Instant::now() + timeout;
            // From now on no entity starts, so the cores can only become emptier.
            self.node.pass_turns(1);
            while !self.node.is_empty() && Instant::now() < give_up {
                std::thread::sleep(DRAIN_POLL);
            }
            self.node.pass_turns(ANSWER_TURNS);
            if !self.node.is_empty() {
                tracing::warn!(?timeout, "entities did not stop within `pod.drain_timeout`; stopping at once");
            }
        }
        self.node.stop();
        self.driver.stop(self.clock.now());
    }
}
