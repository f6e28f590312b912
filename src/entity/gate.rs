//! Turn × borrow: which handlers of one entity may run at the same time.
//!
//! The turn has `concurrency` permits; the borrow is readers or one writer. `&mut self` takes a permit and writes,
//! `&self` takes a permit and reads, `#[concurrent] &self` only reads. A writer that waits only for readers is not
//! overtaken by new ones. Pure counters, no I/O; called by `host` alone.
//!
//! Invariants: `writer` implies `readers == 0`; `permits_used <= concurrency`.

use core::cell::Cell;

use super::message::Access;

/// The counters of one entity.
#[derive(Debug, Default)]
pub struct Gate {
    permits_used: Cell<u16>,
    readers: Cell<u16>,
    writer: Cell<bool>,
}

impl Gate {
    /// Whether a handler with `access` could start now, if nothing waited before it.
    #[inline(always)]
    pub fn is_open(&self, access: Access, concurrency: u16) -> bool {
        match access {
            Access::Exclusive => self.permits_used.get() < concurrency && !self.writer.get() && self.readers.get() == 0,
            Access::Shared => {
                self.permits_used.get() < concurrency && !self.writer.get() && self.readers.get() < u16::MAX
            }
            Access::Concurrent => !self.writer.get() && self.readers.get() < u16::MAX,
        }
    }

    /// Whether a waiting `&mut self` message lacks nothing but the end of readers: new readers must not overtake it.
    #[inline]
    pub fn writer_waits_for_readers(&self, concurrency: u16) -> bool {
        self.permits_used.get() < concurrency && !self.writer.get()
    }

    /// Takes what `access` needs. Only after [`Gate::is_open`] said yes.
    #[inline(always)]
    pub fn enter(&self, access: Access) {
        match access {
            Access::Exclusive => {
                debug_assert!(!self.writer.get() && self.readers.get() == 0);
                self.writer.set(true);
            }
            Access::Shared | Access::Concurrent => {
                debug_assert!(!self.writer.get());
                self.readers.set(self.readers.get() + 1);
            }
        }
        if access != Access::Concurrent {
            self.permits_used.set(self.permits_used.get() + 1);
        }
    }

    /// Gives back what [`Gate::enter`] took.
    #[inline(always)]
    pub fn leave(&self, access: Access) {
        match access {
            Access::Exclusive => self.writer.set(false),
            Access::Shared | Access::Concurrent => self.readers.set(self.readers.get() - 1),
        }
        if access != Access::Concurrent {
            self.permits_used.set(self.permits_used.get() - 1);
        }
    }

    /// Whether no handler runs.
    #[inline]
    pub fn is_idle(&self) -> bool {
        !self.writer.get() && self.readers.get() == 0 && self.permits_used.get() == 0
    }

    /// How many handlers run.
    #[inline]
    pub fn running(&self) -> u32 {
        u32::from(self.readers.get()) + u32::from(self.writer.get())
    }

    /// Whether the state could be borrowed for writing now, without a permit (`scope.update`).
    #[inline]
    pub fn borrow_is_free(&self) -> bool {
        !self.writer.get() && self.readers.get() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (running, concurrency, who asks, may it start)
    const TABLE: &[(&[Access], u16, Access, bool)] = {
        use Access::{Concurrent as C, Exclusive as X, Shared as S};
        &[
            (&[], 1, X, true),
            (&[], 1, S, true),
            (&[], 1, C, true),
            (&[X], 1, X, false),
            (&[X], 1, S, false),
            (&[X], 1, C, false),
            (&[S], 1, X, false),
            (&[S], 1, S, false),
            (&[S], 1, C, true),
            (&[S], 2, S, true),
            (&[S], 2, X, false),
            (&[S, S], 2, S, false),
            (&[S, S], 2, C, true),
            (&[C], 1, X, false),
            (&[C], 1, S, true),
            (&[C, C], 1, C, true),
            (&[X], 8, X, false),
            (&[X], 8, S, false),
        ]
    };

    #[test]
    fn turn_and_borrow() {
        for (running, concurrency, access, expected) in TABLE {
            let gate = Gate::default();
            for access in *running {
                assert!(gate.is_open(*access, u16::MAX));
                gate.enter(*access);
            }
            assert_eq!(gate.is_open(*access, *concurrency), *expected, "{running:?} {concurrency} {access:?}");
            for access in *running {
                gate.leave(*access);
            }
            assert!(gate.is_idle());
        }
    }

    #[test]
    fn a_writer_waits_for_readers_only_with_a_permit_to_take() {
        let gate = Gate::default();
        gate.enter(Access::Shared);
        assert!(!gate.writer_waits_for_readers(1));
        assert!(gate.writer_waits_for_readers(2));
        gate.leave(Access::Shared);
        gate.enter(Access::Concurrent);
        assert!(gate.writer_waits_for_readers(1));
    }
}
