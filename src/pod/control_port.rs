//! The way to the control thread of a pod, for its cores, its store, and other threads.
//!
//! Called on cores, so nothing here waits. Invariants: a wake that is lost because the queue is full is not missed, as
//! the thread looks at everything before it sleeps again; released shards are kept until the thread takes them, at most
//! one entry for each ownership.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::orders;
use crate::base::{ShardId, Token};
use crate::control::StoreWaker;
use crate::engine::{Inspector, Question, Released};

/// Requests that wait for the thread, which takes them one at a time; the same for questions.
const REQUESTS_MAX: usize = 256;

/// How to stop.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// Shards go to other pods and entities finish what they received, for so long at most.
    Drain(Duration),
    /// At once.
    Now,
}

pub(super) enum Request {
    /// An order of an operator.
    Order(Question),
    Stop(Stop),
    /// Look again: the store or a core has something.
    Wake,
}

/// What the threads of a pod receive.
pub(super) struct Received {
    pub requests: Receiver<Request>,
    pub questions: Receiver<Question>,
}

pub(super) struct ControlPort {
    requests: SyncSender<Request>,
    questions: SyncSender<Question>,
    woken: AtomicBool,
    released: Mutex<Vec<(ShardId, Token)>>,
}

impl ControlPort {
    pub fn new() -> (Arc<ControlPort>, Received) {
        let (requests, received) = sync_channel(REQUESTS_MAX);
        let (questions, asked) = sync_channel(REQUESTS_MAX);
        let (woken, released) = (AtomicBool::new(false), Mutex::default());
        let port = Arc::new(ControlPort { requests, questions, woken, released });
        (port, Received { requests: received, questions: asked })
    }

    /// For the cores: hands a question over; false if too many wait already.
    pub fn inspector(self: &Arc<Self>) -> Inspector {
        let port = Arc::clone(self);
        Arc::new(move |question| {
            if orders::is_order(&question.question) {
                port.requests.try_send(Request::Order(question)).is_ok()
            } else {
                port.questions.try_send(question).is_ok()
            }
        })
    }

    /// For the cores: a shard is empty.
    pub fn released(self: &Arc<Self>) -> Released {
        let port = Arc::clone(self);
        Arc::new(move |shard, token| {
            port.released.lock().unwrap_or_else(PoisonError::into_inner).push((shard, token));
            port.wake();
        })
    }

    /// For the store: it has events.
    pub fn waker(self: &Arc<Self>) -> StoreWaker {
        let port = Arc::clone(self);
        Arc::new(move || port.wake())
    }

    /// Has the control thread look at everything again.
    pub fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            // A full queue wakes the thread just as well.
            let _ = self.requests.try_send(Request::Wake);
        }
    }

    /// What was released. Wakes from now on are for what comes later.
    pub fn take_released(&self) -> Vec<(ShardId, Token)> {
        self.woken.store(false, Ordering::Release);
        core::mem::take(&mut *self.released.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Set when the control thread ends, however it ends.
#[derive(Default)]
pub(super) struct Done {
    done: Mutex<bool>,
    changed: Condvar,
}

impl Done {
    fn wait(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Sets it when it is dropped.
pub(super) struct DoneGuard(pub Arc<Done>);

impl Drop for DoneGuard {
    fn drop(&mut self) {
        *self.0.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

/// The running control thread.
pub(super) struct ControlHandle {
    pub port: Arc<ControlPort>,
    pub done: Arc<Done>,
    pub thread: Mutex<Option<JoinHandle<()>>>,
}

impl ControlHandle {
    /// Stops the pod and waits for it. A second call with [`Stop::Now`] cuts the first one short.
    pub fn stop(&self, how: Stop) {
        // A thread that is gone has stopped the pod already.
        let _ = self.port.requests.send(Request::Stop(how));
        self.done.wait();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the control thread panicked");
        }
    }
}
