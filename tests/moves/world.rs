//! The control plane and the load of the tests of moves, and what must hold at the end.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use atoll::base::hash::{entity_hash, shard_of_hash};
use atoll::base::{PodUid, ShardId};
use atoll::engine::Command;
use atoll::entity::Discard;
use atoll::{Ask, ClusterError, SendError};

use crate::cluster::{Cluster, HASH_SEED, ProcessOptions, Random, SHARDS, address};
use crate::ledger::{LedgerRef, Stale, StateStore, store, types};

/// Time between renewals that a pod may miss.
pub const VALID: Duration = Duration::from_millis(20);

/// How a message ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Done,
    Stale,
    Failed(ClusterError),
}

pub struct Message {
    pub entity: String,
    pub sender: u32,
    pub sequence: u64,
    /// Its sender wants no reply. It is acknowledged before it is applied, so that it is lost with its pod.
    pub discard: bool,
    pub end: Rc<RefCell<Option<End>>>,
}

struct Move {
    shard: usize,
    to: (usize, usize),
    token: u64,
    released: bool,
}

pub struct World {
    pub cluster: Cluster,
    pub owners: RefCell<Vec<Option<(usize, usize, u64)>>>,
    pub members: RefCell<Vec<usize>>,
    epoch: Cell<u64>,
    next_token: Cell<u64>,
    moves: RefCell<Vec<Move>>,
    pub messages: RefCell<Vec<Message>>,
    sequences: RefCell<HashMap<(u32, String), u64>>,
    /// Pods whose lease is not renewed.
    pub cut: RefCell<Vec<usize>>,
    pub moved: Cell<u32>,
    /// Pods have been lost.
    lossy: Cell<bool>,
}

/// The shard of an entity.
pub fn shard_of(entity: &str) -> usize {
    shard_of_hash(entity_hash(HASH_SEED, entity.as_bytes()), SHARDS).0 as usize
}

impl World {
    /// Pods of two cores, then a client of one; the first two pods own all shards.
    pub fn new(seed: u64, pods: usize) -> World {
        World::with(seed, pods, false)
    }

    /// With pods whose cores may be told to serve for ever, whatever their lease.
    pub fn with(seed: u64, pods: usize, ignores_freeze: bool) -> World {
        store(|store| *store = StateStore::default());
        let mut options = Vec::new();
        for _ in 0..pods {
            options.push(ProcessOptions { cores: 2, is_pod: true, ignores_freeze, bootstrap: Vec::new(), types });
        }
        let bootstrap = (0..pods).map(address).collect();
        options.push(ProcessOptions { cores: 1, is_pod: false, ignores_freeze, bootstrap, types: Vec::new });
        let owners = (0..SHARDS as usize).map(|shard| Some((shard % 2, shard / 2 % 2, 10 + shard as u64)));
        let world = World {
            cluster: Cluster::new(seed, options),
            owners: RefCell::new(owners.collect()),
            members: RefCell::new((0..pods).collect()),
            epoch: Cell::new(1),
            next_token: Cell::new(100),
            moves: RefCell::default(),
            messages: RefCell::default(),
            sequences: RefCell::default(),
            cut: RefCell::default(),
            moved: Cell::new(0),
            lossy: Cell::new(false),
        };
        world.renew();
        world.publish();
        world
    }

    pub fn client(&self) -> usize {
        self.cluster.processes.len() - 1
    }

    pub fn random(&self) -> &Random {
        &self.cluster.random
    }

    /// Extends the leases of all members that can be reached.
    pub fn renew(&self) {
        for member in self.members.borrow().iter() {
            let process = &self.cluster.processes[*member];
            if !process.stalled.get() && !process.dead.get() && !self.cut.borrow().contains(member) {
                self.cluster.set_validity(*member, (self.cluster.now() + VALID).0);
            }
        }
    }

    pub fn publish(&self) {
        self.epoch.set(self.epoch.get() + 1);
        let members = self.members.borrow();
        let table = self.cluster.table(self.epoch.get(), &members, &self.owners.borrow());
        let reachable: Vec<usize> =
            members.iter().copied().filter(|member| !self.cluster.processes[*member].dead.get()).collect();
        self.cluster.publish(&table, &reachable);
    }

    /// A step of everything.
    pub fn step(&self) {
        self.renew();
        self.progress();
        self.cluster.step();
    }

    pub fn run(&self, steps: usize) {
        for _ in 0..steps {
            self.step();
        }
    }

    // ---- the control plane ----

    fn take_token(&self) -> u64 {
        self.next_token.replace(self.next_token.get() + 1)
    }

