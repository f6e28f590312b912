//! A source that is told later what it emits: [`Source::maybe`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::stream::dsl::Source;
use crate::stream::error::StreamError;
use crate::stream::interpreter::{Context, Outlet};
use crate::stream::stage::made::stage_with;
use crate::stream::stage::{Logic, Setup, SourceShape};

type Outcome<T> = Result<Option<T>, StreamError>;

struct State<T> {
    outcome: Option<Outcome<T>>,
    /// It was told, or the source has ended.
    is_closed: bool,
    waker: Option<Waker>,
}

/// What tells a [`Source::maybe`] its element. Works from any thread; the first word counts.
pub struct MaybePromise<T> {
    shared: Arc<Mutex<State<T>>>,
}

impl<T> Clone for MaybePromise<T> {
    fn clone(&self) -> Self {
        MaybePromise { shared: Arc::clone(&self.shared) }
    }
}

impl<T> MaybePromise<T> {
    fn new() -> Self {
        MaybePromise { shared: Arc::new(Mutex::new(State { outcome: None, is_closed: false, waker: None })) }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, outcome: Option<Outcome<T>>) -> bool {
        let waker = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.is_closed, true) {
                return false;
            }
            state.outcome = outcome;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// The source emits the element, if there is one, and completes. False if it was told something before, or has ended.
    pub fn succeed(&self, element: Option<T>) -> bool {
        self.close(Some(Ok(element)))
    }

    /// The source fails. False if it was told something before, or has ended.
    pub fn fail(&self, error: StreamError) -> bool {
        self.close(Some(Err(error)))
    }

    /// Whether the source was told, or has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }
}

struct Maybe<T> {
    outlet: Outlet<T>,
    promise: MaybePromise<T>,
    /// What is to be emitted when downstream asks.
    element: Option<T>,
}

impl<T: 'static> Logic for Maybe<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.on_wake(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        let outcome = self.promise.lock().outcome.take();
        match outcome {
            None => {}
            Some(Ok(None)) => context.complete_stage(),
            Some(Err(error)) => context.fail_stage(error),
            Some(Ok(Some(element))) => {
                self.element = Some(element);
                if self.outlet.is_available(context) {
                    self.on_pull(context, 0);
                }
            }
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Some(element) = self.element.take() {
            self.outlet.push(context, element);
            self.outlet.complete(context);
        }
    }
}

impl<T> Drop for Maybe<T> {
    fn drop(&mut self) {
        self.promise.close(None);
    }
}

impl<T: Send + 'static> Source<T, MaybePromise<T>> {
    /// Emits nothing before the materialized promise says what: an element, completion, or a failure. If the promise is
    /// dropped the source stays silent until it is cancelled.
    #[must_use]
    pub fn maybe() -> Source<T, MaybePromise<T>> {
        Source::from_stage(stage_with("maybe", SourceShape::new(), |_| {
            let promise = MaybePromise::new();
            let told = promise.clone();
            let create = |outlet, setup: &Setup<'_>| {
                told.lock().waker = Some(setup.waker());
                Maybe { outlet, promise: told, element: None }
            };
            (create, promise)
        }))
    }
}
