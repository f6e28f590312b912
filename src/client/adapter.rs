//! The engine as the loop wants it: translates between `engine` and `runtime`, which do not know each other.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::base::{LinkId, Nanos};
use crate::engine::{Core, LinkCommand};
use crate::runtime::{Activity, CloseReason, Engine, HELLO_BYTES, SocketCommand};

/// A core with what the watchdog reads.
pub(crate) struct LoopEngine {
    core: Core,
    activity: Arc<Activity>,
    /// What the watchdog sees while this core runs user code: its number.
    what: u64,
    commands: std::cell::RefCell<Vec<LinkCommand>>,
}

impl LoopEngine {
    pub(crate) fn new(core: Core, activity: Arc<Activity>, what: u64) -> LoopEngine {
        LoopEngine { core, activity, what, commands: std::cell::RefCell::default() }
    }

    /// Surrounds everything that may run user code.
    #[inline]
    fn watched<R>(&self, now: Nanos, run: impl FnOnce(&Core) -> R) -> R {
        self.activity.begin(self.what, now);
        let result = run(&self.core);
        self.activity.end();
        result
    }
}

impl Engine for LoopEngine {
    fn accepted(&self, hello: [u8; HELLO_BYTES], descriptor: i32, _peer: SocketAddr) {
        self.core.accepted(&hello, descriptor);
    }

    #[inline]
    fn received(&self, link: LinkId, bytes: &[u8], now: Nanos) {
        self.watched(now, |core| core.received(link, bytes, now));
    }

    fn connected(&self, link: LinkId, now: Nanos) {
        self.core.connected(link, now);
    }

    fn closed(&self, link: LinkId, reason: CloseReason, now: Nanos) {
        tracing::debug!(link = link.index, %reason, "a link is closed");
        self.watched(now, |core| {
            core.closing(link, &reason);
            core.closed(link, now);
        });
    }

    #[inline]
    fn inboxes(&self, now: Nanos) -> bool {
        self.watched(now, |core| core.inboxes(now))
    }

    #[inline]
    fn work(&self, now: Nanos, until: Nanos, clock: &dyn Fn() -> Nanos, news: &dyn Fn() -> bool) -> bool {
        self.watched(now, |core| core.work(now, until, clock, news))
    }

    #[inline]
    fn has_more_to_run(&self) -> bool {
        self.core.has_more_to_run()
    }

    fn advance(&self, now: Nanos) {
        self.watched(now, |core| core.advance(now));
    }

    #[inline]
    fn next_deadline(&self) -> Nanos {
        self.core.next_deadline()
    }

    #[inline]
    fn has_work(&self) -> bool {
        self.core.has_work()
    }

    #[inline]
    fn flush_peers(&self) {
        self.core.flush_peers();
    }

    #[inline]
    fn take_commands(&self, into: &mut Vec<SocketCommand>) {
        if !self.core.has_commands() {
            return;
        }
        let mut commands = self.commands.borrow_mut();
        self.core.take_commands(&mut commands);
        into.extend(commands.drain(..).map(|command| match command {
            LinkCommand::Connect { link, address, hello } => SocketCommand::Connect { link, address, hello },
            LinkCommand::Adopt { link, descriptor } => SocketCommand::Adopt { link, descriptor },
            LinkCommand::Discard { descriptor } => SocketCommand::Discard { descriptor },
            LinkCommand::Close { link } => SocketCommand::Close { link },
            LinkCommand::Pause { link } => SocketCommand::PauseReceive { link },
            LinkCommand::Resume { link } => SocketCommand::ResumeReceive { link },
        }));
    }

    #[inline]
    fn take_dirty(&self, into: &mut Vec<LinkId>) {
        self.core.take_dirty(into);
    }

    #[inline]
    fn may_gather(&self, link: LinkId) -> bool {
        self.core.may_gather(link)
    }

    #[inline]
    fn take_output(&self, link: LinkId, into: &mut Vec<u8>) {
        self.core.take_output(link, into);
    }

    fn announce_sleep(&self) {
        self.core.doorbell().announce_sleep();
    }

    fn cancel_sleep(&self) {
        self.core.doorbell().cancel_sleep();
    }

    fn stopped(&self) -> bool {
        self.core.stopped()
    }
}
