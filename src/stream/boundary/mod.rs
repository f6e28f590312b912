//! Replaced at merge.
use crate::stream::attributes::Attribute;
use crate::stream::stage::Seed;
use std::any::TypeId;

#[derive(Clone, Copy, Debug)]
pub struct BoundaryType {
    pub id: fn() -> TypeId,
}
impl BoundaryType {
    pub const fn of<T: Send + 'static>() -> BoundaryType {
        BoundaryType { id: TypeId::of::<T> }
    }
    pub fn make(&self, _capacity: usize) -> (Box<dyn Seed>, Box<dyn Seed>) {
        unimplemented!()
    }
}
#[derive(Clone, Debug)]
pub struct BoundaryElements(pub Vec<BoundaryType>);
impl Attribute for BoundaryElements {}
impl BoundaryElements {
    pub fn find(&self, id: TypeId) -> Option<&BoundaryType> {
        self.0.iter().find(|known| (known.id)() == id)
    }
}
