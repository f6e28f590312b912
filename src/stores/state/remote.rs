//! Saved state at a manager: requests go over one connection, which a thread of its own keeps.
//!
//! Called by [`super::StateStore`]. Invariants: a request that was not sent yet waits for the connection until its time
//! is up; one that was sent when the connection broke is answered as [`StateError::Unavailable`], because nobody knows
//! what became of it, and is never sent twice; every request gets exactly one answer.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::file::Outcome;
use super::model::{STATE_SCHEMA, StateAsked, StateError, StateLimit, StateRequest, StateTold};
use crate::stores::served::link::{self, Session};
use crate::stores::served::protocol::{Broken, REQUEST_BYTES_MAX, Service, frame, read};

/// Requests that wait for the thread.
const QUEUE_MAX: usize = 1024;
/// Requests that were sent, or wait for a connection.
const OPEN_MAX: usize = 4096;

/// The way to the thread; it ends with this.
pub(super) struct Remote {
    commands: mpsc::Sender<Command>,
    timeout: Duration,
}

pub(super) struct Command {
    request: StateRequest,
    answer: oneshot::Sender<Outcome>,
    deadline: Instant,
}

impl Remote {
    pub fn start(address: SocketAddr, timeout: Duration) -> std::io::Result<Remote> {
        let (commands, received) = mpsc::channel(QUEUE_MAX);
        let session = StateSession { last: 0, open: BTreeMap::new() };
        link::start(session, "state-client", address, timeout, received)?;
        Ok(Remote { commands, timeout })
    }

    pub fn submit(&self, request: StateRequest, answer: oneshot::Sender<Outcome>) -> Result<(), StateError> {
        let command = Command { request, answer, deadline: Instant::now() + self.timeout };
        self.commands.try_send(command).map_err(|_| StateError::Busy)
    }
}

/// A request without an answer.
struct Open {
    answer: oneshot::Sender<Outcome>,
    deadline: Instant,
    /// The request as long as it was not sent.
    unsent: Option<StateRequest>,
}

struct StateSession {
    last: u64,
    open: BTreeMap<u64, Open>,
}

impl StateSession {
    fn send(&mut self, id: u64, request: StateRequest, out: &mut Vec<u8>) {
        if frame(&StateAsked { id, request }, out, REQUEST_BYTES_MAX).is_err() {
            self.answer(id, Err(StateError::OutOfBounds(StateLimit::Request)));
        }
    }

    fn answer(&mut self, id: u64, outcome: Outcome) {
        if let Some(open) = self.open.remove(&id) {
            // Nobody waits if the future was dropped.
            let _ = open.answer.send(outcome);
        }
    }
}

impl Session for StateSession {
    type Command = Command;
    const SERVICE: Service = Service::State;
    const SCHEMA: u64 = STATE_SCHEMA;

    fn command(&mut self, command: Command, out: Option<&mut Vec<u8>>) {
        let Command { request, answer, deadline } = command;
        if self.open.len() >= OPEN_MAX {
            let _ = answer.send(Err(StateError::Busy));
            return;
        }
        self.last += 1;
        let id = self.last;
        match out {
            Some(out) => {
                self.open.insert(id, Open { answer, deadline, unsent: None });
                self.send(id, request, out);
            }
            None => {
                self.open.insert(id, Open { answer, deadline, unsent: Some(request) });
            }
        }
    }

    fn connected(&mut self, out: &mut Vec<u8>) {
        let unsent: Vec<(u64, StateRequest)> =
            self.open.iter_mut().filter_map(|(id, open)| Some((*id, open.unsent.take()?))).collect();
        for (id, request) in unsent {
            self.send(id, request, out);
        }
    }

    fn received(&mut self, body: &[u8], _: &mut Vec<u8>) -> Result<(), Broken> {
        let StateTold { id, result } = read(body)?;
        self.answer(id, result);
        Ok(())
    }

    fn disconnected(&mut self, why: &Broken) {
        let sent: Vec<u64> = self.open.iter().filter(|(_, open)| open.unsent.is_none()).map(|(id, _)| *id).collect();
        for id in sent {
            self.answer(id, Err(StateError::Unavailable(why.to_string())));
        }
    }

    fn deadline(&self) -> Option<Instant> {
        // All have the same time, so the oldest is due first.
        self.open.values().next().map(|open| open.deadline)
    }

    fn expire(&mut self, now: Instant) -> Result<(), Broken> {
        while let Some((id, open)) = self.open.first_key_value()
            && open.deadline <= now
        {
            let id = *id;
            self.answer(id, Err(StateError::Timeout));
        }
        Ok(())
    }
}
