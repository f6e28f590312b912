//! What a case is, and how it is made smaller.

/// What happens to each element of a stream.
#[derive(Clone, Debug)]
pub enum Op {
    /// A function whose results differ from those of any other number.
    Map(u64),
    /// Drops elements by their value.
    Filter(u64),
    Take(u64),
    /// Fails with this number at the element of this position.
    TryMap {
        failure: u32,
        at: u64,
    },
    /// A general stage that counts its life.
    Probe,
    /// Everything before it is an island of its own, with a buffer of two to this power. On this core, or on any.
    Boundary {
        buffer: u32,
        core: Option<u16>,
    },
    /// Each element becomes a stream of up to two.
    FlatMap,
    /// As `FlatMap`, so many streams at once.
    FlatMapMerge(usize),
    /// Prefix and tail, put together again.
    PrefixAndTail(usize),
    /// Cut into streams before or after some elements, and put together again.
    Split {
        after: bool,
    },
    /// A stream for each of two kinds of elements, which are merged.
    GroupBy,
    /// Copies for another sink: all, or those that it wants.
    Copied {
        all: bool,
    },
}

/// What becomes of both outputs of a broadcast.
#[derive(Clone, Copy, Debug)]
pub enum Joined {
    Zipped,
    Merged,
}

/// A stream.
#[derive(Clone, Debug)]
pub enum Node {
    /// So many elements, then the end or a failure.
    Source {
        id: u64,
        count: u64,
        failure: Option<u32>,
    },
    Op(Op, Box<Node>),
    Merge {
        preferred: bool,
        inputs: Box<[Node; 2]>,
    },
    Concat {
        lazy: bool,
        inputs: Box<[Node; 2]>,
    },
    Interleave {
        segment: usize,
        inputs: Box<[Node; 2]>,
    },
    Zip(Box<[Node; 2]>),
    OrElse(Box<[Node; 2]>),
    Broadcast {
        joined: Joined,
        branches: [Vec<Op>; 2],
        input: Box<Node>,
    },
    Partition {
        branches: [Vec<Op>; 2],
        input: Box<Node>,
    },
    Balance {
        wait_for_all: bool,
        map: u64,
        input: Box<Node>,
    },
}

/// How the stream is disturbed.
#[derive(Clone, Copy, Debug)]
pub enum Disturbance {
    Nothing,
    /// The sink cancels after so many elements.
    TakeThenCancel(usize),
    /// The sink panics at this element.
    SinkPanics(usize),
    /// The sink cancels when it is told so, at this turn.
    CancelAt(u64),
    /// A host stops all its streams at this turn: 0, 1, or both.
    Abort {
        turn: u64,
        hosts: u8,
    },
}

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub node: Node,
    pub disturbance: Disturbance,
    pub hosts: u16,
    pub events: u32,
    pub transparent_pull: bool,
    pub fuzzing: u64,
}

impl Node {
    fn children(&self) -> Vec<&Node> {
        match self {
            Node::Source { .. } => Vec::new(),
            Node::Op(_, input)
            | Node::Broadcast { input, .. }
            | Node::Partition { input, .. }
            | Node::Balance { input, .. } => vec![input],
            Node::Merge { inputs, .. }
            | Node::Concat { inputs, .. }
            | Node::Interleave { inputs, .. }
            | Node::Zip(inputs)
            | Node::OrElse(inputs) => inputs.iter().collect(),
        }
    }

    fn children_mut(&mut self) -> Vec<&mut Node> {
        match self {
            Node::Source { .. } => Vec::new(),
            Node::Op(_, input)
            | Node::Broadcast { input, .. }
            | Node::Partition { input, .. }
            | Node::Balance { input, .. } => vec![input],
            Node::Merge { inputs, .. }
            | Node::Concat { inputs, .. }
            | Node::Interleave { inputs, .. }
            | Node::Zip(inputs)
            | Node::OrElse(inputs) => inputs.iter_mut().collect(),
        }
    }

    fn smaller(&self) -> Vec<Node> {
        let mut smaller: Vec<Node> = self.children().into_iter().cloned().collect();
        match self {
            Node::Source { id, count, failure } if *count > 0 => {
                smaller.push(Node::Source { id: *id, count: count - 1, failure: *failure });
            }
            Node::Broadcast { branches, .. } | Node::Partition { branches, .. } => {
                for (branch, at) in (0..2).flat_map(|branch| (1..branches[branch].len()).map(move |at| (branch, at))) {
                    let mut less = self.clone();
                    if let Node::Broadcast { branches, .. } | Node::Partition { branches, .. } = &mut less {
                        branches[branch].remove(at);
                    }
                    smaller.push(less);
                }
            }
            _ => {}
        }
        for (at, child) in self.children().into_iter().enumerate() {
            for less in child.smaller() {
                let mut node = self.clone();
                *node.children_mut()[at] = less;
                smaller.push(node);
            }
        }
        smaller
    }

    /// Whether its output has one order only.
    pub fn is_single(&self) -> bool {
        match self {
            Node::Merge { .. } | Node::Partition { .. } | Node::Balance { .. } => false,
            Node::Op(Op::FlatMapMerge(_) | Op::GroupBy, _) => false,
            Node::Broadcast { joined: Joined::Merged, .. } => false,
            other => other.children().into_iter().all(Node::is_single),
        }
    }
}

/// Cases that are a step simpler.
pub fn shrunk(case: &Case) -> Vec<Case> {
    let mut smaller: Vec<Case> = case.node.smaller().into_iter().map(|node| Case { node, ..case.clone() }).collect();
    smaller.push(Case { disturbance: Disturbance::Nothing, ..case.clone() });
    smaller.push(Case { fuzzing: 0, ..case.clone() });
    smaller.retain(|smaller| format!("{smaller:?}") != format!("{case:?}"));
    smaller
}
