//! The bell of a core: an eventfd that wakes it when it sleeps.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use glommio::io::BufferedFile;

/// Wakes one core; may be rung by every thread, as often as one likes.
///
/// A ring of a core that is awake is remembered and costs that core one turn before it sleeps again. Waking a sleeping core costs
/// the caller several microseconds: ring once per batch, and only when the core announced that it sleeps.
#[derive(Clone, Debug)]
pub struct EventBell {
    file: Arc<File>,
}

impl EventBell {
    /// Makes a bell.
    ///
    /// # Errors
    /// When the process has no descriptor left (`ulimit -n`).
    pub fn new() -> io::Result<EventBell> {
        // SAFETY: eventfd takes two numbers and touches no memory of ours.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above succeeded, so this is an open descriptor that nobody else owns.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(EventBell { file: Arc::new(File::from(descriptor)) })
    }

    /// Wakes the core.
    #[inline]
    pub fn ring(&self) {
        // The only possible failure is a counter that is full, and then the core wakes anyway.
        let _ = (&*self.file).write(&1_u64.to_ne_bytes());
    }

    /// What the core reads from when it sleeps: the executor waits until the bell rings. Needs a running executor.
    pub(crate) fn sleeper(&self) -> io::Result<BufferedFile> {
        let descriptor = self.file.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is open and its only owner gives it away here.
        Ok(unsafe { BufferedFile::from_raw_fd(descriptor.into_raw_fd()) })
    }
}

impl AsFd for EventBell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl crate::mesh::Bell for EventBell {
    fn ring(&self) {
        EventBell::ring(self);
    }
}
