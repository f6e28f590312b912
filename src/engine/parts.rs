//! Large bodies on their way: the parts that a core sends in turn with its other frames, and those that it puts together.
//!
//! Called by `frames`, `core` and the router; what a link knows of them is in `link` and `bulk`. Invariants: a message in
//! parts is handled when its last part is here, as if it had come in one frame then; one that its sender gave up
//! before that is undone on both sides, as if it had never been sent.

use super::bulk::{Arriving, Left, is_first};
use super::core::Core;
use super::counters::EngineCounters;
use super::link::Link;
use super::routes::Routes;
use crate::base::{ClusterError, Token};
use crate::entity::PendingKey;
use crate::entity::router::Router;
use crate::wire::{Frame, FrameFlags, FrameKind, Lane};

impl Routes {
    /// The sender of a request stopped waiting: what is not sent of it is not, and the peer is told if it has some of it.
    pub(super) fn cancel_at_link(&self, link: &Link, correlation: u64) {
        link.forget_reply(correlation);
        if let Some(given_up) = link.give_up_request(correlation) {
            self.open_gate(given_up.shard);
            if !given_up.has_begun {
                return;
            }
        }
        // If it finds no room the peer works for nothing, which harms nobody.
        let _ = self.write(link, FrameKind::Cancel, 0, Token(0), correlation, |_, _| Ok(()));
    }

    /// Writes parts of the large bodies that wait, as many as one send takes.
    pub(super) fn write_parts(&self, link: &Link) {
        while let Some(left) = link.write_part() {
            match left {
                None => {}
                Some(Left::Request(shard)) => self.open_gate(shard),
                Some(Left::Reply(correlation)) => {
                    if let Some((lane, grant)) = link.release_request(correlation) {
                        // A small frame always fits.
                        let _ = link.write_credit(lane, grant);
                    }
                }
            }
        }
    }
}

impl Core {
    /// A frame of the lane of large bodies, or one that says it is not all.
    #[cold]
    pub(super) fn bulk_frame(&self, link: &Link, frame: &Frame<'_>) {
        let header = &frame.header;
        let has_body = matches!(header.kind, FrameKind::Ask | FrameKind::Tell | FrameKind::Reply);
        if header.flags.lane() != Lane::Bulk || (!has_body && header.flags.has(FrameFlags::MORE)) {
            return self.close_link(link, "part_stray");
        }
        if !has_body {
            return self.whole_frame(link, frame);
        }
        if !header.flags.has(FrameFlags::MORE) && link.arriving.borrow().is_none() {
            return if is_first(header) { self.whole_frame(link, frame) } else { self.close_link(link, "part_stray") };
        }
        let is_wanted = self.host.is_at_link(PendingKey::from_number(header.correlation), link.id);
        match link.take_part(frame, is_wanted, self.host.now()) {
            Ok(None) => {}
            Ok(Some(arrived)) => self.body_is_here(link, &arrived),
            Err(reason) => self.close_link(link, reason),
        }
    }

    /// The last part of a large body came.
    fn body_is_here(&self, link: &Link, arrived: &Arriving) {
        let correlation = arrived.header().correlation;
        if arrived.header().kind == FrameKind::Reply {
            link.answered();
            let key = PendingKey::from_number(correlation);
            if let Some(frame) = arrived.frame().filter(|_| self.host.is_at_link(key, link.id)) {
                self.answered(link, &frame, key);
            }
            return;
        }
        EngineCounters::add(&self.routes.counters.requests_received, 1);
        let may_serve = link.may_serve();
        if let Err(reason) = link.bulk_request_is_here(correlation, arrived.request_bytes()) {
            return self.close_link(link, reason);
        }
        match arrived.frame() {
            Some(frame) if may_serve => {
                let waited = arrived.under_way(self.host.now());
                self.request_taken(link, &frame, frame.header.kind == FrameKind::Tell, waited);
            }
            _ => self.routes.fail_link(link.id, correlation, ClusterError::Busy),
        }
    }
}
