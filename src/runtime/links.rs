//! The life of a link as a pure state machine: what may be started next, and when its descriptor may be closed.
//!
//! The reactor tells a [`Link`] what happened and asks [`Links::next_step`] until it says [`Step::Wait`]. Invariants: at most one
//! receive and one send are in flight; a link is released (descriptor closed, `closed` reported) only when nothing is in flight,
//! and exactly once; after that its index is free and its old id finds nothing.

use crate::base::limits::LINK_GATHER;
use crate::base::{LinkId, Nanos};

use super::engine_port::CloseReason;
use super::operations::OperationId;

/// What to do next for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until something happens.
    Wait,
    /// Start a receive.
    Receive,
    /// Take the output; send it, or say [`Links::no_output`].
    Send,
    /// All output of a lingering link is sent: tell the peer that no more comes, and wait for its end.
    ShutdownWrite,
    /// Ask the kernel to end this receive.
    CancelReceive(OperationId),
    /// Shut the socket down and ask the kernel to end what is in flight.
    CancelAll(InFlight),
    /// Nothing is in flight any more: take it out with [`Links::release`].
    Release,
}

/// The operations of a link that the kernel works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlight {
    /// Its receive.
    pub receive: Option<OperationId>,
    /// Its send.
    pub send: Option<OperationId>,
    /// Its connect.
    pub connect: Option<OperationId>,
}

impl InFlight {
    fn none(self) -> bool {
        self == InFlight::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Open,
    /// Sends the rest, then waits for the peer's end and throws away what comes meanwhile: closing a socket with unread bytes
    /// would reset the connection and take the last output with it.
    Lingering(CloseReason),
    Closing(CloseReason),
}

/// One link; `D` owns the descriptor.
#[derive(Debug)]
struct Link<D> {
    id: LinkId,
    descriptor: Option<D>,
    state: State,
    in_flight: InFlight,
    receive_cancelled: bool,
    all_cancelled: bool,
    write_ended: bool,
    paused: bool,
    dirty: bool,
    /// When the last send was started.
    sent_at: Option<Nanos>,
    /// The reactor has it in its list of links whose output gathers.
    gathering: bool,
    deadline: Nanos,
}

/// The links of a core.
#[derive(Debug)]
pub(crate) struct Links<D> {
    entries: Vec<Option<Link<D>>>,
    live: usize,
    limit: usize,
}

impl<D> Links<D> {
    /// An empty table whose indices are below `limit`.
    pub fn new(limit: usize) -> Links<D> {
        Links { entries: Vec::new(), live: 0, limit }
    }

    /// Links in the table.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Adds a link that still has to connect. False if its index is in use or too large.
    pub fn connecting(&mut self, id: LinkId, deadline: Nanos) -> bool {
        self.add(id, None, State::Connecting, deadline).is_ok()
    }

    /// Adds an open link.
    ///
    /// # Errors
    /// The descriptor, if the index is in use or too large.
    pub fn adopt(&mut self, id: LinkId, descriptor: D) -> Result<(), D> {
        match self.add(id, Some(descriptor), State::Open, Nanos::NEVER) {
            Ok(()) => Ok(()),
            Err(descriptor) => Err(descriptor.expect("it was given above")),
        }
    }

