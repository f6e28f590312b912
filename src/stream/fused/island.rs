//! An island while it is being materialized: built here, or as a plan for another core.
//!
//! Called by [`super::phase`]. A plan is built along on a scratch island without stages, which knows the element types of
//! its wires and numbers them exactly as the other core will.

use std::rc::Rc;

use crate::stream::attributes::Attributes;
use crate::stream::host::StreamHost;
use crate::stream::interpreter::WiringError;
use crate::stream::interpreter::builder::{ConnectionIndex, ElementInfo, End, IslandBuilder, SizeHint};
use crate::stream::module::MaterializedValue;
use crate::stream::stage::erased::{BuilderHandle, ErasedStage, Seed};

struct Planned {
    seed: Box<dyn Seed>,
    inlets: Vec<End>,
    outlets: Vec<End>,
    attributes: Attributes,
}

enum Construction {
    Here(IslandBuilder),
    Elsewhere {
        core: u16,
        scratch: IslandBuilder,
        plan: Vec<Planned>,
    },
    /// It was handed over.
    Done,
}

pub(super) struct FusedIsland {
    construction: Construction,
    hint: SizeHint,
    attributes: Attributes,
}

impl FusedIsland {
    pub fn new(host: &StreamHost, core: u16, hint: SizeHint, attributes: &Attributes) -> FusedIsland {
        let construction = if core == host.own_core() {
            Construction::Here(IslandBuilder::new(hint, attributes))
        } else {
            Construction::Elsewhere { core, scratch: IslandBuilder::new(hint, attributes), plan: Vec::new() }
        };
        FusedIsland { construction, hint, attributes: attributes.clone() }
    }

    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn builder(&mut self) -> &mut IslandBuilder {
        match &mut self.construction {
            Construction::Here(builder) | Construction::Elsewhere { scratch: builder, .. } => builder,
            Construction::Done => unreachable!("an island is not changed after it was handed over"),
        }
    }

    /// The connection of a port of a stage that was added.
    pub fn port(&mut self, first_port: usize, port: usize) -> ConnectionIndex {
        self.builder().port_connection(first_port, port)
    }

    pub fn element(&mut self, connection: ConnectionIndex) -> ElementInfo {
        self.builder().element(connection)
    }

    /// Adds a stage of a blueprint.
    pub fn add(
        &mut self,
        stage: &dyn ErasedStage,
        inlets: &[End],
        outlets: &[End],
        attributes: &Attributes,
    ) -> Result<(usize, MaterializedValue), WiringError> {
        match &mut self.construction {
            Construction::Here(builder) => {
                stage.create_here(&mut BuilderHandle { builder, inlets, outlets }, attributes)
            }
            Construction::Elsewhere { .. } => {
                let (seed, value) = stage.prepare_elsewhere(attributes);
                Ok((self.plan(seed, inlets, outlets, attributes)?, value))
            }
            Construction::Done => unreachable!("an island is not changed after it was handed over"),
        }
    }

    fn plan(
        &mut self,
        seed: Box<dyn Seed>,
        inlets: &[End],
        outlets: &[End],
        attributes: &Attributes,
    ) -> Result<usize, WiringError> {
        let Construction::Elsewhere { scratch, plan, .. } = &mut self.construction else {
            unreachable!("only islands of other cores are planned");
        };
        let first_port = seed.wire(&mut BuilderHandle { builder: scratch, inlets, outlets })?;
        let (inlets, outlets) = (inlets.to_vec(), outlets.to_vec());
        plan.push(Planned { seed, inlets, outlets, attributes: attributes.clone() });
        Ok(first_port)
    }

    /// Adds one end of a boundary.
    pub fn add_seed(&mut self, seed: Box<dyn Seed>, inlets: &[End], outlets: &[End]) -> Result<(), WiringError> {
        let attributes = self.attributes.clone();
        match &mut self.construction {
            Construction::Here(builder) => {
                seed.grow(&mut BuilderHandle { builder, inlets, outlets }, &attributes).map(|_| ())
            }
            Construction::Elsewhere { .. } => self.plan(seed, inlets, outlets, &attributes).map(|_| ()),
            Construction::Done => unreachable!("an island is not changed after it was handed over"),
        }
    }

    /// Hands the island to its core.
    pub fn start(&mut self, host: &Rc<StreamHost>) -> Result<(), StartError> {
        match std::mem::replace(&mut self.construction, Construction::Done) {
            Construction::Here(builder) => {
                let island = builder.build()?;
                host.spawn(Box::new(island))?;
            }
            Construction::Elsewhere { core, plan, .. } => {
                let (hint, attributes) = (self.hint, self.attributes.clone());
                let sent = host.send(
                    core,
                    Box::new(move |host| {
                        if let Err(error) = grow(host, hint, &attributes, plan) {
                            // Its neighbours learn of it: the ends of its boundaries are dropped.
                            tracing::error!(%error, "an island could not be started on its core");
                        }
                    }),
                );
                if !sent {
                    return Err(StartError::CoreGone { core });
                }
            }
            Construction::Done => {}
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Wiring(#[from] WiringError),
    #[error(transparent)]
    TooMany(#[from] crate::stream::host::TooManyIslands),
    #[error("core {core} takes no islands any more; is the pod stopping?")]
    CoreGone { core: u16 },
}

fn grow(host: &Rc<StreamHost>, hint: SizeHint, attributes: &Attributes, plan: Vec<Planned>) -> Result<(), StartError> {
    let mut builder = IslandBuilder::new(hint, attributes);
    for Planned { seed, inlets, outlets, attributes } in plan {
        let mut handle = BuilderHandle { builder: &mut builder, inlets: &inlets, outlets: &outlets };
        seed.grow(&mut handle, &attributes)?;
    }
    host.spawn(Box::new(builder.build()?))?;
    Ok(())
}
