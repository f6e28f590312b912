//! Addresses of peers and of ourselves, as users write them.
//!
//! Called by `pod`, `client` and the command line. Sockets, limits and name lookups are in `runtime`; this folder is thin until
//! links are encrypted. Invariant: what [`PeerAddress`] accepts, the loop can look up.

pub mod address;

pub use address::{AddressError, PeerAddress, listen_address};