    fn add(&mut self, id: LinkId, descriptor: Option<D>, state: State, deadline: Nanos) -> Result<(), Option<D>> {
        let index = id.index as usize;
        if index >= self.limit || self.entries.get(index).is_some_and(Option::is_some) {
            return Err(descriptor);
        }
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, || None);
        }
        self.entries[index] = Some(Link {
            id,
            descriptor,
            state,
            in_flight: InFlight::default(),
            receive_cancelled: false,
            all_cancelled: false,
            write_ended: false,
            paused: false,
            dirty: false,
            sent_at: None,
            gathering: false,
            deadline,
        });
        self.live += 1;
        Ok(())
    }

    fn get(&self, id: LinkId) -> Option<&Link<D>> {
        self.entries.get(id.index as usize)?.as_ref().filter(|link| link.id == id)
    }

    fn get_mut(&mut self, id: LinkId) -> Option<&mut Link<D>> {
        self.entries.get_mut(id.index as usize)?.as_mut().filter(|link| link.id == id)
    }

    /// The descriptor of a link.
    pub fn descriptor(&self, id: LinkId) -> Option<&D> {
        self.get(id)?.descriptor.as_ref()
    }

    /// Does the engine still want bytes and events of this link?
    pub fn is_open(&self, id: LinkId) -> bool {
        self.get(id).is_some_and(|link| link.state == State::Open)
    }

    /// May bytes still be sent?
    pub fn may_send(&self, id: LinkId) -> bool {
        self.get(id).is_some_and(|link| matches!(link.state, State::Open | State::Lingering(_)))
    }

    /// Is this link still being connected?
    pub fn is_connecting(&self, id: LinkId) -> bool {
        self.get(id).is_some_and(|link| link.state == State::Connecting)
    }

    /// When the link's connect or linger time is over.
    pub fn deadline(&self, id: LinkId) -> Nanos {
        self.get(id).map_or(Nanos::NEVER, |link| link.deadline)
    }

    /// A connect was started on this descriptor.
    pub fn connect_started(&mut self, id: LinkId, descriptor: D, operation: OperationId) {
        if let Some(link) = self.get_mut(id) {
            link.descriptor = Some(descriptor);
            link.in_flight.connect = Some(operation);
        }
    }

    /// The connect ended. True if the link is open now.
    pub fn connect_ended(&mut self, id: LinkId, error: Option<CloseReason>) -> bool {
        let Some(link) = self.get_mut(id) else { return false };
        link.in_flight.connect = None;
        if link.state != State::Connecting {
            return false;
        }
        link.deadline = Nanos::NEVER;
        link.state = error.map_or(State::Open, State::Closing);
        link.state == State::Open
    }

    /// A receive was started.
    pub fn receive_started(&mut self, id: LinkId, operation: OperationId) {
        if let Some(link) = self.get_mut(id) {
            link.in_flight.receive = Some(operation);
            link.receive_cancelled = false;
        }
    }

    /// The receive had its last completion.
    pub fn receive_ended(&mut self, id: LinkId) {
        if let Some(link) = self.get_mut(id) {
            link.in_flight.receive = None;
            link.receive_cancelled = false;
        }
    }

    /// A send was started. It clears nothing: output that comes later is announced by [`Links::dirty`].
    pub fn send_started(&mut self, id: LinkId, operation: OperationId, now: Nanos) {
        if let Some(link) = self.get_mut(id) {
            link.in_flight.send = Some(operation);
            link.sent_at = Some(now);
        }
    }

    /// Whether so little time has passed since the last send of an open link that its output may gather.
    pub fn has_just_sent(&self, id: LinkId, now: Nanos) -> bool {
        let has_just_sent = |link: &Link<D>| link.sent_at.is_some_and(|at| now.since(at) < LINK_GATHER);
        self.get(id).is_some_and(|link| link.state == State::Open && has_just_sent(link))
    }

    /// The output of a link gathers, or does so no more. True if that is news.
    pub fn gather(&mut self, id: LinkId, gathering: bool) -> bool {
        self.get_mut(id).is_some_and(|link| std::mem::replace(&mut link.gathering, gathering) != gathering)
    }

    /// The send ended.
    pub fn send_ended(&mut self, id: LinkId) {
        if let Some(link) = self.get_mut(id) {
            link.in_flight.send = None;
        }
    }

    /// The engine has new output for the link.
    pub fn dirty(&mut self, id: LinkId) {
        if let Some(link) = self.get_mut(id) {
            link.dirty = true;
        }
    }

    /// The output was taken (whether it was empty or not).
    pub fn output_taken(&mut self, id: LinkId) {
        if let Some(link) = self.get_mut(id) {
            link.dirty = false;
        }
    }

    /// Stops or resumes receiving.
    pub fn pause(&mut self, id: LinkId, paused: bool) {
        if let Some(link) = self.get_mut(id) {
            link.paused = paused;
        }
    }

    /// Ends a link after its output, by `deadline` at the latest. Looks for output once more.
    pub fn linger(&mut self, id: LinkId, reason: CloseReason, deadline: Nanos) {
        let Some(link) = self.get_mut(id) else { return };
        match link.state {
            State::Open => {
                link.state = State::Lingering(reason);
                link.dirty = true;
                link.deadline = deadline;
            }
            State::Connecting => link.state = State::Closing(reason),
            State::Lingering(_) | State::Closing(_) => {}
        }
    }

    /// Ends a link at once. The first reason counts.
    pub fn close(&mut self, id: LinkId, reason: CloseReason) {
        if let Some(link) = self.get_mut(id) {
            link.state = match link.state {
                State::Closing(first) | State::Lingering(first) => State::Closing(first),
                State::Connecting | State::Open => State::Closing(reason),
            };
            link.deadline = Nanos::NEVER;
        }
    }

    /// What to do next; the caller does it and asks again until [`Step::Wait`].
    pub fn next_step(&mut self, id: LinkId) -> Step {
        let Some(link) = self.get_mut(id) else { return Step::Wait };
        match link.state {
            State::Connecting => Step::Wait,
            State::Open | State::Lingering(_) if link.dirty && link.in_flight.send.is_none() => Step::Send,
            State::Lingering(_) if !link.write_ended && link.in_flight.send.is_none() => {
                link.write_ended = true;
                Step::ShutdownWrite
            }
            State::Open | State::Lingering(_) => link.receive_step(),
            State::Closing(_) if link.in_flight.none() => Step::Release,
            State::Closing(_) if link.all_cancelled => Step::Wait,
            State::Closing(_) => {
                link.all_cancelled = true;
                Step::CancelAll(link.in_flight)
            }
        }
    }

    /// Takes a link out that [`Step::Release`] named.
    pub fn release(&mut self, id: LinkId) -> Option<(Option<D>, CloseReason)> {
        let State::Closing(reason) = self.get(id).filter(|link| link.in_flight.none())?.state else { return None };
        self.live -= 1;
        self.entries[id.index as usize].take().map(|link| (link.descriptor, reason))
    }

    /// Has no link a send in flight, nor output to take?
    pub fn all_sent(&self) -> bool {
        self.entries.iter().flatten().all(|link| link.in_flight.send.is_none() && !link.dirty)
    }

    /// The ids of all links.
    pub fn ids(&self) -> Vec<LinkId> {
        self.entries.iter().flatten().map(|link| link.id).collect()
    }
}

impl<D> Link<D> {
    fn receive_step(&mut self) -> Step {
        let wanted = self.state != State::Open || !self.paused;
        match self.in_flight.receive {
            None if wanted => Step::Receive,
            Some(operation) if !wanted && !self.receive_cancelled => {
                self.receive_cancelled = true;
                Step::CancelReceive(operation)
            }
            _ => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests;
