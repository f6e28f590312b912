//! One behaviour of a move at a time.

use std::time::Duration;

use atoll::base::{ShardId, Token};
use atoll::engine::Command;
use atoll::{ClusterError, StopReason};

use crate::cluster::address;
use crate::ledger::{LedgerRef, store};
use crate::world::{End, VALID, World, shard_of};

/// Lets everything happen for a while, with leases renewed.
fn rest(world: &World, milliseconds: u64) {
    for _ in 0..milliseconds {
        world.renew();
        world.progress();
        world.cluster.come_to_rest(Duration::from_millis(1));
    }
}

/// A world at rest, and an entity with the core that owns it.
fn at_rest(pods: usize) -> (World, &'static str, (usize, usize)) {
    let world = World::new(7, pods);
    rest(&world, 20);
    let owner = world.owners.borrow()[shard_of("a")].expect("all shards are owned");
    (world, "a", (owner.0, owner.1))
}

/// The core of a pod that does not own a shard now.
fn other(owner: (usize, usize)) -> (usize, usize) {
    (1 - owner.0, owner.1)
}

fn applied(entity: &str) -> Vec<(u32, u64)> {
    store(|store| store.records.get(entity).map(|record| record.applied.clone()).unwrap_or_default())
}

#[test]
fn messages_between_cores_keep_their_order_while_the_cores_hear_of_a_move_one_by_one() {
    let (world, entity, owner) = at_rest(2);
    let to = 1 - owner.0;
    let mut owners = world.owners.borrow().clone();
    owners[shard_of(entity)] = Some((to, 0, 90));
    let table = world.cluster.table(50, &[0, 1], &owners);
    let [new_owner, sender] = [0, 1].map(|core| &world.cluster.processes[to].cores[core]);
    world.cluster.within(to, || sender.set_table(table.clone()));
    let first = world.deposit_slowly(to, 1, entity, 0);
    world.cluster.run_without_flush((to, 1));
    world.cluster.within(to, || sender.flush_peers());
    world.cluster.run_without_flush((to, 0));
    world.cluster.within(to, || new_owner.set_table(table));
    // The second is sent before this core hears what became of the first.
    let second = world.deposit_slowly(to, 1, entity, 0);
    let now = world.cluster.now();
    world.cluster.within(to, || sender.work(now, now + Duration::from_secs(1), &|| now, &|| false));
    rest(&world, 20);
    assert_eq!([first, second].map(|end| end.borrow().clone()), [Some(End::Done), Some(End::Done)]);
    let sender = to as u32 * 10 + 1;
    assert_eq!(applied(entity), [(sender, 1), (sender, 2)]);
}

#[test]
fn messages_between_cores_keep_their_order_though_their_shard_leaves_and_comes_back_between_them() {
    let (world, entity, owner) = at_rest(2);
    let shard = shard_of(entity);
    let mut owners = world.owners.borrow().clone();
    owners[shard] = Some((1 - owner.0, 0, 90));
    let away = world.cluster.table(50, &[0, 1], &owners);
    owners[shard] = Some((owner.0, owner.1, 91));
    let back = world.cluster.table(51, &[0, 1], &owners);
    let sender_at = 1 - owner.1;
    let [owns, sends] = [owner.1, sender_at].map(|core| &world.cluster.processes[owner.0].cores[core]);
    let first = world.deposit_slowly(owner.0, sender_at, entity, 0);
    world.cluster.run_without_flush((owner.0, sender_at));
    world.cluster.within(owner.0, || owns.set_table(away));
    // The first one is returned, and the shard is back before its sender hears of that.
    world.cluster.run_without_flush((owner.0, owner.1));
    world.cluster.within(owner.0, || owns.set_table(back.clone()));
    let second = world.deposit_slowly(owner.0, sender_at, entity, 0);
    let now = world.cluster.now();
    world.cluster.within(owner.0, || sends.work(now, now + Duration::from_secs(1), &|| now, &|| false));
    rest(&world, 2);
    world.cluster.publish(&back, &[0, 1]);
    rest(&world, 20);
    assert_eq!([first, second].map(|end| end.borrow().clone()), [Some(End::Done), Some(End::Done)]);
    let sender = (owner.0 * 10 + sender_at) as u32;
    assert_eq!(applied(entity), [(sender, 1), (sender, 2)]);
}

