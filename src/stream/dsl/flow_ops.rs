//! What sources and flows have in common: a place to append operators to.
//!
//! The operators themselves are in extension traits beside their stages (see [`crate::stream::operators`]), all with
//! methods on top of [`FlowOps::fuse`], [`FlowOps::via_stage`] and [`FlowOps::append`]; `prelude` brings them in.

use super::fusing::{Fusable, FusedStage, Identity};
use crate::stream::attributes::{AsyncBoundary, Attribute, Attributes, InputBuffer, Placement, Supervision};
use crate::stream::module::AtomicModule;
use crate::stream::stage::elementwise::Then;
use crate::stream::stage::{FlowShape, GraphStage, StageModule};
use crate::stream::traversal::builder::LinearBuilder;
use crate::stream::traversal::{Combine, TransformFunction};

/// Operators between two seals that are fused at most. The time to compile a fused run grows faster than its length.
const FUSED_RUN_MAX: usize = 16;

/// A chain under construction: its builder, and the operators at its end that are not in it yet.
#[derive(Clone)]
pub struct Chain<P> {
    pub(crate) builder: LinearBuilder,
    pub(crate) tail: P,
    /// Names of the operators of the tail; the last one is the name of what they become.
    pub(crate) names: Vec<&'static str>,
    /// Attributes for the tail that came while it was open.
    pub(crate) tail_attributes: Attributes,
}

impl<T: 'static> Chain<Identity<T>> {
    pub(crate) fn new(builder: LinearBuilder) -> Self {
        Chain { builder, tail: Identity::default(), names: Vec::new(), tail_attributes: Attributes::none() }
    }
}

impl<P: Fusable> Chain<P> {
    /// The same with another tail that does nothing to the elements but knows more of them.
    pub(crate) fn with_tail<Q: Fusable>(self, tail: Q) -> Chain<Q> {
        debug_assert!(P::IS_IDENTITY && Q::IS_IDENTITY, "operators would be lost");
        Chain { builder: self.builder, tail, names: self.names, tail_attributes: self.tail_attributes }
    }

    pub(crate) fn fuse<N: Fusable<In = P::Out>>(self, name: &'static str, next: N) -> Chain<Then<P, N>> {
        let Chain { builder, tail, mut names, tail_attributes } = self;
        names.push(name);
        Chain { builder, tail: Then(tail, next), names, tail_attributes }
    }

    /// The chain with its tail as a stage of its own.
    pub(crate) fn sealed(self) -> LinearBuilder {
        if P::IS_IDENTITY {
            return self.builder;
        }
        let name = match self.names.as_slice() {
            [only] => only,
            _ => "fused",
        };
        let stage = FusedStage { operators: self.tail, name };
        let module = FusedModule { stage: StageModule(stage), names: self.names };
        if self.tail_attributes.is_empty() {
            return append_operator(self.builder, module, Combine::Left);
        }
        let operator = LinearBuilder::of(module).with_attributes(self.tail_attributes);
        append(self.builder, operator, Combine::Left)
    }
}

impl<P: Fusable> Chain<P> {
    /// As [`Chain::sealed`], but never empty: an empty chain has no ports that could be wired.
    pub(crate) fn sealed_flow(self) -> LinearBuilder {
        let builder = self.sealed();
        if !builder.is_empty() {
            return builder;
        }
        let stage = FusedStage { operators: Identity::<P::Out>::default(), name: "identity" };
        append_operator(builder, StageModule(stage), Combine::Left)
    }
}

/// Fused operators in a traversal. They print with all their names.
struct FusedModule<P> {
    stage: StageModule<FusedStage<P>>,
    names: Vec<&'static str>,
}

impl<P: Fusable> AtomicModule for FusedModule<P> {
    fn name(&self) -> &str {
        self.stage.name()
    }

    fn inlets(&self) -> usize {
        1
    }

    fn outlets(&self) -> usize {
        1
    }

    fn arena_bytes(&self) -> usize {
        self.stage.arena_bytes()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        &self.names
    }

    fn as_stage(&self) -> Option<&dyn crate::stream::stage::ErasedStage> {
        self.stage.as_stage()
    }
}

/// The types of the DSL have the ports that the builder asks for.
const TYPED: &str = "the typed DSL wires ports that exist and are free";

pub(crate) fn append(builder: LinearBuilder, other: LinearBuilder, combine: Combine) -> LinearBuilder {
    builder.append(other, combine).expect(TYPED)
}

pub(crate) fn append_operator(builder: LinearBuilder, module: impl AtomicModule, combine: Combine) -> LinearBuilder {
    builder.append_operator(module, combine).expect(TYPED)
}

/// A source or a flow: something with an open end.
pub trait FlowOps: Sized {
    /// What comes out of it.
    type Out: 'static;
    /// Its materialized value.
    type Mat: 'static;
    /// The operators at its end that are not sealed yet.
    type Tail: Fusable<Out = Self::Out>;
    /// The same with another end.
    type With<T: 'static, M: 'static, P: Fusable<Out = T>>: FlowOps<Out = T, Mat = M, Tail = P>;

    /// Takes it apart.
    #[doc(hidden)]
    fn into_chain(self) -> Chain<Self::Tail>;

    /// Puts it together.
    #[doc(hidden)]
    fn from_chain<T: 'static, M: 'static, P: Fusable<Out = T>>(chain: Chain<P>) -> Self::With<T, M, P>;

