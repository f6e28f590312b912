//! Options of the loop and limits of its links, with the defaults and their reasons.

use std::time::Duration;

use crate::base::limits::{HELLO_PENDING_MAX, HELLO_TIMEOUT, LINKS_MAX};

/// How long an idle core spins before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// Microseconds. About the cost of one wake-up is a good value; 0 sleeps at once.
    Micros(u64),
    /// For ever: for dedicated cores.
    Always,
}

/// Options of one core's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PumpOptions {
    /// How long an idle core spins before it sleeps.
    pub spin: Spin,
    /// Microseconds that ready work may run before completions and inboxes are looked at again.
    pub slice_us: u64,
    /// Shared receive buffers of a core; a power of two, at most 32768.
    pub receive_buffers: u16,
    /// Size of one receive buffer in bytes.
    pub receive_buffer_bytes: u32,
    /// Microseconds between passes of the executor's own reactor (files, helper tasks) while a helper runs. Without any
    /// ([`Helpers`](super::Helpers)) the pass is made fifty times less often: it costs 7 µs.
    pub glommio_pass_us: u64,
    /// Limits of links.
    pub limits: LinkLimits,
}

impl Default for PumpOptions {
    fn default() -> Self {
        PumpOptions {
            spin: Spin::Micros(50),
            slice_us: 20,
            receive_buffers: 64,
            receive_buffer_bytes: 16 << 10,
            glommio_pass_us: 100,
            limits: LinkLimits::default(),
        }
    }
}

impl PumpOptions {
    /// For a laptop or a container: never spins.
    #[must_use]
    pub fn dev() -> PumpOptions {
        PumpOptions { spin: Spin::Micros(0), ..PumpOptions::default() }
    }
}

/// What peers may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Accepted connections whose hello is awaited. At this number accepting stops; further ones wait in the kernel's backlog.
    pub hello_pending_max: usize,
    /// How long a peer may take for its hello.
    pub hello_timeout: Duration,
    /// Links of one core; indices of links are below this.
    pub links_max: usize,
    /// How long connecting may take, resolving the name included.
    pub connect_timeout: Duration,
    /// How long a closing link, or a stopping core, may take to send the output it still has.
    pub linger: Duration,
}

impl Default for LinkLimits {
    fn default() -> Self {
        LinkLimits {
            hello_pending_max: HELLO_PENDING_MAX,
            hello_timeout: HELLO_TIMEOUT,
            links_max: LINKS_MAX,
            connect_timeout: Duration::from_secs(3),
            linger: Duration::from_secs(1),
        }
    }
}
