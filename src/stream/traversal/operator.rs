//! The node that places one operator: the module, where its outlets lead, and the commands that follow.

use std::fmt;
use std::sync::Arc;

use super::Traversal;
use super::release::release;
use crate::stream::module::AtomicModule;

/// The relative slot of an outlet that was forgotten: before every slot there is.
const NOWHERE: i32 = i32::MIN;

/// What becomes of the materialized value of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueUse {
    /// It is pushed on the value stack.
    Keep,
    /// It is dropped at once: a push and a pop in one.
    Drop,
}

/// `[module] ++ next` in one allocation. The numbers of ports are kept so that a walk need not ask the module.
pub struct OperatorNode<M: ?Sized = dyn AtomicModule> {
    /// Commands that follow the operator.
    pub(super) next: Traversal,
    /// Where the outlets after the first one lead. Not allocated for operators with one outlet.
    other_outlets: Box<[i32]>,
    inlets: u32,
    outlets: u32,
    /// Last, so that the node can be of unknown size.
    module: M,
}

impl<M: AtomicModule> OperatorNode<M> {
    /// Places `module`, then `next`. `outlets` has the relative slot of each outlet; one that is missing leads nowhere.
    pub(in crate::stream) fn place(module: M, outlets: &[i32], value: ValueUse, next: Traversal) -> Traversal {
        let count = module.outlets();
        let slot = |outlet: usize| outlets.get(outlet).copied().unwrap_or(NOWHERE);
        let node: Arc<OperatorNode> = Arc::new(OperatorNode {
            next,
            other_outlets: (1..count).map(slot).collect(),
            inlets: module.inlets() as u32,
            outlets: count as u32,
            module,
        });
        Traversal::Operator { node, first_outlet: slot(0), value }
    }
}

impl OperatorNode {
    /// The operator.
    #[inline]
    pub fn module(&self) -> &dyn AtomicModule {
        &self.module
    }

    /// How many inlets it has.
    #[inline]
    pub fn inlets(&self) -> usize {
        self.inlets as usize
    }

    /// How many outlets it has.
    #[inline]
    pub fn outlets(&self) -> usize {
        self.outlets as usize
    }

    /// Where an outlet after the first leads, relative to the base of the operator.
    #[inline]
    pub(super) fn other_outlet(&self, index: usize) -> i32 {
        self.other_outlets[index - 1]
    }
}

impl fmt::Debug for OperatorNode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OperatorNode").field("name", &self.module.name()).finish_non_exhaustive()
    }
}

impl<M: ?Sized> Drop for OperatorNode<M> {
    fn drop(&mut self) {
        release(std::mem::take(&mut self.next));
    }
}
