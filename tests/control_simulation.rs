//! Several pods, one store, and everything that can go wrong between them, in simulated time from a seed: kills,
//! restarts, pauses (as by SIGSTOP), partitions, a store that is away, joins and drains.
//!
//! The promises: at no moment two pods may serve the same shard; once the faults end, every shard is owned within a
//! bounded time, and the plan comes to rest, balanced. Bugs are planted in the way between machine and store, and the
//! checkers have to see them.

#[path = "control_simulation/world.rs"]
mod world;

use core::time::Duration;

use world::{Bug, Report, World, simulate};

const SEEDS: u64 = if cfg!(miri) { 1 } else { 24 };

fn first_violation(bug: Bug) -> String {
    let found = (0..SEEDS).find_map(|seed| simulate(seed, bug).err().map(|violation| (seed, violation)));
    let (seed, violation) = found.expect("the bug is seen");
    println!("seed {seed}: {violation}");
    violation
}

#[test]
fn no_two_pods_serve_a_shard_and_all_are_served_again_after_the_faults() {
    let mut total = Report::default();
    for seed in 0..SEEDS {
        let report = simulate(seed, Bug::None).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        total.add(&report);
    }
    // The faults happened, and the dangerous moments were there.
    assert!(
        total.kills > 0
            && total.pauses > 0
            && total.partitions > 0
            && total.stalls > 0
            && total.outages > 0
            && total.drains > 0
    );
    assert!(total.lost > 0 && total.frozen > 0 && total.moves > 0, "{total:?}");
}

/// A pod is about to claim shards; its claims are on their way for long. Meanwhile an admin has it drained, and the
/// shards go to the other pod.
fn claims_that_arrive_late(bug: Bug) -> Result<(), String> {
    let mut world = World::new(1, bug, 2);
    until(&mut world, Duration::from_secs(90), |world| world.is_balanced());
    world.late_claims = Some(0);
    world.restart(0);
    world.run_for(Duration::from_millis(6500))?;
    assert!(!world.all_served(), "the claims are on their way");
    world.order_drain(1, 0);
    world.run_for(Duration::from_secs(10))?;
    assert!(world.all_served() && world.owned_by(0) == 0);
    Ok(())
}

#[test]
fn a_claim_that_arrives_late_takes_nothing_from_the_owner_and_one_that_does_not_compare_is_seen() {
    claims_that_arrive_late(Bug::None).expect("no violation");
    let violation = claims_that_arrive_late(Bug::ClaimWithoutCompare).expect_err("the bug is seen");
    assert!(violation.contains("two owners"), "{violation}");
}

#[test]
fn a_pod_that_ignores_its_freeze_is_seen() {
    assert!(first_violation(Bug::FreezeIgnored).contains("two owners"));
}

#[test]
fn a_shard_that_is_given_up_before_its_entities_stopped_is_seen() {
    assert!(first_violation(Bug::ReleasedTooEarly).contains("two owners"));
}

#[test]
fn a_pod_that_never_gives_up_a_shard_is_seen() {
    first_violation(Bug::NeverReleased);
}

/// Waits until a pod of the world owns nothing, and how long that took.
fn until(world: &mut World, limit: Duration, done: impl Fn(&World) -> bool) -> Duration {
    let start = world.now;
    while !done(world) {
        assert!(world.now.since(start) < limit, "not done within {limit:?}");
        world.run_for(Duration::from_millis(1)).expect("no violation");
    }
    world.now.since(start)
}

#[test]
fn a_pod_that_drains_hands_everything_over_while_each_shard_is_without_owner_for_a_moment_only() {
    let mut world = World::new(7, Bug::None, 3);
    until(&mut world, Duration::from_secs(90), |world| world.is_balanced());
    world.forget_gaps();
    world.drain(0);
    until(&mut world, Duration::from_secs(10), |world| world.owned_by(0) == 0 && world.all_served());
    assert!(world.longest_gap() <= Duration::from_millis(50), "{:?}", world.longest_gap());
    assert!(world.has_handed_over(0));
}

#[test]
fn the_shards_of_a_killed_pod_are_owned_again_by_ttl_and_a_second() {
    for seed in 0..10 {
        let mut world = World::new(seed, Bug::None, 3);
        until(&mut world, Duration::from_secs(90), |world| world.is_balanced());
        world.kill(1);
        let took = until(&mut world, Duration::from_secs(10), World::all_served);
        assert!(took > Duration::from_secs(3), "the others waited for the lease");
        assert!(took <= world::TTL + Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn a_lone_pod_has_nobody_to_hand_over_to() {
    let mut world = World::new(3, Bug::None, 1);
    until(&mut world, Duration::from_secs(5), World::all_served);
    world.drain(0);
    world.run_for(Duration::from_secs(1)).expect("no violation");
    assert!(world.has_no_heirs(0) && world.all_served());
}
