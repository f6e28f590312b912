//! What the pods of a cluster run host besides accounts: an entity that says who owns it, and one whose writes are late.

use core::time::Duration;
use std::sync::OnceLock;

use atoll::base::Token;
use atoll::{Entity, EntityId, Scope, StartError, StateStore};

static STORE: OnceLock<StateStore> = OnceLock::new();

/// Gives the late writers of this process their store, once.
pub(super) fn use_store(store: StateStore) {
    // A second call would be one from a second pod of this process, of which there is none.
    let _ = STORE.set(store);
}

/// Says who owns it.
#[atoll::protocol(name = "owner")]
pub trait Owner {
    /// The fencing token; a new owner has a larger one.
    async fn token(&mut self) -> u64;
}

/// The entity.
pub(super) struct OwnerEntity {
    token: u64,
}

impl Entity for OwnerEntity {
    type Protocol = OwnerProtocol;

    async fn start(_: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        Ok(OwnerEntity { token: scope.fence()?.0 })
    }
}

impl Owner for OwnerEntity {
    async fn token(&mut self) -> u64 {
        self.token
    }
}

/// Writes to the state store some time after it took its token, from a thread that knows nothing of leases: what a
/// service does whose database is slow.
#[atoll::protocol(name = "late-writer")]
pub trait LateWriter {
    /// Shuts out earlier owners, as every entity does that loads its state.
    async fn claim(&mut self);
    /// Writes later, with the token of now.
    async fn write_later(&mut self, milliseconds: u64);
}

/// The entity.
pub(super) struct LateWriterEntity {
    key: String,
    token: Token,
}

impl Entity for LateWriterEntity {
    type Protocol = LateWriterProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        let (key, token) = (format!("late/{}", id.as_str()), scope.fence()?);
        let store = STORE.get().ok_or_else(|| StartError::new("there is no store"))?;
        store.load(&key, token).await?;
        Ok(LateWriterEntity { key, token })
    }
}

impl LateWriter for LateWriterEntity {
    async fn claim(&mut self) {}

    async fn write_later(&mut self, milliseconds: u64) {
        let (key, token) = (self.key.clone(), self.token);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(milliseconds));
            if let Some(store) = STORE.get() {
                // The store counts what it refuses.
                let _ = super::wait_for(store.put(&key, b"late", token));
            }
        });
    }
}
