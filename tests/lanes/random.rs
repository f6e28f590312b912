//! Random senders, entities that hold back their answers, and senders that give up, in orders that a seed decides.

use std::collections::VecDeque;

use atoll::SendError;
use atoll::base::LinkId;
use atoll::engine::LinkLimits;
use atoll::wire::Never;

use crate::host::{Signal, Started};
use crate::store::{StoreRef, apart, hold, let_go, linked, log, pattern, unless};
use crate::watch::Watch;
use crate::wire::Wire;

const ENTITIES: usize = 6;
const STEPS: usize = 400;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

type Outcome = Option<Result<Vec<u8>, SendError<Never>>>;

struct Sent {
    entity: usize,
    number: u32,
    length: usize,
    answer: u32,
    given_up: Signal,
    was_given_up: bool,
    outcome: Started<Outcome>,
}

/// Windows that a few messages fill.
fn limits() -> LinkLimits {
    LinkLimits {
        credit_bytes: 20 << 10,
        bulk_credit_bytes: 400 << 10,
        body_bytes_max: 300 << 10,
        ..LinkLimits::default()
    }
}

struct World {
    random: Random,
    wire: Wire,
    ids: Vec<String>,
    watch: Watch,
    /// Sends on their way in each direction.
    to_pod: VecDeque<(LinkId, Vec<u8>)>,
    to_client: VecDeque<(LinkId, Vec<u8>)>,
    sent: Vec<Sent>,
    next: Vec<u32>,
}

impl World {
    fn new(seed: u64) -> World {
        let wire = linked(limits());
        let mut watch = Watch::new(&limits());
        // What the handshake and the first ask took.
        let first = 24 + 5 + 16;
        watch.sent[1] = first;
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        wire.set_piece_bytes([usize::MAX, 16 << 10, 1000][random.below(3)]);
        World {
            random,
            wire,
            ids: apart(ENTITIES),
            watch,
            to_pod: VecDeque::new(),
            to_client: VecDeque::new(),
            sent: Vec::new(),
            next: vec![0; ENTITIES],
        }
    }

    fn length(&mut self) -> usize {
        match self.random.below(6) {
            0 => 60_000 + self.random.below(240_000),
            1 => 15_000 + self.random.below(30_000),
            _ => self.random.below(3000),
        }
    }

    fn send(&mut self) {
        let entity = self.random.below(ENTITIES);
        self.next[entity] += 1;
        let (number, length) = (self.next[entity], self.length());
        let answer = self.length() as u32;
        let given_up = Signal::default();
        let store: StoreRef = self.wire.entity(&self.ids[entity]);
        let ask = store.put(number, pattern(number, length), answer).no_timeout();
        let outcome = self.wire.send(unless(ask, given_up.clone()));
        self.sent.push(Sent { entity, number, length, answer, given_up, was_given_up: false, outcome });
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..3 => self.send(),
            3 if !self.sent.is_empty() && self.random.below(3) == 0 => {
                let at = self.random.below(self.sent.len());
                self.sent[at].was_given_up = true;
                self.sent[at].given_up.fire();
            }
            4 => hold(&self.ids[self.random.below(ENTITIES)]),
            5 => let_go(&self.ids[self.random.below(ENTITIES)]),
            6..8 => drop(self.wire.work(&self.wire.client)),
            8..10 => drop(self.wire.work(&self.wire.pod)),
            10 => {
                self.take_requests();
            }
            11 => {
                let taken = self.wire.take_answers();
                self.to_client.extend(taken);
            }
            12 | 13 => drop(self.carry_to_pod()),
            _ => drop(self.carry_to_client()),
        }
        self.wire.carry_out_commands();
    }

    fn take_requests(&mut self) -> bool {
        let taken = self.wire.take_requests();
        for (_, bytes) in &taken {
            self.watch.sent(bytes);
        }
        self.to_pod.extend(taken);
        !self.to_pod.is_empty()
    }

    fn carry_to_pod(&mut self) -> bool {
        let Some((link, bytes)) = self.to_pod.pop_front() else { return false };
        self.wire.give_to_pod(link, &bytes);
        true
    }

    fn carry_to_client(&mut self) -> bool {
        let Some((link, bytes)) = self.to_client.pop_front() else { return false };
        self.watch.answered(&bytes);
        self.wire.give_to_client(link, &bytes);
        true
    }

    fn come_to_rest(&mut self) {
        loop {
            self.ids.iter().for_each(|id| let_go(id));
            let mut moved = self.wire.work(&self.wire.client) | self.wire.work(&self.wire.pod);
            moved |= self.wire.carry_out_commands();
            moved |= self.take_requests();
            let answers = self.wire.take_answers();
            moved |= !answers.is_empty();
            self.to_client.extend(answers);
            while self.carry_to_pod() | self.carry_to_client() {
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    fn check(self) -> u64 {
        for (at, id) in self.ids.iter().enumerate() {
            let log = log(id);
            assert!(log.is_sorted_by(|a, b| a.0 < b.0), "{id} got its messages in another order: {log:?}");
            let of_entity = self.sent.iter().filter(|sent| sent.entity == at);
            for sent in of_entity.filter(|sent| !sent.was_given_up) {
                assert!(log.contains(&(sent.number, sent.length)), "{id} never got {}", sent.number);
            }
        }
        for sent in self.sent {
            match sent.outcome.take() {
                Some(Some(Ok(answer))) => assert!(answer == pattern(sent.answer, sent.answer as usize)),
                Some(None) => assert!(sent.was_given_up),
                Some(Some(Err(error))) => panic!("{}: {error}", sent.number),
                None => panic!("number {} of {} was never answered", sent.number, sent.entity),
            }
        }
        for lane in [atoll::wire::Lane::Messages, atoll::wire::Lane::Bulk] {
            assert_eq!(self.watch.open(lane), 0, "something on {lane:?} is not answered");
        }
        self.watch.in_parts
    }
}

#[test]
fn everything_arrives_once_in_order_within_the_windows() {
    let mut in_parts = 0;
    for seed in 0..24 {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
        world.come_to_rest();
        in_parts += world.check();
    }
    assert!(in_parts > 50, "only {in_parts} bodies travelled in parts");
}
