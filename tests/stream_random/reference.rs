//! What a graph must give, by lists.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Joined, Node, Op};

/// A function of an element; those of two numbers have no result in common (but by chance).
pub fn mapped(value: u64, id: u64) -> u64 {
    (value ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(23)
}

pub fn element(source: u64, position: u64) -> u64 {
    mapped(position + 1, source << 32)
}

pub fn passes(value: u64, filter: u64) -> bool {
    (value >> 7) % 3 != filter
}

pub fn zipped(first: u64, second: u64) -> u64 {
    mapped(first, second)
}

/// How many elements a stream has that is made of an element.
pub fn expanded(value: u64) -> impl Iterator<Item = u64> {
    (0..(value >> 9) % 3).map(move |at| mapped(value, at + (1 << 40)))
}

pub fn chosen(value: u64) -> usize {
    (value >> 5) as usize % 2
}

/// What may come out.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Sequences that are interleaved in any way. If the stream fails, each gives a prefix.
    pub threads: Vec<Vec<u64>>,
    /// It may complete, after all elements.
    pub completes: bool,
    /// Failures that may arrive.
    pub failures: BTreeSet<u32>,
}

impl Expected {
    fn each(mut self, function: impl Fn(Vec<u64>) -> Vec<u64>) -> Expected {
        self.threads = self.threads.into_iter().map(function).collect();
        self
    }

    fn apply(mut self, op: &Op) -> Expected {
        match op {
            Op::Probe | Op::Boundary { .. } | Op::PrefixAndTail(_) | Op::Split { .. } | Op::Copied { .. } => self,
            Op::Map(id) => self.each(|thread| thread.into_iter().map(|value| mapped(value, *id)).collect()),
            Op::Filter(filter) => {
                self.each(|thread| thread.into_iter().filter(|value| passes(*value, *filter)).collect())
            }
            Op::FlatMapMerge(_) => {
                let elements = self.threads.into_iter().flatten();
                self.threads = elements.map(|value| expanded(value).collect()).collect();
                self
            }
            Op::GroupBy => {
                let kind =
                    |thread: &Vec<u64>, kind| thread.iter().copied().filter(|value| chosen(*value) == kind).collect();
                self.threads = self.threads.iter().flat_map(|thread| [kind(thread, 0), kind(thread, 1)]).collect();
                self
            }
            Op::FlatMap => self.each(|thread| thread.into_iter().flat_map(expanded).collect()),
            Op::Take(count) => {
                // `take(0)` completes when it starts, whatever upstream does.
                if *count == 0 {
                    self.completes = true;
                    self.failures.clear();
                }
                self.completes |= self.threads[0].len() as u64 >= *count;
                self.each(|thread| thread.into_iter().take(*count as usize).collect())
            }
            Op::TryMap { failure, at } => {
                if self.threads[0].len() as u64 > *at {
                    self.threads[0].truncate(*at as usize);
                    self.completes = false;
                    self.failures.insert(*failure);
                }
                self
            }
        }
    }

    fn through(self, branch: &[Op]) -> Expected {
        branch.iter().fold(self, Expected::apply)
    }

    fn merge(mut self, other: Expected) -> Expected {
        self.threads.extend(other.threads);
        self.completes &= other.completes;
        self.failures.extend(other.failures);
        self
    }

    fn concat(self, other: Expected) -> Expected {
        let failures = self.failures.union(&other.failures).copied().collect();
        if !self.completes {
            return Expected { failures, ..self };
        }
        let completes = other.completes;
        let threads = match (self.threads.as_slice(), other.threads.as_slice()) {
            ([first], [second]) => vec![[first.as_slice(), second].concat()],
            _ => self.threads.into_iter().chain(other.threads).collect(),
        };
        Expected { threads, completes, failures }
    }

    fn zip(self, other: Expected) -> Expected {
        let (first, second) = (&self.threads[0], &other.threads[0]);
        let completes = match first.len().cmp(&second.len()) {
            std::cmp::Ordering::Less => self.completes,
            std::cmp::Ordering::Equal => self.completes || other.completes,
            std::cmp::Ordering::Greater => other.completes,
        };
        let pairs = first.iter().zip(second).map(|(first, second)| zipped(*first, *second)).collect();
        let failures = self.failures.union(&other.failures).copied().collect();
        Expected { threads: vec![pairs], completes, failures }
    }