    /// Appends a function of single elements; neighbours become one stage.
    fn fuse<N: Fusable<In = Self::Out>>(
        self,
        name: &'static str,
        operator: N,
    ) -> Self::With<N::Out, Self::Mat, Then<Self::Tail, N>> {
        Self::from_chain(self.into_chain().fuse(name, operator))
    }

    /// Ends a run of fused operators: they become one stage, and the type can be named again. Long generated chains
    /// should do so every 16 operators.
    fn seal(self) -> Plain<Self, Self::Out> {
        let chain = self.into_chain();
        debug_assert!(
            chain.names.len() <= FUSED_RUN_MAX * 4,
            "{} operators in one fused run: call `seal` in between, or the program takes long to compile",
            chain.names.len()
        );
        Self::from_chain(Chain::new(chain.sealed()))
    }

    /// Appends a stage. Its materialized value is dropped.
    fn via_stage<T: 'static, G: GraphStage<Shape = FlowShape<Self::Out, T>>>(self, stage: G) -> Plain<Self, T> {
        let builder = self.into_chain().sealed();
        Self::from_chain(Chain::new(append_operator(builder, StageModule(stage), Combine::Left)))
    }

    /// Appends a stage and combines the materialized values.
    fn via_stage_mat<T: 'static, M: 'static, G: GraphStage<Shape = FlowShape<Self::Out, T>>>(
        self,
        stage: G,
        combine: impl Fn(Self::Mat, G::Mat) -> M + Send + Sync + 'static,
    ) -> Self::With<T, M, Identity<T>> {
        let builder = self.into_chain().sealed();
        Self::from_chain(Chain::new(append_operator(builder, StageModule(stage), Combine::with(combine))))
    }

    /// Appends a flow. Its materialized value is dropped.
    fn via<T: 'static, M: 'static, P: Fusable<Out = T>>(self, flow: super::Flow<Self::Out, T, M, P>) -> Plain<Self, T> {
        let builder = self.into_chain().sealed();
        Self::from_chain(Chain::new(append(builder, flow.chain.sealed(), Combine::Left)))
    }

    /// Appends a flow and combines the materialized values. See [`super::keep`].
    fn via_mat<T: 'static, M: 'static, R: 'static, P: Fusable<Out = T>>(
        self,
        flow: super::Flow<Self::Out, T, M, P>,
        combine: impl Fn(Self::Mat, M) -> R + Send + Sync + 'static,
    ) -> Self::With<T, R, Identity<T>> {
        let builder = self.into_chain().sealed();
        Self::from_chain(Chain::new(append(builder, flow.chain.sealed(), Combine::with(combine))))
    }

    /// Computes on the materialized value.
    fn map_materialized_value<M: 'static>(
        self,
        transform: impl Fn(Self::Mat) -> M + Send + Sync + 'static,
    ) -> Self::With<Self::Out, M, Identity<Self::Out>> {
        let builder = self.into_chain().sealed();
        Self::from_chain(Chain::new(builder.transform(TransformFunction::new(transform))))
    }

    /// Gives everything so far a name.
    fn named(self, name: &str) -> Plain<Self, Self::Out> {
        self.add_attributes(&Attributes::named(name))
    }

    /// Adds attributes to everything so far; an operator's own ones win.
    fn add_attributes(self, attributes: &Attributes) -> Plain<Self, Self::Out> {
        let builder = self.into_chain().sealed();
        Self::from_chain(Chain::new(builder.adding_attributes(attributes)))
    }

    /// Replaces the attributes of everything so far, as a level around it.
    fn with_attributes(self, attributes: &Attributes) -> Plain<Self, Self::Out> {
        let builder = self.into_chain().sealed();
        Self::from_chain(Chain::new(builder.with_attributes(attributes.clone())))
    }

    /// Adds one attribute to everything so far.
    fn with_attribute(self, attribute: impl Attribute) -> Plain<Self, Self::Out> {
        self.add_attributes(&Attributes::of(attribute))
    }

    /// What to do with failing elements in everything so far.
    fn supervised(self, supervision: Supervision) -> Plain<Self, Self::Out> {
        self.with_attribute(supervision)
    }

    /// How many elements the boundaries into everything so far may hold.
    fn input_buffer(self, buffer: InputBuffer) -> Plain<Self, Self::Out> {
        self.with_attribute(buffer)
    }

    /// Makes everything so far an island of its own, on another core if there is one.
    fn async_boundary(self) -> Plain<Self, Self::Out>
    where
        Self::Out: Send,
    {
        self.island_of(Attributes::of(AsyncBoundary))
    }

    /// Makes everything so far an island of its own, on this core.
    fn on(self, placement: Placement) -> Plain<Self, Self::Out>
    where
        Self::Out: Send,
    {
        self.island_of(Attributes::of(AsyncBoundary).with(placement))
    }

    #[doc(hidden)]
    fn island_of(self, attributes: Attributes) -> Plain<Self, Self::Out>
    where
        Self::Out: Send,
    {
        let attributes = attributes.and(&crate::stream::fused::boundary_elements::<Self::Out>());
        self.add_attributes(&attributes)
    }
}

/// The same source or flow with another element type and nothing left to fuse.
pub type Plain<S, T> = <S as FlowOps>::With<T, <S as FlowOps>::Mat, Identity<T>>;
