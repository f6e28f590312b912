//! The planner against its promises, over random clusters; each promise is a checker, and each checker is shown to
//! refuse a planner that breaks it.

use std::collections::{BTreeMap, BTreeSet};

use atoll::base::{PodUid, ShardId};
use atoll::control::planner::{Plan, PlannerInput, PlannerPod, gain_max, plan, version_numbers};
use atoll::control::store::Revision;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

type Planner = fn(&PlannerInput) -> Plan;
type Checker = fn(Planner, &PlannerInput) -> Result<(), String>;

/// Rounds within which any cluster of these tests has to be at rest: each round but the last moves a shard, and no shard
/// moves twice.
const ROUNDS_MAX: usize = 200;

fn accepting(input: &PlannerInput) -> BTreeSet<PodUid> {
    let open = |pod: &&PlannerPod| !pod.cordoned && !pod.draining && pod.weight > 0;
    let newest = input.pods.iter().filter(open).map(|pod| version_numbers(&pod.version)).max();
    let newest = |pod: &&PlannerPod| Some(version_numbers(&pod.version)) == newest;
    input.pods.iter().filter(open).filter(newest).map(|pod| pod.uid).collect()
}

fn pod(input: &PlannerInput, uid: PodUid) -> Option<&PlannerPod> {
    input.pods.iter().find(|pod| pod.uid == uid)
}

fn versions_are_mixed(input: &PlannerInput) -> bool {
    let staying = input.pods.iter().filter(|pod| !pod.draining);
    staying.map(|pod| version_numbers(&pod.version)).collect::<BTreeSet<_>>().len() > 1
}

fn count(owners: &[Option<PodUid>], uid: PodUid) -> u64 {
    owners.iter().filter(|owner| **owner == Some(uid)).count() as u64
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// The cluster after the moves were made: what was planned is owned.
fn after(input: &PlannerInput, plan: &Plan) -> PlannerInput {
    PlannerInput { planned: plan.owners.clone(), owned: plan.owners.clone(), ..input.clone() }
}

/// Rounds until nothing moves: all plans, and the cluster at rest.
fn to_rest(planner: Planner, input: &PlannerInput) -> Result<(Vec<Plan>, PlannerInput), String> {
    let mut input = PlannerInput { rebalance: true, ..input.clone() };
    let mut plans = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let plan = planner(&input);
        let nothing_on_its_way = input.owned == input.planned;
        input = after(&input, &plan);
        if !plan.moves.is_empty() {
            plans.push(plan);
        } else if nothing_on_its_way {
            return Ok((plans, input));
        }
    }
    Err("it does not come to rest".to_owned())
}

/// The moves are exactly the difference of the plans, no shard twice: so no prefix of them has two owners of a shard.
fn never_two_owners(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let plan = planner(input);
    let mut owners = input.planned.clone();
    let mut moved = BTreeSet::new();
    for change in &plan.moves {
        ensure(moved.insert(change.shard), || format!("{change:?} moves a shard again"))?;
        let owner = owners.get_mut(change.shard.0 as usize).ok_or("no such shard")?;
        ensure(*owner == change.from && change.from != Some(change.to), || format!("{change:?} from {owner:?}"))?;
        *owner = Some(change.to);
    }
    ensure(owners == plan.owners, || "the moves do not make the plan".to_owned())
}

fn only_to_accepting(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let accepting = accepting(input);
    let wrong = planner(input).moves.into_iter().find(|change| !accepting.contains(&change.to));
    ensure(wrong.is_none(), || format!("{wrong:?} goes to a pod that does not accept shards"))
}

fn orphans_are_placed(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    if accepting(input).is_empty() {
        return ensure(planner(input).moves.is_empty(), || "there is nobody to move to".to_owned());
    }
    let plan = planner(input);
    let homeless = |owner: &Option<PodUid>| owner.is_none_or(|uid| pod(input, uid).is_none_or(|pod| pod.draining));
    ensure(!plan.owners.iter().any(homeless), || "a shard has no pod, or one that drains".to_owned())
}

