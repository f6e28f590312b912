//! The host whose island runs on this thread, for stages that start streams.
//!
//! A core makes its host the current one at each turn and leaves it so until the core ends: to put back what was there
//! before would cost each turn more than the look whether it is the current one already.

use std::cell::{Cell, RefCell};
use std::ptr::null;
use std::rc::Rc;

use super::StreamHost;

thread_local! {
    static CURRENT: RefCell<Option<Rc<StreamHost>>> = const { RefCell::new(None) };
    /// Where the current one is, or null: to see that it is the one that it should be takes no more than this.
    static ADDRESS: Cell<*const StreamHost> = const { Cell::new(null()) };
}

/// While it lives, [`host`] gives this host.
pub struct Entered {
    /// What comes back, unless this host was the current one already.
    before: Option<Option<Rc<StreamHost>>>,
}

/// Makes a host the current one of this thread, for a time.
#[must_use]
pub fn enter(host: &Rc<StreamHost>) -> Entered {
    Entered { before: make_current(host) }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // The thread may be ending; then there is nothing to restore.
            let _ = replace(before);
        }
    }
}

/// Makes a host the current one of this thread, until another one becomes that or [`leave`] is called. Gives the one
/// before, unless it was this one.
#[inline]
pub fn make_current(host: &Rc<StreamHost>) -> Option<Option<Rc<StreamHost>>> {
    if ADDRESS.get() == Rc::as_ptr(host) { None } else { replace(Some(Rc::clone(host))) }
}

/// Gives what was there, unless the thread is ending, in which case nothing is or will be there.
#[inline(never)]
fn replace(host: Option<Rc<StreamHost>>) -> Option<Option<Rc<StreamHost>>> {
    let address = host.as_ref().map_or(null(), Rc::as_ptr);
    let before = CURRENT.try_with(|current| current.replace(host)).ok()?;
    ADDRESS.set(address);
    Some(before)
}

/// The host ends: it is not the current one any more.
pub fn leave(host: &Rc<StreamHost>) {
    if ADDRESS.get() == Rc::as_ptr(host) {
        drop(replace(None));
    }
}

/// The current host, if this thread is one of a runtime or pod.
#[must_use]
pub fn host() -> Option<Rc<StreamHost>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}
