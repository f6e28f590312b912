//! `account`: a service that saves what it knows, so that a pod may die at any time and nothing that was answered is lost.
//!
//! Three things make that true, and a service with a store of its own needs the same three:
//!
//! 1. *A reply means saved.* A booking is written to the [`StateStore`] before it is answered.
//! 2. *Only the owner writes.* [`start`](Entity::start) loads with `scope.fence()`, which shuts out every earlier owner, and
//!    each booking is written with it. An owner that was paused while another pod took its shard is refused; it says so
//!    and stops.
//! 3. *Each booking has an id.* A sender that got no reply does not know whether its deposit was booked. It sends the same
//!    id again, and nothing is booked twice: the reply says `repeated`.
//!
//! In a terminal: `atoll call account a1 deposit '{"id":"d1","amount":5}'`. A program that hosts accounts gives them their
//! store once, before it starts its pod:
//!
//! ```no_run
//! use atoll::pod::open_state;
//! use atoll::services::account::{AccountEntity, use_store};
//! use atoll::{Config, EntityOptions, Pod};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load()?;
//! use_store(open_state(&config)?)?;
//! let pod = Pod::builder().config(config).entity::<AccountEntity>(EntityOptions::default()).start()?;
//! pod.wait()?;
//! # Ok(()) }
//! ```
//!
//! What is stored of an account `a1`: `account/a1`, its [`Statement`] as JSON, and `account/a1/ID` for each booking, its
//! [`Entry`] as JSON. Entries are kept for ever; a service with many of them deletes those that no sender repeats any more.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::stores::state::{Applied, Apply, StateChange, StateCompare, StateError};
use crate::{Entity, EntityId, Scope, StartError, StateStore};

/// Longest id of a booking in bytes.
pub const BOOKING_ID_BYTES_MAX: usize = 64;

/// How often an account asks a store that does not answer, before it tells its sender: a store that is restarted
/// answers the second time.
const ATTEMPTS: u32 = 3;

static STORE: OnceLock<StateStore> = OnceLock::new();

/// Gives the accounts of this process their store.
///
/// # Errors
/// If they have one already.
pub fn use_store(store: StateStore) -> Result<(), StoreGiven> {
    STORE.set(store).map_err(|_| StoreGiven)
}

/// The accounts of this process have a store already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the accounts of this process have a store already; call `use_store` once")]
pub struct StoreGiven;

/// What an account can do. A message that was begun is finished, whether or not its sender still waits.
#[atoll::protocol(name = "account", json)]
pub trait Account {
    /// Puts an amount in. An `id` that was booked before with the same amount changes nothing.
    ///
    /// # Errors
    /// [`AccountError`].
    #[uninterruptible]
    async fn deposit(&mut self, id: String, amount: u64) -> Result<Booked, AccountError>;

    /// Takes an amount out, under the same rules.
    ///
    /// # Errors
    /// [`AccountError`].
    #[uninterruptible]
    async fn withdraw(&mut self, id: String, amount: u64) -> Result<Booked, AccountError>;

    /// What is in the account.
    ///
    /// # Errors
    /// [`AccountError`], if the account has to be loaded and cannot be.
    #[uninterruptible]
    async fn balance(&mut self) -> Result<u64, AccountError>;

    /// What the account is, as it is stored.
    ///
    /// # Errors
    /// As [`Account::balance`].
    #[uninterruptible]
    async fn statement(&mut self) -> Result<Statement, AccountError>;
}

/// A deposit or withdrawal was booked and is saved.
#[derive(atoll::Wire, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booked {
    /// What is in the account now.
    pub balance: u64,
    /// Whether this id had been booked before; nothing was booked now.
    pub repeated: bool,
}

/// The state of an account.
#[derive(atoll::Wire, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// What is in it.
    pub balance: u64,
    /// How many deposits and withdrawals were booked.
    pub entries: u64,
    /// How many were sent again after they had been booked.
    pub repeated: u64,
}

/// One booking.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Into the account.
    Deposit(u64),
    /// Out of it.
    Withdrawal(u64),
}

/// Why nothing was booked, or why it is not known.
#[derive(atoll::Wire, Serialize, Deserialize, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// There is not so much in the account.
    #[error("there is only {balance} in the account")]
    NotEnough {
        /// What is in it.
        balance: u64,
    },
    /// The account cannot hold so much.
    #[error("the account holds {balance} and cannot hold that many more")]
    TooMuch {
        /// What is in it.
        balance: u64,
    },
    /// The id is empty or too long.
    #[error("the id of a booking has 1 to {BOOKING_ID_BYTES_MAX} bytes")]
    InvalidId,
    /// The id belongs to another booking.
    #[error("this id was booked for something else; take a fresh id for each booking")]
    IdInUse,
    /// Another pod owns the account now; nothing was booked here. Send it again with the same id.
    #[error("another pod owns the account now, and nothing was booked here; send it again with the same id")]
    NotOwner,
    /// The store did not say whether it saved the booking. Send it again with the same id.
    #[error("the store did not say whether it saved the booking ({0}); send it again with the same id")]
    Unknown(String),
}

/// The entity: the account as it is stored.
pub struct AccountEntity {
    scope: Scope<Self>,
    store: StateStore,
    key: String,
    /// `None` while it is not known what is stored: after an attempt to save whose end nobody saw.
    stored: Option<Statement>,
}