fn frozen_while_mixed(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    if !versions_are_mixed(input) {
        return Ok(());
    }
    let accepting = accepting(input);
    let allowed = |change: &&atoll::control::planner::Move| {
        let leaves = change.from.and_then(|uid| pod(input, uid)).is_none_or(|pod| pod.draining);
        leaves || input.pins.get(&change.shard).is_some_and(|pin| *pin == change.to && accepting.contains(pin))
    };
    let plan = planner(input);
    let wrong = plan.moves.iter().find(|change| !allowed(change));
    ensure(wrong.is_none(), || format!("{wrong:?} while versions are mixed"))
}

fn within_the_rate(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let plan = planner(input);
    let leaves = |from: Option<PodUid>| from.and_then(|uid| pod(input, uid)).is_none_or(|pod| pod.draining);
    if plan.moves.iter().any(|change| leaves(change.from) || input.pins.contains_key(&change.shard)) {
        return Ok(());
    }
    let most = gain_max(input.planned.len(), input.rate_per_mille) as u64;
    for pod in &input.pods {
        let gains = plan.moves.iter().filter(|change| change.to == pod.uid).count() as u64;
        let losses = plan.moves.iter().any(|change| change.from == Some(pod.uid));
        ensure(gains <= most && !(gains > 0 && losses), || format!("{} gains {gains}", pod.uid))?;
    }
    Ok(())
}

/// No shard that may move would make the receiver stay lighter than the source was.
fn balanced(owners: &[Option<PodUid>], input: &PlannerInput) -> Result<(), String> {
    let accepting = accepting(input);
    let pinned = |shard: usize| input.pins.get(&ShardId(shard as u32)).is_some_and(|pin| accepting.contains(pin));
    for from in input.pods.iter().filter(|pod| !pod.draining) {
        let movable = |(shard, owner): (usize, &Option<PodUid>)| *owner == Some(from.uid) && !pinned(shard);
        if !owners.iter().enumerate().any(movable) {
            continue;
        }
        for to in input.pods.iter().filter(|pod| accepting.contains(&pod.uid) && pod.uid != from.uid) {
            let (source, receiver) = (count(owners, from.uid), count(owners, to.uid));
            let helps = (receiver + 1) * u64::from(from.weight) < source * u64::from(to.weight);
            ensure(!helps, || format!("{} has {source}, {} has {receiver}", from.uid, to.uid))?;
        }
    }
    Ok(())
}

fn rests_in_balance(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let (_, rest) = to_rest(planner, input)?;
    if accepting(input).is_empty() || versions_are_mixed(input) {
        return Ok(());
    }
    balanced(&rest.planned, input)
}

fn at_rest_without_change(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let (_, rest) = to_rest(planner, input)?;
    let again = planner(&rest);
    ensure(again.moves.is_empty() && again.owners == rest.planned, || "it moves a balanced cluster".to_owned())
}

/// From the first round of rebalancing on, no shard moves twice and no pod both gains and loses.
fn no_detours(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let placed = after(input, &planner(&PlannerInput { rebalance: false, ..input.clone() }));
    let (plans, _) = to_rest(planner, &placed)?;
    let moves = || plans.iter().flat_map(|plan| &plan.moves);
    let shards: BTreeSet<_> = moves().map(|change| change.shard).collect();
    ensure(shards.len() == moves().count(), || "a shard moves twice".to_owned())?;
    let gaining: BTreeSet<_> = moves().map(|change| Some(change.to)).collect();
    let both = moves().find(|change| gaining.contains(&change.from));
    ensure(both.is_none(), || format!("{both:?}: its source gains, too"))
}

