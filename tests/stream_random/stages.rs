//! Elements and stages that are counted.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use atoll::stream::interpreter::{Context, Inlet};
use atoll::stream::stage::{FlowPorts, FlowShape, GraphStage, Logic, Setup, SinkShape};
use atoll::stream::{Attributes, StreamError};

/// What lives on this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub elements: i64,
    pub created: i64,
    pub stopped: i64,
    pub dropped: i64,
}

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally { elements: 0, created: 0, stopped: 0, dropped: 0 }) };
}

fn count(change: impl FnOnce(&mut Tally)) {
    let mut tally = TALLY.get();
    change(&mut tally);
    TALLY.set(tally);
}

pub fn tally() -> Tally {
    TALLY.get()
}

pub fn forget_tally() {
    TALLY.set(Tally::default());
}

/// An element.
#[derive(Debug)]
pub struct Item(pub u64);

impl Item {
    pub fn new(value: u64) -> Item {
        count(|tally| tally.elements += 1);
        Item(value)
    }
}

impl Clone for Item {
    fn clone(&self) -> Self {
        Item::new(self.0)
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        count(|tally| tally.elements -= 1);
    }
}

/// A failure with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub u32);

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "failure {}", self.0)
    }
}

impl std::error::Error for Failure {}

/// Counts the life of the stage that it is in.
struct Life;

impl Life {
    fn new() -> Life {
        count(|tally| tally.created += 1);
        Life
    }

    fn stop(&self) {
        count(|tally| tally.stopped += 1);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        count(|tally| tally.dropped += 1);
    }
}

/// Gives what it takes, as a general stage.
pub struct Probe;

pub struct ProbeLogic {
    ports: FlowPorts<Item, Item>,
    life: Life,
}

impl GraphStage for Probe {
    type Shape = FlowShape<Item, Item>;
    type Seed = ();
    type Mat = ();
    type Logic = ProbeLogic;

    fn name(&self) -> &'static str {
        "probe"
    }

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn prepare(&self, _: &Attributes) -> ((), ()) {
        ((), ())
    }

    fn create((): (), ports: FlowPorts<Item, Item>, _: &Setup<'_>) -> ProbeLogic {
        ProbeLogic { ports, life: Life::new() }
    }
}

impl Logic for ProbeLogic {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.ports.inlet.grab(context);
        self.ports.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.ports.inlet.pull(context);
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.life.stop();
    }
}

/// What the sink saw and what it is to do.
#[derive(Default)]
pub struct Record {
    pub output: Vec<u64>,
    pub end: Option<Result<(), StreamError>>,
    /// It cancels after so many elements.
    pub cancel_after: Option<usize>,
    /// It panics at this element.
    pub panic_at: Option<usize>,
    /// It cancels when it is woken.
    pub cancel: bool,
    pub waker: Option<Waker>,
}

/// Gathers what comes.
pub struct Gather(pub Arc<Mutex<Record>>);

pub struct GatherLogic {
    record: Arc<Mutex<Record>>,
    inlet: Inlet<Item>,
    life: Life,
}

impl GraphStage for Gather {
    type Shape = SinkShape<Item>;
    type Seed = Arc<Mutex<Record>>;
    type Mat = ();
    type Logic = GatherLogic;

    fn name(&self) -> &'static str {
        "gather"
    }

    fn shape(&self) -> Self::Shape {
        SinkShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (Self::Seed, ()) {
        (Arc::clone(&self.0), ())
    }

    fn create(record: Self::Seed, inlet: Inlet<Item>, setup: &Setup<'_>) -> GatherLogic {
        record.lock().unwrap().waker = Some(setup.waker());
        GatherLogic { record, inlet, life: Life::new() }
    }
}

impl Logic for GatherLogic {
    fn pre_start(&mut self, context: &mut Context) {
        let cancels = self.record.lock().unwrap().cancel_after == Some(0);
        if cancels { self.inlet.cancel(context) } else { self.inlet.pull(context) }
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        let (panics, cancels) = {
            let mut record = self.record.lock().unwrap();
            let panics = record.panic_at == Some(record.output.len());
            record.output.push(element.0);
            (panics, record.cancel || record.cancel_after == Some(record.output.len()))
        };
        if panics {
            // Without the message of the panic hook.
            std::panic::resume_unwind(Box::new("the sink panics"));
        }
        if cancels { self.inlet.cancel(context) } else { self.inlet.pull(context) }
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.inlet.cancel(context);
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.record.lock().unwrap().end = Some(Ok(()));
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.record.lock().unwrap().end = Some(Err(error));
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.life.stop();
    }
}
