//! Who should own which shard: a pure function of the pods, the present plan and the orders of the admin.
//!
//! Called by the manager ([`super::ownership`]) and by dry runs. The same input gives the same plan. The rules:
//!
//! 1. A pod *accepts* shards if it is not cordoned, not draining, has a weight, and no such pod has a newer version.
//! 2. A shard without a planned owner that is registered is an *orphan*. Orphans, the shards of draining pods and pinned
//!    shards that are elsewhere are placed at once, without a limit: on the pod they are pinned to, else on the pod
//!    that still owns them, else on the pod at the address of their former owner (within its share), else on the
//!    accepting pod that will be least loaded. Load is shards by weight.
//! 3. If there was nothing of that kind, the caller asked to rebalance, and all pods that stay have the same version:
//!    one shard at a time moves from the fullest pod to the least loaded accepting one, as long as the receiver stays
//!    below the source (a gap of 1 stays). Of these moves a round makes those with which no pod gains more than the
//!    rate, counting what is still on its way to it.
//!
//! Never: a shard on two pods, a move to a pod that does not accept shards, a move of a pinned shard off its pod.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{PodUid, ShardId};

use super::store::Revision;

/// A registered pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannerPod {
    /// Its identity.
    pub uid: PodUid,
    /// Its address, for stickiness.
    pub address: String,
    /// Version of its program.
    pub version: String,
    /// Its share relative to other pods; 0 takes none.
    pub weight: u32,
    /// When it registered; the earlier one gives first.
    pub registered: Revision,
    /// It keeps its shards and gets no further ones.
    pub cordoned: bool,
    /// It gives its shards away.
    pub draining: bool,
}

/// What the planner decides on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannerInput {
    /// The registered pods, each once.
    pub pods: Vec<PlannerPod>,
    /// The present plan: one entry for each shard.
    pub planned: Vec<Option<PodUid>>,
    /// The ownership records: one entry for each shard (missing ones count as none).
    pub owned: Vec<Option<PodUid>>,
    /// Shards that stay on a pod, if it accepts shards.
    pub pins: BTreeMap<ShardId, PodUid>,
    /// Addresses of pods that the plan names and that are gone.
    pub former: BTreeMap<PodUid, String>,
    /// Whether this is a round of rebalancing.
    pub rebalance: bool,
    /// Share of all shards that a pod may gain in the round, in thousandths; at least one shard.
    pub rate_per_mille: u32,
}

/// A change of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The shard.
    pub shard: ShardId,
    /// The planned owner before.
    pub from: Option<PodUid>,
    /// The planned owner now.
    pub to: PodUid,
}

/// The new plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One entry for each shard; `None` only if no pod accepts shards.
    pub owners: Vec<Option<PodUid>>,
    /// What changed, in the order of the decisions; no shard twice.
    pub moves: Vec<Move>,
}

/// Most shards that one pod may gain in a round of rebalancing.
#[must_use]
pub fn gain_max(number_of_shards: usize, rate_per_mille: u32) -> usize {
    (number_of_shards * rate_per_mille as usize).div_ceil(1000).max(1)
}

/// Orders version texts: the numbers between `.` and `-`, compared as a list; other parts are ignored.
#[must_use]
pub fn version_numbers(version: &str) -> Vec<u64> {
    version.split(['.', '-']).filter_map(|part| part.parse().ok()).collect()
}

/// Decides. See the [module](self) for the rules.
#[must_use]
pub fn plan(input: &PlannerInput) -> Plan {
    let mut round = Round::new(input);
    round.place_at_once();
    if round.moves.is_empty() && input.rebalance && !round.versions_are_mixed() {
        round.rebalance();
    }
    Plan { owners: round.owners, moves: round.moves }
}

struct Round<'a> {
    input: &'a PlannerInput,
    /// In the order of registration.
    pods: Vec<Seat<'a>>,
    by_uid: BTreeMap<PodUid, usize>,
    owners: Vec<Option<PodUid>>,
    moves: Vec<Move>,
}

struct Seat<'a> {
    pod: &'a PlannerPod,
    version: Vec<u64>,
    accepts: bool,
    /// Its planned shards in ascending order.
    shards: BTreeSet<u32>,
}

impl Seat<'_> {
    fn count(&self) -> u64 {
        self.shards.len() as u64
    }
}

