//! Runs a [`PodControl`] against a store that answers at once (embedded, in memory, or a blocking connection).
//!
//! Called by the control thread of a pod: [`ControlDriver::start`] until the pod can serve, then
//! [`ControlDriver::tick`] at the latest at [`ControlDriver::next_wake`], and [`ControlDriver::stop`] at the end. The
//! clock and the pause are the caller's, so the driver is pure.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use super::config::Refusal;
use super::membership::{ControlEffect, ControlEvent, ControlNotice, PodControl, Step};
use super::orders::Order;
use super::store::{Store, StoreError, StoreEvent, StoreResponse};
use crate::base::{Nanos, PodUid, ShardId, Token};
use crate::sharding::ShardTable;

/// Events handled by one call; what is left is handled by the next one.
const EVENTS_PER_CALL_MAX: usize = 65_536;

/// Shortest pause while a pod starts: whatever is due, the processor is not kept busy with waiting.
const START_PAUSE_MIN: Duration = Duration::from_millis(1);

/// Why a pod did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It may not join.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It did not own its shards in time.
    #[error(
        "the pod did not get its shards in time (it stopped at {step:?}); is the store reachable?{unreachable}{unreadable}"
    )]
    TimedOut {
        /// How far it came.
        step: Step,
        /// What the store said last, if it was not available.
        unreachable: String,
        /// The records that could not be read, if there are some.
        unreadable: String,
    },
    /// The store has failed for good.
    #[error("the store is not available: {0}")]
    Store(String),
    /// It lost its lease on the way.
    #[error("the lease of the pod ended while it joined; start it again")]
    Lost,
}

/// A machine and its store.
#[derive(Debug)]
pub struct ControlDriver<S> {
    control: PodControl,
    store: S,
    /// Notices that came while starting: they belong to the pod, too.
    notices: Vec<ControlNotice>,
    waiting: VecDeque<ControlEvent>,
    events: Vec<StoreEvent>,
    /// Why the store did not answer when it was asked last.
    away: Option<StoreError>,
}

impl<S: Store> ControlDriver<S> {
    /// Takes both; nothing is sent before [`ControlDriver::start`].
    #[must_use]
    pub fn new(control: PodControl, store: S) -> ControlDriver<S> {
        ControlDriver { control, store, notices: Vec::new(), waiting: VecDeque::new(), events: Vec::new(), away: None }
    }

    /// Joins, and returns the first table of the pod's role, in which the pod owns every shard that is planned for it.
    /// `pause` sleeps until the given time at most. What else the pod has to know (above all
    /// [`ControlNotice::ValidUntil`]) comes with the next [`ControlDriver::tick`].
    ///
    /// # Errors
    /// If the pod may not join, or is not ready at `deadline`.
    pub fn start(
        &mut self,
        clock: &mut dyn FnMut() -> Nanos,
        pause: &mut dyn FnMut(Nanos),
        deadline: Nanos,
    ) -> Result<Arc<ShardTable>, StartError> {
        let mut notices = self.run(ControlEvent::Start, clock);
        loop {
            for notice in notices.drain(..) {
                match notice {
                    ControlNotice::Refused(refusal) => return Err(StartError::Refused(refusal)),
                    ControlNotice::Lost | ControlNotice::Stopped => return Err(StartError::Lost),
                    other => self.notices.push(other),
                }
            }
            if let Some(table) = self.take_own_table() {
                return Ok(table);
            }
            if let Some(reason) = self.store.failure() {
                return Err(StartError::Store(reason.to_owned()));
            }
            let now = clock();
            if now >= deadline {
                return Err(self.timed_out());
            }
            let (soonest, latest) = (now + START_PAUSE_MIN, now + super::RETRY_PAUSE);
            pause(self.control.next_wake().clamp(soonest, latest).min(deadline));
            notices = self.run(ControlEvent::Tick, clock);
        }
    }

    /// Takes up events of the store and what is due; returns what the pod has to know, in order.
    pub fn tick(&mut self, clock: &mut dyn FnMut() -> Nanos) -> Vec<ControlNotice> {
        self.run(ControlEvent::Tick, clock)
    }

