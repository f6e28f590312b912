//! How tests run graphs: on a host of their own, with a clock that they move.
#![allow(dead_code)]

use std::rc::Rc;

use atoll::base::Nanos;
use atoll::stream::StreamError;
use atoll::stream::completion::Completion;
use atoll::stream::dsl::{Fusable, RunnableGraph, Sink, Source};
use atoll::stream::host::{HostInbox, StreamHost};

/// Turns after which a stream that does not end is taken to hang.
const TURNS_MAX: usize = 1_000_000;

/// A host whose time is the test's.
pub struct Running {
    pub host: Rc<StreamHost>,
    pub now: Nanos,
}

impl Running {
    pub fn new() -> Running {
        Running { host: StreamHost::new(HostInbox::new()), now: Nanos::ZERO }
    }

    pub fn start<M: 'static>(&self, graph: &RunnableGraph<M>) -> M {
        graph.run_on(&self.host).unwrap()
    }

    /// Works until nothing is ready.
    pub fn settle(&self) {
        for _ in 0..TURNS_MAX {
            if !self.host.take_events(self.now) {
                return;
            }
            self.host.run_one(self.now);
        }
        panic!("the streams do not come to rest");
    }

    /// Lets time pass and works.
    #[allow(dead_code)]
    pub fn pass(&mut self, time: core::time::Duration) {
        self.now = self.now + time;
        self.settle();
    }
}

/// Gathers everything.
pub fn all<T: Clone + Send + Sync + 'static>() -> Sink<T, Completion<Vec<T>>> {
    Sink::fold(Vec::new(), |mut all, element| {
        all.push(element);
        all
    })
}

/// What a source gives when it has ended. Nothing may be left running.
pub fn outcome<T, M, P>(source: Source<T, M, P>) -> Result<Vec<T>, StreamError>
where
    T: Clone + Send + Sync + 'static,
    M: 'static,
    P: Fusable<Out = T>,
{
    let running = Running::new();
    let mut result = running.start(&source.to_right(all()));
    running.settle();
    let outcome = result.try_take().expect("the stream has ended");
    assert_eq!(running.host.islands(), 0, "nothing runs on after the end");
    outcome
}

/// What a source gives.
pub fn collect<T, M, P>(source: Source<T, M, P>) -> Vec<T>
where
    T: Clone + Send + Sync + 'static,
    M: 'static,
    P: Fusable<Out = T>,
{
    outcome(source).unwrap()
}
