//! One core without a pod: a host that owns every shard, has no way out, and whose clock the test turns.
#![allow(dead_code)]

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atoll::base::{ClusterError, CoreIndex, LinkId, ShardId, Token};
use atoll::entity::{
    AnswerVtable, EntityDefaults, EntityRef, Host, HostOptions, Location, Outbound, PendingKey, Router, Sent, TypeHost,
    WakeTarget, foreign::next_node_number,
};
use atoll::mesh::doorbell::{Bell, Doorbell};
use atoll::{Entity, EntityOptions, Messenger};

/// The token of every shard.
pub const TOKEN: Token = Token(7);

struct NoBell;

impl Bell for NoBell {
    fn ring(&self) {}
}

/// There is nothing but this core.
struct NoWay;

impl Router for NoWay {
    fn send(&self, _: &Host, _: &Outbound<'_>) -> Result<Sent, ClusterError> {
        Err(ClusterError::NotServed)
    }
    fn cancel(&self, _: Location, _: PendingKey) {}
    fn wait_for_route(&self, _: PendingKey) {}
    unsafe fn answer_core(&self, _: CoreIndex, _: u64, _: &'static AnswerVtable, _: *mut ()) {}
    fn acknowledge_core(&self, _: CoreIndex, _: u64) {}
    fn fail_core(&self, _: CoreIndex, _: u64, _: ClusterError) {}
    fn answer_link(&self, _: LinkId, _: u64, _: Token, _: atoll::entity::Encode<'_>) {}
    fn acknowledge_link(&self, _: LinkId, _: u64) {}
    fn fail_link(&self, _: LinkId, _: u64, _: ClusterError) {}
    fn answer_json(&self, _: LinkId, _: u64, _: Result<Result<String, String>, String>) {}
    fn fail_json(&self, _: LinkId, _: u64, _: ClusterError) {}
}

/// A core in a test.
pub struct Core {
    host: Rc<Host>,
    types: RefCell<Vec<TypeHost>>,
}

/// What a test started: an ask, or any future that asks.
pub struct Started<T>(Rc<RefCell<Option<T>>>);

impl<T> Started<T> {
    /// Nothing yet, and where the outcome goes.
    pub fn new() -> (Started<T>, Rc<RefCell<Option<T>>>) {
        let started = Started(Rc::new(RefCell::new(None)));
        let into = Rc::clone(&started.0);
        (started, into)
    }

    /// The outcome, if it is there.
    pub fn take(&self) -> Option<T> {
        self.0.borrow_mut().take()
    }

    /// Whether there is no outcome yet.
    pub fn waits(&self) -> bool {
        self.0.borrow().is_none()
    }
}

impl Core {
    /// A core without entity types.
    pub fn new() -> Core {
        Core::with_shards(8)
    }

    fn with_shards(number_of_shards: u32) -> Core {
        let host = Host::new(HostOptions {
            node: next_node_number(),
            core: CoreIndex(0),
            hash_seed: 3,
            number_of_shards,
            call_id_base: 1,
            defaults: EntityDefaults::default(),
            wake_target: WakeTarget::new(Arc::new(Doorbell::new(NoBell))),
        });
        host.set_router(Rc::new(NoWay));
        let owned = (0..number_of_shards).map(|shard| (ShardId(shard), TOKEN));
        host.set_shards(owned, number_of_shards, std::collections::HashSet::new());
        Core { host: Rc::new(host), types: RefCell::default() }
    }

    /// With one more entity type.
    pub fn with<E: Entity>(self, options: EntityOptions<E::Protocol>) -> Core {
        let index = self.types.borrow().len() as u16;
        self.types.borrow_mut().push(TypeHost::new::<E>(index, options, self.host.defaults()));
        self
    }

    /// Ready to run.
    pub fn ready(self) -> Core {
        self.host.set_types(self.types.take());
        self
    }

    /// The host itself.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The host, for entities that start something on it.
    pub fn weak(&self) -> Weak<Host> {
        Rc::downgrade(&self.host)
    }

    /// Sends messages.
    pub fn messenger<R: EntityRef>(&self) -> Messenger<R> {
        self.host.messenger()
    }

    /// The reference of one entity.
    pub fn entity<R: EntityRef>(&self, id: &str) -> R {
        self.messenger::<R>().entity(id)
    }

    /// Runs until nothing is ready.
    pub fn run(&self) {
        let _entered = self.host.enter();
        for _ in 0..100_000 {
            self.host.take_woken();
            if !self.host.run_one() {
                return;
            }
        }
        panic!("the core does not come to rest");
    }

    /// Starts something on the core and runs as far as it goes.
    pub fn start<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Started<T> {
        let started = Started(Rc::new(RefCell::new(None)));
        let into = Rc::clone(&started.0);
        self.host.spawn(async move {
            let output = future.await;
            into.borrow_mut().replace(output);
        });
        self.run();
        started
    }

    /// Polls something once, as a caller does that is no task of the core.
    pub fn poll<F: Future + Unpin>(&self, future: &mut F) -> Option<F::Output> {
        let _entered = self.host.enter();
        match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// Runs something that must not wait for time or for anything outside.
    pub fn block<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.start(future).take().expect("it is ready without anything from outside")
    }

    /// Drops something on the core.
    pub fn drop<T>(&self, value: T) {
        {
            let _entered = self.host.enter();
            drop(value);
        }
        self.run();
    }

    /// Lets time pass, in steps, as a loop does.
    pub fn pass(&self, time: Duration) {
        let end = self.host.now() + time;
        while self.host.now() < end {
            // Miri is slow: it gets fewer, longer steps.
            let shortest = if cfg!(miri) { end.since(self.host.now()) / 8 } else { Duration::ZERO };
            let shortest = self.host.now() + shortest.max(Duration::from_nanos(1));
            let next = self.host.next_deadline().max(shortest).min(end);
            self.host.set_now(next);
            {
                let _entered = self.host.enter();
                self.host.advance();
            }
            self.run();
        }
    }
}

/// Something that a handler waits for until the test fires it.
#[derive(Clone, Default)]
pub struct Signal(Rc<RefCell<SignalState>>);

#[derive(Default)]
struct SignalState {
    fired: bool,
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Signal {
    /// Lets everyone go on who waits, now and later.
    pub fn fire(&self) {
        let wakers = {
            let mut state = self.0.borrow_mut();
            state.fired = true;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Waits for [`Signal::fire`]; forgets its waker when it is dropped.
    pub fn fired(&self) -> Fired {
        let mut state = self.0.borrow_mut();
        state.next += 1;
        Fired { signal: self.clone(), number: state.next }
    }

    /// A waker that someone left here.
    pub fn steal_waker(&self) -> Option<Waker> {
        self.0.borrow().wakers.first().map(|(_, waker)| waker.clone())
    }
}

/// The future of [`Signal::fired`].
pub struct Fired {
    signal: Signal,
    number: u64,
}

impl Future for Fired {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.signal.0.borrow_mut();
        if state.fired {
            return Poll::Ready(());
        }
        state.wakers.retain(|(number, _)| *number != self.number);
        state.wakers.push((self.number, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Fired {
    fn drop(&mut self) {
        self.signal.0.borrow_mut().wakers.retain(|(number, _)| *number != self.number);
    }
}
