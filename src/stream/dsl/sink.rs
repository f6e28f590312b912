//! Sinks: graphs with one inlet.

use std::marker::PhantomData;

use crate::stream::attributes::Attributes;
use crate::stream::stage::{GraphStage, SinkShape, StageModule};
use crate::stream::traversal::TransformFunction;
use crate::stream::traversal::builder::LinearBuilder;

/// A blueprint with one open inlet: where elements go.
pub struct Sink<In, Mat = ()> {
    pub(crate) builder: LinearBuilder,
    types: PhantomData<fn(In) -> Mat>,
}

impl<In, Mat> Clone for Sink<In, Mat> {
    fn clone(&self) -> Self {
        Sink { builder: self.builder.clone(), types: PhantomData }
    }
}

impl<In: 'static, Mat: 'static> Sink<In, Mat> {
    /// A sink that is one stage.
    pub fn from_stage<G: GraphStage<Shape = SinkShape<In>, Mat = Mat>>(stage: G) -> Sink<In, Mat> {
        Sink::from_builder(LinearBuilder::of(StageModule(stage)))
    }

    /// `builder` has one inlet for elements of type `In`, and a materialized value of type `Mat`.
    pub(crate) fn from_builder(builder: LinearBuilder) -> Sink<In, Mat> {
        Sink { builder, types: PhantomData }
    }

    /// Computes on the materialized value.
    pub fn map_materialized_value<M: 'static>(
        self,
        transform: impl Fn(Mat) -> M + Send + Sync + 'static,
    ) -> Sink<In, M> {
        Sink::from_builder(self.builder.transform(TransformFunction::new(transform)))
    }

    /// Gives the sink a name.
    #[must_use]
    pub fn named(self, name: &str) -> Sink<In, Mat> {
        self.add_attributes(&Attributes::named(name))
    }

    /// Adds attributes to the sink.
    #[must_use]
    pub fn add_attributes(self, attributes: &Attributes) -> Sink<In, Mat> {
        Sink::from_builder(self.builder.adding_attributes(attributes))
    }

    /// Replaces the attributes of the sink, as a level around it.
    #[must_use]
    pub fn with_attributes(self, attributes: &Attributes) -> Sink<In, Mat> {
        Sink::from_builder(self.builder.with_attributes(attributes.clone()))
    }

    /// Makes the sink an island of its own, on another core if there is one.
    #[must_use]
    pub fn async_boundary(self) -> Sink<In, Mat>
    where
        In: Send,
    {
        let attributes = Attributes::of(crate::stream::attributes::AsyncBoundary);
        self.add_attributes(&attributes.and(&crate::stream::fused::boundary_elements::<In>()))
    }
}
