//! Stages without their types: what a traversal holds and the fused phase materializes.
//!
//! [`StageModule`] makes an atomic module of a [`GraphStage`]. A stage on the materializing core is created in place;
//! one for another core leaves as a [`Seed`].

use std::any::Any;

use super::shape::Shape;
use super::{GraphStage, Setup};
use crate::stream::attributes::Attributes;
use crate::stream::interpreter::WiringError;
use crate::stream::interpreter::builder::{End, IslandBuilder};
use crate::stream::module::{AtomicModule, MaterializedValue};

/// What goes to the core that runs a stage.
pub trait Seed: Send {
    /// Makes the ports only, in an island that is a plan. Returns the position of its first port.
    ///
    /// # Errors
    /// If its ports do not fit their other ends.
    #[doc(hidden)]
    fn wire(&self, builder: &mut BuilderHandle<'_>) -> Result<usize, WiringError>;

    /// Adds the stage to an island. Returns the position of its first port.
    ///
    /// # Errors
    /// If its ports do not fit their other ends.
    #[doc(hidden)]
    fn grow(self: Box<Self>, builder: &mut BuilderHandle<'_>, attributes: &Attributes) -> Result<usize, WiringError>;
}

/// The builder of an island with the ends of one stage's ports. Only this crate can make and use it.
pub struct BuilderHandle<'a> {
    pub(crate) builder: &'a mut IslandBuilder,
    pub(crate) inlets: &'a [End],
    pub(crate) outlets: &'a [End],
}

/// A stage blueprint without its types.
pub trait ErasedStage: Send + Sync {
    /// Creates the stage in an island of this core.
    ///
    /// # Errors
    /// If its ports do not fit their other ends.
    #[doc(hidden)]
    fn create_here(
        &self,
        builder: &mut BuilderHandle<'_>,
        attributes: &Attributes,
    ) -> Result<(usize, MaterializedValue), WiringError>;

    /// Prepares the stage for an island of another core.
    #[doc(hidden)]
    fn prepare_elsewhere(&self, attributes: &Attributes) -> (Box<dyn Seed>, MaterializedValue);
}

fn create<G: GraphStage>(
    name: &'static str,
    shape: &G::Shape,
    seed: G::Seed,
    handle: &mut BuilderHandle<'_>,
    attributes: &Attributes,
) -> Result<usize, WiringError> {
    let BuilderHandle { builder, inlets, outlets } = handle;
    let stage = builder.next_stage();
    let inbox = std::sync::Arc::clone(builder.inbox());
    let mut wiring = builder.begin(name, inlets, outlets);
    let ports = shape.connect(&mut wiring);
    let wired = wiring.finish()?;
    let first_port = wired.first_port();
    let logic = G::create(seed, ports, &Setup { attributes, inbox: &inbox, stage });
    builder.add(logic, wired, attributes)?;
    Ok(first_port)
}

struct StageSeed<G: GraphStage> {
    name: &'static str,
    shape: G::Shape,
    seed: G::Seed,
}

impl<G: GraphStage> Seed for StageSeed<G> {
    fn wire(&self, handle: &mut BuilderHandle<'_>) -> Result<usize, WiringError> {
        let mut wiring = handle.builder.begin(self.name, handle.inlets, handle.outlets);
        drop(self.shape.connect(&mut wiring));
        Ok(wiring.finish()?.first_port())
    }

    fn grow(self: Box<Self>, handle: &mut BuilderHandle<'_>, attributes: &Attributes) -> Result<usize, WiringError> {
        create::<G>(self.name, &self.shape, self.seed, handle, attributes)
    }
}

impl<G: GraphStage> ErasedStage for G {
    fn create_here(
        &self,
        handle: &mut BuilderHandle<'_>,
        attributes: &Attributes,
    ) -> Result<(usize, MaterializedValue), WiringError> {
        let (seed, value) = self.prepare(attributes);
        let first_port = create::<G>(self.name(), &self.shape(), seed, handle, attributes)?;
        Ok((first_port, Box::new(value)))
    }

    fn prepare_elsewhere(&self, attributes: &Attributes) -> (Box<dyn Seed>, MaterializedValue) {
        let (seed, value) = self.prepare(attributes);
        (Box::new(StageSeed::<G> { name: self.name(), shape: self.shape(), seed }), Box::new(value))
    }
}

/// A [`GraphStage`] as a module of a traversal.
pub struct StageModule<G>(pub G);

impl<G: GraphStage> AtomicModule for StageModule<G> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn inlets(&self) -> usize {
        self.0.shape().inlets()
    }

    fn outlets(&self) -> usize {
        self.0.shape().outlets()
    }

    fn arena_bytes(&self) -> usize {
        size_of::<G::Logic>().next_multiple_of(16) + self.0.shape().connection_bytes() + 64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_stage(&self) -> Option<&dyn ErasedStage> {
        Some(&self.0)
    }
}
