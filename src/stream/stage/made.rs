//! How the operators become stages: what all of them would say again of name, shape, seed and value is said here once.
//!
//! An operator is a [`Logic`], and a function that makes it of its ports when the stream runs. [`stage`] is a stage of a
//! name, a shape and such a function, which is also the seed: it is cloned for each materialization, goes to the core that
//! runs the stage with what it has captured (user functions, settings), and is called there once. [`stage_with`] is for
//! stages with a materialized value, or whose seed needs the attributes. Where the blueprint is a type that users name (the
//! junctions), it is a [`Blueprint`]: the seed is a clone of itself. `blueprint!` writes such a type.
//!
//! Short forms stand on these: [`super::transform::stage_of`] for functions with leftovers,
//! `operators::passing` for what passes elements on. Functions of single elements are no stages before they are fused
//! (`Fusable`).

use super::{GraphStage, Logic, Setup, Shape};
use crate::stream::attributes::Attributes;

/// A stage without a materialized value. `create` is called once for each materialization.
pub(crate) fn stage<S, L>(
    name: &'static str,
    shape: S,
    create: impl FnOnce(S::Ports, &Setup<'_>) -> L + Clone + Send + Sync + 'static,
) -> impl GraphStage<Shape = S, Mat = ()>
where
    S: Shape,
    L: Logic,
{
    stage_with(name, shape, move |_| (create.clone(), ()))
}

/// A stage for each of whose materializations `prepare` gives the function that makes it, and what the caller gets.
pub(crate) fn stage_with<S, C, Mat, L>(
    name: &'static str,
    shape: S,
    prepare: impl Fn(&Attributes) -> (C, Mat) + Send + Sync + 'static,
) -> impl GraphStage<Shape = S, Mat = Mat>
where
    S: Shape,
    C: FnOnce(S::Ports, &Setup<'_>) -> L + Send + 'static,
    Mat: 'static,
    L: Logic,
{
    Made { name, shape, prepare }
}

struct Made<S, P> {
    name: &'static str,
    shape: S,
    prepare: P,
}

impl<S, P, C, Mat, L> GraphStage for Made<S, P>
where
    S: Shape,
    P: Fn(&Attributes) -> (C, Mat) + Send + Sync + 'static,
    C: FnOnce(S::Ports, &Setup<'_>) -> L + Send + 'static,
    Mat: 'static,
    L: Logic,
{
    type Shape = S;
    type Seed = C;
    type Mat = Mat;
    type Logic = L;

    fn name(&self) -> &'static str {
        self.name
    }

    fn shape(&self) -> S {
        self.shape.clone()
    }

    fn prepare(&self, attributes: &Attributes) -> (C, Mat) {
        (self.prepare)(attributes)
    }

    fn create(create: C, ports: S::Ports, setup: &Setup<'_>) -> L {
        create(ports, setup)
    }
}

/// A blueprint that is its own seed, without a materialized value.
#[doc(hidden)]
pub trait Blueprint: Clone + Send + Sync + 'static {
    type Shape: Shape;
    type Logic: Logic;
    const NAME: &'static str;

    fn shape(&self) -> Self::Shape;

    /// The running stage, on the core that runs it.
    fn logic(self, ports: <Self::Shape as Shape>::Ports, setup: &Setup<'_>) -> Self::Logic;
}

// Who writes a stage is told of `GraphStage`.
#[diagnostic::do_not_recommend]
impl<B: Blueprint> GraphStage for B {
    type Shape = B::Shape;
    type Seed = B;
    type Mat = ();
    type Logic = B::Logic;

    fn name(&self) -> &'static str {
        B::NAME
    }

    fn shape(&self) -> B::Shape {
        Blueprint::shape(self)
    }

    fn prepare(&self, _: &Attributes) -> (B, ()) {
        (self.clone(), ())
    }

    fn create(blueprint: B, ports: <B::Shape as Shape>::Ports, setup: &Setup<'_>) -> B::Logic {
        blueprint.logic(ports, setup)
    }
}

/// A type of settings and one user function at most, which can be cloned whatever its elements are.
macro_rules! blueprint {
    ($(#[$about:meta])* $name:ident<$($element:ident),* $(; $function:ident)?> { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$about])*
        pub struct $name<$($element,)* $($function)?> {
            $($field: $type,)*
            elements: PhantomData<fn() -> ($($element,)*)>,
        }

        impl<$($element,)* $($function: Clone)?> Clone for $name<$($element,)* $($function)?> {
            fn clone(&self) -> Self {
                $name { $($field: self.$field.clone(),)* elements: PhantomData }
            }
        }
    };
}
pub(crate) use blueprint;
