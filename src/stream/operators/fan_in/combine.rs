//! Any number of sources by one junction, and rounds of them.

use std::marker::PhantomData;

use super::ask_all;
use crate::stream::dsl::{Fusable, GraphBuilder, Source};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::{Blueprint, blueprint};
use crate::stream::stage::{FanInShape, GraphStage, Logic, Setup};
use crate::stream::traversal::builder::WiringError;

blueprint!(
    /// Emits one element of each input, in the order of the inputs.
    ///
    /// Emits when all inputs have an element. Completes when an input has and none of its elements waits.
    ZipN<T> { inputs: u16 }
);

impl<T> ZipN<T> {
    /// A junction with so many inputs; with none it completes at once.
    #[must_use]
    pub fn new(inputs: u16) -> ZipN<T> {
        ZipN { inputs, elements: PhantomData }
    }
}

/// The running stage of [`ZipN`].
pub struct ZipNLogic<T> {
    inlets: Vec<Inlet<T>>,
    outlet: Outlet<Vec<T>>,
    /// Inputs without an element.
    missing: usize,
    /// An input has ended; the element that it left behind is in the last round.
    ends: bool,
}

impl<T: 'static> Blueprint for ZipN<T> {
    type Shape = FanInShape<T, Vec<T>>;
    type Logic = ZipNLogic<T>;
    const NAME: &'static str = "zip_n";

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.inputs)
    }

    fn logic(self, (inlets, outlet): (Vec<Inlet<T>>, Outlet<Vec<T>>), _: &Setup<'_>) -> Self::Logic {
        ZipNLogic { missing: inlets.len(), inlets, outlet, ends: false }
    }
}

impl<T: 'static> ZipNLogic<T> {
    fn step(&mut self, context: &mut Context) {
        if self.missing > 0 || !self.outlet.is_available(context) {
            return;
        }
        self.missing = self.inlets.len();
        let round = self.inlets.iter().map(|inlet| inlet.grab(context)).collect();
        self.outlet.push(context, round);
        if self.ends {
            context.complete_stage();
        } else {
            for inlet in &self.inlets {
                inlet.try_pull(context);
            }
        }
    }
}

impl<T: 'static> Logic for ZipNLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        ask_all(context, &self.inlets);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.missing -= 1;
        self.step(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        if self.inlets[inlet].is_available(context) {
            self.ends = true;
        } else {
            context.complete_stage();
        }
    }
}

impl<T: 'static> Source<T> {
    /// Any number of sources by a junction, which is made for as many inputs: `Source::combine(sources, Merge::new)`.
    /// Nothing of no sources. Materialized values are dropped.
    ///
    /// # Errors
    /// If the junction does not have as many inputs as there are sources, which are 65 535 at most.
    pub fn combine<U: 'static, M: 'static, P: Fusable<Out = U>, G: GraphStage<Shape = FanInShape<U, T>>>(
        sources: impl IntoIterator<Item = Source<U, M, P>>,
        junction: impl FnOnce(u16) -> G,
    ) -> Result<Source<T>, WiringError> {
        let mut graph = GraphBuilder::new();
        let outlets: Vec<_> = sources.into_iter().map(|source| graph.add(source)).collect();
        if outlets.is_empty() {
            return Ok(Source::empty());
        }
        let junction = graph.add_stage(junction(u16::try_from(outlets.len()).unwrap_or(u16::MAX)));
        for (outlet, inlet) in outlets.into_iter().zip(junction.inlets) {
            graph.connect(outlet, inlet);
        }
        graph.source(junction.outlet)
    }
}

impl<T: 'static> Source<Vec<T>> {
    /// Rounds of one element of each source. See [`ZipN`].
    ///
    /// # Errors
    /// If there are more than 65 535 sources.
    pub fn zip_n<M: 'static, P: Fusable<Out = T>>(
        sources: impl IntoIterator<Item = Source<T, M, P>>,
    ) -> Result<Source<Vec<T>>, WiringError> {
        Source::combine(sources, ZipN::new)
    }
}
