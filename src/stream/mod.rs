//! Streams (the work of another file: replaced at merge).
pub mod attributes;
pub mod boundary;
pub mod completion;
pub mod dsl;
pub mod error;
pub mod fused;
pub mod host;
mod inline;
pub mod interpreter;
pub mod materializer;
pub mod module;
pub mod operators;
pub mod stage;
pub mod traversal;

pub use attributes::{Attribute, Attributes, MandatoryAttribute};
pub use error::{Cancellation, StreamError};
pub use module::{AtomicModule, MaterializedValue, not_used};
