//! Boundaries: wires between islands, which may run on two cores.
//!
//! The materializer sees connections without their types; a [`BoundaryType`] makes both ends of one, each as the seed of
//! a stage for the island that it belongs to. Only an element type that may change its thread has one, so `.async_boundary()`
//! asks for `T: Send` and leaves a [`BoundaryElements`] in the attributes of its level, where the materializer finds it.
//! Semantics: order is kept, nothing is lost, at most the capacity is under way; completion comes after all elements,
//! failure before those that were not taken yet, cancellation with its cause; if one side disappears, the other one
//! fails or is cancelled with [`AbruptTermination`](crate::stream::error::AbruptTermination).

mod chain;
mod patience;
pub mod ring;
mod stages;

use std::any::TypeId;
use std::fmt;

#[doc(hidden)]
pub use chain::chain;

use crate::stream::attributes::{Attribute, Attributes};
use crate::stream::stage::erased::Seed;

/// The stage that ends an island (one inlet), and the stage that begins another one (one outlet).
pub type Ends = (Box<dyn Seed>, Box<dyn Seed>);

/// How to make boundaries for one type of elements.
#[derive(Clone, Copy)]
pub struct BoundaryType {
    id: fn() -> TypeId,
    name: fn() -> &'static str,
    make: fn(usize) -> Ends,
}

fn make<T: Send + 'static>(capacity: usize) -> Ends {
    let (producer, consumer) = ring::ring::<T>(capacity);
    (Box::new(stages::OutputSeed(producer)), Box::new(stages::InputSeed(consumer)))
}

impl BoundaryType {
    /// The one of elements of type `T`.
    #[must_use]
    pub const fn of<T: Send + 'static>() -> BoundaryType {
        BoundaryType { id: TypeId::of::<T>, name: std::any::type_name::<T>, make: make::<T> }
    }

    /// The type of the elements.
    #[must_use]
    pub fn element(&self) -> TypeId {
        (self.id)()
    }

    /// Name of the type of the elements.
    #[must_use]
    pub fn element_name(&self) -> &'static str {
        (self.name)()
    }

    /// Both ends of one boundary: the stage that ends an island (one inlet), and the stage that begins another one (one
    /// outlet). At most so many elements are under way between them: a power of two, else the next one, up to
    /// [`ring::CAPACITY_MAX`]. An end that is dropped instead of grown ends the other one.
    #[must_use]
    pub fn make(&self, capacity: usize) -> Ends {
        (self.make)(capacity)
    }
}

impl fmt::Debug for BoundaryType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BoundaryType({})", self.element_name())
    }
}

/// The element types that may cross the boundaries of the level that it is set on.
#[derive(Clone, Debug, Default)]
pub struct BoundaryElements(pub Vec<BoundaryType>);

impl Attribute for BoundaryElements {}

impl BoundaryElements {
    /// One element type.
    #[must_use]
    pub fn of<T: Send + 'static>() -> BoundaryElements {
        BoundaryElements(vec![BoundaryType::of::<T>()])
    }

    /// Another one besides.
    #[must_use]
    pub fn and<T: Send + 'static>(mut self) -> BoundaryElements {
        if self.find(TypeId::of::<T>()).is_none() {
            self.0.push(BoundaryType::of::<T>());
        }
        self
    }

    /// How to make a boundary for this type of elements, if it may cross.
    #[must_use]
    pub fn find(&self, element: TypeId) -> Option<&BoundaryType> {
        self.0.iter().find(|boundary| boundary.element() == element)
    }

    /// As [`find`](Self::find), in all levels of a list of attributes.
    #[must_use]
    pub fn find_in(attributes: &Attributes, element: TypeId) -> Option<&BoundaryType> {
        attributes.all::<BoundaryElements>().find_map(|elements| elements.find(element))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
