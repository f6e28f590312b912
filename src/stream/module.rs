//! Atomic modules: the leaves of a blueprint, opaque to builders and to the materializer.
//!
//! A phase ([`PhaseIsland`](crate::stream::materializer::PhaseIsland)) knows some kinds of modules, asks for theirs with
//! [`AtomicModule::as_any`], and makes something that runs of each.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use super::stage::ErasedStage;

/// A value that materializing yields, such as a handle or a future. It lives on the calling core and need not be `Send`.
pub type MaterializedValue = Box<dyn Any>;

/// The value of what has none to offer. Does not allocate.
pub fn not_used() -> MaterializedValue {
    Box::new(())
}

/// A leaf of a blueprint: one operator with its ports.
///
/// The numbers of ports must not change; builders read them once. Inlets and outlets are named by their position.
pub trait AtomicModule: Send + Sync + 'static {
    /// The name of the operator, for messages and drawings.
    fn name(&self) -> &str;

    /// How many inlets it has.
    fn inlets(&self) -> usize;

    /// How many outlets it has.
    fn outlets(&self) -> usize;

    /// The name of an inlet.
    fn inlet_name(&self, index: usize) -> Cow<'_, str> {
        port_name("in", index, self.inlets())
    }

    /// The name of an outlet.
    fn outlet_name(&self, index: usize) -> Cow<'_, str> {
        port_name("out", index, self.outlets())
    }

    /// Bytes that it takes in the arena of its island, with its share of connections. 0 where that is not known.
    fn arena_bytes(&self) -> usize {
        0
    }

    /// Itself, for phases that look for a type they understand.
    fn as_any(&self) -> &dyn Any;

    /// Itself as a stage, if the fused island can run it.
    fn as_stage(&self) -> Option<&dyn ErasedStage> {
        None
    }
}

fn port_name(prefix: &'static str, index: usize, ports: usize) -> Cow<'static, str> {
    if ports == 1 { Cow::Borrowed(prefix) } else { Cow::Owned(format!("{prefix}{index}")) }
}

impl<M: AtomicModule + ?Sized> AtomicModule for Arc<M> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn inlets(&self) -> usize {
        (**self).inlets()
    }

    fn outlets(&self) -> usize {
        (**self).outlets()
    }

    fn inlet_name(&self, index: usize) -> Cow<'_, str> {
        (**self).inlet_name(index)
    }

    fn outlet_name(&self, index: usize) -> Cow<'_, str> {
        (**self).outlet_name(index)
    }

    fn arena_bytes(&self) -> usize {
        (**self).arena_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        (**self).as_any()
    }

    fn as_stage(&self) -> Option<&dyn ErasedStage> {
        (**self).as_stage()
    }
}
