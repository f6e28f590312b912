//! How entities end: told to stop, idle, defect, or with their host.
//!
//! The third part of [`Host`]. A stopping entity finishes the messages that it had received (those before its cut), then
//! runs `Entity::stop`; what came later starts the next instance. Called by `hosting`, `host` and `scope`. Invariant:
//! a state is dropped only when nothing of its entity is being polled.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::cell;
use super::host::{Host, TimerKey, add};
use super::hosting::TypeHost;
use super::lifecycle::StopReason;
use super::mailbox::Mailbox;
use super::message::Access;
use super::slot::{Phase, SlotHeader, StopProgress};
use crate::base::{ClusterError, EntityId, Nanos, ShardId};

/// Slots that one turn looks at for idleness.
const SWEEP_SLOTS: usize = 512;

impl Host {
    // ---- stop ----

    /// Tells an entity to stop; it finishes what it has received. False if it does not live.
    pub(super) fn request_stop(&self, slot: NonNull<SlotHeader>, reason: StopReason) -> bool {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        match header.phase.get() {
            Phase::Free => false,
            Phase::Stopping | Phase::Defect => true,
            Phase::Starting => {
                let cut = header.mailbox.next_sequence();
                let first = header.with_extras(|extras| {
                    extras.stop.replace(StopProgress { reason, cut, hook_started: false }).is_none()
                });
                if first {
                    self.arm_termination(slot);
                }
                true
            }
            Phase::Running => {
                self.begin_stop(slot, reason);
                true
            }
        }
    }

