//! The error that a stream fails with.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The failure of a stream. Cheap to clone: several consumers may see the same one.
#[derive(Clone)]
pub struct StreamError(Arc<dyn Error + Send + Sync>);

impl StreamError {
    /// A failure with this cause.
    pub fn new(cause: impl Error + Send + Sync + 'static) -> StreamError {
        StreamError(Arc::new(cause))
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

impl fmt::Debug for StreamError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl Error for StreamError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
