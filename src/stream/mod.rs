//! Streams (the work of another file: replaced at merge).
pub mod attributes;
pub mod boundary;
pub mod error;
pub mod host;
mod inline;
pub mod interpreter;
pub mod module;
pub mod stage;

pub use attributes::{Attribute, Attributes, MandatoryAttribute};
pub use error::{Cancellation, StreamError};
pub use module::{AtomicModule, MaterializedValue, not_used};
