//! The entity of the tests of moves, and the store that it writes to: one for all pods, which refuses an older token.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use atoll::entity::TypeHost;
use atoll::{Entity, EntityId, EntityOptions, Scope, StartError, StopReason};

use crate::cluster::running;

#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Stale {}

#[atoll::protocol]
pub trait Ledger {
    async fn deposit(&mut self, sender: u32, sequence: u64) -> Result<u64, Stale>;
    async fn deposit_slowly(&mut self, sender: u32, sequence: u64, milliseconds: u64) -> Result<u64, Stale>;
    async fn stop_yourself(&mut self);
    #[concurrent]
    async fn watch(&self, milliseconds: u64) -> u64;
}

#[derive(Default)]
pub struct Record {
    token: u64,
    /// Deposits in the order in which they were applied.
    pub applied: Vec<(u32, u64)>,
}

#[derive(Default)]
pub struct StateStore {
    pub records: HashMap<String, Record>,
    /// Writes with an older token.
    pub refused: u64,
    /// Writes that were not tried, since there was no token.
    pub unfenced: u64,
    pub violations: Vec<String>,
    /// Entities that ran `stop`, by reason.
    pub stops: Vec<StopReason>,
    /// How long `stop` takes.
    pub stop_takes: Duration,
}

thread_local! {
    static STORE: RefCell<StateStore> = RefCell::default();
}

/// The store of the cluster.
pub fn store<R>(with: impl FnOnce(&mut StateStore) -> R) -> R {
    STORE.with_borrow_mut(with)
}

pub struct LedgerEntity {
    id: String,
    scope: Scope<Self>,
}

/// A handler begins now.
fn begins(id: &str) {
    let Some(running) = running() else { return };
    if running.now.0 >= running.until {
        store(|store| store.violations.push(format!("a handler of {id} started after the lapse")));
    }
}

impl LedgerEntity {
    fn apply(&mut self, sender: u32, sequence: u64) -> Result<u64, Stale> {
        let Ok(token) = self.scope.fence() else {
            store(|store| store.unfenced += 1);
            return Err(Stale {});
        };
        store(|store| {
            let record = store.records.entry(self.id.clone()).or_default();
            if token.0 < record.token {
                store.refused += 1;
                return Err(Stale {});
            }
            record.token = token.0;
            record.applied.push((sender, sequence));
            Ok(record.applied.len() as u64)
        })
    }
}

impl Entity for LedgerEntity {
    type Protocol = LedgerProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        begins(id.as_str());
        Ok(LedgerEntity { id: id.as_str().to_owned(), scope })
    }

    async fn stop(&mut self, reason: StopReason) {
        let takes = store(|store| {
            store.stops.push(reason);
            store.stop_takes
        });
        if !takes.is_zero() {
            self.scope.sleep(takes).await;
        }
    }
}

impl Ledger for LedgerEntity {
    async fn deposit(&mut self, sender: u32, sequence: u64) -> Result<u64, Stale> {
        begins(&self.id);
        self.apply(sender, sequence)
    }

    async fn deposit_slowly(&mut self, sender: u32, sequence: u64, milliseconds: u64) -> Result<u64, Stale> {
        begins(&self.id);
        self.scope.sleep(Duration::from_millis(milliseconds)).await;
        self.apply(sender, sequence)
    }

    async fn stop_yourself(&mut self) {
        self.scope.stop().expect("it lives");
    }

    async fn watch(&self, milliseconds: u64) -> u64 {
        self.scope.sleep(Duration::from_millis(milliseconds)).await;
        milliseconds
    }
}

/// The type, for a core.
pub fn types() -> Vec<TypeHost> {
    let options = EntityOptions::default().max_idle(Duration::from_millis(300));
    vec![TypeHost::new::<LedgerEntity>(0, options, &atoll::entity::EntityDefaults::default())]
}
