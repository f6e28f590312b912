//! Files as streams of bytes: [`FileSource`] and [`FileSink`].
//!
//! The stage and the work on the file are apart: the stage lives in its island, the work is a task that talks to it through
//! a ring. On a core of a pod the task is one of the core's executor, and the file a `BufferedFile`: reads and writes go
//! through the ring of the kernel and block nobody. A thread of a [`StreamRuntime`](super::StreamRuntime) has no such
//! executor: there the task gets a thread of its own, up to [`FILE_THREADS_MAX`] of them. Invariants: the outcome of the
//! work is told once, after the file is closed; a stage that goes away ends the work, and the other way round.

mod driver;
mod sink;
mod source;

pub use sink::FileSink;
pub use source::FileSource;

use std::io;
use std::path::{Path, PathBuf};

use crate::stream::error::StreamError;

/// Threads for files of one process, where there are no executors: each file that is open has one.
pub const FILE_THREADS_MAX: usize = 256;
/// Bytes of a chunk, unless something else is said: two pages, as other libraries have it.
pub const CHUNK_BYTES: usize = 8192;
/// Most bytes of a chunk: each chunk that waits is memory of a core.
pub const CHUNK_BYTES_MAX: usize = 16 << 20;

/// What was done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoResult {
    /// Bytes that were read or written.
    pub count: u64,
}

/// A file could not be read or written. Carried by [`StreamError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The operating system says why.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The stream failed before the file was complete.
    #[error("the stream failed after {count} bytes were written to {}: {cause}", .path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// Bytes that were written.
        count: u64,
        /// The failure of the stream.
        cause: StreamError,
    },
    /// The thread has no executor, and no thread for the file could be had.
    #[error("no thread for {}: {FILE_THREADS_MAX} files are open at a time at most, or the system refuses one", .path.display())]
    NoThread {
        /// The file.
        path: PathBuf,
    },
}

impl FileError {
    fn io(action: &'static str, path: &Path, source: io::Error) -> StreamError {
        StreamError::new(FileError::Io { action, path: path.to_owned(), source })
    }
}
