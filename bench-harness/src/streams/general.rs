//! The same operators as ordinary stages, which handle pushes and pulls themselves.

use std::hint::black_box;

use atoll::stream::Attributes;
use atoll::stream::completion::Completion;
use atoll::stream::dsl::{FlowOps, RunnableGraph, Sink, Source};
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{FlowPorts, FlowShape, GraphStage, Logic, Setup};

use super::chains::hand_loop_ns;
use super::{ELEMENTS, Measurement, run_to_end, timed};

/// An operator as a stage that is written by hand. `N` makes eight types of it.
#[derive(Clone)]
struct Operator<const N: u64>;

struct OperatorLogic<const N: u64> {
    inlet: Inlet<u64>,
    outlet: Outlet<u64>,
    k: u64,
}

impl<const N: u64> GraphStage for Operator<N> {
    type Shape = FlowShape<u64, u64>;
    type Seed = u64;
    type Mat = ();
    type Logic = OperatorLogic<N>;

    fn name(&self) -> &'static str {
        "operator"
    }

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (u64, ()) {
        (black_box(N), ())
    }

    fn create(k: u64, ports: FlowPorts<u64, u64>, _: &Setup<'_>) -> OperatorLogic<N> {
        OperatorLogic { inlet: ports.inlet, outlet: ports.outlet, k }
    }
}

impl<const N: u64> Logic for OperatorLogic<N> {
    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let x = self.inlet.grab(context);
        self.outlet.push(context, x.wrapping_mul(3) ^ self.k);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

fn eight(source: Source<u64>) -> Source<u64> {
    source
        .via_stage(Operator::<1>)
        .via_stage(Operator::<2>)
        .via_stage(Operator::<3>)
        .via_stage(Operator::<4>)
        .via_stage(Operator::<5>)
        .via_stage(Operator::<6>)
        .via_stage(Operator::<7>)
        .via_stage(Operator::<8>)
}

fn stages(eights: usize) -> RunnableGraph<Completion<u64>> {
    let mut source = Source::from_iterator(|| 0..ELEMENTS).via_stage(Operator::<1>);
    for _ in 0..eights {
        source = eight(source);
    }
    source.to_right(Sink::fold(0_u64, |sum, x| sum.wrapping_add(x)))
}

pub(super) fn measurements() -> Vec<Measurement> {
    let (one, many) = (stages(0), stages(6));
    vec![Measurement {
        name: "hop-general",
        floor: "loop by hand",
        subject: Box::new(move |runtime| {
            let short = timed(|| {
                black_box(run_to_end(runtime, &one));
            });
            let long = timed(|| {
                black_box(run_to_end(runtime, &many));
            });
            (long - short) / ELEMENTS as f64 / 48.0
        }),
        floor_round: Some(Box::new(hand_loop_ns)),
        peers: Vec::new(),
    }]
}
