//! The only place where system calls are made by hand: the ring, its receive buffers, sockets and the bell.
//!
//! Called by `reactor`, `pump` and `executor`. What this folder offers is safe: memory that the kernel may touch is owned by the
//! ring until the completion that gives it back, so no caller can free or change it meanwhile.

pub mod bell;
pub(crate) mod buffers;
pub mod error;
pub mod probe;
pub(crate) mod ring;
pub mod sockets;
