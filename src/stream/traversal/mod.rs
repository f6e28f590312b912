//! Traversals: the immutable, shared description of a graph that the materializer executes.
//!
//! A traversal is a list of commands, expressed as a tree so that both ends can be extended cheaply. The commands place
//! operators, compute the materialized value on one stack and the effective attributes on another, and bracket islands.
//! Wiring is relative: an inlet's *slot* is the number of inlets visited before it, and an outlet holds its target slot
//! minus the slot of the first inlet of its own operator. A part of a graph can so be used many times, anywhere.
//!
//! [`builder`] makes traversals, [`Walk`] recovers the commands in order, [`layout`] computes who is wired to whom for
//! printing and drawing. Walking and dropping are iterative: a chain of a million operators needs no stack.

mod blueprint;
pub mod builder;
mod drawing;
mod island;
pub mod layout;
mod operator;
mod print;
mod release;
mod rewire;
mod value;
mod walk;

use std::sync::Arc;

pub use blueprint::{Blueprint, GraphSize};
pub use drawing::{draw_dot, draw_mermaid};
pub use island::IslandTag;
pub use operator::{OperatorNode, ValueUse};
pub use print::{print_traversal, print_wiring};
pub use value::{Combine, ComposeFunction, TransformFunction, ValueMismatch};
pub use walk::{Placed, Step, Walk};

use super::attributes::Attributes;
use super::module::AtomicModule;

/// A list of commands, as a tree. Cheap to clone; a command is written in place, without allocation.
#[derive(Clone, Default)]
pub enum Traversal {
    /// No command.
    #[default]
    Empty,
    /// `MaterializeAtomic`, and then the commands that follow in the node: one allocation holds both.
    Operator {
        /// The operator and what follows it.
        node: Arc<OperatorNode>,
        /// Where its first outlet leads, relative to its base. It lies beside the node so that it can be rewired.
        first_outlet: i32,
        /// What becomes of its materialized value.
        value: ValueUse,
    },
    /// All commands of one traversal, then all of another.
    Concat(Arc<Pair>),
    /// Push the unit value on the value stack.
    PushNotUsed,
    /// Drop the top of the value stack.
    Pop,
    /// Replace the top of the value stack by a function of it.
    Transform(TransformFunction),
    /// Replace the two upper values, first `a` then `b` above it, by a function of `(a, b)`; of `(b, a)` if `reverse`.
    Compose {
        /// The function.
        function: ComposeFunction,
        /// Whether the upper value is the first argument.
        reverse: bool,
    },
    /// Push the top of the attribute stack combined with these, which are more specific.
    PushAttributes(Attributes),
    /// Drop the top of the attribute stack.
    PopAttributes,
    /// What follows belongs to a new island.
    EnterIsland(IslandTag),
    /// The current island is done; what follows belongs to the enclosing one.
    ExitIsland,
}

/// The two parts of a [`Traversal::Concat`].
pub struct Pair {
    pub(super) first: Traversal,
    pub(super) second: Traversal,
}

impl Traversal {
    /// All commands of this traversal and then all of `next`. Constant time.
    ///
    /// Normalises: empty parts vanish, a value pushed only to be popped vanishes, a pair to the left is rotated to the
    /// right (once: to do it fully would take quadratic time), a lone operator takes the rest into its node.
    #[must_use]
    pub fn concat(self, next: Traversal) -> Traversal {
        use Traversal::{Concat, Empty, Operator, Pop, PushNotUsed};
        match (self, next) {
            (Empty, next) => next,
            (first, Empty) => first,
            (PushNotUsed, Pop) => Empty,
            (PushNotUsed, Concat(pair)) if matches!(pair.first, Pop) => pair.second.clone(),
            (Concat(pair), next) => {
                let rest = pair.second.clone().concat_plainly(next);
                pair.first.clone().concat_plainly(rest)
            }
            (Operator { mut node, first_outlet, value }, next) => {
                if matches!(node.next, Empty) {
                    match next {
                        Pop if value == ValueUse::Keep => {
                            return Operator { node, first_outlet, value: ValueUse::Drop };
                        }
                        Concat(pair) if value == ValueUse::Keep && matches!(pair.first, Pop) => {
                            let operator = Operator { node, first_outlet, value: ValueUse::Drop };
                            return operator.concat(pair.second.clone());
                        }
                        _ => {}
                    }
                    if let Some(owned) = Arc::get_mut(&mut node) {
                        owned.next = next;
                        return Operator { node, first_outlet, value };
                    }
                }
                Operator { node, first_outlet, value }.concat_plainly(next)
            }
            (first, next) => first.concat_plainly(next),
        }
    }

    fn concat_plainly(self, next: Traversal) -> Traversal {
        match (self, next) {
            (Traversal::Empty, next) => next,
            (first, Traversal::Empty) => first,
            (Traversal::PushNotUsed, Traversal::Pop) => Traversal::Empty,
            (first, second) => Traversal::Concat(Arc::new(Pair { first, second })),
        }
    }

    /// One operator, by hand: `outlets` has the slot that each outlet leads to, relative to its first inlet. Builders do
    /// this for nearly everyone.
    pub fn operator<M: AtomicModule>(module: M, outlets: &[i32]) -> Traversal {
        OperatorNode::place(module, outlets, ValueUse::Keep, Traversal::Empty)
    }

    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        matches!(self, Traversal::Empty)
    }

    /// The commands in order.
    pub fn walk(&self) -> Walk<'_> {
        Walk::new(self)
    }
}
