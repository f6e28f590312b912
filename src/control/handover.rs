//! How a pod gives shards to others: asks its cores to stop them, a few at a time, and deletes their records.
//!
//! A part of the machine of [`super::membership`]; called in each round of [`super::ownership`]. Invariants: a shard's
//! record is deleted only after its core reported it empty, and only the record with that token; a core is asked for a
//! shard only after it was given the table that says it owns it; at most [`RELEASES_IN_FLIGHT_MAX`] shards are on their
//! way at a time, so that the messages for each of them wait for one small batch and not for all.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::RecordKey;
use super::membership::{ControlNotice, PodControl, Step};
use super::records::{self, PodState};
use super::store::{Compare, Operation, Revision, TRANSACTION_OPERATIONS_MAX, Transaction};
use super::{HAND_OVER_SLOT_MAX, RELEASES_IN_FLIGHT_MAX};
use crate::base::{CoreIndex, Epoch, Nanos, PodUid, ShardId, Token};

/// The shards that are on their way to another pod.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// Asked for: the revision at which the record was created, and whether the core reported the shard empty.
    releasing: BTreeMap<ShardId, (Revision, bool)>,
    /// Record deleted (when), next owner not seen yet.
    given_up: BTreeMap<ShardId, Nanos>,
}

impl Departures {
    pub(super) fn wake(&self) -> Nanos {
        self.given_up.values().map(|since| *since + HAND_OVER_SLOT_MAX).min().unwrap_or(Nanos::NEVER)
    }
}

/// How far a pod is with giving away everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    /// Whether the store says that the pod drains, so that the manager takes its shards away.
    pub announced: bool,
    /// Shards that the pod owns, or gave up and nobody owns yet.
    pub shards_left: usize,
    /// Other pods that may take shards. Without one there is nothing to wait for.
    pub heirs: usize,
}

impl PodControl {
    /// How far the pod is with giving away its shards; see [`super::ControlEvent::Drain`].
    #[must_use]
    pub fn hand_over(&self) -> HandOver {
        let Some(role) = self.own_role() else {
            return HandOver::default();
        };
        let uid = self.config.uid;
        let announced = role.pods.get(&uid).is_some_and(|own| own.record.state == PodState::Draining);
        let owned = role.owners.values().filter(|owner| owner.record.owner == uid).count();
        let given_up = self.shards.departures.given_up.keys().filter(|shard| !role.owners.contains_key(shard)).count();
        let open = |other: &PodUid| {
            let order = role.orders.get(other).map(|order| order.record).unwrap_or_default();
            let pod = role.pods.get(other).map(|pod| &pod.record);
            !order.cordon && !order.drain && pod.is_some_and(|pod| pod.state == PodState::Active && pod.weight > 0)
        };
        let heirs = role.pods.keys().filter(|other| **other != uid && open(other)).count();
        HandOver { announced, shards_left: owned + given_up, heirs }
    }

    /// Says in the store that the pod drains, once that is wanted.
    pub(super) fn announce(&mut self, now: Nanos) {
        let Some(registered) = self.registered.filter(|_| self.draining) else {
            return;
        };
        let own = self.own_role().and_then(|role| role.pods.get(&self.config.uid));
        let Some(own) = own.filter(|own| own.record.state != PodState::Draining) else {
            return;
        };
        let mut entry = own.record.clone();
        entry.state = PodState::Draining;
        let (key, lease) = (self.pod_key(), own.lease);
        let compares = vec![Compare::CreateRevision(key.clone(), registered)];
        let operations = vec![Operation::Put { key, value: records::encode(entry), lease }];
        self.write(Transaction { compares, operations }, now);
    }

    /// A core has no entity of the shard left. Ignored if the shard has another token since; a core that does not own
    /// the shard (token 0) has none of its entities either.
    pub(super) fn on_released(&mut self, shard: ShardId, token: Token) {
        let base = self.view.token_base();
        if let Some((created, stopped)) = self.shards.departures.releasing.get_mut(&shard)
            && (token == Token(0) || token == Token(base.saturating_add(created.0)))
        {
            *stopped = true;
        }
    }

    /// Asks for the stop of shards that are planned elsewhere, and deletes the records of those that are stopped.
    pub(super) fn release(&mut self, now: Nanos) {
        if self.current_step() != Step::Member {
            return;
        }
        let Some(role) = self.view.role(&self.config.role) else {
            return;
        };
        let (uid, base) = (self.config.uid, self.view.token_base());
        let published = self.shards.published.get(&self.config.role).copied().unwrap_or(Epoch(0));
        let departures = &mut self.shards.departures;
        let (mut asks, mut deletes, mut owned) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (shard, owner) in role.owners.iter().filter(|(_, owner)| owner.record.owner == uid) {
            owned.insert(*shard);
            match departures.releasing.get(shard) {
                Some((created, stopped)) if *created == owner.create_revision => {
                    if *stopped {
                        deletes.push((*shard, *created));
                    }
                }
                _ => {
                    let known = published >= Epoch(base.saturating_add(owner.create_revision.0));
                    let to = role.planned(*shard).owner.filter(|to| *to != uid && role.pods.contains_key(to));
                    if let Some(to) = to.filter(|_| known) {
                        asks.push((*shard, owner.create_revision, CoreIndex(owner.record.core), to));
                    }
                }
            }
        }
        departures.releasing.retain(|shard, _| owned.contains(shard));
        departures.given_up.retain(|shard, since| {
            let elsewhere = role.owners.get(shard).is_some_and(|owner| owner.record.owner != uid);
            !elsewhere && now < *since + HAND_OVER_SLOT_MAX
        });
        let on_their_way = departures.given_up.keys().filter(|shard| !departures.releasing.contains_key(shard));
        let free = RELEASES_IN_FLIGHT_MAX.saturating_sub(departures.releasing.len() + on_their_way.count());
        asks.truncate(free);
        for (shard, created, ..) in &asks {
            departures.releasing.insert(*shard, (*created, false));
        }
        for (shard, _) in &deletes {
            departures.given_up.insert(*shard, now);
        }
        for (shard, created, core, to) in asks {
            let token = Token(base.saturating_add(created.0));
            self.notice(ControlNotice::Release { shard, token, core, to });
        }
        // One compare and one operation for each shard.
        for some in deletes.chunks(TRANSACTION_OPERATIONS_MAX) {
            let mut transaction = Transaction::default();
            for (shard, created) in some {
                let key = self.keys.key(RecordKey::Ownership(&self.config.role, *shard));
                transaction.compares.push(Compare::CreateRevision(key.clone(), *created));
                transaction.operations.push(Operation::Delete(key));
            }
            self.write(transaction, now);
        }
    }
}
