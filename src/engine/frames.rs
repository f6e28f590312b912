//! Frames that arrive on an open link: requests to entities, and answers to our own.
//!
//! Called by `core` with the bytes of a receive buffer. A request is handled where its frame lies, inside this call; only
//! what an entity must keep is copied. Invariants: every ask and tell is answered exactly once (or its link closes);
//! what does not make sense closes the link with a counted reason and harms no other.

use core::time::Duration;

use super::core::Core;
use super::counters::EngineCounters;
use super::link::{Link, Peer, Phase};
use super::routes::LinkCommand;
use super::serving::Place;
use crate::base::hash::entity_hash;
use crate::base::limits::HOPS_MAX;
use crate::base::{ClusterError, EntityId, Nanos};
use crate::entity::router::Router;
use crate::entity::{Call, CallChain, Delivered, Delivery, PendingKey, ReplyTo};
use crate::wire::{Frame, FrameFlags, FrameKind, Lane, RoutingView, decode_control};

impl Core {
    /// Bytes of a link, in order.
    pub fn received(&self, id: crate::base::LinkId, chunk: &[u8], now: Nanos) {
        let _entered = self.host.enter();
        self.host.set_now(now);
        let Some(link) = self.routes.link(id) else { return };
        let mut at = 0;
        while link.phase.get() != Phase::Closing {
            // The decoder is borrowed only here: a handler that runs below may close the link.
            let next = link.decoder.borrow_mut().next_frame(chunk, &mut at);
            match next {
                None => break,
                Some(Err(error)) => {
                    tracing::warn!(link = id.index, %error, "closing a link");
                    return self.close_link(&link, error.name());
                }
                Some(Ok(span)) => {
                    let scratch = link.decoder.borrow_mut().take_scratch();
                    self.frame(&link, &span.frame(chunk, &scratch));
                    link.decoder.borrow_mut().give_back(scratch);
                }
            }
        }
        self.settle();
    }

    /// Closes a link because of what its peer sent.
    pub(super) fn close_link(&self, link: &Link, reason: &'static str) {
        let phase = link.phase.replace(Phase::Closing);
        if phase == Phase::Open {
            EngineCounters::add(&self.routes.counters.links_open, u64::MAX);
        }
        if phase == Phase::Greeting
            && let Peer::Bootstrap(address) = &link.peer
        {
            *self.dial_outcome.borrow_mut() = Some(format!("{address} does not speak as a pod does ({reason})"));
        }
        if phase != Phase::Closing {
            link.arriving.take();
            self.routes.counters.refuse(reason);
            self.routes.commands.borrow_mut().push(LinkCommand::Close { link: link.id });
        }
    }

    fn frame(&self, link: &Link, frame: &Frame<'_>) {
        if frame.header.kind == FrameKind::Control {
            return match decode_control(frame.body) {
                Ok(message) => self.control(link, frame.header.correlation, message),
                Err(_) => self.close_link(link, "control_message"),
            };
        }
        if !link.is_open() {
            return self.close_link(link, "frame_before_handshake");
        }
        let flags = frame.header.flags;
        if flags.lane() == Lane::Bulk || flags.has(FrameFlags::MORE) {
            self.bulk_frame(link, frame);
        } else {
            self.whole_frame(link, frame);
        }
        if self.routes.starved.get() && link.has_room_again() {
            self.routes.wake_due.set(true);
        }
    }

    #[inline]
    pub(super) fn whole_frame(&self, link: &Link, frame: &Frame<'_>) {
        let correlation = frame.header.correlation;
        let key = PendingKey::from_number(correlation);
        match frame.header.kind {
            FrameKind::Ask => self.request(link, frame, false),
            FrameKind::Tell => self.request(link, frame, true),
            FrameKind::Reply | FrameKind::Ack | FrameKind::Failure | FrameKind::Moved => {
                if frame.header.kind == FrameKind::Failure {
                    link.drop_arriving(false, correlation);
                }
                link.answered();
                // Only the peer that got a request may answer it; the asker may also be gone.
                if self.host.is_at_link(key, link.id) {
                    self.answered(link, frame, key);
                }
            }
            FrameKind::Cancel => self.cancel(link, correlation),
            FrameKind::Credit => link.outgoing(frame.header.flags.lane()).grant(correlation),
            FrameKind::Control => {}
            FrameKind::StreamRequest
            | FrameKind::StreamElement
            | FrameKind::StreamDemand
            | FrameKind::StreamComplete
            | FrameKind::StreamFail
            | FrameKind::StreamCancel => self.stream_frame(link, frame),
        }
    }

    pub(super) fn answered(&self, link: &Link, frame: &Frame<'_>, key: PendingKey) {
        match frame.header.kind {
            FrameKind::Moved => return self.moved(link, frame, key),
            FrameKind::Reply if self.is_stale(frame.header.token, key) => return self.drop_stale(link, key),
            FrameKind::Reply => self.host.complete_encoded(key, frame.body),
            FrameKind::Ack => self.host.acknowledge(key),
            _ => {
                let error = ClusterError::from_code(frame.header.tag).unwrap_or(ClusterError::Transport);
                self.host.fail_local(key, error);
            }
        }
        self.routes.arrived(key);
    }

