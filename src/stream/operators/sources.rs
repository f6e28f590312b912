//! Sources that need nothing from outside.

use super::whole::Iterating;
use crate::stream::dsl::Source;
use crate::stream::interpreter::{Context, Outlet};
use crate::stream::stage::made::stage;
use crate::stream::stage::{Logic, SourceShape};

/// [`Source::from_iterator`].
struct Iterated<I: Iterator> {
    outlet: Outlet<I::Item>,
    iterator: I,
    next: Option<I::Item>,
}

impl<I: Iterator + 'static> Logic for Iterated<I>
where
    I::Item: 'static,
{
    fn pre_start(&mut self, context: &mut Context) {
        self.next = self.iterator.next();
        if self.next.is_none() {
            context.complete_stage();
        }
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if let Some(element) = self.next.take() {
            // First the push: if the iterator panics, the element before is delivered.
            self.outlet.push(context, element);
            self.next = self.iterator.next();
        }
        // Completion comes together with the last element.
        if self.next.is_none() {
            self.outlet.complete(context);
        }
    }
}

impl<T: 'static> Source<T> {
    /// Emits what the iterators of a factory give; each run gets a new one. Completes with the last element.
    ///
    /// The type of the source remembers the iterator, so that the stream can run in one loop with what is fused behind it
    /// (see [`super::closing`]). [`seal`](crate::stream::dsl::FlowOps::seal) makes it a plain `Source<T>`.
    pub fn from_iterator<I, F>(factory: F) -> Source<T, (), Iterating<I, F>>
    where
        I: IntoIterator<Item = T> + 'static,
        I::IntoIter: 'static,
        F: Fn() -> I + Clone + Send + Sync + 'static,
    {
        let tail = Iterating::new(factory.clone());
        let plain = Source::<T>::from_stage(stage("iterator", SourceShape::new(), move |outlet, _| Iterated {
            outlet,
            iterator: factory().into_iter(),
            next: None,
        }));
        Source::from_chain_of(plain.chain.with_tail(tail))
    }
}