#[test]
fn a_message_of_another_core_waits_where_only_its_owner_learned_of_a_newer_one() {
    let (world, entity, owner) = at_rest(2);
    let (shard, to) = (shard_of(entity), 1 - owner.0);
    let owned = |epoch, by| {
        let mut owners = world.owners.borrow().clone();
        owners[shard] = Some(by);
        world.cluster.table(epoch, &[0, 1], &owners)
    };
    let quietly = |milliseconds| {
        world.renew();
        world.cluster.come_to_rest(Duration::from_millis(milliseconds));
    };
    let give = |process: usize, core: usize, table| {
        world.cluster.within(process, || world.cluster.processes[process].cores[core].set_table(table));
    };
    // Away, back and given up again, while a message of this core to the other pod waits there.
    give(owner.0, owner.1, owned(50, (to, 0, 90)));
    let first = world.deposit_slowly(owner.0, owner.1, entity, 0);
    quietly(5);
    let back = owned(51, (owner.0, owner.1, 91));
    give(owner.0, owner.1, back.clone());
    give(owner.0, 1 - owner.1, back);
    world.cluster.command(owner.0, owner.1, Command::Release { shards: vec![ShardId(shard as u32)] });
    quietly(5);
    // The answer to that message names an owner that this pod's tables do not name yet.
    let away = owned(52, (to, 1, 92));
    (0..2).for_each(|core| give(to, core, away.clone()));
    quietly(5);
    let resends = || world.cluster.count(owner.0, |counters| &counters.resends);
    let before = resends();
    let second = world.deposit_slowly(owner.0, 1 - owner.1, entity, 0);
    quietly(5);
    let held = world.cluster.processes[owner.0].cores[owner.1].held_requests();
    assert_eq!((first.borrow().clone(), resends() - before, held), (Some(End::Done), 0, 1));
    world.cluster.publish(&away, &[0, 1]);
    quietly(5);
    assert_eq!((second.borrow().clone(), resends() - before), (Some(End::Done), 1));
}

#[test]
fn a_request_under_an_older_token_is_told_the_newest_owner_and_sent_again_at_once() {
    let (world, entity, owner) = at_rest(2);
    // The pods know a newer table; the client hears of it only by the answer.
    let mut owners = world.owners.borrow().clone();
    owners[shard_of(entity)] = Some((owner.0, owner.1, 90));
    let table = world.cluster.table(50, &[0, 1], &owners);
    world.cluster.processes[owner.0].cores[owner.1].host().set_shards(
        (0..8).filter(|shard| *shard == shard_of(entity) as u32).map(|shard| (ShardId(shard), Token(90))),
        8,
        std::collections::HashSet::new(),
    );
    let end = world.deposit_slowly(world.client(), 0, entity, 0);
    world.cluster.come_to_rest(Duration::from_millis(2));
    assert_eq!((end.borrow().clone(), applied(entity).len()), (None, 0), "it is not handled under another token");
    assert!(world.cluster.count(owner.0, |counters| &counters.moved_answers) > 0);
    let core = &world.cluster.processes[owner.0].cores[owner.1];
    world.cluster.within(owner.0, || core.set_table(table));
    rest(&world, 5);
    assert_eq!(*end.borrow(), Some(End::Done));
}

#[test]
fn a_request_under_a_newer_token_waits_for_the_table_that_names_it() {
    let (world, entity, owner) = at_rest(2);
    let mut owners = world.owners.borrow().clone();
    owners[shard_of(entity)] = Some((owner.0, owner.1, 90));
    let table = world.cluster.table(50, &[0, 1], &owners);
    let client = &world.cluster.processes[world.client()].cores[0];
    client.set_table(table.clone());
    let end = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 5);
    let core = &world.cluster.processes[owner.0].cores[owner.1];
    assert_eq!((end.borrow().clone(), core.held_requests()), (None, 1), "the owner does not know the token yet");
    world.cluster.within(owner.0, || core.set_table(table));
    rest(&world, 5);
    assert_eq!(*end.borrow(), Some(End::Done));
    assert_eq!(world.cluster.count(world.client(), |counters| &counters.resends), 0);
}

