//! How other threads (and other code of the same core) reach a running stage.
//!
//! Made with [`Setup::callback`] while the stage is created, given out as part of its materialized value or to whatever
//! works for it. Callbacks that come before the stage starts wait for it; after its end they are dropped.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use super::{Logic, Setup};
use crate::stream::error::{Detached, StreamError};
use crate::stream::interpreter::{Context, IslandInbox};

/// A function of a running stage that any thread may call.
pub struct AsyncCallback<S, T> {
    inbox: Arc<IslandInbox>,
    stage: u32,
    function: fn(&mut S, &mut Context, T),
    types: PhantomData<fn(S, T)>,
}

impl<S, T> Clone for AsyncCallback<S, T> {
    fn clone(&self) -> Self {
        AsyncCallback { inbox: Arc::clone(&self.inbox), stage: self.stage, function: self.function, types: PhantomData }
    }
}

impl Setup<'_> {
    /// A callback that has `function` run in the stage. `S` must be the type of the stage that is being created.
    pub fn callback<S: Logic, T: Send + 'static>(&self, function: fn(&mut S, &mut Context, T)) -> AsyncCallback<S, T> {
        AsyncCallback { inbox: Arc::clone(self.inbox), stage: self.stage, function, types: PhantomData }
    }
}

impl<S: Logic, T: Send + 'static> AsyncCallback<S, T> {
    /// Has the function run with this, once, after all that this caller sent before. If the stage has ended it is
    /// dropped.
    ///
    /// # Errors
    /// The island has ended, or so many callbacks wait for it that it cannot be meant to catch up.
    pub fn invoke(&self, argument: T) -> Result<(), Detached> {
        let function = self.function;
        let sent = self.inbox.push(
            self.stage,
            Box::new(move |logic, context| {
                context.with_stage::<S, _>(logic, |stage, context| function(stage, context, argument));
            }),
        );
        if sent { Ok(()) } else { Err(Detached) }
    }

    /// As [`AsyncCallback::invoke`]; the future ends when the function has run, or never will.
    pub fn invoke_with_feedback(&self, argument: T) -> Feedback {
        let shared = Arc::new(Mutex::new(State { outcome: None, waker: None }));
        let promise = Promise { shared: Arc::clone(&shared) };
        let function = self.function;
        // If it is not taken the closure is dropped here, and the promise with it.
        self.inbox.push(
            self.stage,
            Box::new(move |logic, context| {
                let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    context.with_stage::<S, _>(logic, |stage, context| function(stage, context, argument));
                }));
                match run {
                    Ok(()) => promise.fulfil(Ok(())),
                    Err(payload) => {
                        let error = StreamError::from_panic(payload);
                        promise.fulfil(Err(error.clone()));
                        // The stage fails with the same failure.
                        std::panic::resume_unwind(Box::new(error));
                    }
                }
            }),
        );
        Feedback { shared }
    }
}

struct State {
    outcome: Option<Result<(), StreamError>>,
    waker: Option<Waker>,
}

struct Promise {
    shared: Arc<Mutex<State>>,
}

impl Promise {
    fn fulfil(&self, outcome: Result<(), StreamError>) {
        let waker = {
            let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            if state.outcome.is_some() {
                return;
            }
            state.outcome = Some(outcome);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.fulfil(Err(StreamError::new(Detached)));
    }
}

/// Ends when a callback has run: with `Ok`, with the failure of the function, or with [`Detached`] if the stage ended
/// before.
pub struct Feedback {
    shared: Arc<Mutex<State>>,
}

impl Feedback {
    /// The outcome, if it is known.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<(), StreamError>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).outcome.clone()
    }
}

impl Future for Feedback {
    type Output = Result<(), StreamError>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let mut state = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                state.waker = Some(task.waker().clone());
                Poll::Pending
            }
        }
    }
}
