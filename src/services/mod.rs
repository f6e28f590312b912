//! Reference services, written as a user writes them: a protocol, an entity, nothing else.
//!
//! A pod serves them when it is told to; `echo` is what the load tests talk to, `guild` is the example of the
//! documentation, and `account` saves what it knows. Invariant: they use nothing of this crate that a user cannot use.

#[cfg(feature = "runtime")]
pub mod account;
pub mod echo;
pub mod guild;
