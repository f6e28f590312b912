//! An island out of seeds in a row, for tests and benches of boundaries.

use crate::stream::attributes::Attributes;
use crate::stream::interpreter::builder::{End, IslandBuilder, SizeHint};
use crate::stream::interpreter::{Island, WiringError};
use crate::stream::stage::erased::{BuilderHandle, Seed};

/// An island of stages in a row: the first has only an outlet, the last only an inlet, those between have one of each.
///
/// # Errors
/// If they do not fit.
#[doc(hidden)]
pub fn chain(seeds: Vec<Box<dyn Seed>>, attributes: &Attributes) -> Result<Box<Island>, WiringError> {
    let mut builder = IslandBuilder::new(SizeHint::default(), attributes);
    let (count, mut before) = (seeds.len(), None);
    for (at, seed) in seeds.into_iter().enumerate() {
        let inlets: &[End] = &before.map(End::Joins).into_iter().collect::<Vec<_>>();
        let outlets: &[End] = if at + 1 < count { &[End::New] } else { &[] };
        let first_port = seed.grow(&mut BuilderHandle { builder: &mut builder, inlets, outlets }, attributes)?;
        before = (at + 1 < count).then(|| builder.port_connection(first_port, inlets.len()));
    }
    Ok(Box::new(builder.build()?))
}
