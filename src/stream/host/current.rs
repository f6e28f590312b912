//! The host whose island runs on this thread, for stages that start streams.

use std::cell::RefCell;
use std::rc::Rc;

use super::StreamHost;

thread_local! {
    static CURRENT: RefCell<Option<Rc<StreamHost>>> = const { RefCell::new(None) };
}

/// While it lives, [`host`] gives this host.
pub struct Entered {
    before: Option<Rc<StreamHost>>,
}

/// Makes a host the current one of this thread.
#[must_use]
pub fn enter(host: &Rc<StreamHost>) -> Entered {
    Entered { before: CURRENT.with(|current| current.borrow_mut().replace(Rc::clone(host))) }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.before.take();
        // The thread may be ending; then there is nothing to restore.
        let _ = CURRENT.try_with(|current| *current.borrow_mut() = before);
    }
}

/// The current host, if this thread is one of a runtime or pod.
#[must_use]
pub fn host() -> Option<Rc<StreamHost>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}
