//! A pod of one's own: it hosts the reference service `guild` and an entity type defined here.
//!
//! `cargo run --example guild_pod`, then in another terminal
//! `cargo run -- call stock nails put '{"amount":5}'`. The README shows this file.

use std::time::Duration;

use atoll::serde::{Deserialize, Serialize};
use atoll::services::guild::GuildEntity;
use atoll::{Config, Entity, EntityId, EntityOptions, Pod, Scope, StartError};

#[derive(atoll::Wire, Serialize, Deserialize, Debug)]
#[serde(crate = "atoll::serde")]
pub struct NotEnough {
    pub left: u64,
}

#[atoll::protocol(json)] // json: `atoll call` can reach it
pub trait Stock {
    async fn put(&mut self, amount: u64) -> u64;
    async fn take(&mut self, amount: u64) -> Result<u64, NotEnough>;
}

struct StockEntity {
    left: u64,
}

impl Entity for StockEntity {
    type Protocol = StockProtocol;

    // Runs when the first message for an id arrives; load state here, save it in `stop`.
    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(StockEntity { left: 0 })
    }
}

impl Stock for StockEntity {
    async fn put(&mut self, amount: u64) -> u64 {
        self.left = self.left.saturating_add(amount);
        self.left
    }

    async fn take(&mut self, amount: u64) -> Result<u64, NotEnough> {
        self.left = self.left.checked_sub(amount).ok_or(NotEnough { left: self.left })?;
        Ok(self.left)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pod = Pod::builder()
        .config(Config::load()?) // ATOLL_CONFIG and other variables; `ATOLL_POD_DEV=true` is kind to a laptop
        .entity::<StockEntity>(EntityOptions::default().max_idle(Duration::from_secs(300)))
        .entity::<GuildEntity>(EntityOptions::default())
        .start()?;
    println!("serving at {}", pod.address());
    pod.wait()?; // until SIGTERM or Ctrl-C; then entities finish what they received
    Ok(())
}
