//! Graphs without open ports, which can run.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::OnceLock;

use crate::stream::attributes::Attributes;
use crate::stream::fused::materialize;
use crate::stream::host::{StreamHost, current};
use crate::stream::materializer::MaterializationError;
use crate::stream::traversal::builder::{IncompleteGraph, LinearBuilder, TraversalBuilder};
use crate::stream::traversal::{Blueprint, TransformFunction};

/// A complete blueprint. It is `Send` and `Sync`; each run is a stream of its own.
pub struct RunnableGraph<Mat> {
    builder: TraversalBuilder,
    /// Made once, when it first runs.
    blueprint: OnceLock<Result<Blueprint, IncompleteGraph>>,
    mat: PhantomData<fn() -> Mat>,
}

impl<Mat> Clone for RunnableGraph<Mat> {
    fn clone(&self) -> Self {
        RunnableGraph { builder: self.builder.clone(), blueprint: self.blueprint.clone(), mat: PhantomData }
    }
}

/// Nothing can be run on a thread that is no core of a pod and has no stream runtime.
#[derive(Debug, thiserror::Error)]
#[error("this thread runs no streams: run the graph on a core of a pod, or with a `StreamRuntime`")]
pub struct NoHost;

impl<Mat: 'static> RunnableGraph<Mat> {
    pub(crate) fn from_builder(builder: LinearBuilder) -> RunnableGraph<Mat> {
        RunnableGraph::from_part(TraversalBuilder::Linear(builder))
    }

    pub(crate) fn from_part(builder: TraversalBuilder) -> RunnableGraph<Mat> {
        RunnableGraph { builder, blueprint: OnceLock::new(), mat: PhantomData }
    }

    /// Adds attributes to the whole graph; those inside win.
    #[must_use]
    pub fn add_attributes(mut self, attributes: &Attributes) -> RunnableGraph<Mat> {
        self.builder.add_attributes(attributes);
        RunnableGraph::from_part(self.builder)
    }

    /// Gives the graph a name.
    #[must_use]
    pub fn named(self, name: &str) -> RunnableGraph<Mat> {
        self.add_attributes(&Attributes::named(name))
    }

    /// Computes on the materialized value.
    pub fn map_materialized_value<M: 'static>(
        mut self,
        transform: impl Fn(Mat) -> M + Send + Sync + 'static,
    ) -> RunnableGraph<M> {
        self.builder.transform(TransformFunction::new(transform));
        RunnableGraph::from_part(self.builder)
    }

    /// The traversal with what a materializer needs to know of it: prints, drawings, own materializers.
    ///
    /// # Errors
    /// If ports are not connected.
    pub fn blueprint(&self) -> Result<&Blueprint, IncompleteGraph> {
        self.blueprint.get_or_init(|| self.builder.clone().blueprint()).as_ref().map_err(Clone::clone)
    }

    /// Runs the graph on the core that this thread is. Returns at once, with the materialized value.
    ///
    /// # Errors
    /// If the graph is not complete, asks for what does not exist, or this thread runs no streams.
    pub fn run(&self) -> Result<Mat, MaterializationError> {
        let host = current::host()
            .ok_or_else(|| MaterializationError::Phase { phase: "fused".to_owned(), cause: Box::new(NoHost) })?;
        self.run_on(&host)
    }

    /// Runs the graph on this core.
    ///
    /// # Errors
    /// If the graph is not complete, or asks for what does not exist.
    pub fn run_on(&self, host: &Rc<StreamHost>) -> Result<Mat, MaterializationError> {
        let value = materialize(host, self.blueprint()?, &Attributes::none())?;
        let value = value.downcast::<Mat>();
        Ok(*value.unwrap_or_else(|_| unreachable!("the typed DSL knows the type of the materialized value")))
    }
}
