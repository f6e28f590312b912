//! Streams on the cores of a pod: beside its entities, from its handlers, and across its cores.
#![cfg(feature = "runtime")]

mod support;

use atoll::base::CoreIndex;
use atoll::stream::attributes::Placement;
use atoll::stream::completion::Completion;
use atoll::stream::dsl::{FlowOps, RunnableGraph, Sink, Source};
use atoll::stream::operators::ElementwiseOps;
use atoll::{Entity, EntityId, EntityOptions, Messenger, Pod, Scope, StartError};
use support::*;

/// An entity that answers with the result of a stream.
#[atoll::protocol]
pub trait Summer {
    async fn sum_to(&mut self, last: u64) -> u64;
}

pub struct SummerEntity;

impl Entity for SummerEntity {
    type Protocol = SummerProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(SummerEntity)
    }
}

impl Summer for SummerEntity {
    async fn sum_to(&mut self, last: u64) -> u64 {
        let graph = Source::from_iterator(move || 1..=last).to_right(Sink::fold(0, |sum, n| sum + n));
        let Ok(sum) = graph.run() else { return 0 };
        sum.await.unwrap_or(0)
    }
}

fn squares(last: u64, placement: Option<Placement>) -> RunnableGraph<Completion<u64>> {
    let source = Source::from_iterator(move || 1..=last).map(|n| n * n).seal();
    let source = match placement {
        Some(placement) => source.on(placement),
        None => source,
    };
    source.filter(|n| n % 2 == 1).to_right(Sink::fold(0, |sum: u64, n| sum.wrapping_add(n)))
}

fn expected(last: u64) -> u64 {
    (1..=last).map(|n| n * n).filter(|n| n % 2 == 1).fold(0, u64::wrapping_add)
}

fn pod(cores: u16) -> Pod {
    Pod::builder().config(config(cores)).entity::<SummerEntity>(EntityOptions::default()).start().unwrap()
}

#[test]
fn a_graph_runs_on_the_core_that_it_is_given_to() {
    let pod = pod(2);
    for core in [CoreIndex(0), CoreIndex(1)] {
        let sum = pod.run_stream(core, &squares(10_000, None)).unwrap();
        assert_eq!(block_on(sum).unwrap(), expected(10_000));
    }
    pod.stop();
}

#[test]
fn an_island_runs_on_another_core_and_the_value_comes_back() {
    let pod = pod(2);
    for placement in [Placement::Any, Placement::Index(0), Placement::Index(1), Placement::OfShard(7)] {
        let sum = pod.run_stream(CoreIndex(0), &squares(100_000, Some(placement))).unwrap();
        assert_eq!(block_on(sum).unwrap(), expected(100_000), "{placement:?}");
    }
    let refused = pod.run_stream(CoreIndex(0), &squares(1, Some(Placement::Index(2)))).map(drop);
    assert!(refused.unwrap_err().to_string().contains("core 2"), "the error names the core that is not there");
    pod.stop();
}

#[test]
fn a_handler_runs_a_stream_and_awaits_it() {
    let pod = pod(2);
    let summers: Messenger<SummerRef> = pod.messenger();
    for id in ["a", "b", "c", "d"] {
        assert_eq!(block_on(summers.entity(id).sum_to(1000)), Ok(500_500));
    }
    pod.stop();
}

#[test]
fn endless_streams_leave_the_entities_their_time_and_end_with_the_pod() {
    let pod = pod(1);
    let endless = Source::from_iterator(|| 0_u64..).to_right(Sink::fold(0, |sum: u64, n| sum.wrapping_add(n)));
    let ends: Vec<_> = (0..4).map(|_| pod.run_stream(CoreIndex(0), &endless).unwrap()).collect();
    let summers: Messenger<SummerRef> = pod.messenger();
    for _ in 0..100 {
        assert_eq!(block_on(summers.entity("busy").sum_to(10)), Ok(55));
    }
    pod.stop();
    for end in ends {
        assert!(block_on(end).is_err(), "a stream that was stopped says so");
    }
}
