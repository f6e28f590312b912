//! Moves, losses, pauses and broken links under interleavings that seeds decide.

use std::time::Duration;

use crate::cluster::SHARDS;
use crate::ledger::store;
use crate::world::{VALID, World};

const ENTITIES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn seeds() -> std::ops::Range<u64> {
    1..if cfg!(miri) { 3 } else { 250 }
}

/// A message from the client, or from a core of a pod.
fn load(world: &World) {
    let entity = ENTITIES[world.random().below(ENTITIES.len())];
    let (process, core) = match world.random().below(3) {
        0 => (world.random().below(world.client()), world.random().below(2)),
        _ => (world.client(), 0),
    };
    let of = &world.cluster.processes[process];
    if !of.dead.get() && !of.stalled.get() {
        world.deposit(process, core, entity);
    }
}

fn moves(world: &World) {
    let shard = world.random().below(SHARDS as usize);
    let members = world.members.borrow().clone();
    world.move_shard(shard, (members[world.random().below(members.len())], world.random().below(2)));
}

#[test]
fn moves_lose_nothing_repeat_nothing_and_keep_the_order_of_each_sender() {
    let (mut moved, mut resent) = (0, 0);
    for seed in seeds() {
        let world = World::new(seed, 3);
        for _ in 0..400 {
            if world.random().one_in(3) {
                load(&world);
            }
            if world.random().one_in(12) {
                moves(&world);
            }
            if world.random().one_in(30) {
                world.stop_entity(world.client(), 0, ENTITIES[world.random().below(ENTITIES.len())]);
            }
            world.run(6);
        }
        let mut wrong = world.finish();
        wrong.extend(world.wrong_of_clean());
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        moved += world.moved.get();
        resent += world.cluster.count(world.client(), |counters| &counters.resends);
    }
    assert!(moved > 10 && resent > 10, "{moved} moves, {resent} resends");
}