    /// Begins to move a shard to a core of a pod.
    pub fn move_shard(&self, shard: usize, to: (usize, usize)) {
        let Some((process, core, token)) = self.owners.borrow()[shard] else { return };
        if (process, core) == to || self.moves.borrow().iter().any(|known| known.shard == shard) {
            return;
        }
        self.moves.borrow_mut().push(Move { shard, to, token, released: false });
        self.cluster.command(process, core, Command::Release { shards: vec![ShardId(shard as u32)] });
    }

    /// Takes the next steps of the moves.
    pub fn progress(&self) {
        for (at, process) in self.cluster.processes.iter().enumerate() {
            for (shard, token) in core::mem::take(&mut *process.released.lock().expect("no panic")) {
                let owner = self.owners.borrow()[shard.0 as usize];
                if owner.is_none_or(|owner| (owner.0, owner.2) != (at, token.0)) {
                    // Somebody took it over meanwhile.
                    assert!(self.lossy.get(), "a release is reported by the owner, under its token");
                    continue;
                }
                let mut moves = self.moves.borrow_mut();
                let known = moves.iter_mut().find(|known| known.shard == shard.0 as usize && !known.released);
                let known = known.expect("each release is reported once");
                assert_eq!(known.token, token.0);
                known.released = true;
                self.owners.borrow_mut()[known.shard] = None;
                drop(moves);
                if self.random().one_in(2) {
                    self.publish();
                }
            }
        }
        if self.random().one_in(4) {
            let done = self.moves.borrow_mut().extract_if(.., |known| known.released).next();
            if let Some(Move { shard, to, .. }) = done {
                let to = if self.members.borrow().contains(&to.0) { to } else { (self.members.borrow()[0], 0) };
                self.owners.borrow_mut()[shard] = Some((to.0, to.1, self.take_token()));
                self.moved.set(self.moved.get() + 1);
                self.publish();
            }
        }
    }

    /// A pod's lease is over: the others get its shards, under newer tokens.
    pub fn take_over(&self, from: usize) {
        assert!(
            self.cluster.now().0 >= self.cluster.processes[from].until.get() || self.cluster.processes[from].dead.get()
        );
        self.lossy.set(true);
        self.members.borrow_mut().retain(|member| *member != from);
        self.moves.borrow_mut().retain(|known| self.owners.borrow()[known.shard].is_none_or(|owner| owner.0 != from));
        for shard in 0..SHARDS as usize {
            if self.owners.borrow()[shard].is_some_and(|owner| owner.0 == from) {
                let members = self.members.borrow();
                let to = members[self.random().below(members.len())];
                let owner = Some((to, self.random().below(2), self.take_token()));
                self.owners.borrow_mut()[shard] = owner;
            }
        }
        self.publish();
    }

    /// A pod learns that its lease was lost, and joins as another one.
    pub fn rejoin(&self, process: usize) {
        let of = &self.cluster.processes[process];
        of.uid.set(PodUid(of.uid.get().0 + 1000));
        for core in 0..of.cores.len() {
            self.cluster.command(process, core, Command::Abandon);
            self.cluster.command(process, core, Command::Identity(of.uid.get()));
        }
        // The commands are in the inboxes before the lease is extended.
        while !self.cluster.commands_are_given(process) {
            self.cluster.give_commands(process);
        }
        self.members.borrow_mut().push(process);
        self.cut.borrow_mut().retain(|cut| *cut != process);
        self.renew();
        self.publish();
    }

    // ---- the load ----

    fn message(
        &self,
        process: usize,
        core: usize,
        entity: &str,
        discard: bool,
    ) -> (LedgerRef, u32, u64, Rc<RefCell<Option<End>>>) {
        let sender = process as u32 * 10 + core as u32;
        let mut sequences = self.sequences.borrow_mut();
        let sequence = sequences.entry((sender, entity.to_owned())).or_default();
        *sequence += 1;
        let end = Rc::new(RefCell::new(None));
        let message = Message { entity: entity.to_owned(), sender, sequence: *sequence, discard, end: Rc::clone(&end) };
        self.messages.borrow_mut().push(message);
        let host = self.cluster.processes[process].cores[core].host();
        (host.messenger::<LedgerRef>().entity(entity), sender, *sequence, end)
    }

    fn spawn(&self, process: usize, core: usize, future: impl Future<Output = ()> + 'static) {
        self.cluster.processes[process].cores[core].host().spawn(future);
    }

    /// Sends a deposit from a core; its end is recorded.
    pub fn deposit(&self, process: usize, core: usize, entity: &str) -> Rc<RefCell<Option<End>>> {
        let kind = self.random().below(3);
        let (to, sender, sequence, end) = self.message(process, core, entity, kind == 1);
        let ask = match kind {
            0 => Either::Slowly(to.deposit_slowly(sender, sequence, self.random().below(4) as u64)),
            1 => Either::Discard(to.deposit(sender, sequence).discard()),
            _ => Either::Plain(to.deposit(sender, sequence)),
        };
        let into = Rc::clone(&end);
        self.spawn(process, core, async move {
            let ended = ask.end().await;
            into.replace(Some(ended));
        });
        end
    }

