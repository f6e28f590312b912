//! What a core counts about its own loop. Written by that core only, readable by every thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one core. Aligned so that no other core's data shares their cache lines.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct CoreCounters { $($name: AtomicU64,)* }

        /// The values of a core's counters at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CounterValues { $($(#[$doc])* pub $name: u64,)* }

        impl CoreCounters {
            /// Reads all counters. They are read one by one: sums may be off by what happens meanwhile.
            #[must_use]
            pub fn values(&self) -> CounterValues {
                CounterValues { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            $(
                #[inline]
                pub(crate) fn $name(&self, more: u64) {
                    // One writer: no read-modify-write is needed.
                    self.$name.store(self.$name.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
                }
            )*
        }
    };
}

counters! {
    /// Turns of the loop.
    turns,
    /// Turns that did something.
    busy_turns,
    /// Nanoseconds in turns that did something.
    busy_nanos,
    /// Slices of work that took more than twice their time.
    late_slices,
    /// Times the core went to sleep.
    parks,
    /// Times it was about to, and found something.
    parks_cancelled,
    /// Passes of the executor's own reactor.
    passes,
    /// Entries into the kernel for the ring.
    enters,
    /// Completions taken from the ring.
    completions,
    /// Connections accepted.
    accepted,
    /// Connections closed because their hello came too late.
    hellos_late,
    /// Connections that ended before their hello was complete.
    hellos_broken,
    /// Bytes received on links.
    bytes_received,
    /// Bytes sent on links.
    bytes_sent,
    /// Sends started.
    sends,
    /// Receives that had to be started again (all buffers in use, or the kernel ended them).
    receives_restarted,
    /// Links opened.
    links_opened,
    /// Links closed.
    links_closed,
}

impl CounterValues {
    /// Time in turns that did something.
    #[must_use]
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanos)
    }
}
