//! The planner, for a cluster of eight pods and 1,024 shards. One operation is one plan.

use std::hint::black_box;

use atoll::base::PodUid;
use atoll::control::planner::{PlannerInput, PlannerPod, plan};
use atoll::control::store::Revision;

use crate::meter::Meter;

const SHARDS: usize = 1_024;
const PODS: u64 = 8;

fn input(planned: Vec<Option<PodUid>>) -> PlannerInput {
    let pods = (0..PODS).map(|at| PlannerPod {
        uid: PodUid(u128::from(at) + 1),
        address: format!("10.0.0.{at}:7400"),
        version: "1.0.0".to_owned(),
        weight: 1,
        registered: Revision(at + 1),
        cordoned: false,
        draining: false,
    });
    PlannerInput {
        pods: pods.collect(),
        owned: planned.clone(),
        planned,
        rebalance: true,
        rate_per_mille: 20,
        ..PlannerInput::default()
    }
}

fn plans(meter: &mut Meter, input: &PlannerInput, moves: usize) {
    assert_eq!(plan(input).moves.len(), moves);
    meter.repeat(3, || plan(black_box(input)));
}

/// A cluster that has just formed: every shard is placed.
pub fn place(meter: &mut Meter) {
    plans(meter, &input(vec![None; SHARDS]), SHARDS);
}

/// A pod has joined seven that share all shards: it gets 2 % of them.
pub fn rebalance(meter: &mut Meter) {
    let owners = (0..SHARDS).map(|shard| Some(PodUid(shard as u128 % 7 + 1)));
    plans(meter, &input(owners.collect()), 21);
}