#[test]
fn a_move_finishes_what_was_received_and_the_rest_goes_to_the_new_owner() {
    let (world, entity, owner) = at_rest(2);
    let running = world.deposit_slowly(world.client(), 0, entity, 8);
    let queued = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 2);
    world.move_shard(shard_of(entity), other(owner));
    rest(&world, 2);
    let late = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 2);
    assert!(running.borrow().is_none() && late.borrow().is_none());
    assert_eq!(world.cluster.processes[owner.0].cores[owner.1].held_requests(), 1, "it starts nothing there");
    rest(&world, 30);
    for end in [running, queued, late] {
        assert_eq!(*end.borrow(), Some(End::Done));
    }
    assert_eq!(applied(entity), [(20, 1), (20, 2), (20, 3)]);
    assert_eq!(store(|store| store.stops.clone()), [StopReason::Moved]);
    assert_eq!(world.cluster.count(world.client(), |counters| &counters.resends), 1, "only the late one");
}

#[test]
fn what_takes_too_long_in_a_move_is_interrupted_and_not_sent_again() {
    let (world, entity, owner) = at_rest(2);
    let long = world.deposit_slowly(world.client(), 0, entity, 60_000);
    rest(&world, 2);
    world.move_shard(shard_of(entity), other(owner));
    rest(&world, 10);
    assert!(long.borrow().is_none());
    for _ in 0..40 {
        world.cluster.pass(Duration::from_millis(100));
        rest(&world, 1);
    }
    rest(&world, 30);
    assert_eq!(*long.borrow(), Some(End::Failed(ClusterError::EntityInterrupted)));
    assert!(applied(entity).is_empty());
    assert_eq!(world.owners.borrow()[shard_of(entity)].map(|owner| owner.0), Some(other(owner).0));
}

#[test]
fn a_shard_without_entities_is_released_at_once_and_one_that_is_not_owned_without_a_token() {
    let (world, entity, owner) = at_rest(2);
    let shard = ShardId(shard_of(entity) as u32);
    let core = &world.cluster.processes[owner.0].cores[owner.1];
    let token = core.host().owned_token(shard).expect("owned");
    core.host().release_shards(&[shard, shard]);
    assert_eq!(core.host().take_released(), [(shard, token)]);
    core.host().release_shards(&[shard]);
    assert_eq!(core.host().take_released(), [], "it was reported");
    let foreign = (0..8).map(ShardId).find(|shard| core.host().owned_token(*shard).is_none() && shard.0 != 0);
    core.host().release_shards(&[foreign.expect("others own some")]);
    assert_eq!(core.host().take_released().len(), usize::from(foreign != Some(shard)));
}

#[test]
fn a_release_during_an_idle_stop_waits_for_it_and_for_those_who_wait_behind_it() {
    let (world, entity, owner) = at_rest(2);
    store(|store| store.stop_takes = Duration::from_millis(10));
    let first = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 4);
    world.stop_entity(world.client(), 0, entity);
    rest(&world, 3);
    assert_eq!(store(|store| store.stops.clone()), [StopReason::Requested], "its stop has begun");
    let behind = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 2);
    world.move_shard(shard_of(entity), other(owner));
    rest(&world, 3);
    let late = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 60);
    for end in [first, behind, late] {
        assert_eq!(*end.borrow(), Some(End::Done));
    }
    assert_eq!(applied(entity), [(20, 1), (20, 2), (20, 3)]);
    assert_eq!(store(|store| store.stops.clone()), [StopReason::Requested, StopReason::Moved]);
}

#[test]
fn a_frozen_pod_starts_nothing_and_answers_nothing_until_its_lease_is_renewed() {
    let (world, entity, owner) = at_rest(2);
    let running = world.deposit_slowly(world.client(), 0, entity, 5);
    rest(&world, 2);
    world.cut.borrow_mut().push(owner.0);
    world.cluster.pass(VALID);
    let waits = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 20);
    assert!(running.borrow().is_none() && waits.borrow().is_none() && applied(entity).is_empty());
    assert!(world.cluster.violations.borrow().is_empty());
    world.cut.borrow_mut().clear();
    rest(&world, 20);
    assert_eq!((running.borrow().clone(), waits.borrow().clone()), (Some(End::Done), Some(End::Done)));
    assert_eq!(world.cluster.count(world.client(), |counters| &counters.resends), 0);
}

