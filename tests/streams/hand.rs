//! Both ends of a stream by hand: elements are given and asked for one at a time.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use atoll::stream::dsl::{Flow, FlowOps, Fusable, Sink, Source, keep};
use atoll::stream::error::Cancellation;
use atoll::stream::host::StreamHost;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{GraphStage, Logic, Setup, SinkShape, SourceShape};
use atoll::stream::{Attributes, StreamError};

use crate::drive::{core, settle};

struct State<T> {
    /// Elements to give, or that came.
    elements: Vec<T>,
    /// Asked for and not given yet.
    demand: u64,
    end: Option<String>,
    fail: Option<StreamError>,
    close: bool,
    waker: Option<Waker>,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        State { elements: Vec::new(), demand: 0, end: None, fail: None, close: false, waker: None }
    }
}

type Shared<T> = Arc<Mutex<State<T>>>;

fn wake<T>(shared: &Shared<T>) {
    let waker = shared.lock().unwrap().waker.clone();
    waker.unwrap().wake();
}

macro_rules! hand {
    ($stage:ident, $logic:ident, $shape:ident, $port:ident) => {
        struct $stage<T>(Shared<T>);

        struct $logic<T> {
            port: $port<T>,
            shared: Shared<T>,
        }

        impl<T: Send + 'static> GraphStage for $stage<T> {
            type Shape = $shape<T>;
            type Seed = Shared<T>;
            type Mat = ();
            type Logic = $logic<T>;

            fn name(&self) -> &'static str {
                "hand"
            }

            fn shape(&self) -> Self::Shape {
                $shape::new()
            }

            fn prepare(&self, _: &Attributes) -> (Self::Seed, ()) {
                (Arc::clone(&self.0), ())
            }

            fn create(shared: Self::Seed, port: $port<T>, setup: &Setup<'_>) -> Self::Logic {
                shared.lock().unwrap().waker = Some(setup.waker());
                $logic { port, shared }
            }
        }
    };
}
hand!(HandSource, HandSourceLogic, SourceShape, Outlet);
hand!(HandSink, HandSinkLogic, SinkShape, Inlet);

impl<T: Send + 'static> Logic for HandSourceLogic<T> {
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.shared.lock().unwrap().demand += 1;
        self.on_wake(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        let mut state = self.shared.lock().unwrap();
        if !state.elements.is_empty() && self.port.is_available(context) {
            state.demand -= 1;
            self.port.push(context, state.elements.remove(0));
        }
        if state.elements.is_empty() {
            if let Some(error) = state.fail.take() {
                self.port.fail(context, error);
            } else if state.close {
                self.port.complete(context);
            }
        }
    }

    fn on_downstream_finish(&mut self, _: &mut Context, _: usize, cause: Cancellation) {
        self.shared.lock().unwrap().end = Some(format!("{cause:?}"));
    }
}

impl<T: Send + 'static> Logic for HandSinkLogic<T> {
    fn on_wake(&mut self, context: &mut Context) {
        let state = self.shared.lock().unwrap();
        if state.close {
            self.port.cancel(context);
        } else if state.demand > 0 {
            self.port.try_pull(context);
        }
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let mut state = self.shared.lock().unwrap();
        state.elements.push(self.port.grab(context));
        state.demand -= 1;
        if state.demand > 0 {
            self.port.pull(context);
        }
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.shared.lock().unwrap().end = Some("complete".to_owned());
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.shared.lock().unwrap().end = Some(error.to_string());
    }
}

/// A flow between two ends that are held by hand.
pub struct Hand<A, B> {
    pub host: Rc<StreamHost>,
    source: Shared<A>,
    sink: Shared<B>,
}

impl<A: Send + 'static, B: Send + 'static> Hand<A, B> {
    pub fn hold<M: 'static, P: Fusable<Out = B>>(flow: Flow<A, B, M, P>) -> Hand<A, B> {
        let (source, sink): (Shared<A>, Shared<B>) = Default::default();
        let graph = Source::from_stage(HandSource(Arc::clone(&source)))
            .via_mat(flow, keep::left)
            .to(Sink::from_stage(HandSink(Arc::clone(&sink))));
        let host = core();
        graph.run_on(&host).unwrap();
        settle(&host);
        Hand { host, source, sink }
    }

    /// Gives an element; it goes out when it is asked for.
    pub fn give(&self, element: A) -> &Self {
        self.source.lock().unwrap().elements.push(element);
        wake(&self.source);
        settle(&self.host);
        self
    }

    pub fn give_all(&self, elements: impl IntoIterator<Item = A>) -> &Self {
        for element in elements {
            self.give(element);
        }
        self
    }

    pub fn complete(&self) -> &Self {
        self.source.lock().unwrap().close = true;
        wake(&self.source);
        settle(&self.host);
        self
    }

    pub fn fail(&self, text: &str) -> &Self {
        self.source.lock().unwrap().fail = Some(StreamError::text(text));
        wake(&self.source);
        settle(&self.host);
        self
    }

    pub fn request(&self, elements: u64) -> &Self {
        self.sink.lock().unwrap().demand += elements;
        wake(&self.sink);
        settle(&self.host);
        self
    }

    pub fn cancel(&self) -> &Self {
        self.sink.lock().unwrap().close = true;
        wake(&self.sink);
        settle(&self.host);
        self
    }

    /// What came since it was last asked.
    pub fn received(&self) -> Vec<B> {
        std::mem::take(&mut self.sink.lock().unwrap().elements)
    }

    /// Elements that were given and not asked for.
    pub fn waiting(&self) -> usize {
        self.source.lock().unwrap().elements.len()
    }

    /// Whether upstream is asked for an element.
    pub fn is_asked(&self) -> bool {
        self.source.lock().unwrap().demand > 0
    }

    /// How downstream ended: `complete` or the failure.
    pub fn end(&self) -> Option<String> {
        self.sink.lock().unwrap().end.clone()
    }

    /// Why upstream was cancelled.
    pub fn cancelled(&self) -> Option<String> {
        self.source.lock().unwrap().end.clone()
    }
}
