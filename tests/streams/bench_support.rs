//! What the tables share: error values, the ways an island can be run, and plain stages to put between probes.

use std::cell::RefCell;
use std::rc::Rc;

use atoll::stream::attributes::{Fuzzing, TransparentPull};
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step};
use atoll::stream::stage::{FlowPorts, FlowShape, Logic};
use atoll::stream::testkit::{DownstreamProbe, InterpreterBench, StageHandle, UpstreamProbe};
use atoll::stream::{Attributes, Cancellation, StreamError};

/// The failure that stages throw.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TestError(pub &'static str);

pub fn boom() -> StreamError {
    StreamError::new(TestError("boom"))
}

/// Ends a handler as a failing user function does, without a backtrace on the terminal.
pub fn throw(text: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(StreamError::new(TestError(text))))
}

/// Seeds of the random order of events.
pub const SEEDS: std::ops::RangeInclusive<u64> = if cfg!(miri) { 1..=2 } else { 1..=20 };

/// The ways an island may be run without a difference that a test of single steps sees.
pub fn exact_modes() -> Vec<Attributes> {
    vec![Attributes::none(), Attributes::of(TransparentPull(false))]
}

/// The ways an island may be run where the order of independent events does not matter.
pub fn all_modes() -> Vec<Attributes> {
    let fuzzed = SEEDS.map(|seed| Attributes::of(TransparentPull(seed % 2 == 0)).with(Fuzzing(seed)));
    exact_modes().into_iter().chain(fuzzed).collect()
}

/// An ordinary stage of one inlet and one outlet, as a closure for each event.
pub struct Pass<T> {
    pub inlet: Inlet<T>,
    pub outlet: Outlet<T>,
}

impl<T: 'static> Logic for Pass<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

/// Passes everything on, as an ordinary stage.
pub fn pass<T: 'static>(bench: &mut InterpreterBench) -> StageHandle {
    bench.stage("pass", FlowShape::<T, T>::new(), |ports, _| Pass { inlet: ports.inlet, outlet: ports.outlet })
}

/// A function of one element, as a closure.
pub struct Each<I, O, F>(F, std::marker::PhantomData<fn(I) -> O>);

impl<I: 'static, O: 'static, F: FnMut(I) -> Step<O> + 'static> Elementwise for Each<I, O, F> {
    type In = I;
    type Out = O;

    fn step(&mut self, element: I) -> Step<O> {
        (self.0)(element)
    }
}

/// An element-wise stage.
pub fn each<I: 'static, O: 'static>(
    bench: &mut InterpreterBench,
    name: &'static str,
    function: impl FnMut(I) -> Step<O> + 'static,
) -> StageHandle {
    bench.stage(name, FlowShape::<I, O>::new(), move |ports, _| {
        ElementwiseStage::new(ports, Each(function, std::marker::PhantomData))
    })
}

pub fn map<I: 'static, O: 'static>(
    bench: &mut InterpreterBench,
    mut function: impl FnMut(I) -> O + 'static,
) -> StageHandle {
    each(bench, "map", move |element| Step::Emit(function(element)))
}

pub fn take<T: 'static>(bench: &mut InterpreterBench, count: u64) -> StageHandle {
    let mut left = count;
    each(bench, "take", move |element: T| {
        left -= 1;
        if left == 0 { Step::Last(element) } else { Step::Emit(element) }
    })
}

/// Adds a stage with one inlet and one outlet.
pub fn flow<I: 'static, O: 'static, L: Logic>(
    bench: &mut InterpreterBench,
    name: &'static str,
    create: impl FnOnce(FlowPorts<I, O>) -> L + 'static,
) -> StageHandle {
    bench.stage(name, FlowShape::<I, O>::new(), move |ports, _| create(ports))
}

/// A bench with one stage after the other between two probes, `source` and `sink`.
pub struct Chain<I, O> {
    pub bench: InterpreterBench,
    pub source: UpstreamProbe<I>,
    pub sink: DownstreamProbe<O>,
}

impl<I: 'static, O: std::fmt::Debug + 'static> Chain<I, O> {
    /// Builds and starts it.
    pub fn of(mode: &Attributes, stages: impl FnOnce(&mut InterpreterBench) -> Vec<StageHandle>) -> Chain<I, O> {
        let mut bench = InterpreterBench::with_attributes(mode.clone());
        let source = bench.upstream::<I>("source");
        let stages = stages(&mut bench);
        let sink = bench.downstream::<O>("sink");
        if let (Some(first), Some(last)) = (stages.first(), stages.last()) {
            bench.connect(source.outlet(), first.inlet(0));
            bench.chain(stages.iter().copied());
            bench.connect(last.outlet(0), sink.inlet());
        } else {
            bench.connect(source.outlet(), sink.inlet());
        }
        bench.start().unwrap();
        Chain { bench, source, sink }
    }

    pub fn pull(&mut self) -> String {
        self.sink.pull(&mut self.bench).unwrap();
        self.bench.events_text()
    }

    pub fn push(&mut self, element: I) -> String {
        self.source.push(&mut self.bench, element).unwrap();
        self.bench.events_text()
    }

    pub fn push_and_complete(&mut self, element: I) -> String {
        self.source.push_and_complete(&mut self.bench, element).unwrap();
        self.bench.events_text()
    }

    pub fn complete(&mut self) -> String {
        self.source.complete(&mut self.bench);
        self.bench.events_text()
    }

    pub fn fail(&mut self) -> String {
        self.source.fail(&mut self.bench, boom());
        self.bench.events_text()
    }

    pub fn cancel(&mut self) -> String {
        self.sink.cancel(&mut self.bench);
        self.bench.events_text()
    }

    pub fn events(&mut self) -> String {
        self.bench.events_text()
    }
}

/// A list that stages of a test write to.
#[derive(Clone, Default)]
pub struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    pub fn add(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    /// What was written since this was last called.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

/// How a cancellation is written in the tables.
pub fn cause_text(cause: &Cancellation) -> String {
    match cause {
        Cancellation::NoMoreElementsNeeded => "no more".to_owned(),
        Cancellation::StageWasCompleted => "completed".to_owned(),
        Cancellation::Failed(error) => error.to_string(),
    }
}
