//! Why a ring could not be made, and what the user can do about it.

use std::io;

/// A ring could not be made on this host.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// `kernel.io_uring_disabled` forbids it.
    #[error("io_uring is switched off (kernel.io_uring_disabled = {0}): run `sysctl -w kernel.io_uring_disabled=0`")]
    Disabled(u32),
    /// A seccomp profile forbids it.
    #[error(
        "io_uring is forbidden here, most likely by the container's seccomp profile: \
         run the container with `--security-opt seccomp=unconfined` or a profile that allows io_uring_setup, io_uring_enter \
         and io_uring_register"
    )]
    Forbidden,
    /// The kernel has no io_uring, or a seccomp profile pretends so.
    #[error(
        "this kernel ({0}) offers no io_uring: Linux 6.1 or newer is needed, and in a container a seccomp profile that allows it"
    )]
    Missing(String),
    /// The kernel lacks something.
    #[error("this kernel ({kernel}) lacks {feature} in io_uring: Linux 6.1 or newer is needed")]
    FeatureMissing {
        /// What is missing.
        feature: &'static str,
        /// Version of the running kernel.
        kernel: String,
    },
    /// Too little lockable memory.
    #[error(
        "too little locked memory for io_uring: allow 512 KiB per core (`ulimit -l 8192`, or `--ulimit memlock=-1` for a container)"
    )]
    LockedMemory,
    /// Too many open descriptors.
    #[error("the process has no file descriptor left: raise `ulimit -n`")]
    Descriptors,
    /// Options that make no sense.
    #[error("receive_buffers must be a power of two up to 32768, and receive_buffer_bytes between 1024 and 1048576")]
    Buffers,
    /// The host lacks something that [`probe`](super::probe::probe) looked for.
    #[error("this host lacks `{feature}`: {remedy}")]
    Unfit {
        /// What is missing.
        feature: &'static str,
        /// What to do.
        remedy: String,
    },
    /// Anything else.
    #[error("io_uring could not be set up: {0}")]
    Other(io::Error),
}

impl RingError {
    /// Gives an error of setting up or registering its meaning. `feature` is what was being set up.
    pub(crate) fn of(error: io::Error, feature: &'static str) -> RingError {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => match io_uring_disabled() {
                0 => RingError::Forbidden,
                value => RingError::Disabled(value),
            },
            Some(libc::ENOSYS) => RingError::Missing(kernel_release()),
            Some(libc::EINVAL) => RingError::FeatureMissing { feature, kernel: kernel_release() },
            Some(libc::ENOMEM) => RingError::LockedMemory,
            Some(libc::EMFILE | libc::ENFILE) => RingError::Descriptors,
            _ => RingError::Other(error),
        }
    }
}

/// Value of the system control `kernel.io_uring_disabled`: 0 allows all, 1 only the privileged, 2 nobody.
pub(crate) fn io_uring_disabled() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Version of the running kernel as it calls itself.
pub(crate) fn kernel_release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_to_do() {
        let text = |code| RingError::of(io::Error::from_raw_os_error(code), "buffer rings").to_string();
        assert!(text(libc::ENOSYS).contains("6.1"));
        assert!(text(libc::EINVAL).contains("buffer rings"));
        assert!(text(libc::ENOMEM).contains("ulimit -l"));
        assert!(text(libc::EMFILE).contains("ulimit -n"));
        assert!(text(libc::EPERM).contains("seccomp") || text(libc::EPERM).contains("sysctl"));
    }
}
