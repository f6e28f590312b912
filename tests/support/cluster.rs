//! Several processes without sockets, threads or a clock: pods of several cores and clients, whose bytes, commands and
//! time the test moves, one step at a time, in an order that a seed decides.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll::base::{CoreIndex, Epoch, LinkId, Nanos, PodIndex, PodUid, ShardId, Token};
use atoll::engine::{Command, Core, CoreParts, CoreQueues, Identity, LinkCommand, LinkLimits};
use atoll::entity::foreign::next_node_number;
use atoll::entity::{EntityDefaults, HostOptions, TypeHost, WakeTarget};
use atoll::mesh::{Bell, Doorbell, ForeignInbox, channel};
use atoll::sharding::{Owner, PodRecord, ShardTable, TableParts};
use atoll::wire::{FrameDecoder, FrameKind};

pub const SHARDS: u32 = 8;
pub const HASH_SEED: u64 = 3;
const ROLE: &str = "default";
const STEP: Duration = Duration::from_micros(200);

struct NoBell;

impl Bell for NoBell {
    fn ring(&self) {}
}

/// Numbers that look random, from a seed.
pub struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    pub fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Below `bound`.
    pub fn below(&self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub fn one_in(&self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

/// What the handlers of the process that runs now are measured against.
#[derive(Clone)]
pub struct Running {
    pub process: usize,
    pub now: Nanos,
    /// Until when it may serve in truth, whatever its cores were told.
    pub until: u64,
}

thread_local! {
    static RUNNING: RefCell<Option<Running>> = const { RefCell::new(None) };
}

/// The process whose code runs now.
pub fn running() -> Option<Running> {
    RUNNING.with_borrow(Clone::clone)
}

pub struct Process {
    pub uid: Cell<PodUid>,
    pub is_pod: bool,
    pub cores: Vec<Core>,
    pub validity: Arc<AtomicU64>,
    /// What the oracle takes for the validity.
    pub until: Cell<u64>,
    pub released: Arc<Mutex<Vec<(ShardId, Token)>>>,
    foreign: Vec<Arc<ForeignInbox<Command>>>,
    /// Runs nothing.
    pub stalled: Cell<bool>,
    pub dead: Cell<bool>,
    /// Commands on their way to each core.
    commands: Vec<RefCell<VecDeque<Command>>>,
}

type End = (usize, usize, LinkId);

/// A connection: bytes on their way to either end.
struct Wire {
    ends: [End; 2],
    bytes: [VecDeque<Vec<u8>>; 2],
    /// The end was told, or has asked for it.
    closed: [bool; 2],
    decoders: [FrameDecoder; 2],
}

struct Dial {
    from: End,
    hello: [u8; atoll::wire::HELLO_BYTES],
    to: Option<usize>,
    descriptor: i32,
}

pub struct Cluster {
    pub random: Random,
    pub now: Arc<AtomicU64>,
    pub processes: Vec<Process>,
    wires: RefCell<Vec<Wire>>,
    dials: RefCell<Vec<Dial>>,
    next_descriptor: Cell<i32>,
    /// A core that sends, but does not get to look at what others sent to it, tables included.
    pub deaf: Cell<Option<(usize, usize)>>,
    /// What must not have happened.
    pub violations: RefCell<Vec<String>>,
    /// Changes tokens of requests on their way, for a planted bug.
    pub moved_seen: Cell<u64>,
}

pub fn address(process: usize) -> String {
    format!("memory:{process}")
}

/// What a test decides about a process.
pub struct ProcessOptions {
    pub cores: usize,
    pub is_pod: bool,
    /// The cores believe that they may serve for ever.
    pub ignores_freeze: bool,
    pub bootstrap: Vec<String>,
    pub types: fn() -> Vec<TypeHost>,
}

impl Cluster {
    pub fn new(seed: u64, options: Vec<ProcessOptions>) -> Cluster {
        let now = Arc::new(AtomicU64::new(1));
        let processes =
            options.into_iter().enumerate().map(|(at, options)| process(at, options, &now)).collect::<Vec<_>>();
        Cluster {
            random: Random::new(seed),
            now,
            processes,
            wires: RefCell::default(),
            dials: RefCell::default(),
            next_descriptor: Cell::new(1),
            deaf: Cell::new(None),
            violations: RefCell::default(),
            moved_seen: Cell::new(0),
        }
    }

    pub fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }

    pub fn pass(&self, time: Duration) {
        self.now.store((self.now() + time).0, Ordering::Relaxed);
    }

    /// Gives a core a command, which it gets in its turn.
    pub fn command(&self, process: usize, core: usize, command: Command) {
        self.processes[process].commands[core].borrow_mut().push_back(command);
    }

    /// Sets until when a pod may serve.
    pub fn set_validity(&self, process: usize, until: u64) {
        let process = &self.processes[process];
        process.until.set(until);
        if process.validity.load(Ordering::Relaxed) != u64::MAX {
            process.validity.store(until, Ordering::Release);
        }
    }

    fn runs(&self, process: usize) -> bool {
        !self.processes[process].stalled.get() && !self.processes[process].dead.get()
    }

    /// Does something as a process.
    pub fn within<R>(&self, process: usize, run: impl FnOnce() -> R) -> R {
        let until = self.processes[process].until.get();
        let previous = RUNNING.replace(Some(Running { process, now: self.now(), until }));
        let result = run();
        RUNNING.set(previous);
        result
    }

    /// One step of something.
    pub fn step(&self) {
        if self.random.one_in(4) {
            self.pass(STEP * self.random.below(5) as u32);
        }
        let process = self.random.below(self.processes.len());
        match self.random.below(8) {
            0 => self.make_connections(),
            1..=3 => self.carry(),
            4 => self.hand_command(process),
            _ => self.turn(process),
        }
    }

    /// Everything that can happen, until nothing does; time passes.
    pub fn come_to_rest(&self, time: Duration) {
        let end = self.now() + time;
        while self.now() < end {
            self.pass(STEP);
            for process in 0..self.processes.len() {
                for _ in 0..4 {
                    self.hand_command(process);
                }
                for core in 0..self.processes[process].cores.len() {
                    self.turn_of(process, core);
                }
            }
            self.make_connections();
            for _ in 0..64 {
                self.carry();
            }
        }
    }

    fn hand_command(&self, process: usize) {
        if !self.runs(process) {
            return;
        }
        let at = process;
        let process = &self.processes[at];
        let core = self.random.below(process.cores.len());
        if self.deaf.get() == Some((at, core)) {
            return;
        }
        if let Some(command) = process.commands[core].borrow_mut().pop_front() {
            assert!(process.foreign[core].try_push(command).is_ok(), "the inbox has room");
        }
    }

    /// Whether the inboxes of a process have all its commands.
    pub fn commands_are_given(&self, process: usize) -> bool {
        self.processes[process].commands.iter().all(|commands| commands.borrow().is_empty())
    }

    /// Puts the next command of each core into its inbox.
    pub fn give_commands(&self, process: usize) {
        let process = &self.processes[process];
        for (commands, inbox) in process.commands.iter().zip(&process.foreign) {
            if let Some(command) = commands.borrow_mut().pop_front() {
                assert!(inbox.try_push(command).is_ok(), "the inbox has room");
            }
        }
    }

    /// Moves bytes and commands, and runs all cores but those of pods.
    pub fn pass_bytes(&self) {
        self.make_connections();
        self.carry();
        for (at, _) in self.processes.iter().enumerate().filter(|(_, process)| !process.is_pod) {
            self.turn(at);
        }
    }

    /// Runs a core, and leaves its output where it is.
    pub fn run_without_flush(&self, (at, core): (usize, usize)) {
        let core = &self.processes[at].cores[core];
        let now = self.now();
        self.within(at, || {
            core.inboxes(now);
            core.work(now, now + Duration::from_secs(1), &|| now, &|| false);
            core.advance(now);
        });
    }

    fn turn(&self, process: usize) {
        let core = self.random.below(self.processes[process].cores.len());
        self.turn_of(process, core);
    }

    fn turn_of(&self, at: usize, core_at: usize) {
        if !self.runs(at) {
            return;
        }
        let core = &self.processes[at].cores[core_at];
        self.within(at, || {
            if self.deaf.get() != Some((at, core_at)) {
                core.inboxes(self.now());
            }
            let now = self.now();
            core.work(now, now + Duration::from_secs(1), &|| self.now(), &|| self.random.one_in(2));
            if core.next_deadline() <= self.now() {
                core.advance(self.now());
            }
        });
        self.flush(at, core_at);
    }

    /// Takes what a core has for its links.
    pub fn flush(&self, at: usize, core_at: usize) {
        let core = &self.processes[at].cores[core_at];
        let mut commands = Vec::new();
        core.take_commands(&mut commands);
        for command in commands {
            match command {
                LinkCommand::Connect { link, address, hello } => {
                    let to =
                        self.processes.iter().enumerate().map(|(at, _)| at).find(|at| self::address(*at) == address);
                    let descriptor = self.next_descriptor.replace(self.next_descriptor.get() + 1);
                    self.dials.borrow_mut().push(Dial { from: (at, core_at, link), hello, to, descriptor });
                }
                LinkCommand::Adopt { link, descriptor } => self.adopted(at, core_at, link, descriptor),
                LinkCommand::Discard { .. } => {}
                LinkCommand::Close { link } => {
                    self.take_output(at, core_at, link);
                    self.close_end((at, core_at, link));
                }
                LinkCommand::Pause { .. } | LinkCommand::Resume { .. } => {}
            }
        }
        let mut dirty = Vec::new();
        core.take_dirty(&mut dirty);
        for link in dirty {
            self.take_output(at, core_at, link);
        }
        core.flush_peers();
    }

    fn take_output(&self, at: usize, core_at: usize, link: LinkId) {
        let mut bytes = Vec::new();
        self.within(at, || self.processes[at].cores[core_at].take_output(link, &mut bytes));
        if bytes.is_empty() {
            return;
        }
        let lapsed = self.now().0 >= self.processes[at].until.get();
        let mut wires = self.wires.borrow_mut();
        for wire in wires.iter_mut() {
            for side in 0..2 {
                if wire.ends[side] != (at, core_at, link) || wire.closed[side] {
                    continue;
                }
                let mut frames = wire.decoders[side].feed(&bytes);
                while let Some(frame) = frames.next() {
                    let kind = frame.expect("cores send whole frames").header.kind;
                    self.moved_seen.set(self.moved_seen.get() + u64::from(kind == FrameKind::Moved));
                    if lapsed && kind != FrameKind::Control {
                        self.violations.borrow_mut().push(format!("{kind:?} was submitted after the lapse"));
                    }
                }
                wire.bytes[1 - side].push_back(core::mem::take(&mut bytes));
                return;
            }
        }
    }

    fn make_connections(&self) {
        let mut dials = self.dials.borrow_mut();
        let mut ready = Vec::new();
        dials.retain_mut(|dial| match dial.to.take() {
            Some(to) => {
                ready.push((dial.from, dial.hello, to, dial.descriptor));
                true
            }
            None => true,
        });
        drop(dials);
        for (from, hello, to, descriptor) in ready {
            if self.processes[to].dead.get() {
                self.dials.borrow_mut().retain(|dial| dial.descriptor != descriptor);
                if self.runs(from.0) {
                    let core = &self.processes[from.0].cores[from.1];
                    self.within(from.0, || core.closed(from.2, self.now()));
                }
            } else if self.processes[to].stalled.get() {
                // The kernel accepts for it; it says nothing.
                self.dials
                    .borrow_mut()
                    .iter_mut()
                    .filter(|dial| dial.descriptor == descriptor)
                    .for_each(|dial| dial.to = Some(to));
            } else {
                let core = self.random.below(self.processes[to].cores.len());
                self.within(to, || self.processes[to].cores[core].accepted(&hello, descriptor));
                self.flush(to, core);
            }
        }
    }

    fn adopted(&self, at: usize, core_at: usize, link: LinkId, descriptor: i32) {
        let mut dials = self.dials.borrow_mut();
        let Some(position) = dials.iter().position(|dial| dial.descriptor == descriptor) else { return };
        let dial = dials.remove(position);
        drop(dials);
        let decoder = || FrameDecoder::new(1 << 20);
        self.wires.borrow_mut().push(Wire {
            ends: [dial.from, (at, core_at, link)],
            bytes: Default::default(),
            closed: [false; 2],
            decoders: [decoder(), decoder()],
        });
        let core = &self.processes[dial.from.0].cores[dial.from.1];
        self.within(dial.from.0, || core.connected(dial.from.2, self.now()));
    }

    /// One end closes: the other hears of it after what was sent before.
    fn close_end(&self, end: End) {
        let mut closes = false;
        for wire in self.wires.borrow_mut().iter_mut() {
            for side in 0..2 {
                if wire.ends[side] == end && !wire.closed[side] {
                    wire.closed[side] = true;
                    wire.bytes[side].clear();
                    closes = true;
                }
            }
        }
        let dials = self.dials.borrow().len();
        self.dials.borrow_mut().retain(|dial| dial.from != end);
        if closes || self.dials.borrow().len() != dials {
            let core = &self.processes[end.0].cores[end.1];
            self.within(end.0, || core.closed(end.2, self.now()));
        }
    }

    /// Brings some bytes of one connection to their end.
    fn carry(&self) {
        let count = self.wires.borrow().len();
        if count == 0 {
            return;
        }
        let at = self.random.below(count);
        let side = self.random.below(2);
        let (end, bytes) = {
            let mut wires = self.wires.borrow_mut();
            let wire = &mut wires[at];
            if wire.closed[side] || !self.runs(wire.ends[side].0) {
                return;
            }
            (wire.ends[side], wire.bytes[side].pop_front())
        };
        let core = &self.processes[end.0].cores[end.1];
        match bytes {
            Some(bytes) => {
                let piece = if self.random.one_in(4) { 1 + self.random.below(60) } else { usize::MAX };
                for chunk in bytes.chunks(piece) {
                    self.within(end.0, || core.received(end.2, chunk, self.now()));
                }
                self.flush(end.0, end.1);
            }
            None if self.wires.borrow()[at].closed[1 - side] => {
                self.wires.borrow_mut()[at].closed[side] = true;
                self.within(end.0, || core.closed(end.2, self.now()));
                self.flush(end.0, end.1);
            }
            None => {}
        }
    }

    /// Breaks all connections of two processes.
    pub fn break_connections(&self, of: usize, and: usize) {
        for wire in self.wires.borrow_mut().iter_mut() {
            let ends = [wire.ends[0].0, wire.ends[1].0];
            if ends == [of, and] || ends == [and, of] {
                // Both sides hear of it; what is on its way is lost.
                wire.bytes.iter_mut().for_each(VecDeque::clear);
                for side in 0..2 {
                    if !wire.closed[side] {
                        wire.closed[side] = true;
                    }
                }
            }
        }
        let ends: Vec<End> = self
            .wires
            .borrow_mut()
            .extract_if(.., |wire| wire.closed == [true, true])
            .flat_map(|wire| wire.ends)
            .filter(|end| [of, and].contains(&end.0))
            .collect();
        for end in ends {
            if !self.processes[end.0].dead.get() {
                let core = &self.processes[end.0].cores[end.1];
                self.within(end.0, || core.closed(end.2, self.now()));
            }
        }
    }

    /// Ends a process at once. What it sent may be on its way still.
    pub fn kill(&self, process: usize) {
        self.processes[process].dead.set(true);
        for wire in self.wires.borrow_mut().iter_mut() {
            for side in 0..2 {
                if wire.ends[side].0 == process {
                    wire.closed[side] = true;
                    if self.random.one_in(2) {
                        wire.bytes[1 - side].clear();
                    }
                }
            }
        }
    }

    /// A table, from who owns each shard: process, core and token.
    pub fn table(&self, epoch: u64, members: &[usize], owners: &[Option<(usize, usize, u64)>]) -> Arc<ShardTable> {
        let pods = members.iter().map(|at| PodRecord {
            uid: self.processes[*at].uid.get(),
            address: address(*at),
            cores: self.processes[*at].cores.len() as u16,
            version: "1".to_owned(),
            role: ROLE.to_owned(),
        });
        let owners = owners.iter().map(|owner| {
            let Some((process, core, token)) = *owner else { return Owner::NONE };
            let index = members.iter().position(|member| *member == process).expect("owners are members");
            Owner { token: Token(token), pod: PodIndex(index as u16), core: CoreIndex(core as u16) }
        });
        let parts = TableParts {
            role: ROLE.to_owned(),
            epoch: Epoch(epoch),
            hash_seed: HASH_SEED,
            number_of_shards: SHARDS,
            pods: pods.collect(),
            owners: owners.collect(),
        };
        Arc::new(ShardTable::from_parts(parts).expect("the table is sound"))
    }

    /// Gives a table to all cores of all members, each in its turn.
    pub fn publish(&self, table: &Arc<ShardTable>, members: &[usize]) {
        for member in members {
            for core in 0..self.processes[*member].cores.len() {
                self.command(*member, core, Command::Table(Arc::clone(table)));
            }
        }
    }

    /// A counter of all cores of a process.
    pub fn count(&self, process: usize, counter: impl Fn(&atoll::engine::EngineCounters) -> &AtomicU64) -> u64 {
        self.processes[process].cores.iter().map(|core| counter(core.counters()).load(Ordering::Relaxed)).sum()
    }
}

fn process(at: usize, options: ProcessOptions, now: &Arc<AtomicU64>) -> Process {
    let uid = PodUid(at as u128 + 1);
    let validity =
        Arc::new(AtomicU64::new(if options.is_pod && !options.ignores_freeze { u64::MAX - 1 } else { u64::MAX }));
    let released = Arc::new(Mutex::new(Vec::new()));
    let cores = options.cores;
    let doorbells: Vec<_> = (0..cores).map(|_| Arc::new(Doorbell::new(NoBell))).collect();
    let foreign: Vec<_> =
        doorbells.iter().map(|doorbell| Arc::new(ForeignInbox::new(4096, Arc::clone(doorbell)))).collect();
    let mut to: Vec<Vec<_>> = (0..cores).map(|_| (0..cores).map(|_| None).collect()).collect();
    let mut from: Vec<Vec<_>> = (0..cores).map(|_| (0..cores).map(|_| None).collect()).collect();
    for sender in 0..cores {
        for receiver in (0..cores).filter(|receiver| *receiver != sender) {
            // Small, so that it is full now and then.
            let (producer, consumer) = channel(4);
            to[sender][receiver] = Some((producer, Arc::clone(&doorbells[receiver])));
            from[receiver][sender] = Some(consumer);
        }
    }
    let node = next_node_number();
    let made = to.into_iter().zip(from).enumerate().map(|(core, (to, from))| {
        let (now, into) = (Arc::clone(now), Arc::clone(&released));
        Core::new(CoreParts {
            identity: Identity {
                uid,
                core: CoreIndex(core as u16),
                cores: cores as u16,
                cluster_name: "test".to_owned(),
                role: ROLE.to_owned(),
                version: "1".to_owned(),
                is_pod: options.is_pod,
            },
            host: HostOptions {
                node: node + core as u32 * 1_000_000,
                core: CoreIndex(core as u16),
                hash_seed: HASH_SEED,
                number_of_shards: SHARDS,
                call_id_base: uid.0 as u64 * 1_000_000 + core as u64 * 100_000,
                defaults: EntityDefaults::default(),
                wake_target: WakeTarget::new(Arc::clone(&doorbells[core])),
            },
            limits: LinkLimits::default(),
            queues: CoreQueues { to, from, foreign: Arc::clone(&foreign[core]) },
            types: (options.types)(),
            inspector: None,
            bootstrap: options.bootstrap.clone(),
            streams: Vec::new(),
            validity: Arc::clone(&validity),
            clock: Arc::new(move || Nanos(now.load(Ordering::Relaxed))),
            released: Arc::new(move |shard, token| into.lock().expect("no panic").push((shard, token))),
        })
    });
    Process {
        uid: Cell::new(uid),
        is_pod: options.is_pod,
        cores: made.collect(),
        validity,
        until: Cell::new(u64::MAX),
        released,
        foreign,
        stalled: Cell::new(false),
        dead: Cell::new(false),
        commands: (0..cores).map(|_| RefCell::default()).collect(),
    }
}
