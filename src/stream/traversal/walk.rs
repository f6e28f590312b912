//! The commands of a traversal in order, recovered from the tree with an explicit stack.

use super::{ComposeFunction, IslandTag, OperatorNode, TransformFunction, Traversal, ValueUse};
use crate::stream::attributes::Attributes;
use crate::stream::inline::InlineStack;

/// Pending parts that need no allocation: linear chains have one or two.
const PENDING_INLINE: usize = 8;

/// One command.
pub enum Step<'t> {
    /// Materialize an operator and then push or drop its value.
    Materialize(Placed<'t>),
    /// Push the unit value.
    PushNotUsed,
    /// Drop the top value.
    Pop,
    /// Replace the top value.
    Transform(&'t TransformFunction),
    /// Replace the two upper values; the upper one is the first argument if `reverse`.
    Compose(&'t ComposeFunction, bool),
    /// Push attributes, combined with the top.
    PushAttributes(&'t Attributes),
    /// Drop the top attributes.
    PopAttributes,
    /// Begin an island.
    EnterIsland(IslandTag),
    /// End an island.
    ExitIsland,
}

/// An operator at its place in a traversal.
#[derive(Clone, Copy)]
pub struct Placed<'t> {
    node: &'t OperatorNode,
    first_outlet: i32,
    value: ValueUse,
}

impl<'t> Placed<'t> {
    /// The operator.
    #[inline]
    pub fn operator(&self) -> &'t OperatorNode {
        self.node
    }

    /// What becomes of its value.
    #[inline]
    pub fn value_use(&self) -> ValueUse {
        self.value
    }

    /// Where an outlet leads, relative to the slot of the first inlet of this operator.
    #[inline]
    pub fn relative_slot(&self, outlet: usize) -> i32 {
        if outlet == 0 { self.first_outlet } else { self.node.other_outlet(outlet) }
    }
}

/// Iterator over the commands of a traversal. Allocates only for unusually deep trees.
pub struct Walk<'t> {
    current: &'t Traversal,
    pending: InlineStack<&'t Traversal, PENDING_INLINE>,
}

impl<'t> Walk<'t> {
    pub(super) fn new(traversal: &'t Traversal) -> Walk<'t> {
        Walk { current: traversal, pending: InlineStack::new() }
    }
}

impl<'t> Iterator for Walk<'t> {
    type Item = Step<'t>;

    #[inline]
    fn next(&mut self) -> Option<Step<'t>> {
        loop {
            let step = match self.current {
                Traversal::Operator { node, first_outlet, value } => {
                    self.current = &node.next;
                    return Some(Step::Materialize(Placed { node, first_outlet: *first_outlet, value: *value }));
                }
                Traversal::Concat(pair) => {
                    self.pending.push(&pair.second);
                    self.current = &pair.first;
                    continue;
                }
                Traversal::Empty => {
                    self.current = self.pending.pop()?;
                    continue;
                }
                Traversal::PushNotUsed => Step::PushNotUsed,
                Traversal::Pop => Step::Pop,
                Traversal::Transform(function) => Step::Transform(function),
                Traversal::Compose { function, reverse } => Step::Compose(function, *reverse),
                Traversal::PushAttributes(attributes) => Step::PushAttributes(attributes),
                Traversal::PopAttributes => Step::PopAttributes,
                Traversal::EnterIsland(tag) => Step::EnterIsland(*tag),
                Traversal::ExitIsland => Step::ExitIsland,
            };
            self.current = &Traversal::Empty;
            return Some(step);
        }
    }
}