    /// Reports that all entities of shards are stopped.
    pub fn released(
        &mut self,
        shards: impl IntoIterator<Item = (ShardId, Token)>,
        clock: &mut dyn FnMut() -> Nanos,
    ) -> Vec<ControlNotice> {
        self.waiting.extend(shards.into_iter().map(|(shard, token)| ControlEvent::Released { shard, token }));
        self.run(ControlEvent::Tick, clock)
    }

    /// Has the manager plan all shards of this pod elsewhere; [`PodControl::hand_over`] says how far it is.
    pub fn drain(&mut self, clock: &mut dyn FnMut() -> Nanos) -> Vec<ControlNotice> {
        self.run(ControlEvent::Drain, clock)
    }

    /// Gives an order of an admin to the store.
    pub fn order(&mut self, ticket: u64, order: Order, clock: &mut dyn FnMut() -> Nanos) -> Vec<ControlNotice> {
        self.run(ControlEvent::Order { ticket, order }, clock)
    }

    /// Joins as a new incarnation after [`ControlNotice::Lost`] or `Refused`. Returns at once: the table comes with a
    /// later tick.
    pub fn rejoin(&mut self, uid: PodUid, clock: &mut dyn FnMut() -> Nanos) -> Vec<ControlNotice> {
        self.control = self.control.successor(uid);
        self.waiting.clear();
        self.notices.clear();
        self.run(ControlEvent::Start, clock)
    }

    /// Leaves the cluster; its shards have no owner when this returned [`ControlNotice::Stopped`]. Call it after the
    /// entities are stopped. If the store does not answer, `Stopped` comes with a later tick.
    pub fn stop(&mut self, clock: &mut dyn FnMut() -> Nanos) -> Vec<ControlNotice> {
        self.run(ControlEvent::Stop, clock)
    }

    /// When to tick at the latest, if the store does not [wake](Store::set_waker) the caller before.
    #[must_use]
    pub fn next_wake(&self) -> Nanos {
        self.control.next_wake()
    }

    /// The machine, for views.
    #[must_use]
    pub fn control(&self) -> &PodControl {
        &self.control
    }

    /// The store, for other users of it on the same thread.
    pub fn store(&mut self) -> &mut S {
        &mut self.store
    }

    fn take_own_table(&mut self) -> Option<Arc<ShardTable>> {
        let role = &self.control.config().role;
        let own = |notice: &ControlNotice| matches!(notice, ControlNotice::Publish(table) if table.role() == role);
        let newest = self.notices.iter().rfind(|notice| own(notice)).cloned()?;
        self.notices.retain(|notice| !own(notice));
        match newest {
            ControlNotice::Publish(table) => Some(table),
            _ => None,
        }
    }

    fn timed_out(&self) -> StartError {
        let unreadable = &self.control.view().unreadable;
        let named: Vec<String> = unreadable.iter().take(3).map(|(key, error)| format!(" {key}: {error}.")).collect();
        let unreachable = self.away.as_ref().map(|error| format!(" {error}.")).unwrap_or_default();
        StartError::TimedOut { step: self.control.current_step(), unreachable, unreadable: named.concat() }
    }

    /// Feeds the machine until neither it nor the store has anything left.
    ///
    /// The clock is read for each event, since the store may block. A store that does not answer is not asked again in
    /// this call: the rest would only wait, too.
    fn run(&mut self, first: ControlEvent, clock: &mut dyn FnMut() -> Nanos) -> Vec<ControlNotice> {
        let mut notices = core::mem::take(&mut self.notices);
        self.away = None;
        self.waiting.push_back(first);
        for _ in 0..EVENTS_PER_CALL_MAX {
            if self.waiting.is_empty() {
                self.store.poll_events(clock(), &mut self.events);
                self.waiting.extend(self.events.drain(..).map(ControlEvent::Store));
            }
            let Some(event) = self.waiting.pop_front() else {
                break;
            };
            for effect in self.control.step(event, clock()) {
                match effect {
                    ControlEffect::Notice(notice) => notices.push(notice),
                    ControlEffect::Request { request, body } => {
                        let response = match &self.away {
                            Some(error) => StoreResponse::Failed(StoreError::clone(error)),
                            None => self.store.handle(body, clock()),
                        };
                        if let StoreResponse::Failed(error @ StoreError::Unavailable(_)) = &response {
                            self.away = Some(error.clone());
                        }
                        self.waiting.push_back(ControlEvent::Response { request, response });
                    }
                }
            }
        }
        notices
    }
}