#[test]
fn an_answer_that_was_ready_before_the_lapse_is_not_submitted_after_it() {
    let (world, entity, owner) = at_rest(2);
    world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 10);
    let end = world.deposit_slowly(world.client(), 0, entity, 0);
    let process = &world.cluster.processes[owner.0];
    // The lease ends between the handler's run and the flush of its turn.
    for _ in 0..10_000 {
        world.renew();
        if applied(entity).len() > 1 {
            break;
        }
        world.cluster.pass(Duration::from_micros(20));
        world.cluster.pass_bytes();
        world.cluster.run_without_flush(owner);
    }
    assert_eq!(applied(entity).len(), 2);
    world.cut.borrow_mut().push(owner.0);
    world.cluster.pass(VALID);
    assert!(world.cluster.now().0 >= process.until.get());
    world.cluster.flush(owner.0, owner.1);
    rest(&world, 10);
    assert!(end.borrow().is_none() && world.cluster.violations.borrow().is_empty());
    world.cut.borrow_mut().clear();
    rest(&world, 10);
    assert_eq!(*end.borrow(), Some(End::Done));
}

#[test]
fn a_timeout_is_kept_also_by_a_frozen_pod_and_while_nobody_owns_the_shard() {
    let (world, entity, owner) = at_rest(2);
    world.cut.borrow_mut().extend([0, 1]);
    world.cluster.pass(VALID);
    let from_client = world.deposit_slowly(world.client(), 0, entity, 0);
    let from_pod = world.deposit_slowly(owner.0, owner.1, entity, 0);
    let from_other_core = world.deposit_slowly(owner.0, 1 - owner.1, entity, 0);
    rest(&world, 5);
    for end in [&from_client, &from_pod, &from_other_core] {
        assert!(end.borrow().is_none());
    }
    world.cluster.pass(Duration::from_secs(31));
    rest(&world, 5);
    for end in [from_client, from_pod, from_other_core] {
        assert_eq!(*end.borrow(), Some(End::Failed(ClusterError::SendTimeout)));
    }
    world.cut.borrow_mut().clear();
    rest(&world, 10);
    assert!(applied(entity).is_empty(), "who gave up is not served");
}

#[test]
fn a_paused_pod_loses_its_shards_and_its_senders_and_drops_everything_when_it_is_back() {
    let (world, entity, owner) = at_rest(2);
    let first = world.deposit_slowly(world.client(), 0, entity, 1);
    rest(&world, 1);
    world.cluster.processes[owner.0].stalled.set(true);
    world.cluster.pass(VALID * 2);
    world.renew();
    world.take_over(owner.0);
    rest(&world, 10);
    assert_eq!(*first.borrow(), Some(End::Done), "the new owner answered");
    world.cluster.processes[owner.0].stalled.set(false);
    rest(&world, 10);
    world.rejoin(owner.0);
    rest(&world, 30);
    assert_eq!(world.cluster.processes[owner.0].cores[owner.1].host().live_entities(), 0);
    assert_eq!(store(|store| (store.refused, store.violations.len())), (0, 0));
    assert!(store(|store| store.stops.is_empty()), "nothing is saved");
    let shard = shard_of(entity);
    world.move_shard(shard, owner);
    rest(&world, 20);
    let again = world.deposit_slowly(world.client(), 0, entity, 0);
    rest(&world, 20);
    assert_eq!(*again.borrow(), Some(End::Done), "it serves again, as another member");
}

#[test]
fn a_client_outlives_the_pod_that_it_learned_the_table_from() {
    let (world, _, _) = at_rest(3);
    assert_eq!(address(0), "memory:0", "the client knows only this one");
    let before: Vec<_> = (0..8).map(|at| world.deposit_slowly(world.client(), 0, &format!("e{at}"), 2)).collect();
    rest(&world, 1);
    world.cluster.kill(0);
    world.cluster.pass(VALID * 2);
    world.renew();
    world.take_over(0);
    rest(&world, 300);
    let after: Vec<_> = (0..8).map(|at| world.deposit_slowly(world.client(), 0, &format!("e{at}"), 0)).collect();
    rest(&world, 300);
    for end in before.iter().chain(&after) {
        assert_eq!(*end.borrow(), Some(End::Done));
    }
}

