//! A small engine for tests of the loop: it sends back what it gets, and does what the test tells it from outside.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atoll::base::{LinkId, Nanos};
use atoll::runtime::{
    CloseReason, CorePlacement, CoresHandle, CoresOptions, Engine, EventBell, HELLO_BYTES, LinkLimits, PumpOptions,
    SocketCommand, Spin, start_cores,
};

/// What the engine saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Accepted([u8; HELLO_BYTES], SocketAddr),
    Connected(LinkId),
    Received(LinkId, usize),
    Closed(LinkId, CloseReason),
    Timer,
}

/// What the test tells it.
pub enum Order {
    Command(SocketCommand),
    Connect {
        address: String,
        hello: [u8; HELLO_BYTES],
    },
    Send(LinkId, Vec<u8>),
    /// Adds a timer that fires this long from now.
    Timer(Duration),
    /// Makes the next accepted connections be discarded instead of adopted.
    Discard(bool),
    Work(Duration),
    /// Adopts a descriptor that another core accepted.
    Adopt(i32),
    /// Accepted connections go to this engine.
    Forward(Arc<Shared>),
    Panic,
}

/// Shared by the test and one engine.
pub struct Shared {
    pub events: Mutex<Vec<Event>>,
    pub keep_received: AtomicBool,
    orders: Mutex<VecDeque<Order>>,
    waiting: AtomicBool,
    sleeping: AtomicBool,
    stop: AtomicBool,
    pub links: AtomicU64,
    pub bell: EventBell,
}

impl Shared {
    pub fn new(bell: EventBell) -> Arc<Shared> {
        Arc::new(Shared {
            events: Mutex::default(),
            keep_received: AtomicBool::new(false),
            orders: Mutex::default(),
            waiting: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            links: AtomicU64::new(0),
            bell,
        })
    }

    pub fn tell(&self, order: Order) {
        self.tell_all([order]);
    }

    /// All of them in one turn.
    pub fn tell_all(&self, orders: impl IntoIterator<Item = Order>) {
        self.orders.lock().unwrap().extend(orders);
        self.waiting.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// Asleep, and all that it was told is done.
    pub fn is_sleeping(&self) -> bool {
        !self.waiting.load(Ordering::Relaxed) && self.sleeping.load(Ordering::Relaxed)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// Waits for an event that fits, for at most 10 s.
    pub fn wait<T>(&self, find: impl Fn(&Event) -> Option<T>) -> T {
        until("an event", || self.events.lock().unwrap().iter().find_map(&find))
    }

    pub fn closed(&self) -> Vec<(LinkId, CloseReason)> {
        let only = |event: &Event| match event {
            Event::Closed(link, reason) => Some((*link, *reason)),
            _ => None,
        };
        self.events.lock().unwrap().iter().filter_map(only).collect()
    }

    fn saw(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }
}

/// Tries again until there is an answer; panics after 10 s.
pub fn until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Default)]
struct State {
    commands: Vec<SocketCommand>,
    dirty: Vec<LinkId>,
    outputs: HashMap<LinkId, Vec<u8>>,
    paused: HashMap<LinkId, bool>,
    free: Vec<LinkId>,
    next: u32,
    timers: Vec<Nanos>,
    discard: bool,
    work: Option<Duration>,
    forward: Option<Arc<Shared>>,
}

/// Output beyond which the engine takes no more from a peer.
const OUTPUT_MAX: usize = 256 << 10;

/// The engine.
pub struct Echo {
    shared: Arc<Shared>,
    state: RefCell<State>,
}

impl Echo {
    pub fn new(shared: Arc<Shared>) -> Echo {
        Echo { shared, state: RefCell::default() }
    }

    fn fresh(state: &mut State) -> LinkId {
        if let Some(link) = state.free.pop() {
            return LinkId { index: link.index, generation: link.generation + 1 };
        }
        state.next += 1;
        LinkId { index: state.next - 1, generation: 1 }
    }

    fn adopt(&self, state: &mut State, descriptor: i32) {
        let link = Echo::fresh(state);
        self.shared.links.fetch_add(1, Ordering::Relaxed);
        state.commands.push(SocketCommand::Adopt { link, descriptor });
    }

    fn output(state: &mut State, link: LinkId, bytes: &[u8]) {
        let output = state.outputs.entry(link).or_default();
        output.extend_from_slice(bytes);
        if output.len() > OUTPUT_MAX && !state.paused.insert(link, true).unwrap_or(false) {
            state.commands.push(SocketCommand::PauseReceive { link });
        }
        state.dirty.push(link);
    }
}

impl Engine for Echo {
    fn accepted(&self, hello: [u8; HELLO_BYTES], descriptor: i32, peer: SocketAddr) {
        let mut state = self.state.borrow_mut();
        self.shared.saw(Event::Accepted(hello, peer));
        if state.discard {
            state.commands.push(SocketCommand::Discard { descriptor });
            return;
        }
        match &state.forward {
            Some(other) => other.tell(Order::Adopt(descriptor)),
            None => self.adopt(&mut state, descriptor),
        }
    }

    fn received(&self, link: LinkId, bytes: &[u8], _now: Nanos) {
        assert!(!bytes.is_empty());
        if self.shared.keep_received.load(Ordering::Relaxed) {
            self.shared.saw(Event::Received(link, bytes.len()));
        }
        Echo::output(&mut self.state.borrow_mut(), link, bytes);
    }

    fn connected(&self, link: LinkId, _now: Nanos) {
        self.shared.saw(Event::Connected(link));
    }

