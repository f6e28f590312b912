//! The attributes that the stream engine itself reads. Who reads one, and its default, is said at each.

use std::fmt;
use std::panic::Location;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::{Attribute, MandatoryAttribute};
use crate::stream::error::StreamError;

/// Elements that a boundary may hold at most, whatever a graph asks for: a buffer is memory of a core.
const INPUT_BUFFER_ELEMENTS_MAX: usize = 1 << 16;

/// The name of an operator or of a part of a graph, for messages, drawings and snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(Arc<str>);

impl Name {
    /// A name; it need not be unique.
    pub fn new(name: impl Into<Arc<str>>) -> Name {
        Name(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// How many elements the receiving side of a boundary between islands buffers.
///
/// Read by the island that owns the inlet. Default: 16 at first, 64 at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputBuffer {
    initial: usize,
    max: usize,
}

/// A size of an input buffer that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an input buffer of {initial} to {max} elements: give a power of two up to 65536 as maximum, and 1 to it first"
)]
pub struct InvalidInputBuffer {
    /// The first size that was asked for.
    pub initial: usize,
    /// The maximum that was asked for.
    pub max: usize,
}

impl InputBuffer {
    const DEFAULT: InputBuffer = InputBuffer { initial: 16, max: 64 };

    /// A buffer that starts with `initial` elements and holds `max` at most.
    ///
    /// # Errors
    /// If `max` is no power of two, is over 65536, or is less than `initial`; if `initial` is 0.
    pub const fn new(initial: usize, max: usize) -> Result<InputBuffer, InvalidInputBuffer> {
        if initial == 0 || initial > max || !max.is_power_of_two() || max > INPUT_BUFFER_ELEMENTS_MAX {
            return Err(InvalidInputBuffer { initial, max });
        }
        Ok(InputBuffer { initial, max })
    }

    /// Elements that fit at first.
    pub const fn initial(&self) -> usize {
        self.initial
    }

    /// Elements that fit at most: a power of two.
    pub const fn max(&self) -> usize {
        self.max
    }
}

/// Makes the level it is set on an island of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncBoundary;

/// The core that an island runs on. Makes the level it is set on an island of its own.
///
/// Read by the factory of the island; a core that does not exist is an error when the graph is materialized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Any core, as the runtime sees fit.
    #[default]
    Any,
    /// The core that owns this shard when the graph is materialized.
    OfShard(u32),
    /// The core with this index.
    Index(u16),
}

/// What an operator does after a user function failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// The stream fails.
    Stop,
    /// The element is dropped; state stays.
    Resume,
    /// The element is dropped; state starts anew.
    Restart,
}

/// Decides what follows a failure of a user function. Default: [`Directive::Stop`].
#[derive(Clone)]
pub struct Supervision {
    decider: Arc<dyn Fn(&StreamError) -> Directive + Send + Sync>,
}

impl Supervision {
    /// Supervision by `decider`, which is called on the core that runs the operator.
    pub fn new(decider: impl Fn(&StreamError) -> Directive + Send + Sync + 'static) -> Supervision {
        Supervision { decider: Arc::new(decider) }
    }

    /// Every failure of a user function is followed by `directive`.
    pub fn always(directive: Directive) -> Supervision {
        Supervision::new(move |_| directive)
    }

    /// What follows `error`.
    pub fn decide(&self, error: &StreamError) -> Directive {
        (self.decider)(error)
    }
}

impl fmt::Debug for Supervision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Supervision")
    }
}

/// What an operator with several outlets does when one of them is cancelled and it has no handler for that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CancellationStrategy {
    /// The stage completes: its other outlets complete.
    CompleteStage,
    /// The stage fails with the cause of the cancellation.
    FailStage,
    /// The stage fails if the cause is a failure, otherwise it completes.
    #[default]
    PropagateFailure,
    /// The stage waits for other signals first and then does as `then` says.
    AfterDelay {
        /// How long it waits.
        delay: Duration,
        /// What it does after the wait.
        then: Box<CancellationStrategy>,
    },
}

/// The levels that the operator `log` uses; `None` logs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevels {
    /// For elements.
    pub on_element: Option<tracing::Level>,
    /// For completion.
    pub on_finish: Option<tracing::Level>,
    /// For failure.
    pub on_failure: Option<tracing::Level>,
}

/// Whether the island narrates its events. Default: no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugLogging(pub bool);

/// Where in the user's source an operator was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLocation(pub &'static Location<'static>);

impl SourceLocation {
    /// The place that called the function which calls this.
    #[track_caller]
    pub fn here() -> SourceLocation {
        SourceLocation(Location::caller())
    }
}

/// What happens to a substream whose consumer cancels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubstreamCancelStrategy {
    /// The stream that feeds it is cancelled too.
    Propagate,
    /// Its further elements are dropped.
    Drain,
}

/// What happens when nobody subscribes to a substream in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionTimeoutMode {
    /// It is cancelled.
    Cancel,
    /// A warning is logged.
    Warn,
    /// Nothing.
    Nothing,
}

/// How long a substream waits for its consumer. Default: cancelled after 5 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionTimeout {
    /// What happens then.
    pub mode: SubscriptionTimeoutMode,
    /// How long it waits.
    pub timeout: Duration,
}

/// Whether the operators of the engine pull their inlet as soon as their outlet is pulled, without a round through the
/// event queue. Off for tests that look at single steps. Default: on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransparentPull(pub bool);

/// Shuffles the order of events that may come in any order, from this seed. For tests. Default: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fuzzing(pub u64);

macro_rules! attributes {
    ($($name:ident),+ $(,)?) => { $(impl Attribute for $name {})+ };
}
attributes!(
    Name,
    InputBuffer,
    AsyncBoundary,
    Placement,
    Supervision,
    CancellationStrategy,
    LogLevels,
    DebugLogging,
    SourceLocation,
    SubstreamCancelStrategy,
    SubscriptionTimeout,
    TransparentPull,
    Fuzzing,
);

macro_rules! mandatory {
    ($($name:ident = $default:expr),+ $(,)?) => {
        $(impl MandatoryAttribute for $name {
            fn default_value() -> &'static Self {
                static DEFAULT: LazyLock<$name> = LazyLock::new(|| $default);
                &DEFAULT
            }
        })+
    };
}
mandatory!(
    InputBuffer = InputBuffer::DEFAULT,
    Placement = Placement::Any,
    Supervision = Supervision::always(Directive::Stop),
    CancellationStrategy = CancellationStrategy::PropagateFailure,
    DebugLogging = DebugLogging(false),
    SubscriptionTimeout =
        SubscriptionTimeout { mode: SubscriptionTimeoutMode::Cancel, timeout: Duration::from_secs(5) },
    TransparentPull = TransparentPull(true),
);