/// With equal weights and without orders: the least number of moves that reaches a gap of at most 1.
fn fewest_moves(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let mut plain = PlannerInput { pins: BTreeMap::new(), ..input.clone() };
    for pod in &mut plain.pods {
        (pod.weight, pod.cordoned, pod.draining) = (1, false, false);
        pod.version = "1.0".to_owned();
    }
    let placed = after(&plain, &planner(&PlannerInput { rebalance: false, ..plain.clone() }));
    let (plans, _) = to_rest(planner, &placed)?;
    let moves: u64 = plans.iter().map(|plan| plan.moves.len() as u64).sum();
    let (shards, pods) = (placed.planned.len() as u64, placed.pods.len() as u64);
    let counts = || placed.pods.iter().map(|pod| count(&placed.planned, pod.uid));
    let (floor, ceiling) = (shards / pods, shards.div_ceil(pods));
    let above: u64 = counts().map(|count| count.saturating_sub(ceiling)).sum();
    let below: u64 = counts().map(|count| floor.saturating_sub(count)).sum();
    ensure(moves == above.max(below), || format!("{moves} moves instead of {}", above.max(below)))
}

/// A shard on a pod that stays, in a cluster where nothing is rebalanced, does not move.
fn sticky(planner: Planner, input: &PlannerInput) -> Result<(), String> {
    let plan = planner(&PlannerInput { rebalance: false, pins: BTreeMap::new(), ..input.clone() });
    let stays = |owner: Option<PodUid>| owner.and_then(|uid| pod(input, uid)).is_some_and(|pod| !pod.draining);
    let wrong = plan.moves.iter().find(|change| stays(change.from));
    ensure(wrong.is_none(), || format!("{wrong:?} without need"))
}

const CHECKERS: [(&str, Checker); 10] = [
    ("never two owners", never_two_owners),
    ("only to accepting pods", only_to_accepting),
    ("orphans are placed", orphans_are_placed),
    ("frozen while versions are mixed", frozen_while_mixed),
    ("within the rate", within_the_rate),
    ("rests in balance", rests_in_balance),
    ("at rest without change", at_rest_without_change),
    ("no detours", no_detours),
    ("fewest moves", fewest_moves),
    ("sticky", sticky),
];

fn pods() -> impl Strategy<Value = Vec<PlannerPod>> {
    let version = prop_oneof![8 => Just("1.0"), 1 => Just("1.1"), 1 => Just("1.0.0-rc")];
    let weight = prop_oneof![6 => Just(1_u32), 3 => 2_u32..6, 1 => Just(0_u32)];
    let order = prop_oneof![8 => Just((false, false)), 1 => Just((true, false)), 1 => Just((false, true))];
    proptest::collection::vec((version, weight, order, 0_u64..9), 1..7).prop_map(|pods| {
        let pod = |(at, (version, weight, (cordoned, draining), registered))| PlannerPod {
            uid: PodUid(at as u128 + 1),
            address: format!("10.0.0.{at}:7500"),
            version: String::from(version),
            weight,
            registered: Revision(registered),
            cordoned,
            draining,
        };
        pods.into_iter().enumerate().map(pod).collect()
    })
}

/// Owners 1 to 6 may be registered, 7 and 8 never are; 0 is nobody.
fn owner() -> impl Strategy<Value = Option<PodUid>> {
    (0_u128..9).prop_map(|uid| (uid > 0).then_some(PodUid(uid)))
}

fn inputs() -> impl Strategy<Value = PlannerInput> {
    // Sometimes most shards are on one pod, as after the start of the others.
    let owners = |shards: usize| {
        let on_one = owner()
            .prop_flat_map(move |one| proptest::collection::vec(prop_oneof![9 => Just(one), 1 => owner()], shards));
        prop_oneof![proptest::collection::vec(owner(), shards), on_one]
    };
    let shards = 1_usize..80;
    let plans = shards.prop_flat_map(move |shards| (owners(shards), owners(shards), any::<bool>(), any::<bool>()));
    let rates = (0_u32..120, any::<bool>());
    (pods(), plans, rates).prop_flat_map(|(pods, (mut planned, owned, settled, no_orphans), (rate, rebalance))| {
        if no_orphans {
            let registered = |owner: Option<PodUid>| PodUid(owner.map_or(0, |uid| uid.0) % pods.len() as u128 + 1);
            planned.iter_mut().for_each(|owner| *owner = Some(registered(*owner)));
        }
        let shards = planned.len() as u32;
        let pins = proptest::collection::btree_map((0..shards).prop_map(ShardId), (1_u128..9).prop_map(PodUid), 0..4);
        pins.prop_map(move |pins| PlannerInput {
            pods: pods.clone(),
            planned: planned.clone(),
            owned: if settled { planned.clone() } else { owned.clone() },
            pins,
            former: BTreeMap::from([(PodUid(7), "10.0.0.0:7500".to_owned())]),
            rebalance,
            rate_per_mille: rate,
        })
    })
}

