//! Requests that came to this core and wait there until it is known where their shard is.
//!
//! Filled by `serving` while a shard is on its way or the core is frozen; emptied, in order, whenever that changes.
//! Invariant: what waits here has started nothing; it counts against the credit of its link like any request that is
//! not answered, and is bounded by [`HELD_MAX`] and [`HELD_BYTES_MAX`] besides.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::parcel::CallParcel;
use crate::base::limits::{HELD_BYTES_MAX, HELD_MAX};
use crate::base::{CoreIndex, LinkId, Nanos};
use crate::wire::{Frame, FrameHeader};

/// A request that waits.
pub(super) enum Held {
    /// From a link.
    Frame(HeldFrame),
    /// From another core of this pod.
    Call(CoreIndex, CallParcel),
}

/// The copy of a frame, with the link that it came by.
pub(super) struct HeldFrame {
    pub link: LinkId,
    pub header: FrameHeader,
    /// When it came.
    pub since: Nanos,
    bytes: Box<[u8]>,
}

impl HeldFrame {
    fn new(link: LinkId, frame: &Frame<'_>, since: Nanos) -> HeldFrame {
        HeldFrame { link, header: frame.header, since, bytes: [frame.routing, frame.body].concat().into_boxed_slice() }
    }

    /// The frame.
    pub fn frame(&self) -> Frame<'_> {
        let (routing, body) = self.bytes.split_at(usize::from(self.header.routing_length));
        Frame { header: self.header, routing, body }
    }
}

/// What waits, oldest first.
#[derive(Default)]
pub(super) struct WaitingRoom {
    queue: RefCell<VecDeque<Held>>,
    bytes: Cell<usize>,
}

impl WaitingRoom {
    /// Keeps a frame. False if there is no room.
    pub fn keep_frame(&self, link: LinkId, frame: &Frame<'_>, since: Nanos) -> bool {
        let bytes = self.bytes.get() + frame.routing.len() + frame.body.len();
        let mut queue = self.queue.borrow_mut();
        if queue.len() >= HELD_MAX || bytes > HELD_BYTES_MAX {
            return false;
        }
        self.bytes.set(bytes);
        queue.push_back(Held::Frame(HeldFrame::new(link, frame, since)));
        true
    }

    /// Keeps a message of another core; gives it back if there is no room.
    pub fn keep_call(&self, from: CoreIndex, call: CallParcel) -> Result<(), CallParcel> {
        let mut queue = self.queue.borrow_mut();
        if queue.len() >= HELD_MAX {
            return Err(call);
        }
        queue.push_back(Held::Call(from, call));
        Ok(())
    }

    /// Takes everything out.
    pub fn take_all(&self) -> VecDeque<Held> {
        self.bytes.set(0);
        core::mem::take(&mut self.queue.borrow_mut())
    }

    pub fn length(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Drops the request of a link that its sender no longer waits for. True if it was here.
    pub fn cancel_frame(&self, link: LinkId, correlation: u64) -> bool {
        self.drop_where(
            |held| matches!(held, Held::Frame(frame) if frame.link == link && frame.header.correlation == correlation),
        )
    }

    /// Drops the message of another core that its sender no longer waits for.
    pub fn cancel_call(&self, from: CoreIndex, key: u64) {
        self.drop_where(|held| matches!(held, Held::Call(of, call) if *of == from && call.key == key));
    }

    /// Drops the requests of a link that is gone.
    pub fn forget_link(&self, link: LinkId) {
        self.drop_where(|held| matches!(held, Held::Frame(frame) if frame.link == link));
    }

    fn drop_where(&self, wanted: impl Fn(&Held) -> bool) -> bool {
        let mut queue = self.queue.borrow_mut();
        if queue.is_empty() {
            return false;
        }
        // A message that is dropped is user code: not while the queue is borrowed.
        let (dropped, kept): (VecDeque<Held>, VecDeque<Held>) = queue.drain(..).partition(wanted);
        *queue = kept;
        drop(queue);
        let bytes = dropped.iter().map(|held| if let Held::Frame(frame) = held { frame.bytes.len() } else { 0 });
        self.bytes.set(self.bytes.get() - bytes.sum::<usize>());
        !dropped.is_empty()
    }
}