    fn interleave(self, other: Expected, segment: usize) -> Expected {
        let inputs = [(&self.threads[0], self.completes), (&other.threads[0], other.completes)];
        let (mut taken, mut ended) = ([0; 2], [false; 2]);
        let mut output = Vec::new();
        let mut current = 0;
        'all: while ended != [true; 2] {
            for _ in 0..segment {
                let (elements, completes) = inputs[current];
                match elements.get(taken[current]) {
                    Some(value) => output.push(*value),
                    None if completes => {
                        ended[current] = true;
                        break;
                    }
                    None => break 'all,
                }
                taken[current] += 1;
            }
            current = 1 - current;
        }
        let failures = self.failures.union(&other.failures).copied().collect();
        Expected { threads: vec![output], completes: ended == [true; 2], failures }
    }

    fn or_else(self, other: Expected) -> Expected {
        let failures = self.failures.union(&other.failures).copied().collect();
        let is_empty = self.threads.iter().all(Vec::is_empty);
        match is_empty && self.completes {
            true => Expected { failures, ..other },
            false => Expected { failures, ..self },
        }
    }

    /// The complaint about what came out, if there is one.
    pub fn objects(&self, output: &[u64], is_all: bool) -> Option<String> {
        let mut counts = BTreeMap::<u64, (usize, i64)>::new();
        for (thread, values) in self.threads.iter().enumerate() {
            values.iter().for_each(|value| counts.entry(*value).or_insert((thread, 0)).1 += 1);
        }
        let mut given = vec![Vec::new(); self.threads.len()];
        for value in output {
            let Some((thread, count)) = counts.get_mut(value) else { return Some(format!("unknown element {value}")) };
            *count -= 1;
            if *count < 0 {
                return Some(format!("element {value} came too often"));
            }
            given[*thread].push(*value);
        }
        for (given, thread) in given.iter().zip(&self.threads) {
            if !thread.starts_with(given) {
                return Some(format!("out of order: {given:?} of {thread:?}"));
            }
        }
        let expected: usize = self.threads.iter().map(Vec::len).sum();
        (is_all && output.len() != expected).then(|| format!("{} elements instead of {expected}", output.len()))
    }
}

pub fn expected(node: &Node) -> Expected {
    match node {
        Node::Source { id, count, failure } => Expected {
            threads: vec![(0..*count).map(|position| element(*id, position)).collect()],
            completes: failure.is_none(),
            failures: failure.iter().copied().collect(),
        },
        Node::Op(op, input) => expected(input).apply(op),
        Node::Merge { inputs, .. } => expected(&inputs[0]).merge(expected(&inputs[1])),
        Node::Concat { inputs, .. } => expected(&inputs[0]).concat(expected(&inputs[1])),
        Node::Interleave { segment, inputs } => expected(&inputs[0]).interleave(expected(&inputs[1]), *segment),
        Node::Zip(inputs) => expected(&inputs[0]).zip(expected(&inputs[1])),
        Node::OrElse(inputs) => expected(&inputs[0]).or_else(expected(&inputs[1])),
        Node::Broadcast { joined, branches, input } => {
            let input = expected(input);
            let (first, second) = (input.clone().through(&branches[0]), input.through(&branches[1]));
            match joined {
                Joined::Zipped => first.zip(second),
                Joined::Merged => first.merge(second),
            }
        }
        Node::Partition { branches, input } => {
            let input = expected(input);
            let part = |output: usize| {
                let chosen = |value: &u64| chosen(*value) == output;
                input.clone().each(|thread| thread.into_iter().filter(chosen).collect()).through(&branches[output])
            };
            part(0).merge(part(1))
        }
        Node::Balance { map, input, .. } => {
            let mut input = expected(input).apply(&Op::Map(*map));
            input.threads = input.threads.into_iter().flatten().map(|value| vec![value]).collect();
            input
        }
    }
}
