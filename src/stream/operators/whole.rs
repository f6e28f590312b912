//! Whole streams in one loop: an iterator, operators on single elements, and a gathering of them.
//!
//! A source that begins with an iterator keeps it in the type of its fused tail ([`Iterating`]). If it is closed with one
//! of the `into_…` methods while everything behind the iterator is fused, the stream becomes one stage without ports,
//! which runs in slices: the core serves its other islands in between, and the stream can be stopped there. What it
//! gives, and how it fails, is the same as with a stage for each part; only the iterator is not asked one ahead.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::stream::attributes::Supervision;
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::{Fusable, Identity, RunnableGraph};
use crate::stream::interpreter::Context;
use crate::stream::module::AtomicModule;
use crate::stream::stage::gathering::{Gathered, Gatherer, Gathering};
use crate::stream::stage::made::stage_with;
use crate::stream::stage::{ClosedShape, ErasedStage, Logic, Setup};
use crate::stream::traversal::builder::TraversalBuilder;

/// Elements of the iterator that one run of the island handles: about as long as the events of a run take.
const SLICE_ELEMENTS: u32 = 4096;

/// The tail of a source that begins with an iterator. It does nothing to the elements, but knows where they come from.
pub struct Iterating<I, F> {
    factory: F,
    iterator: PhantomData<fn() -> I>,
}

impl<I, F> Iterating<I, F> {
    pub(super) fn new(factory: F) -> Self {
        Iterating { factory, iterator: PhantomData }
    }
}

impl<I, F: Clone> Clone for Iterating<I, F> {
    fn clone(&self) -> Self {
        Iterating::new(self.factory.clone())
    }
}

impl<I, F> Fusable for Iterating<I, F>
where
    I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
    F: Fn() -> I + Clone + Send + Sync + 'static,
{
    type In = I::Item;
    type Out = I::Item;
    type Function = Identity<I::Item>;
    const IS_IDENTITY: bool = true;

    fn create(&self) -> Identity<I::Item> {
        Identity::default()
    }

    fn whole<G: Gathering<In = I::Item>>(&self, gathering: G) -> Option<Whole<G::Out>> {
        let (name, factory) = (gathering.name(), self.factory.clone());
        let stage = stage_with(name, ClosedShape, move |_| {
            let (promise, outcome) = completion();
            let (factory, gathering) = (factory.clone(), gathering.clone());
            let create = move |(), setup: &Setup<'_>| {
                let work = Some((factory().into_iter(), gathering.create()));
                WholeLogic { work, supervision: setup.supervision(), promise }
            };
            (create, outcome)
        });
        let arena_bytes = size_of::<WholeLogic<I::IntoIter, G::Gatherer>>().next_multiple_of(16) + 64;
        Some(Whole { name, stage: Arc::new(stage), arena_bytes, names: Vec::new(), out: PhantomData })
    }
}

/// A stream that is one stage, with a `T` as outcome.
pub struct Whole<T> {
    name: &'static str,
    stage: Arc<dyn ErasedStage>,
    arena_bytes: usize,
    names: Vec<&'static str>,
    out: PhantomData<fn() -> T>,
}

impl<T: 'static> Whole<T> {
    /// The graph. `operators` are the names of what is between the iterator and the end.
    pub(super) fn into_graph(mut self, operators: Vec<&'static str>) -> RunnableGraph<Completion<T>> {
        self.names = operators;
        self.names.insert(0, "iterator");
        self.names.push(self.name);
        RunnableGraph::from_part(TraversalBuilder::atomic(Arc::new(self)))
    }
}

impl<T: 'static> AtomicModule for Whole<T> {
    fn name(&self) -> &str {
        self.name
    }

    fn inlets(&self) -> usize {
        0
    }

    fn outlets(&self) -> usize {
        0
    }

    fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    fn as_any(&self) -> &dyn std::any::Any {
        &self.names
    }

    fn as_stage(&self) -> Option<&dyn ErasedStage> {
        Some(&*self.stage)
    }
}

struct WholeLogic<I, G: Gatherer> {
    /// Gone while it runs, so that the compiler keeps it in registers.
    work: Option<(I, G)>,
    supervision: Option<Supervision>,
    promise: Promise<G::Out>,
}

enum Slice<T> {
    /// There is more.
    Spent,
    /// The iterator has ended.
    Ended,
    Gathered(Gathered<T>),
}

#[inline(always)]
fn run_slice<I: Iterator, T>(iterator: &mut I, mut take: impl FnMut(I::Item) -> Gathered<T>) -> Slice<T> {
    for _ in 0..SLICE_ELEMENTS {
        let Some(element) = iterator.next() else { return Slice::Ended };
        match take(element) {
            Gathered::More => {}
            gathered => return Slice::Gathered(gathered),
        }
    }
    Slice::Spent
}

impl<I: Iterator + 'static, G: Gatherer<In = I::Item>> Logic for WholeLogic<I, G> {
    fn pre_start(&mut self, context: &mut Context) {
        // It has no ports, so nothing else keeps it.
        context.set_keep_going(true);
        context.look_again();
    }

    fn on_look(&mut self, context: &mut Context) {
        let Some((mut iterator, mut gatherer)) = self.work.take() else { return };
        let slice = match &self.supervision {
            _ if gatherer.takes_nothing() => Slice::Ended,
            None => run_slice(&mut iterator, |element| gatherer.take(element)),
            Some(supervision) => run_slice(&mut iterator, |element| gatherer.take_supervised(element, supervision)),
        };
        match slice {
            Slice::Spent | Slice::Gathered(Gathered::More) => {
                self.work = Some((iterator, gatherer));
                context.look_again();
            }
            Slice::Ended => {
                self.promise.finish(gatherer.finish());
                context.complete_stage();
            }
            Slice::Gathered(Gathered::Done(outcome)) => {
                self.promise.finish(outcome);
                context.complete_stage();
            }
            Slice::Gathered(Gathered::Fail(error)) => {
                self.promise.fail(error.clone());
                context.fail_and_log(error);
            }
        }
    }

    fn post_stop(&mut self, context: &mut Context) {
        if let Some(error) = context.panic_of_stage() {
            self.promise.fail(error.clone());
        }
    }
}