#[test]
fn messages_of_other_cores_wait_for_a_shard_on_its_way_and_follow_it() {
    let (world, entity, owner) = at_rest(2);
    let running = world.deposit_slowly(owner.0, 1 - owner.1, entity, 8);
    rest(&world, 1);
    world.move_shard(shard_of(entity), other(owner));
    rest(&world, 1);
    let ends: Vec<_> = (0..5).map(|_| world.deposit_slowly(owner.0, 1 - owner.1, entity, 0)).collect();
    rest(&world, 1);
    assert_eq!(world.cluster.processes[owner.0].cores[owner.1].held_requests(), 5);
    rest(&world, 40);
    assert_eq!(*running.borrow(), Some(End::Done));
    assert!(ends.iter().all(|end| *end.borrow() == Some(End::Done)));
    let sender = owner.0 as u32 * 10 + 1 - owner.1 as u32;
    assert_eq!(applied(entity), (1..=6).map(|sequence| (sender, sequence)).collect::<Vec<_>>());
}

#[test]
fn entities_of_a_shard_that_was_lost_are_dropped() {
    let (world, entity, owner) = at_rest(2);
    let running = world.deposit_slowly(world.client(), 0, entity, 1000);
    rest(&world, 2);
    let host = world.cluster.processes[owner.0].cores[owner.1].host();
    assert_eq!(host.local_entities("ledger", Some(ShardId(shard_of(entity) as u32)), 9).len(), 1);
    world.owners.borrow_mut()[shard_of(entity)] = Some((1 - owner.0, 0, 90));
    world.publish();
    rest(&world, 5);
    assert_eq!(host.live_entities(), 0);
    assert_eq!(*running.borrow(), Some(End::Failed(ClusterError::EntityInterrupted)));
    assert!(store(|store| store.stops.is_empty()));
}

#[test]
fn a_lease_that_was_lost_and_won_again_unseen_drops_the_old_entities_first() {
    let (world, entity, owner) = at_rest(2);
    let running = world.deposit_slowly(world.client(), 0, entity, 50);
    rest(&world, 2);
    let core = &world.cluster.processes[owner.0].cores[owner.1];
    assert_eq!(core.host().live_entities(), 1);
    // The core sees neither the lapse nor the time between: only what the control thread left behind.
    world.cluster.processes[owner.0].stalled.set(true);
    world.cluster.pass(VALID * 2);
    world.take_over(owner.0);
    world.cluster.processes[owner.0].stalled.set(false);
    world.rejoin(owner.0);
    let now = world.cluster.now();
    world.cluster.within(owner.0, || core.work(now, now + Duration::from_secs(1), &|| now, &|| false));
    assert_eq!(core.host().live_entities(), 0);
    assert!(applied(entity).is_empty());
    rest(&world, 100);
    assert_eq!(*running.borrow(), Some(End::Done), "by the new owner");
    assert_eq!(applied(entity).len(), 1);
}

#[test]
fn an_ask_that_nobody_polls_does_not_keep_later_ones_waiting() {
    use std::future::Future;
    use std::task::{Context, Waker};
    let (world, entity, owner) = at_rest(2);
    world.cut.borrow_mut().push(owner.0);
    world.cluster.pass(VALID);
    let core = &world.cluster.processes[owner.0].cores[owner.1];
    rest(&world, 2);
    let mut forgotten = {
        let _entered = core.host().enter();
        let mut ask = core.host().messenger::<LedgerRef>().entity(entity).deposit(99, 1);
        assert!(std::pin::Pin::new(&mut ask).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        ask
    };
    let later = world.deposit_slowly(owner.0, owner.1, entity, 0);
    world.cut.borrow_mut().clear();
    rest(&world, 10);
    assert_eq!(*later.borrow(), Some(End::Done));
    let _entered = core.host().enter();
    assert!(std::pin::Pin::new(&mut forgotten).poll(&mut Context::from_waker(Waker::noop())).is_ready());
}
