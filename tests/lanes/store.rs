//! The entity that the tests send to. What it got is in a log of the thread; what it waits for is fired by the test.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use atoll::engine::LinkLimits;
use atoll::{Entity, EntityId, EntityOptions, Scope, StartError};

use crate::host::Signal;
use crate::wire::Wire;

#[atoll::protocol]
pub trait Store {
    /// Keeps bytes, and answers with so many others once the entity is let go.
    async fn put(&mut self, number: u32, bytes: Vec<u8>, answer: u32) -> Vec<u8>;
    /// The same without an answer.
    async fn tell(&mut self, number: u32, bytes: Vec<u8>);
}

pub struct StoreEntity {
    id: EntityId,
}

/// What an entity got: the number, and how many bytes.
pub type Got = (u32, usize);

thread_local! {
    static LOG: RefCell<HashMap<String, Vec<Got>>> = RefCell::default();
    static HELD: RefCell<HashMap<String, Signal>> = RefCell::default();
}

/// What an entity got so far.
pub fn log(id: &str) -> Vec<Got> {
    LOG.with_borrow(|log| log.get(id).cloned().unwrap_or_default())
}

/// From now on an entity does not answer.
pub fn hold(id: &str) {
    HELD.with_borrow_mut(|held| drop(held.entry(id.to_owned()).or_default().clone()));
}

/// It answers again.
pub fn let_go(id: &str) {
    if let Some(signal) = HELD.with_borrow_mut(|held| held.remove(id)) {
        signal.fire();
    }
}

/// Bytes that tell where they are from.
pub fn pattern(seed: u32, length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(31).wrapping_add(seed) ^ (at >> 8)) as u8).collect()
}

impl Entity for StoreEntity {
    type Protocol = StoreProtocol;

    async fn start(id: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(StoreEntity { id: id.clone() })
    }
}

impl StoreEntity {
    async fn keep(&self, number: u32, bytes: Vec<u8>) {
        assert!(bytes == pattern(number, bytes.len()), "{} got other bytes as number {number}", self.id);
        LOG.with_borrow_mut(|log| log.entry(self.id.as_str().to_owned()).or_default().push((number, bytes.len())));
        let held = HELD.with_borrow(|held| held.get(self.id.as_str()).cloned());
        if let Some(held) = held {
            held.fired().await;
        }
    }
}

impl Store for StoreEntity {
    async fn put(&mut self, number: u32, bytes: Vec<u8>, answer: u32) -> Vec<u8> {
        self.keep(number, bytes).await;
        pattern(answer, answer as usize)
    }

    async fn tell(&mut self, number: u32, bytes: Vec<u8>) {
        self.keep(number, bytes).await;
    }
}

/// A client and a pod that are linked.
pub fn linked(limits: LinkLimits) -> Wire {
    LOG.with_borrow_mut(HashMap::clear);
    HELD.with_borrow_mut(HashMap::clear);
    let wire = Wire::with_limits::<StoreEntity>(EntityOptions::default(), limits);
    let store: StoreRef = wire.entity("first");
    assert_eq!(wire.block(store.put(0, Vec::new(), 0)).map(|answer| answer.len()), Ok(0));
    wire
}

/// Ids of entities in different shards.
pub fn apart(count: usize) -> Vec<String> {
    let mut shards = Vec::new();
    let mut ids = Vec::new();
    for id in (0..).map(|at| format!("e{at}")) {
        let shard = crate::wire::shard_of(&id);
        if !shards.contains(&shard) {
            shards.push(shard);
            ids.push(id);
        }
        if ids.len() == count {
            break;
        }
    }
    ids
}

/// The outcome, or nothing once it was given up.
pub async fn unless<T>(future: impl Future<Output = T>, given_up: Signal) -> Option<T> {
    let (mut future, mut given_up) = (pin!(future), pin!(given_up.fired()));
    std::future::poll_fn(|context| {
        if given_up.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
