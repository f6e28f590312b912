//! What probes record.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use crate::stream::error::{Cancellation, StreamError};

/// Something that reached a probe. The first field is the name of the probe.
#[derive(Clone, Debug)]
pub enum ProbeEvent {
    /// Downstream asks the upstream probe for an element.
    Request(&'static str),
    /// The downstream probe got this element (as its `Debug` text; see also
    /// [`DownstreamProbe::received`](super::DownstreamProbe::received)).
    Next(&'static str, String),
    /// An element arrived at a downstream probe that leaves elements in the inlet.
    Arrived(&'static str),
    /// Upstream of the downstream probe has completed.
    Complete(&'static str),
    /// Upstream of the downstream probe has failed.
    Failure(&'static str, StreamError),
    /// Downstream of the upstream probe has cancelled.
    Cancel(&'static str, Cancellation),
}

/// The short form that tables of expected events use: `Request source`, `Next sink 1`, `Complete sink`,
/// `Failure sink boom`, `Cancel source: no more`, `Cancel source: completed`, `Cancel source: boom`.
impl fmt::Display for ProbeEvent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeEvent::Request(source) => write!(formatter, "Request {source}"),
            ProbeEvent::Next(sink, element) => write!(formatter, "Next {sink} {element}"),
            ProbeEvent::Arrived(sink) => write!(formatter, "Arrived {sink}"),
            ProbeEvent::Complete(sink) => write!(formatter, "Complete {sink}"),
            ProbeEvent::Failure(sink, error) => write!(formatter, "Failure {sink} {error}"),
            ProbeEvent::Cancel(source, cause) => match cause {
                Cancellation::NoMoreElementsNeeded => write!(formatter, "Cancel {source}: no more"),
                Cancellation::StageWasCompleted => write!(formatter, "Cancel {source}: completed"),
                Cancellation::Failed(error) => write!(formatter, "Cancel {source}: {error}"),
            },
        }
    }
}

/// The list that all probes of a bench write to.
pub(super) type EventLog = Rc<RefCell<Vec<ProbeEvent>>>;
