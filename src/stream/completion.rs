//! Materialized values that come later: the result of a fold, the end of a stream.
//!
//! A stage keeps the [`Promise`] and the caller of `run` gets the [`Completion`], maybe on another core. A promise that
//! is dropped without a word says that the stream was stopped: nobody waits for ever.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::error::{AbruptTermination, StreamError};

struct State<T> {
    outcome: Option<Result<T, StreamError>>,
    waker: Option<Waker>,
    done: bool,
}

/// A promise and what it completes.
#[must_use]
pub fn completion<T>() -> (Promise<T>, Completion<T>) {
    let shared = Arc::new(Mutex::new(State { outcome: None, waker: None, done: false }));
    (Promise { shared: Arc::clone(&shared) }, Completion { shared })
}

/// The side that knows the outcome. The first outcome counts.
pub struct Promise<T> {
    shared: Arc<Mutex<State<T>>>,
}

impl<T> Promise<T> {
    /// The outcome, whatever it is.
    pub fn finish(&self, outcome: Result<T, StreamError>) {
        let waker = {
            let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            if state.done {
                return;
            }
            state.done = true;
            state.outcome = Some(outcome);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).done
    }

    /// It went well.
    pub fn succeed(&self, value: T) {
        self.finish(Ok(value));
    }

    /// It failed.
    pub fn fail(&self, error: StreamError) {
        self.finish(Err(error));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.finish(Err(StreamError::new(AbruptTermination)));
    }
}

/// The side that waits: a future, on any executor or thread.
pub struct Completion<T> {
    shared: Arc<Mutex<State<T>>>,
}

impl<T> Completion<T> {
    /// The outcome if it is there; it is moved out.
    pub fn try_take(&mut self) -> Option<Result<T, StreamError>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).outcome.take()
    }

    /// Whether the outcome is known.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).done
    }
}

impl<T> Future for Completion<T> {
    type Output = Result<T, StreamError>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}
