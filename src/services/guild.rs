//! `guild`: a small service in full, to read and to copy.
//!
//! The protocol is a trait; each method is a message. The entity is plain Rust: its methods can be called in a test
//! without a pod. What the life cycle needs is in [`Entity`].
//!
//! A sender writes, with a messenger of a pod or client:
//!
//! ```
//! use atoll::services::guild::{GuildFull, GuildRef};
//! use atoll::{Messenger, SendError};
//!
//! async fn visit(guilds: Messenger<GuildRef>) -> Result<(), SendError<GuildFull>> {
//!     let guild = guilds.entity("g1");
//!     let members = guild.join("ann".to_owned()).await?;
//!     assert_eq!(members, ["ann"]);
//!     guild.leave("ann".to_owned()).discard().await?;
//!     Ok(())
//! }
//! ```
//!
//! and in a terminal: `atoll call guild g1 join '{"user":"ann"}'`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Entity, EntityId, Scope, StartError, StopReason};

/// Most members of one guild.
pub const MEMBERS_MAX: u32 = 100;

/// What a guild can do.
#[atoll::protocol(name = "guild", json)]
pub trait Guild {
    /// Takes a user in and answers with all members. One who is a member already stays one.
    ///
    /// # Errors
    /// If there is no room.
    async fn join(&mut self, user: String) -> Result<Vec<String>, GuildFull>;

    /// Lets a user go, who need not be a member.
    async fn leave(&mut self, user: String);

    /// All members, in alphabetical order. Does not wait for messages in progress that only read.
    #[concurrent]
    async fn members(&self) -> Vec<String>;

    /// A member pays coins into the treasury; answers with what is in it. Once started it is not interrupted, so a
    /// sender that stops waiting finds it either done or not begun.
    ///
    /// # Errors
    /// If the user is no member, or the treasury would overflow; nothing is paid then.
    #[uninterruptible]
    async fn pay(&mut self, user: String, coins: u64) -> Result<u64, PayError>;
}

/// A guild has no room for one more member.
#[derive(atoll::Wire, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a guild has at most {max} members")]
pub struct GuildFull {
    /// How many members there may be.
    pub max: u32,
}

/// Why nothing was paid.
#[derive(atoll::Wire, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayError {
    /// Only members pay.
    #[error("only members pay; join first")]
    NotAMember,
    /// The treasury cannot hold so much.
    #[error("the treasury holds {treasury} coins and cannot hold that many more")]
    TooMuch {
        /// What is in it.
        treasury: u64,
    },
}

/// The entity: who is in the guild, and what they paid.
#[derive(Debug, Default)]
pub struct GuildEntity {
    members: BTreeSet<String>,
    treasury: u64,
}

impl Entity for GuildEntity {
    type Protocol = GuildProtocol;

    /// A service with a database loads the guild here; an entity that needs its address later keeps the scope.
    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(GuildEntity::default())
    }

    /// A service with a database saves the guild here.
    async fn stop(&mut self, _: StopReason) {}
}

impl Guild for GuildEntity {
    async fn join(&mut self, user: String) -> Result<Vec<String>, GuildFull> {
        if self.members.len() >= MEMBERS_MAX as usize && !self.members.contains(&user) {
            return Err(GuildFull { max: MEMBERS_MAX });
        }
        self.members.insert(user);
        Ok(self.members().await)
    }

    async fn leave(&mut self, user: String) {
        self.members.remove(&user);
    }

    async fn members(&self) -> Vec<String> {
        self.members.iter().cloned().collect()
    }

    async fn pay(&mut self, user: String, coins: u64) -> Result<u64, PayError> {
        if !self.members.contains(&user) {
            return Err(PayError::NotAMember);
        }
        let treasury = self.treasury.checked_add(coins).ok_or(PayError::TooMuch { treasury: self.treasury })?;
        self.treasury = treasury;
        Ok(treasury)
    }
}