    fn cancel(&self, link: &Link, correlation: u64) {
        if self.cancel_json(link.id, correlation, ClusterError::EntityInterrupted) {
            return;
        }
        if link.drop_arriving(true, correlation) {
            return;
        }
        let was_here = self.host.cancel_caller(ReplyTo::Link(link.id, correlation))
            || self.held.cancel_frame(link.id, correlation)
            || link.leaving.give_up(false, correlation).is_some();
        if was_here {
            // Nobody waits for it, but the peer counts its requests by their answers.
            self.routes.fail_link(link.id, correlation, ClusterError::EntityInterrupted);
        }
    }

    /// Known to the wire format, not to this version of the engine: refused, whatever it is about.
    fn stream_frame(&self, link: &Link, frame: &Frame<'_>) {
        let bytes = (frame.routing.len() + frame.body.len()) as u64;
        if !link.incoming(Lane::Streams).begin(bytes) {
            return self.close_link(link, "credit");
        }
        self.routes.refuse_stream(link, frame.header.correlation, bytes);
    }

    fn request(&self, link: &Link, frame: &Frame<'_>, discard: bool) {
        EngineCounters::add(&self.routes.counters.requests_received, 1);
        let may_serve = link.may_serve();
        let (correlation, bytes) = (frame.header.correlation, (frame.routing.len() + frame.body.len()) as u64);
        let taken = match frame.header.flags.lane() {
            Lane::Messages => link.take_request(correlation, bytes),
            Lane::Bulk => link.take_bulk_request(correlation, bytes),
            Lane::Control | Lane::Streams => Err("lane"),
        };
        if let Err(reason) = taken {
            return self.close_link(link, reason);
        }
        if !may_serve {
            return self.routes.fail_link(link.id, frame.header.correlation, ClusterError::Busy);
        }
        self.request_taken(link, frame, discard, Duration::ZERO);
    }

    /// A request within the credit of its link, which may have waited since it came or, a large one, since it began to.
    pub(super) fn request_taken(&self, link: &Link, frame: &Frame<'_>, discard: bool, waited: Duration) {
        let header = &frame.header;
        let routing = match RoutingView::parse(frame.routing) {
            Ok(routing) => routing,
            Err(_) => return self.close_link(link, "routing"),
        };
        // A discard is acknowledged, and its credit comes back, while its message may wait for long.
        let lane = header.flags.lane();
        if discard && self.host.charged_bytes(link.id, lane) > link.incoming(lane).window() {
            return self.routes.fail_link(link.id, header.correlation, ClusterError::Busy);
        }
        if !waited.is_zero() && routing.remaining().is_some_and(|remaining| remaining <= waited) {
            return self.expired(link, header.correlation);
        }
        let delivered = self.deliver_request(link, frame, &routing, discard, waited);
        if let (true, Ok(Some(delivered))) = (discard, &delivered) {
            self.host.charge(delivered, link.id, lane, frame.body.len() as u32);
        }
        match delivered {
            Ok(Some(Delivered::Failed(ClusterError::MessageDiscarded))) if discard => {
                self.routes.acknowledge_link(link.id, header.correlation);
            }
            Ok(Some(Delivered::Failed(error))) | Err(error) => {
                self.routes.fail_link(link.id, header.correlation, error);
            }
            Ok(Some(_)) if discard => self.routes.acknowledge_link(link.id, header.correlation),
            Ok(Some(Delivered::Queued(_) | Delivered::Running(_))) => {
                if let Some(remaining) = routing.remaining() {
                    self.host.limit_caller(link.id, header.correlation, remaining.saturating_sub(waited));
                }
            }
            Ok(_) => {}
        }
    }

    /// A request that waited here, for its shard or the rest of its body, longer than its sender waits.
    #[cold]
    fn expired(&self, link: &Link, correlation: u64) {
        self.host.count_expired();
        self.routes.fail_link(link.id, correlation, ClusterError::SendTimeout);
    }

    /// `None` if it waits for its shard, or was told where that is.
    fn deliver_request(
        &self,
        link: &Link,
        frame: &Frame<'_>,
        routing: &RoutingView<'_>,
        discard: bool,
        waited: Duration,
    ) -> Result<Option<Delivered>, ClusterError> {
        let header = &frame.header;
        if routing.role != self.routes.identity.role {
            return Err(ClusterError::NotServed);
        }
        if routing.hops > HOPS_MAX {
            return Err(ClusterError::Transport);
        }
        let (type_index, method) = self.host.method_of_tag(header.tag).ok_or(ClusterError::NotServed)?;
        let id = EntityId::new(routing.entity_id).map_err(|_| ClusterError::InvalidEntityId)?;
        let hash = entity_hash(self.host.hash_seed(), routing.entity_id.as_bytes());
        let shard = crate::base::hash::shard_of_hash(hash, self.host.number_of_shards());
        if shard != header.shard {
            return Err(ClusterError::InvalidShardId);
        }
        match self.place_frame(shard, header.token) {
            Place::Here => {}
            Place::Wait => return self.hold_frame(link, frame, waited).map(|()| None),
            Place::Elsewhere => {
                self.refuse_moved(link, frame, true);
                return Ok(None);
            }
        }
        let reply_to = if discard { ReplyTo::Nobody } else { ReplyTo::Link(link.id, header.correlation) };
        let delivery = Delivery {
            type_index,
            hash,
            id: &id,
            method,
            call: Call { reply_to, chain: routing.chain().collect::<CallChain>() },
        };
        self.host.deliver_body(&delivery, frame.body).map(Some).map_err(ClusterError::from)
    }
}