    /// A deposit that takes a while.
    pub fn deposit_slowly(
        &self,
        process: usize,
        core: usize,
        entity: &str,
        milliseconds: u64,
    ) -> Rc<RefCell<Option<End>>> {
        let (to, sender, sequence, end) = self.message(process, core, entity, false);
        let ask = Either::Slowly(to.deposit_slowly(sender, sequence, milliseconds));
        let into = Rc::clone(&end);
        self.spawn(process, core, async move {
            let ended = ask.end().await;
            into.replace(Some(ended));
        });
        end
    }

    /// Tells an entity to stop by itself.
    pub fn stop_entity(&self, process: usize, core: usize, entity: &str) {
        let host = self.cluster.processes[process].cores[core].host();
        let to = host.messenger::<LedgerRef>().entity(entity);
        self.spawn(process, core, async move {
            let _ = to.stop_yourself().await;
        });
    }

    // ---- the oracle ----

    /// Lets everything end, and says what was wrong.
    pub fn finish(&self) -> Vec<String> {
        // Most worlds need the first 800 ms; a client whose pods have all rejoined may have to give a handshake with one
        // that is gone its time, before it hears of them.
        for round in 0..5000 {
            let all_ended = self.messages.borrow().iter().all(|message| {
                message.end.borrow().is_some() || self.cluster.processes[message.sender as usize / 10].dead.get()
            });
            if round >= 400 && all_ended {
                break;
            }
            self.renew();
            self.progress();
            self.cluster.come_to_rest(Duration::from_millis(2));
        }
        let mut wrong = core::mem::take(&mut *self.cluster.violations.borrow_mut());
        wrong.append(&mut store(|store| core::mem::take(&mut store.violations)));
        for message in self.messages.borrow().iter().filter(|message| message.end.borrow().is_none()) {
            if !self.cluster.processes[message.sender as usize / 10].dead.get() {
                wrong.push(format!("{} {} of {} never ended", message.entity, message.sequence, message.sender));
            }
        }
        wrong
    }

    /// What is wrong if nothing failed on the way: each deposit is applied once, in the order of its sender.
    pub fn wrong_of_clean(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for message in self.messages.borrow().iter() {
            let end = message.end.borrow().clone();
            if end != Some(End::Done) {
                wrong.push(format!("{} {} of {}: {end:?}", message.entity, message.sequence, message.sender));
            }
        }
        store(|store| {
            for (entity, record) in &store.records {
                let mut last: HashMap<u32, u64> = HashMap::new();
                for (sender, sequence) in &record.applied {
                    let before = last.insert(*sender, *sequence).unwrap_or(0);
                    if *sequence != before + 1 {
                        wrong.push(format!("{entity}: {sequence} of {sender} after {before}"));
                    }
                }
            }
            let applied: usize = store.records.values().map(|record| record.applied.len()).sum();
            if applied != self.messages.borrow().len() {
                wrong.push(format!("{applied} of {} deposits are applied", self.messages.borrow().len()));
            }
            if store.refused + store.unfenced > 0 {
                wrong.push(format!("{} stale writes, {} without a token", store.refused, store.unfenced));
            }
        });
        wrong
    }

    /// What is wrong after losses: a deposit whose reply arrived is missing.
    pub fn wrong_of_losses(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for message in self.messages.borrow().iter() {
            let applied = store(|store| {
                let record = store.records.get(&message.entity);
                record.is_some_and(|record| record.applied.contains(&(message.sender, message.sequence)))
            });
            if *message.end.borrow() == Some(End::Done) && !applied && !message.discard {
                wrong.push(format!("{} {} of {} is lost", message.entity, message.sequence, message.sender));
            }
        }
        wrong
    }
}

enum Either {
    Plain(Ask<crate::ledger::ledger::Deposit>),
    Discard(Discard<crate::ledger::ledger::Deposit>),
    Slowly(Ask<crate::ledger::ledger::DepositSlowly>),
}

impl Either {
    async fn end(self) -> End {
        let outcome = match self {
            Either::Plain(ask) => ask.await.map(drop),
            Either::Slowly(ask) => ask.await.map(drop),
            Either::Discard(discard) => discard.await.map_err(SendError::Cluster),
        };
        match outcome {
            Ok(()) => End::Done,
            Err(SendError::Declared(Stale {})) => End::Stale,
            Err(SendError::Cluster(error)) => End::Failed(error),
        }
    }
}