impl<'a> Round<'a> {
    fn new(input: &'a PlannerInput) -> Round<'a> {
        let mut pods: Vec<Seat<'a>> = input
            .pods
            .iter()
            .map(|pod| Seat {
                pod,
                version: version_numbers(&pod.version),
                accepts: !pod.cordoned && !pod.draining && pod.weight > 0,
                shards: BTreeSet::new(),
            })
            .collect();
        pods.sort_by_key(|seat| (seat.pod.registered, seat.pod.uid));
        let newest = pods.iter().filter(|seat| seat.accepts).map(|seat| seat.version.clone()).max();
        for seat in &mut pods {
            seat.accepts &= Some(&seat.version) == newest.as_ref();
        }
        let by_uid: BTreeMap<PodUid, usize> = pods.iter().enumerate().map(|(at, seat)| (seat.pod.uid, at)).collect();
        for (shard, owner) in input.planned.iter().enumerate() {
            if let Some(at) = owner.and_then(|uid| by_uid.get(&uid)) {
                pods[*at].shards.insert(shard as u32);
            }
        }
        Round { input, pods, by_uid, owners: input.planned.clone(), moves: Vec::new() }
    }

    fn seat_of(&self, uid: PodUid) -> Option<usize> {
        self.by_uid.get(&uid).copied()
    }

    fn accepting(&self, uid: PodUid) -> Option<usize> {
        self.seat_of(uid).filter(|at| self.pods[*at].accepts)
    }

    fn actual_owner(&self, shard: u32) -> Option<usize> {
        let owner = self.input.owned.get(shard as usize).copied().flatten();
        owner.and_then(|uid| self.seat_of(uid))
    }

    fn pin_of(&self, shard: u32) -> Option<usize> {
        self.input.pins.get(&ShardId(shard)).and_then(|uid| self.accepting(*uid))
    }

    fn versions_are_mixed(&self) -> bool {
        let mut staying = self.pods.iter().filter(|seat| !seat.pod.draining);
        let first = staying.next();
        first.is_some_and(|first| staying.any(|seat| seat.version != first.version))
    }

    fn give(&mut self, shard: u32, to: usize) {
        let from = self.owners[shard as usize];
        if let Some(at) = from.and_then(|uid| self.seat_of(uid)) {
            self.pods[at].shards.remove(&shard);
        }
        self.pods[to].shards.insert(shard);
        let to = self.pods[to].pod.uid;
        self.owners[shard as usize] = Some(to);
        self.moves.push(Move { shard: ShardId(shard), from, to });
    }

    /// Rule 2. What has a place of its own goes there first, so that the rest fills up around it.
    fn place_at_once(&mut self) {
        let mut homeless = Vec::new();
        for shard in 0..self.owners.len() as u32 {
            let seat = self.owners[shard as usize].and_then(|uid| self.seat_of(uid));
            let pin = self.pin_of(shard);
            let settled = seat.is_some_and(|at| !self.pods[at].pod.draining);
            if let Some(pin) = pin {
                if seat != Some(pin) {
                    self.give(shard, pin);
                }
            } else if !settled {
                match self.actual_owner(shard).filter(|at| self.pods[*at].accepts) {
                    Some(owner) => self.give(shard, owner),
                    None => homeless.push(shard),
                }
            }
        }
        let homeless: Vec<u32> = homeless.into_iter().filter(|shard| !self.return_to_address(*shard)).collect();
        let mut counts: Vec<u64> = self.pods.iter().map(Seat::count).collect();
        for shard in homeless {
            if let Some(to) = self.least_loaded(&counts) {
                counts[to] += 1;
                self.give(shard, to);
            }
        }
    }

    /// Gives an orphan to the pod at the address of its former owner, unless that has its share already.
    fn return_to_address(&mut self, shard: u32) -> bool {
        let former = self.owners[shard as usize].and_then(|uid| self.input.former.get(&uid));
        let Some(address) = former else {
            return false;
        };
        let total_weight: u64 =
            self.pods.iter().filter(|seat| seat.accepts).map(|seat| u64::from(seat.pod.weight)).sum();
        let shards = self.owners.len() as u64;
        let fits = |seat: &Seat<'_>| (seat.count() + 1) * total_weight <= shards * u64::from(seat.pod.weight);
        let home = self.pods.iter().position(|seat| seat.accepts && seat.pod.address == *address && fits(seat));
        if let Some(home) = home {
            self.give(shard, home);
        }
        home.is_some()
    }

    /// Whether a pod with a number of shards has less load than another with its number.
    fn lighter(&self, one: (usize, u64), other: (usize, u64)) -> bool {
        let weight = |at: usize| u64::from(self.pods[at].pod.weight);
        one.1 * weight(other.0) < other.1 * weight(one.0)
    }

    /// The accepting pod that is least loaded after gaining one more; the earliest registered among equals.
    fn least_loaded(&self, counts: &[u64]) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (at, seat) in self.pods.iter().enumerate() {
            let better = best.is_none_or(|best| self.lighter((at, counts[at] + 1), (best, counts[best] + 1)));
            if seat.accepts && better {
                best = Some(at);
            }
        }
        best
    }

