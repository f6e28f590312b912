//! How streams fail and why they are cancelled.
//!
//! Made by stages and by the interpreter, travels along the connections, ends in materialized values. Both kinds are
//! cheap to clone, because one failure reaches every outlet of a stage.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A failure that travels downstream. It carries any error, for example a declared error of an entity.
#[derive(Clone)]
pub struct StreamError(Arc<dyn Error + Send + Sync>);

impl StreamError {
    /// A failure with a cause of any type; see [`StreamError::downcast_ref`].
    pub fn new(cause: impl Error + Send + Sync + 'static) -> StreamError {
        StreamError(Arc::new(cause))
    }

    /// A failure that is only a text.
    pub fn text(text: impl Into<String>) -> StreamError {
        StreamError(Arc::new(Text(text.into())))
    }

    /// A failure from what a panic carried.
    pub fn from_panic(payload: Box<dyn Any + Send>) -> StreamError {
        match payload.downcast::<IllegalUse>() {
            Ok(illegal) => StreamError::new(*illegal),
            Err(payload) => match payload.downcast::<StreamError>() {
                Ok(error) => *error,
                Err(payload) => {
                    let error = StreamError::new(Panicked(panic_text(payload.as_ref())));
                    drop_payload(payload);
                    error
                }
            },
        }
    }

    /// The cause, if it has this type.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref::<E>()
    }

    /// Whether both are the same failure (not only equal text).
    #[must_use]
    pub fn is_same(&self, other: &StreamError) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Payloads of panics of destructors of payloads, and so on, that are dropped. What comes after them is leaked.
const PAYLOADS_MAX: usize = 8;

/// What a panic carried may panic when it is dropped, and what that carries, too.
fn drop_payload(mut payload: Box<dyn Any + Send>) {
    for _ in 0..PAYLOADS_MAX {
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown panic".to_owned())
}

impl fmt::Debug for StreamError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl Error for StreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Text(String);

/// A user function of the stream panicked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a function of the stream panicked: {0}")]
pub struct Panicked(pub String);

/// A stage used a port in a way that the rules do not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stage [{stage}]: {what} ({port})")]
pub struct IllegalUse {
    /// Name of the stage.
    pub stage: String,
    /// Name of the port.
    pub port: String,
    /// What it did.
    pub what: &'static str,
}

/// The stream was stopped from outside before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream was stopped before it ended")]
pub struct AbruptTermination;

/// The stream has ended without the element that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream ended without an element")]
pub struct NoSuchElement;

/// More elements came than the stream may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream has more than {limit} elements, which is its limit")]
pub struct StreamLimitReached {
    /// The limit, in elements or in weight.
    pub limit: u64,
}

/// A buffer with the strategy `Fail` was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a buffer of {capacity} elements overflowed: let it back-pressure or drop, or make it larger")]
pub struct BufferOverflow {
    /// What it can hold.
    pub capacity: usize,
}

/// An operator was given something that it cannot work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operator}: {what}")]
pub struct IllegalArgument {
    /// The operator.
    pub operator: &'static str,
    /// What is wrong.
    pub what: &'static str,
}

/// The stage that should have taken this has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stage has ended; what was sent to it is dropped")]
pub struct Detached;

/// Why a consumer cancelled.
#[derive(Clone, Debug)]
pub enum Cancellation {
    /// It has all it wants.
    NoMoreElementsNeeded,
    /// Its stage completed.
    StageWasCompleted,
    /// It failed.
    Failed(StreamError),
}

impl Cancellation {
    /// The failure, if there is one.
    #[must_use]
    pub fn error(&self) -> Option<&StreamError> {
        match self {
            Cancellation::Failed(error) => Some(error),
            Cancellation::NoMoreElementsNeeded | Cancellation::StageWasCompleted => None,
        }
    }
}
