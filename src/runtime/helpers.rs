//! Tasks of a core's executor that are no part of its engine: file work, name lookups, control tasks.
//!
//! A pass of the executor's own reactor costs the loop 7 µs, so the loop makes it often only while such a task runs.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static OF_THIS_CORE: RefCell<Option<Helpers>> = const { RefCell::new(None) };
}

/// Counts the helper tasks that run on a core's executor.
#[derive(Clone, Debug, Default)]
pub struct Helpers {
    running: Arc<AtomicUsize>,
}

impl Helpers {
    /// Call when a helper task is spawned and keep the result in it: while it lives, the executor gets its frequent passes.
    #[must_use]
    pub fn enter(&self) -> HelperGuard {
        self.running.fetch_add(1, Ordering::Relaxed);
        HelperGuard { helpers: self.clone() }
    }

    /// This thread is the core of these helpers, for as long as its executor runs.
    pub(super) fn serve_this_core(&self) {
        OF_THIS_CORE.set(Some(self.clone()));
    }

    /// The helpers of the core that this thread is; `None` if it has no executor.
    #[must_use]
    pub fn of_this_core() -> Option<Helpers> {
        OF_THIS_CORE.try_with(|helpers| helpers.borrow().clone()).ok().flatten()
    }

    /// How many run.
    #[inline]
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }
}

/// Held by a helper task for as long as it runs.
#[derive(Debug)]
pub struct HelperGuard {
    helpers: Helpers,
}

impl Drop for HelperGuard {
    fn drop(&mut self) {
        self.helpers.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_counts_while_its_guard_lives() {
        let helpers = Helpers::default();
        let guard = helpers.enter();
        let other = helpers.clone().enter();
        assert_eq!(helpers.running(), 2);
        drop(guard);
        assert_eq!(helpers.running(), 1);
        drop(other);
        assert_eq!(helpers.running(), 0);
    }
}
