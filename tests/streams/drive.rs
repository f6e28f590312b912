//! Runs graphs to their end on one core.

use std::rc::Rc;

use atoll::base::Nanos;
use atoll::stream::StreamError;
use atoll::stream::attributes::{Directive, Supervision};
use atoll::stream::completion::Completion;
use atoll::stream::dsl::RunnableGraph;
use atoll::stream::host::{HostInbox, StreamHost};

/// A core without time.
pub fn core() -> Rc<StreamHost> {
    StreamHost::new(HostInbox::new())
}

/// Runs what there is to do.
pub fn settle(host: &Rc<StreamHost>) {
    loop {
        host.take_events(Nanos::ZERO);
        if !host.run_one(Nanos::ZERO) {
            return;
        }
    }
}

/// The outcome of a graph that ends, after which nothing of it is left.
pub fn run<T: 'static>(graph: &RunnableGraph<Completion<T>>) -> Result<T, StreamError> {
    let host = core();
    let mut outcome = graph.run_on(&host).unwrap();
    settle(&host);
    assert_eq!(host.islands(), 0, "the stream did not end");
    outcome.try_take().expect("a stream that ended has an outcome")
}

/// A decider for everything.
pub fn always(directive: Directive) -> Supervision {
    Supervision::always(directive)
}

/// Text of the failure of a user function.
pub fn panic_of<T: std::fmt::Debug>(outcome: Result<T, StreamError>) -> String {
    outcome.unwrap_err().downcast_ref::<atoll::stream::error::Panicked>().expect("it panicked").0.clone()
}
