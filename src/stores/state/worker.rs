//! The thread that owns the file of saved state.
//!
//! Called by the embedded handle and by the manager's connections. Requests that wait while the disk works are done in
//! one commit. Invariant: every request that was taken gets exactly one answer, also after the disk failed. What waits
//! is bounded: a request that finds the queue full is given back.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::file::{Outcome, StateFile};
use super::model::{StateError, StateRequest};

/// Requests that wait for the disk. A commit takes a millisecond or two and all of them.
const QUEUE_MAX: usize = 1024;
/// Requests of one commit.
const COMMIT_MAX: usize = 256;

/// Takes the answer, on the worker's thread.
pub(crate) type Answer = Box<dyn FnOnce(Outcome) + Send>;

/// The way to the thread; it ends with the last clone.
#[derive(Clone)]
pub(crate) struct Worker {
    jobs: SyncSender<(StateRequest, Answer)>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Worker {
    pub fn start(file: StateFile) -> std::io::Result<Worker> {
        let (jobs, received) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new().name("state-disk".to_owned()).spawn(move || run(file, &received))?;
        Ok(Worker { jobs, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// Hands over a request; the answer comes on another thread, or at once if too many wait.
    pub fn submit(&self, request: StateRequest, answer: Answer) {
        match self.jobs.try_send((request, answer)) {
            Ok(()) => {}
            Err(TrySendError::Full((_, answer))) => answer(Err(StateError::Busy)),
            Err(TrySendError::Disconnected((_, answer))) => {
                answer(Err(StateError::Unavailable("the state store has stopped".to_owned())));
            }
        }
    }
}

impl Worker {
    /// Ends the thread if this is the last way to it, and waits until the file is closed.
    pub fn close(self) {
        let Worker { jobs, thread } = self;
        drop(jobs);
        if let Some(thread) = Arc::into_inner(thread)
            && let Some(thread) = thread.into_inner().unwrap_or_else(PoisonError::into_inner)
            && thread.join().is_err()
        {
            tracing::error!("the thread of the state store panicked");
        }
    }
}

fn run(mut file: StateFile, jobs: &Receiver<(StateRequest, Answer)>) {
    let mut failed: Option<String> = None;
    while let Ok(first) = jobs.recv() {
        let (mut requests, mut answers) = (vec![first.0], vec![first.1]);
        while requests.len() < COMMIT_MAX
            && let Ok((request, answer)) = jobs.try_recv()
        {
            requests.push(request);
            answers.push(answer);
        }
        let outcomes = match &failed {
            Some(reason) => Err(reason.clone()),
            None => file.run(&requests).map_err(|error| format!("its disk failed: {error}")),
        };
        match outcomes {
            Ok(outcomes) => answers.into_iter().zip(outcomes).for_each(|(answer, outcome)| answer(outcome)),
            Err(reason) => {
                for answer in answers {
                    answer(Err(StateError::Unavailable(reason.clone())));
                }
                failed = Some(reason);
            }
        }
    }
}
