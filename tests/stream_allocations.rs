//! What an element allocates in a running island: nothing, through element-wise and through ordinary stages.

#[path = "support/counting.rs"]
mod counting;

use atoll::stream::Attributes;
use atoll::stream::attributes::TransparentPull;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step};
use atoll::stream::stage::{FlowShape, Logic, SinkShape, SourceShape};
use atoll::stream::testkit::InterpreterBench;
use counting::{Counting, ThreadCount};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Pushes numbers without end.
struct Numbers {
    outlet: Outlet<u64>,
    next: u64,
}

impl Logic for Numbers {
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.next += 1;
        self.outlet.push(context, self.next);
    }
}

struct Ignore {
    inlet: Inlet<u64>,
    count: std::rc::Rc<std::cell::Cell<u64>>,
    allocates: bool,
}

impl Logic for Ignore {
    fn pre_start(&mut self, context: &mut Context) {
        self.inlet.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if self.allocates {
            std::hint::black_box(Box::new(element));
        }
        self.count.set(self.count.get() + 1);
        self.inlet.pull(context);
    }
}

struct Pass {
    inlet: Inlet<u64>,
    outlet: Outlet<u64>,
}

impl Logic for Pass {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

/// Every second one.
struct Half;

impl Elementwise for Half {
    type In = u64;
    type Out = u64;

    fn step(&mut self, element: u64) -> Step<u64> {
        if element.is_multiple_of(2) { Step::Emit(element) } else { Step::Skip }
    }
}

/// Allocations of the interpreter while 100,000 events and more go through. The first events warm it up.
fn allocations(attributes: Attributes, allocates: bool) -> (u64, u64) {
    let mut bench = InterpreterBench::with_attributes(attributes);
    let count = std::rc::Rc::default();
    let counted = std::rc::Rc::clone(&count);
    let source = bench.stage("numbers", SourceShape::new(), |outlet, _| Numbers { outlet, next: 0 });
    let half = bench.stage("half", FlowShape::new(), |ports, _| ElementwiseStage::new(ports, Half));
    let pass = bench.stage("pass", FlowShape::new(), |ports, _| Pass { inlet: ports.inlet, outlet: ports.outlet });
    let sink = bench.stage("ignore", SinkShape::new(), move |inlet, _| Ignore { inlet, count: counted, allocates });
    bench.chain([source, half, pass, sink]);
    bench.set_event_limit(100);
    bench.start().unwrap();
    let (before, elements) = (ThreadCount::here().get(), count.get());
    bench.step(10_000);
    (ThreadCount::here().get() - before, count.get() - elements)
}

#[test]
fn an_element_allocates_nothing() {
    for attributes in [Attributes::none(), Attributes::of(TransparentPull(false))] {
        let (allocations, elements) = allocations(attributes, false);
        assert!(elements > 10_000, "{elements}");
        assert_eq!(allocations, 0);
    }
}

#[test]
fn an_allocation_is_seen() {
    let (allocations, elements) = allocations(Attributes::none(), true);
    assert_eq!(allocations, elements);
}
