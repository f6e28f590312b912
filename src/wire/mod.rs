//! (in the making)

pub mod codec;
pub mod never;
pub mod schema;

pub use codec::{Checked, CodecError};
pub use never::{ArchivedNever, Never};