    /// Rule 3. Follows the moves all the way to the balance and makes those that the rate allows now: a pod at its rate
    /// does not make others gain more than their share, which they would have to give back later.
    fn rebalance(&mut self) {
        let mut allowance = self.allowances();
        let mut counts: Vec<u64> = self.pods.iter().map(Seat::count).collect();
        let movable = |(at, seat): (usize, &Seat<'_>)| {
            seat.shards.iter().filter(|shard| self.pin_of(**shard) != Some(at)).count()
        };
        let mut movable: Vec<usize> = self.pods.iter().enumerate().map(movable).collect();
        // No shard moves twice on the way to the balance.
        for _ in 0..self.owners.len() {
            let Some(to) = self.least_loaded(&counts) else {
                return;
            };
            let Some(from) = self.fullest(&counts, |at| movable[at] > 0 && at != to) else {
                return;
            };
            if !self.lighter((to, counts[to] + 1), (from, counts[from])) {
                return;
            }
            counts[from] -= 1;
            counts[to] += 1;
            movable[from] -= 1;
            movable[to] += 1;
            if allowance[to] > 0
                && let Some(shard) = self.shard_to_move(from, to)
            {
                self.give(shard, to);
                allowance[to] -= 1;
            }
        }
    }

    /// How many shards each pod may gain: the rate, less those planned for it that another pod still owns.
    fn allowances(&self) -> Vec<usize> {
        let gain_max = gain_max(self.owners.len(), self.input.rate_per_mille);
        let on_their_way = |at: usize| {
            let elsewhere = |shard: &&u32| self.actual_owner(**shard).is_some_and(|owner| owner != at);
            self.pods[at].shards.iter().filter(elsewhere).count()
        };
        (0..self.pods.len()).map(|at| gain_max.saturating_sub(on_their_way(at))).collect()
    }

    /// The pod with the highest load; a pod without weight is fuller than any; the earliest registered among equals.
    fn fullest(&self, counts: &[u64], allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<usize> = None;
        for (at, seat) in self.pods.iter().enumerate() {
            let better = best.is_none_or(|best| self.lighter((best, counts[best]), (at, counts[at])));
            if counts[at] > 0 && !seat.pod.draining && allowed(at) && better {
                best = Some(at);
            }
        }
        best
    }

    /// A shard that the receiver owns already, else one that the source does not own yet, else its last one.
    fn shard_to_move(&self, from: usize, to: usize) -> Option<u32> {
        let mut last = None;
        let mut unclaimed = None;
        for shard in self.pods[from].shards.iter().copied().filter(|shard| self.pin_of(*shard) != Some(from)) {
            match self.actual_owner(shard) {
                Some(owner) if owner == to => return Some(shard),
                Some(owner) if owner == from => last = Some(shard),
                _ => unclaimed = Some(shard),
            }
        }
        unclaimed.or(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(version_numbers("1.10.0") > version_numbers("1.9.5"));
        assert!(version_numbers("2.0") > version_numbers("1.99.99"));
        assert!(version_numbers("1.0.0-rc-2") > version_numbers("1.0.0-rc-1"));
        assert_eq!(version_numbers("1.0.0-rc"), version_numbers("1.0.0"));
        assert!(version_numbers("").is_empty());
    }

    #[test]
    fn the_rate_is_rounded_up_to_at_least_one() {
        assert_eq!(gain_max(300, 20), 6);
        assert_eq!(gain_max(1024, 20), 21);
        assert_eq!(gain_max(10, 0), 1);
    }
}