fn check(checker: Checker, planner: Planner) -> Result<(), String> {
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&inputs(), |input| checker(planner, &input).map_err(TestCaseError::fail));
    outcome.map_err(|error| error.to_string())
}

#[test]
fn the_planner_keeps_every_promise() {
    for (name, checker) in CHECKERS {
        check(checker, plan).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn it_is_deterministic_and_does_not_depend_on_the_order_of_the_pods() {
    let mut runner = TestRunner::new(Config { cases: 512, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&inputs(), |input| {
        let mut turned = input.clone();
        turned.pods.reverse();
        prop_assert_eq!(plan(&input), plan(&turned));
        Ok(())
    });
    outcome.expect("deterministic");
}

fn rebuilt(input: &PlannerInput, change: impl FnOnce(&mut PlannerInput)) -> Plan {
    let mut other = input.clone();
    change(&mut other);
    plan(&other)
}

/// Planners with one bug each, and the checker that has to see it.
const BROKEN: [(&str, Planner); 10] = [
    ("never two owners", |input| {
        let mut plan = plan(input);
        plan.moves.extend(plan.moves.first().copied());
        plan
    }),
    ("only to accepting pods", |input| {
        rebuilt(input, |other| other.pods.iter_mut().for_each(|pod| pod.cordoned = false))
    }),
    ("orphans are placed", |input| {
        let mut plan = plan(input);
        plan.moves.retain(|change| change.from.is_some());
        plan.owners = input.planned.clone();
        for change in &plan.moves {
            plan.owners[change.shard.0 as usize] = Some(change.to);
        }
        plan
    }),
    ("frozen while versions are mixed", |input| {
        rebuilt(input, |other| other.pods.iter_mut().for_each(|pod| pod.version = "1.0".to_owned()))
    }),
    ("within the rate", |input| rebuilt(input, |other| other.rate_per_mille += 100)),
    ("rests in balance", |input| rebuilt(input, |other| other.rebalance = false)),
    // Two pods swap a shard for ever.
    ("at rest without change", |input| {
        let mut plan = plan(input);
        if plan.moves.is_empty() && input.pods.len() > 1 {
            let shard = input.planned.iter().position(|owner| *owner == Some(PodUid(1)));
            if let Some(shard) = shard {
                plan.owners[shard] = Some(PodUid(2));
            }
        }
        plan
    }),
    // The rate holds up the right receiver only, so that others gain more than their share.
    ("no detours", |input| {
        let mut plan = plan(input);
        if let Some(change) = plan.moves.first_mut()
            && let Some(other) = input.pods.iter().find(|pod| pod.uid != change.to && Some(pod.uid) != change.from)
        {
            change.to = other.uid;
            plan.owners[change.shard.0 as usize] = Some(other.uid);
        }
        plan
    }),
    ("fewest moves", |input| {
        let mut plan = plan(input);
        let swap = input.rebalance && !plan.moves.is_empty();
        let find = |owners: &[Option<PodUid>], uid| owners.iter().position(|owner| *owner == Some(PodUid(uid)));
        if swap && let (Some(one), Some(two)) = (find(&plan.owners, 1), find(&plan.owners, 2)) {
            for (shard, to) in [(one, PodUid(2)), (two, PodUid(1))] {
                let (shard, from) = (ShardId(shard as u32), plan.owners[shard]);
                plan.owners[shard.0 as usize] = Some(to);
                plan.moves.push(atoll::control::planner::Move { shard, from, to });
            }
        }
        plan
    }),
    ("sticky", |input| rebuilt(input, |other| other.rebalance = true)),
];

#[test]
fn every_checker_sees_its_bug() {
    for (name, broken) in BROKEN {
        let checker = CHECKERS.iter().find(|(checker, _)| *checker == name).expect("a checker").1;
        assert!(check(checker, broken).is_err(), "the checker {name:?} does not see its bug");
    }
}

fn simple_pod(uid: u128, registered: u64) -> PlannerPod {
    PlannerPod {
        uid: PodUid(uid),
        address: format!("10.0.0.{uid}:7500"),
        version: "1.0.0".into(),
        weight: 1,
        registered: Revision(registered),
        cordoned: false,
        draining: false,
    }
}

#[test]
fn a_fourth_pod_gets_its_share_of_300_shards_in_13_rounds() {
    let planned: Vec<_> = (0..300_u128).map(|shard| Some(PodUid(shard % 3 + 1))).collect();
    let pods = (1..=4).map(|uid| simple_pod(uid, uid as u64)).collect();
    let owned = planned.clone();
    let input = PlannerInput { pods, planned, owned, rate_per_mille: 20, rebalance: true, ..PlannerInput::default() };
    let (plans, rest) = to_rest(plan, &input).expect("rests");
    assert_eq!(plans.len(), 13);
    assert!(plans[..12].iter().all(|plan| plan.moves.len() == 6));
    assert_eq!(count(&rest.planned, PodUid(4)), 75);
}

#[test]
fn moves_that_are_still_on_their_way_count_against_the_rate() {
    let planned: Vec<_> = (0..100).map(|_| Some(PodUid(1))).collect();
    let pods = vec![simple_pod(1, 1), simple_pod(2, 2)];
    let owned = planned.clone();
    let mut input =
        PlannerInput { pods, planned, owned, rate_per_mille: 50, rebalance: true, ..PlannerInput::default() };
    let first = plan(&input);
    assert_eq!(first.moves.len(), 5);
    input.planned = first.owners;
    assert!(plan(&input).moves.is_empty(), "the first five are not there yet");
}

#[test]
fn a_pod_that_comes_back_at_its_address_gets_its_shards_back() {
    // Pods 1 and 2 are gone; 3 stayed; 4 is the new start of 1, 5 that of 2.
    let planned: Vec<_> = (0..90_u128).map(|shard| Some(PodUid(shard % 3 + 1))).collect();
    let mut back = [simple_pod(4, 5), simple_pod(5, 4)];
    back[0].address = "10.0.0.1:7500".into();
    back[1].address = "10.0.0.2:7500".into();
    let [four, five] = back;
    let former = [(1_u128, "10.0.0.1:7500"), (2, "10.0.0.2:7500")];
    let input = PlannerInput {
        pods: vec![simple_pod(3, 1), four, five],
        owned: vec![None; 90],
        former: former.map(|(uid, address)| (PodUid(uid), address.to_owned())).into(),
        planned: planned.clone(),
        ..PlannerInput::default()
    };
    let heirs = BTreeMap::from([(PodUid(1), PodUid(4)), (PodUid(2), PodUid(5)), (PodUid(3), PodUid(3))]);
    let expected: Vec<_> = planned.iter().map(|owner| owner.map(|owner| heirs[&owner])).collect();
    assert_eq!(plan(&input).owners, expected);
}

#[test]
fn in_a_rolling_update_shards_go_straight_to_the_newest_version() {
    let planned: Vec<_> = (0..30_u128).map(|shard| Some(PodUid(shard % 3 + 1))).collect();
    let mut pods: Vec<_> = (1..=4).map(|uid| simple_pod(uid, uid as u64)).collect();
    pods[3].version = "1.1.0".into();
    let owned = planned.clone();
    let mut input =
        PlannerInput { pods, planned, owned, rate_per_mille: 20, rebalance: true, ..PlannerInput::default() };
    assert!(plan(&input).moves.is_empty(), "frozen while versions are mixed");
    input.pods[0].draining = true;
    let drained = plan(&input);
    assert_eq!(drained.moves.len(), 10);
    assert!(drained.moves.iter().all(|change| change.to == PodUid(4)));
}
