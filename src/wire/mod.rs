//! What goes over a link, as bytes: the hello, the frames and the messages that pods exchange about themselves.
//!
//! `transport` feeds received bytes to a [`FrameDecoder`] and sends what a [`SendBuffer`] collected; `engine` reads
//! and writes the routing blocks and bodies. Nothing here does I/O.
//!
//! A link starts with one [`Hello`] of 64 bytes from the dialer. Everything after it, in both directions, is frames:
//!
//! ```text
//! | header, 40 bytes | routing block (requests only) | body |
//! ```
//!
//! A body that is large travels in several of them, see [`header`].
//!
//! Invariants: all numbers are little-endian; the layouts are fixed (byte vectors in the tests) and change only with
//! [`PROTOCOL_VERSIONS`]; what comes from a peer is checked before it is used, bounded before memory is taken for it,
//! and never makes anything here panic.

pub mod checksum;
pub mod codec;
pub mod control;
pub mod decoder;
pub mod header;
pub mod hello;
pub mod moved;
pub mod never;
pub mod routing;
pub mod schema;
pub mod send_buffer;

pub use codec::{Checked, CodecError};
pub use control::{ControlError, ControlMessage, Inspect, JsonOutcome, decode_control, encode_control};
pub use decoder::{Frame, FrameDecoder, FramePlace, FrameSpan, Frames};
pub use header::{FrameError, FrameFlags, FrameHeader, FrameKind, HEADER_BYTES, Lane};
pub use hello::{
    ANY_CORE, HELLO_BYTES, Hello, HelloError, LANES_VERSION, PROTOCOL_VERSIONS, VersionMismatch, VersionRange,
    negotiate,
};
pub use moved::Moved;
pub use never::{ArchivedNever, Never};
pub use routing::{ROLE_DEFAULT, ROUTING_BYTES_MAX, Routing, RoutingError, RoutingView};
pub use schema::Wire;
pub use send_buffer::{FrameNotFinished, FrameStart, SendBuffer};
