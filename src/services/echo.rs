//! `echo`: messages of every cost, for load tests, and messages that misbehave, for tests of the pod.
//!
//! The state is one number, so that a million of these entities fit anywhere.

use core::future::poll_fn;
use core::task::Poll;
use core::time::Duration;
use std::time::Instant;

use crate::{Entity, EntityId, Scope, StartError};

/// Most bytes that [`Echo::echo`] sends back, a little less than the smallest useful frame limit.
pub const ECHO_BYTES_MAX: usize = 512 * 1024;

/// What an echo can do.
#[atoll::protocol(json)]
pub trait Echo {
    /// Adds to the sum and answers with it, at once.
    async fn add(&mut self, value: u64) -> u64;
    /// Adds to the sum and answers with it, after it let others run once.
    async fn yields(&mut self, value: u64) -> u64;
    /// Adds the 64 bytes of a block, as eight numbers, and answers with the sum, at once.
    async fn block(&mut self, block: [u64; 8]) -> u64;
    /// Adds to the sum and says nothing.
    async fn tell(&mut self, value: u64);
    /// Answers with the same bytes; with none of them if there are more than [`ECHO_BYTES_MAX`].
    async fn echo(&mut self, payload: Vec<u8>) -> Vec<u8>;
    /// The sum.
    #[concurrent]
    async fn total(&self) -> u64;
    /// Waits and answers.
    async fn sleep(&mut self, milliseconds: u64);
    /// Keeps the core busy without letting anything else run, at most ten seconds: what a watchdog must notice.
    async fn spin(&mut self, milliseconds: u64);
    /// Panics with a text.
    async fn panic(&mut self, text: String);
}

/// Longest time that [`Echo::spin`] blocks a core: a test must not cost a pod its lease for good.
const SPIN_MAX: Duration = Duration::from_secs(10);

/// The entity: a sum.
#[derive(Debug, Default)]
pub struct EchoEntity {
    total: u64,
}

impl Entity for EchoEntity {
    type Protocol = EchoProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(EchoEntity::default())
    }
}

impl Echo for EchoEntity {
    async fn add(&mut self, value: u64) -> u64 {
        self.total = self.total.wrapping_add(value);
        self.total
    }

    async fn yields(&mut self, value: u64) -> u64 {
        yield_once().await;
        self.total = self.total.wrapping_add(value);
        self.total
    }

    async fn block(&mut self, block: [u64; 8]) -> u64 {
        self.total = block.into_iter().fold(self.total, u64::wrapping_add);
        self.total
    }

    async fn tell(&mut self, value: u64) {
        self.total = self.total.wrapping_add(value);
    }

    async fn echo(&mut self, payload: Vec<u8>) -> Vec<u8> {
        if payload.len() > ECHO_BYTES_MAX { Vec::new() } else { payload }
    }

    async fn total(&self) -> u64 {
        self.total
    }

    async fn sleep(&mut self, milliseconds: u64) {
        crate::entity::sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn spin(&mut self, milliseconds: u64) {
        let (started, time) = (Instant::now(), Duration::from_millis(milliseconds).min(SPIN_MAX));
        while started.elapsed() < time {
            core::hint::spin_loop();
        }
    }

    async fn panic(&mut self, text: String) {
        panic!("{text}");
    }
}

/// Wakes itself and is ready at the second poll.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
