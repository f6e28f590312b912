//! What waits to be sent to one connection, held back until the disk has what it tells.
//!
//! Called by the server's core, which pushes, and by the connection's writer, which takes. Invariants: answers and
//! events leave in the order in which they were pushed, and none before the changes that it may reveal are durable;
//! only the answer to a renewal overtakes, because it reveals nothing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use tokio::sync::Notify;

/// Bytes that a writer takes at a time.
const TAKE_BYTES: usize = 256 << 10;

struct Held {
    /// The batch that has to be durable first.
    after: u64,
    bytes: Vec<u8>,
    answer: bool,
}

/// The queue.
#[derive(Default)]
pub(super) struct Outlet {
    held: RefCell<VecDeque<Held>>,
    urgent: RefCell<Vec<u8>>,
    bytes: Cell<usize>,
    answers: Cell<usize>,
    /// Something may be sent.
    ready: Notify,
    /// Something was taken.
    taken: Notify,
}

impl Outlet {
    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// A frame that waits for the disk.
    pub fn push(&self, after: u64, bytes: Vec<u8>, answer: bool) {
        self.bytes.set(self.bytes.get() + bytes.len());
        self.answers.set(self.answers.get() + usize::from(answer));
        self.held.borrow_mut().push_back(Held { after, bytes, answer });
        self.ready.notify_one();
    }

    /// A frame that waits for nothing.
    pub fn push_urgent(&self, bytes: &[u8]) {
        self.bytes.set(self.bytes.get() + bytes.len());
        self.urgent.borrow_mut().extend_from_slice(bytes);
        self.ready.notify_one();
    }

    /// The disk came further.
    pub fn look_again(&self) {
        self.ready.notify_one();
    }

    /// Appends what may be sent to `out`; waits until there is something.
    pub async fn take(&self, durable: &Cell<u64>, out: &mut Vec<u8>) {
        loop {
            self.take_ready(durable.get(), out);
            if !out.is_empty() {
                return;
            }
            self.ready.notified().await;
        }
    }

    fn take_ready(&self, durable: u64, out: &mut Vec<u8>) {
        out.append(&mut self.urgent.borrow_mut());
        let mut held = self.held.borrow_mut();
        while out.len() < TAKE_BYTES && held.front().is_some_and(|first| first.after <= durable) {
            let Some(first) = held.pop_front() else { return };
            out.extend_from_slice(&first.bytes);
            self.answers.set(self.answers.get() - usize::from(first.answer));
        }
    }

    /// What was taken is sent.
    pub fn sent(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_sub(bytes));
        self.taken.notify_one();
    }

    /// Waits until there is room for the answer of a further request.
    pub async fn room(&self, answers_max: usize, bytes_max: usize) {
        while self.answers.get() >= answers_max || self.bytes.get() >= bytes_max {
            self.taken.notified().await;
        }
    }
}