    fn closed(&self, link: LinkId, reason: CloseReason, _now: Nanos) {
        let mut state = self.state.borrow_mut();
        state.outputs.remove(&link);
        state.paused.remove(&link);
        state.free.push(link);
        self.shared.links.fetch_sub(1, Ordering::Relaxed);
        self.shared.saw(Event::Closed(link, reason));
    }

    fn inboxes(&self, now: Nanos) -> bool {
        if !self.shared.waiting.load(Ordering::Acquire) {
            return false;
        }
        self.shared.waiting.store(false, Ordering::Relaxed);
        let orders = std::mem::take(&mut *self.shared.orders.lock().unwrap());
        let mut state = self.state.borrow_mut();
        for order in orders {
            match order {
                Order::Command(command) => state.commands.push(command),
                Order::Connect { address, hello } => {
                    let link = Echo::fresh(&mut state);
                    self.shared.links.fetch_add(1, Ordering::Relaxed);
                    state.commands.push(SocketCommand::Connect { link, address, hello });
                }
                Order::Send(link, bytes) => Echo::output(&mut state, link, &bytes),
                Order::Timer(after) => state.timers.push(now + after),
                Order::Discard(discard) => state.discard = discard,
                Order::Work(duration) => state.work = Some(duration),
                Order::Adopt(descriptor) => self.adopt(&mut state, descriptor),
                Order::Forward(other) => state.forward = Some(other),
                Order::Panic => panic!("planted by the test"),
            }
        }
        true
    }

    fn work(&self, _now: Nanos, until: Nanos, clock: &dyn Fn() -> Nanos, news: &dyn Fn() -> bool) -> bool {
        let Some(work) = self.state.borrow_mut().work.take() else { return false };
        let started = clock();
        while clock().since(started) < work {
            if clock() >= until || news() {
                let rest = work.saturating_sub(clock().since(started));
                self.state.borrow_mut().work = Some(rest).filter(|rest| !rest.is_zero());
                break;
            }
        }
        true
    }

    fn has_more_to_run(&self) -> bool {
        false
    }

    fn advance(&self, now: Nanos) {
        let mut state = self.state.borrow_mut();
        let before = state.timers.len();
        state.timers.retain(|at| *at > now);
        for _ in state.timers.len()..before {
            self.shared.saw(Event::Timer);
        }
    }

    fn next_deadline(&self) -> Nanos {
        self.state.borrow().timers.iter().min().copied().unwrap_or(Nanos::NEVER)
    }

    fn has_work(&self) -> bool {
        self.shared.waiting.load(Ordering::Acquire) || self.state.borrow().work.is_some()
    }

    fn flush_peers(&self) {}

    fn take_commands(&self, into: &mut Vec<SocketCommand>) {
        into.append(&mut self.state.borrow_mut().commands);
    }

    fn take_dirty(&self, into: &mut Vec<LinkId>) {
        into.append(&mut self.state.borrow_mut().dirty);
    }

    fn may_gather(&self, _link: LinkId) -> bool {
        true
    }

    fn take_output(&self, link: LinkId, into: &mut Vec<u8>) {
        assert!(into.is_empty());
        let mut state = self.state.borrow_mut();
        if let Some(output) = state.outputs.get_mut(&link) {
            std::mem::swap(output, into);
        }
        if state.paused.insert(link, false).unwrap_or(false) {
            state.commands.push(SocketCommand::ResumeReceive { link });
        }
    }

    fn announce_sleep(&self) {
        self.shared.sleeping.store(true, Ordering::Relaxed);
    }

    fn cancel_sleep(&self) {
        self.shared.sleeping.store(false, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }
}

/// Running cores with their engines; most tests have one.
pub struct Running {
    pub shared: Arc<Shared>,
    pub all: Vec<Arc<Shared>>,
    pub handle: Option<CoresHandle>,
    pub address: SocketAddr,
}

impl Running {
    pub fn start(pump: PumpOptions) -> Running {
        Running::start_many(1, pump)
    }

    pub fn start_many(cores: usize, pump: PumpOptions) -> Running {
        let options = CoresOptions {
            placement: CorePlacement::Unpinned(cores),
            listen: Some("127.0.0.1:0".parse().unwrap()),
            pump,
        };
        let mut all = Vec::new();
        let handle = start_cores(options, |plan| {
            all = plan.bells().iter().map(|bell| Shared::new(bell.clone())).collect();
            let engine = |shared: &Arc<Shared>| {
                let shared = Arc::clone(shared);
                move |_context| Ok(Echo::new(shared))
            };
            all.iter().map(engine).collect()
        })
        .unwrap();
        let address = handle.listen_address().unwrap();
        Running { shared: Arc::clone(&all[0]), all, handle: Some(handle), address }
    }

    pub fn values(&self) -> atoll::runtime::CounterValues {
        self.handle.as_ref().unwrap().counters()[0].values()
    }

    /// A connection that has said hello.
    pub fn client(&self) -> TcpStream {
        let mut client = self.silent_client();
        client.write_all(&HELLO).unwrap();
        client
    }

    /// A connection that has not.
    pub fn silent_client(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_nodelay(true).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client
    }

    pub fn stop(self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.all.iter().for_each(|shared| shared.stop());
            handle.join();
        }
    }
}

pub const HELLO: [u8; HELLO_BYTES] = [7; HELLO_BYTES];

/// Options of most tests: sleeps soon, so that waking is tested all the time.
pub fn quick() -> PumpOptions {
    PumpOptions { spin: Spin::Micros(20), ..PumpOptions::default() }
}

pub fn with_limits(change: impl FnOnce(&mut LinkLimits)) -> PumpOptions {
    let mut options = quick();
    change(&mut options.limits);
    options
}

/// Bytes that are different at each position.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

/// Reads exactly so many bytes.
pub fn read(client: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).unwrap();
    bytes
}
