//! A graph that is no chain: one element goes two ways and comes together again.

use std::hint::black_box;

use atoll::stream::dsl::{Flow, GraphBuilder, Sink, Source};
use atoll::stream::operators::{Broadcast, ElementwiseOps, Zip};

use super::{ELEMENTS, Measurement, run_to_end, timed};

fn by_hand() {
    let (left, right) = (black_box(3_u64), black_box(5_u64));
    let mut sum = 0_u64;
    for x in 0..black_box(ELEMENTS) {
        let (a, b) = (x.wrapping_mul(left), x ^ right);
        sum = sum.wrapping_add(black_box(a)).wrapping_add(black_box(b));
    }
    black_box(sum);
}

pub(super) fn measurements() -> Vec<Measurement> {
    let (left, right) = (black_box(3_u64), black_box(5_u64));
    let mut graph = GraphBuilder::new();
    let source = graph.add(Source::from_iterator(|| 0..ELEMENTS).map(|x| x));
    let broadcast = graph.add_stage(Broadcast::new(2));
    let zip = graph.add_stage(Zip::new::<u64, u64>());
    graph.connect(source, broadcast.inlet);
    graph.from(broadcast.outlets[0]).via(Flow::<u64, u64>::new().map(move |x| x.wrapping_mul(left))).to(zip.first);
    graph.from(broadcast.outlets[1]).via(Flow::<u64, u64>::new().map(move |x| x ^ right)).to(zip.second);
    let source: Source<(u64, u64)> = graph.source(zip.outlet).expect("every port is wired");
    let graph = source.to_right(Sink::fold(0_u64, |sum, (a, b)| sum.wrapping_add(a).wrapping_add(b)));
    vec![Measurement {
        name: "diamond",
        floor: "loop by hand",
        subject: Box::new(move |runtime| {
            timed(|| {
                black_box(run_to_end(runtime, &graph));
            }) / ELEMENTS as f64
        }),
        floor_round: Some(Box::new(|| timed(by_hand) / ELEMENTS as f64)),
        peers: Vec::new(),
    }]
}