impl Entity for AccountEntity {
    type Protocol = AccountProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        let store = STORE.get().ok_or_else(|| StartError::new("accounts have no store; call `use_store` first"))?;
        let mut account =
            AccountEntity { scope, store: store.clone(), key: format!("account/{}", id.as_str()), stored: None };
        account.known().await?;
        Ok(account)
    }
}

impl Account for AccountEntity {
    async fn deposit(&mut self, id: String, amount: u64) -> Result<Booked, AccountError> {
        self.book(&id, Entry::Deposit(amount)).await
    }

    async fn withdraw(&mut self, id: String, amount: u64) -> Result<Booked, AccountError> {
        self.book(&id, Entry::Withdrawal(amount)).await
    }

    async fn balance(&mut self) -> Result<u64, AccountError> {
        Ok(self.known().await?.balance)
    }

    async fn statement(&mut self) -> Result<Statement, AccountError> {
        self.known().await
    }
}

impl AccountEntity {
    /// What is stored. Asked for again after a save whose end is not known.
    async fn known(&mut self) -> Result<Statement, AccountError> {
        if let Some(stored) = self.stored {
            return Ok(stored);
        }
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            match self.store.load(&self.key, self.fence()?).await {
                Ok(saved) => {
                    let stored = saved.map_or(Ok(Statement::default()), |saved| read(&saved.value))?;
                    self.stored = Some(stored);
                    return Ok(stored);
                }
                Err(error) => reason = self.failed(&error)?,
            }
        }
        Err(AccountError::Unknown(reason))
    }

    async fn book(&mut self, id: &str, entry: Entry) -> Result<Booked, AccountError> {
        if id.is_empty() || id.len() > BOOKING_ID_BYTES_MAX {
            return Err(AccountError::InvalidId);
        }
        let booking = format!("{}/{id}", self.key);
        // What this message tried to save, if it does not know whether it is saved.
        let mut tried: Option<Statement> = None;
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let before = self.known().await?;
            if tried == Some(before) {
                return Ok(Booked { balance: before.balance, repeated: false });
            }
            let after = Statement { balance: entry.applied_to(before.balance)?, entries: before.entries + 1, ..before };
            let new = StateChange::Put { key: booking.clone(), value: written(&entry)? };
            match self.save(after, vec![StateCompare::Absent(booking.clone())], Some(new)).await {
                Ok(Applied::Done) => return Ok(Booked { balance: after.balance, repeated: false }),
                Ok(Applied::Unmet { .. }) => return self.again(before, &booking, entry).await,
                Err(error) => reason = self.failed(&error)?,
            }
            tried = Some(after);
        }
        Err(AccountError::Unknown(reason))
    }

    /// A booking came again: that is counted.
    async fn again(&mut self, before: Statement, booking: &str, entry: Entry) -> Result<Booked, AccountError> {
        let first = match self.store.get(booking).await {
            Ok(saved) => saved.map(|saved| read::<Entry>(&saved.value)).transpose()?,
            Err(error) => return Err(AccountError::Unknown(self.failed(&error)?)),
        };
        if first != Some(entry) {
            self.stored = Some(before);
            return Err(AccountError::IdInUse);
        }
        let after = Statement { repeated: before.repeated + 1, ..before };
        match self.save(after, Vec::new(), None).await {
            Ok(_) => Ok(Booked { balance: after.balance, repeated: true }),
            Err(error) => Err(AccountError::Unknown(self.failed(&error)?)),
        }
    }

    async fn save(
        &mut self,
        after: Statement,
        compares: Vec<StateCompare>,
        with: Option<StateChange>,
    ) -> Result<Applied, StateError> {
        let (Ok(token), Ok(value)) = (self.scope.fence(), serde_json::to_vec(&after)) else {
            return Err(StateError::Unavailable("the pod may not write now".to_owned()));
        };
        let changes = core::iter::once(StateChange::Put { key: self.key.clone(), value }).chain(with).collect();
        // Unknown until the answer is here, whatever becomes of this future.
        self.stored = None;
        let applied = self.store.apply(Apply { token: token.0, compares, changes }).await?;
        if applied == Applied::Done {
            self.stored = Some(after);
        }
        Ok(applied)
    }

    fn fence(&self) -> Result<atoll::base::Token, AccountError> {
        self.scope.fence().map_err(|error| AccountError::Unknown(error.to_string()))
    }

    /// What an error of the store means: that somebody else is the owner, or a reason to try again.
    fn failed(&mut self, error: &StateError) -> Result<String, AccountError> {
        self.stored = None;
        if matches!(error, StateError::StaleToken { .. }) {
            // It has stopped already, which is as well.
            let _ = self.scope.stop();
            return Err(AccountError::NotOwner);
        }
        Ok(error.to_string())
    }
}

impl Entry {
    fn applied_to(self, balance: u64) -> Result<u64, AccountError> {
        match self {
            Entry::Deposit(amount) => balance.checked_add(amount).ok_or(AccountError::TooMuch { balance }),
            Entry::Withdrawal(amount) => balance.checked_sub(amount).ok_or(AccountError::NotEnough { balance }),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(value: &[u8]) -> Result<T, AccountError> {
    serde_json::from_slice(value)
        .map_err(|error| AccountError::Unknown(format!("the stored value is damaged: {error}")))
}

fn written(entry: &Entry) -> Result<Vec<u8>, AccountError> {
    serde_json::to_vec(entry).map_err(|error| AccountError::Unknown(error.to_string()))
}
