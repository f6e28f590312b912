//! Random cases.

use super::graph::{Case, Disturbance, Joined, Node, Op};

/// xorshift64 (Marsaglia 2003).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..4).for_each(|_| {
            random.below(2);
        });
        random
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

struct Generator<'r> {
    random: &'r mut Random,
    ids: u64,
    hosts: u16,
    may_fail: bool,
}

impl Generator<'_> {
    fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    fn count(&mut self) -> u64 {
        match self.random.below(8) {
            0 => 0,
            1 => 1,
            2 => self.random.below(100),
            _ => self.random.below(9),
        }
    }

    fn boundary(&mut self) -> Op {
        let core = (!self.random.one_in(3)).then(|| self.random.below(u64::from(self.hosts)) as u16);
        Op::Boundary { buffer: self.random.below(7) as u32, core }
    }

    /// An operator that gives as many elements as it takes, unless it ends the stream.
    fn one_to_one(&mut self, single: bool) -> Op {
        match self.random.below(8) {
            0 | 1 => self.boundary(),
            2 | 3 => Op::Probe,
            4 if single => Op::Take(self.count()),
            5 if single && self.may_fail => Op::TryMap { failure: self.id() as u32, at: self.count() },
            _ => Op::Map(self.id()),
        }
    }

    /// An operator for a stream that is `single`, and must stay so if it `stays`.
    fn op(&mut self, single: bool, stays: bool) -> Op {
        match self.random.below(24) {
            0..=2 => Op::Filter(self.random.below(3)),
            3 => Op::FlatMap,
            4 => Op::PrefixAndTail(self.random.below(4) as usize),
            5 => Op::Split { after: self.random.one_in(2) },
            6 if !stays => Op::FlatMapMerge(1 + self.random.below(4) as usize),
            7 if !stays => Op::GroupBy,
            8 => Op::Copied { all: self.random.one_in(2) },
            _ => self.one_to_one(single),
        }
    }

    /// Each begins with a function of its own, so that its elements can be told from those of the other one.
    fn branches(&mut self, single: bool, one_to_one: bool) -> [Vec<Op>; 2] {
        [(); 2].map(|()| {
            let first = Op::Map(self.id());
            let more = (0..self.random.below(3)).map(|_| match one_to_one || !self.random.one_in(4) {
                true => self.one_to_one(single),
                false => Op::Filter(self.random.below(3)),
            });
            std::iter::once(first).chain(more.collect::<Vec<_>>()).collect()
        })
    }

    fn source(&mut self) -> Node {
        let failure = (self.may_fail && self.random.one_in(4)).then(|| self.id() as u32);
        Node::Source { id: self.id(), count: self.count(), failure }
    }

    fn both(&mut self, size: u64, single: bool) -> Box<[Node; 2]> {
        let first = self.random.below(size + 1);
        Box::new([self.node(first, single), self.node(size - first, single)])
    }

    /// A stream of about so many blocks; if it must be `single`, its output has one order only.
    fn node(&mut self, size: u64, single: bool) -> Node {
        let Some(rest) = size.checked_sub(1) else { return self.source() };
        match self.random.below(20) {
            0 if !single => Node::Merge { preferred: self.random.one_in(2), inputs: self.both(rest, false) },
            1 => Node::Concat { lazy: self.random.one_in(2), inputs: self.both(rest, single) },
            2 => Node::Interleave { segment: 1 + self.random.below(3) as usize, inputs: self.both(rest, true) },
            3 => Node::Zip(self.both(rest, true)),
            4 => Node::OrElse(self.both(rest, single)),
            5 | 6 => {
                let joined = if single || self.random.one_in(2) { Joined::Zipped } else { Joined::Merged };
                let zipped = matches!(joined, Joined::Zipped);
                let input = self.node(rest, single || zipped);
                let branches = self.branches(input.is_single(), zipped);
                Node::Broadcast { joined, branches, input: Box::new(input) }
            }
            7 if !single => {
                let input = self.node(rest, false);
                let branches = self.branches(input.is_single(), false);
                Node::Partition { branches, input: Box::new(input) }
            }
            8 if !single => {
                let (wait_for_all, map) = (self.random.one_in(2), self.id());
                Node::Balance { wait_for_all, map, input: Box::new(self.node(rest, false)) }
            }
            _ => {
                let input = self.node(rest, single);
                Node::Op(self.op(input.is_single(), single), Box::new(input))
            }
        }
    }
}

pub fn case(random: &mut Random, seed: u64) -> Case {
    let hosts = if random.one_in(3) { 2 } else { 1 };
    let may_fail = random.one_in(3);
    let size = random.below(9);
    let single = random.one_in(2);
    let node = Generator { random, ids: 0, hosts, may_fail }.node(size, single);
    let turns = if random.one_in(2) { 8 } else { 40 };
    let turn = random.below(turns);
    let disturbance = match random.below(12) {
        0 => Disturbance::TakeThenCancel(random.below(6) as usize),
        1 => Disturbance::SinkPanics(random.below(6) as usize),
        2 => Disturbance::CancelAt(turn),
        3 => Disturbance::Abort { turn, hosts: 1 + random.below(3) as u8 },
        _ => Disturbance::Nothing,
    };
    Case {
        seed,
        node,
        disturbance,
        hosts,
        events: [1, 1, 3, 17, u32::MAX][random.below(5) as usize],
        transparent_pull: !random.one_in(3),
        fuzzing: if random.one_in(3) { 1 + random.below(1 << 40) } else { 0 },
    }
}