    pub(super) fn begin_stop(&self, slot: NonNull<SlotHeader>, reason: StopReason) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let cut = header.mailbox.next_sequence();
        header.with_extras(|extras| extras.stop = Some(StopProgress { reason, cut, hook_started: false }));
        header.phase.set(Phase::Stopping);
        header.attention.set(true);
        self.arm_termination(slot);
        self.schedule(slot);
    }

    pub(super) fn arm_termination(&self, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let timeout = self.types()[usize::from(header.type_index)].options.termination_timeout;
        self.arm(self.now() + timeout, TimerKey::Terminate(slot, header.generation.get()));
    }

    pub(super) fn go_on_stopping(&self, kind: &TypeHost, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let Some(stop) = header.stop_progress() else { return };
        if stop.hook_started || !header.gate.is_idle() || has_messages_before(header, stop.cut) {
            return;
        }
        header.with_extras(|extras| extras.stop = Some(StopProgress { hook_started: true, ..stop }));
        header.gate.enter(Access::Exclusive);
        // SAFETY: the gate was entered for writing and the entity has its state.
        unsafe { (kind.lifecycle.stop)(self, slot, stop.reason) };
    }

    /// `Entity::stop` is done, or was cut off.
    pub(super) fn entity_stopped(&self, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        header.gate.leave(Access::Exclusive);
        let kind = &self.types()[usize::from(header.type_index)];
        self.tear_down(kind, slot, ClusterError::EntityInterrupted);
    }

    pub(super) fn termination_timed_out(&self, slot: NonNull<SlotHeader>, generation: u32) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let phase = header.phase.get();
        if header.generation.get() != generation || !matches!(phase, Phase::Starting | Phase::Stopping) {
            return;
        }
        let kind = &self.types()[usize::from(header.type_index)];
        tracing::warn!(entity = kind.name, id = %header.id(), "interrupted: it did not stop within its timeout");
        if let Some(stop) = header.stop_progress() {
            self.fail_waiting(header, Some(stop.cut), ClusterError::EntityInterrupted);
        }
        if let Some(hook) = header.lifecycle.take() {
            // SAFETY: timers run outside of every poll, so the future is not being polled.
            unsafe {
                (hook.as_ref().vtable().drop_future)(hook, self.pool());
                cell::close(hook, self.pool());
            }
            if phase == Phase::Stopping {
                header.gate.leave(Access::Exclusive);
            }
        }
        if phase == Phase::Starting {
            self.fail_waiting(header, None, ClusterError::EntityInterrupted);
            header.run_finalizers();
            self.release(kind, slot);
            return;
        }
        self.tear_down(kind, slot, ClusterError::EntityInterrupted);
    }

    /// Ends an entity: handlers, state, finalizers. If messages wait they start the next one.
    pub(super) fn tear_down(&self, kind: &TypeHost, slot: NonNull<SlotHeader>, error: ClusterError) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        // What is woken or sent by a dropped handler must wait for the next instance.
        header.phase.set(Phase::Defect);
        while let Some(handler) = header.handlers.first() {
            // SAFETY: it is in the list, and nothing is being polled.
            unsafe { self.end_handler(handler, Some(error)) };
        }
        // SAFETY: the state was there, and nobody refers to it any more.
        unsafe { (kind.lifecycle.drop_state)(slot) };
        header.run_finalizers();
        self.wake_updates(header);
        header.extras.borrow_mut().take();
        add(&self.counters().stopped, 1);
        header.generation.set(header.generation.get().wrapping_add(1));
        if self.stopping.get() {
            self.fail_waiting(header, None, ClusterError::EntityInterrupted);
        }
        if header.mailbox.length() > 0 {
            let shard = header.shard.get();
            self.start_entity(kind, slot);
            if self.is_releasing(shard) {
                // They came before the shard was to be released, so it finishes them.
                self.request_stop(slot, StopReason::Moved);
            }
        } else {
            self.release(kind, slot);
        }
    }

    // ---- idleness and the end ----

    /// Looks at some slots for entities that were idle too long.
    pub(super) fn sweep_idle(&self, now: Nanos) {
        if now < self.next_sweep.get() {
            return;
        }
        let types = self.types();
        let (mut type_at, mut slot_at) = self.sweep.get();
        for _ in 0..SWEEP_SLOTS {
            let Some(kind) = types.get(type_at) else {
                (type_at, slot_at) = (0, 0);
                self.next_sweep.set(now + super::host::IDLE_TICK);
                break;
            };
            let Some(slot) = kind.arena.at(slot_at) else {
                (type_at, slot_at) = (type_at + 1, 0);
                continue;
            };
            slot_at += 1;
            self.stop_if_idle(kind, slot);
        }
        self.sweep.set((type_at, slot_at));
    }

    fn stop_if_idle(&self, kind: &TypeHost, slot: NonNull<SlotHeader>) {
        // SAFETY: slots are alive as long as the host.
        let header = unsafe { slot.as_ref() };
        let max_idle = kind.options.max_idle.as_nanos() / super::host::IDLE_TICK.as_nanos();
        let idle = self.idle_ticks().saturating_sub(header.last_active.get());
        if header.phase.get() == Phase::Running
            && !header.attention.get()
            && header.gate.is_idle()
            && u128::from(idle) > max_idle
        {
            self.begin_stop(slot, StopReason::Idle);
        }
    }

    /// Whether an entity lives here.
    pub fn is_running(&self, type_name: &str, id: &str) -> bool {
        let hash = crate::base::hash::entity_hash(self.hash_seed(), id.as_bytes());
        let kind = self.types().iter().find(|kind| kind.name == type_name);
        let id = EntityId::new(id);
        kind.zip(id.ok()).is_some_and(|(kind, id)| kind.arena.find(hash, &id).is_some())
    }

    /// Tells all entities to stop; from now on none starts.
    pub fn stop_entities(&self, reason: StopReason) {
        self.stopping.set(true);
        for kind in self.types() {
            for slot in (0..kind.arena.capacity()).filter_map(|position| kind.arena.at(position)) {
                self.request_stop(slot, reason);
            }
        }
    }

    /// How many entities live on this core.
    pub fn live_entities(&self) -> usize {
        self.types().iter().map(TypeHost::live).sum()
    }

    /// Drops all entities without ceremony; for the end of the host, or of its right to serve.
    pub(super) fn drop_entities(&self) {
        self.drop_entities_where(|_| true);
        self.counters().live.store(0, Ordering::Relaxed);
    }

    /// Drops the entities of some shards without ceremony: no `Entity::stop`, but their finalizers. Whoever waits is
    /// told that they were interrupted. Nothing may be being polled.
    pub(super) fn drop_entities_where(&self, wanted: impl Fn(ShardId) -> bool) {
        for kind in self.types() {
            for slot in (0..kind.arena.capacity()).filter_map(|position| kind.arena.at(position)) {
                // SAFETY: slots are alive as long as the host.
                let header = unsafe { slot.as_ref() };
                let had_state = header.phase.get().has_state();
                if header.phase.get() == Phase::Free || !wanted(header.shard.get()) {
                    continue;
                }
                header.phase.set(Phase::Defect);
                self.fail_waiting(header, None, ClusterError::EntityInterrupted);
                while let Some(handler) = header.handlers.first() {
                    // SAFETY: it is in the list, and nothing is being polled.
                    unsafe { self.end_handler(handler, Some(ClusterError::EntityInterrupted)) };
                }
                if let Some(hook) = header.lifecycle.take() {
                    // SAFETY: nothing is being polled.
                    unsafe {
                        (hook.as_ref().vtable().drop_future)(hook, self.pool());
                        cell::close(hook, self.pool());
                    }
                }
                if had_state {
                    // SAFETY: the state is there and nobody refers to it any more.
                    unsafe { (kind.lifecycle.drop_state)(slot) };
                }
                header.run_finalizers();
                let waiters =
                    header.extras.borrow_mut().as_mut().map(|extras| core::mem::take(&mut extras.update_waiters));
                self.release(kind, slot);
                waiters.into_iter().flatten().for_each(core::task::Waker::wake);
            }
        }
    }
}

fn has_messages_before(header: &SlotHeader, cut: u32) -> bool {
    [header.mailbox.turn_head(), header.mailbox.concurrent_head()]
        .into_iter()
        .flatten()
        // SAFETY: messages in a mailbox are alive.
        .any(|waiting| Mailbox::is_before(unsafe { waiting.as_ref() }.sequence, cut))
}
