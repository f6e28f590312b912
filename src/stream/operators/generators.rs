//! Sources whose elements come from a function that is asked for one at a time: `single`, `repeat`, `unfold` and others.
//!
//! All of them emit when asked, and complete together with the last element where they know that it is the last.

use crate::stream::dsl::Source;
use crate::stream::error::{IllegalArgument, StreamError};
use crate::stream::interpreter::{Context, Outlet};
use crate::stream::stage::elementwise::Step;
use crate::stream::stage::made::stage;
use crate::stream::stage::{Logic, SourceShape};

/// Tries of a function that gives nothing in a row, before other stages have their turn.
const SKIPS_PER_PULL: u32 = 1024;

/// A source that asks a function for each element.
struct Generator<T, G> {
    outlet: Outlet<T>,
    next: G,
}

impl<T: 'static, G: FnMut() -> Step<T> + 'static> Generator<T, G> {
    #[inline]
    fn generate(&mut self, context: &mut Context) {
        for _ in 0..SKIPS_PER_PULL {
            match (self.next)() {
                Step::Emit(element) => return self.outlet.push(context, element),
                Step::Last(element) => {
                    self.outlet.push(context, element);
                    return self.outlet.complete(context);
                }
                Step::Skip => {}
                Step::Done => return self.outlet.complete(context),
                Step::Fail(error) => return context.fail_and_log(error),
            }
        }
        context.look_again();
    }
}

impl<T: 'static, G: FnMut() -> Step<T> + 'static> Logic for Generator<T, G> {
    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.generate(context);
    }

    fn on_look(&mut self, context: &mut Context) {
        if self.outlet.is_available(context) {
            self.generate(context);
        }
    }
}

fn generator<T, G, F>(name: &'static str, factory: F) -> Source<T>
where
    T: 'static,
    G: FnMut() -> Step<T> + 'static,
    F: FnOnce() -> G + Clone + Send + Sync + 'static,
{
    Source::from_stage(stage(name, SourceShape::new(), |outlet, _| Generator { outlet, next: factory() }))
}

/// How a source without elements ends.
#[derive(Clone)]
enum End {
    Complete,
    Fail(StreamError),
    Never,
}

impl End {
    fn name(&self) -> &'static str {
        match self {
            End::Complete => "empty",
            End::Fail(_) => "failed",
            End::Never => "never",
        }
    }
}

impl Logic for End {
    fn pre_start(&mut self, context: &mut Context) {
        match self {
            End::Complete => context.complete_stage(),
            End::Fail(error) => context.fail_stage(error.clone()),
            End::Never => {}
        }
    }

    fn on_pull(&mut self, _: &mut Context, _: usize) {}
}

impl<T: 'static> Source<T> {
    fn ended(end: End) -> Source<T> {
        Source::from_stage(stage(end.name(), SourceShape::new(), |_, _| end))
    }

    /// Completes when it starts.
    #[must_use]
    pub fn empty() -> Source<T> {
        Source::ended(End::Complete)
    }

    /// Fails when it starts.
    #[must_use]
    pub fn failed(error: StreamError) -> Source<T> {
        Source::ended(End::Fail(error))
    }

    /// Never emits, never ends.
    #[must_use]
    pub fn never() -> Source<T> {
        Source::ended(End::Never)
    }

    /// Emits one element and completes.
    pub fn single(element: T) -> Source<T>
    where
        T: Clone + Send + Sync,
    {
        Source::from_option(Some(element))
    }

    /// Emits the element, if there is one, and completes.
    pub fn from_option(element: Option<T>) -> Source<T>
    where
        T: Clone + Send + Sync,
    {
        let Some(element) = element else { return Source::empty() };
        generator("single", move || {
            let mut element = Some(element);
            move || element.take().map_or(Step::Done, Step::Last)
        })
    }

    /// Emits what the function gives when it is first asked, and completes.
    pub fn lazy_single(function: impl FnOnce() -> T + Clone + Send + Sync + 'static) -> Source<T> {
        generator("lazy_single", move || {
            let mut function = Some(function);
            move || function.take().map_or(Step::Done, |function| Step::Last(function()))
        })
    }

    /// Emits the same element for ever.
    pub fn repeat(element: T) -> Source<T>
    where
        T: Clone + Send + Sync,
    {
        let next = move || Step::Emit(element.clone());
        generator("repeat", move || next)
    }

    /// Emits what a function gives, for ever.
    pub fn repeat_with(mut function: impl FnMut() -> T + Clone + Send + Sync + 'static) -> Source<T> {
        let next = move || Step::Emit(function());
        generator("repeat", move || next)
    }

    /// Emits what the iterators of a factory give, one iterator after the other, for ever. Fails with
    /// [`IllegalArgument`] if an iterator is empty.
    pub fn cycle<I, F>(factory: F) -> Source<T>
    where
        I: IntoIterator<Item = T> + 'static,
        I::IntoIter: 'static,
        F: Fn() -> I + Clone + Send + Sync + 'static,
    {
        const EMPTY: IllegalArgument =
            IllegalArgument { operator: "cycle", what: "an iterator is empty: there is nothing to repeat" };
        generator("cycle", move || {
            let mut iterator: Option<I::IntoIter> = None;
            move || {
                if let Some(element) = iterator.as_mut().and_then(Iterator::next) {
                    return Step::Emit(element);
                }
                match iterator.insert(factory().into_iter()).next() {
                    Some(element) => Step::Emit(element),
                    None => Step::Fail(StreamError::new(EMPTY)),
                }
            }
        })
    }

    /// Emits `seed`, then what the function makes of it, of that, and so on, while the predicate holds.
    pub fn iterate(
        seed: T,
        mut predicate: impl FnMut(&T) -> bool + Clone + Send + Sync + 'static,
        mut function: impl FnMut(&T) -> T + Clone + Send + Sync + 'static,
    ) -> Source<T>
    where
        T: Clone + Send + Sync,
    {
        generator("iterate", move || {
            let mut first = Some(seed);
            let mut last: Option<T> = None;
            move || {
                let next = first.take().or_else(|| last.as_ref().map(&mut function));
                match next {
                    Some(next) if predicate(&next) => {
                        last = Some(next.clone());
                        Step::Emit(next)
                    }
                    _ => Step::Done,
                }
            }
        })
    }

    /// Emits what the function makes of the state, which it changes; completes when it makes nothing.
    ///
    /// ```
    /// use atoll::stream::dsl::Source;
    ///
    /// let countdown = Source::unfold(3_u32, |left| {
    ///     *left = left.checked_sub(1)?;
    ///     Some(*left)
    /// });
    /// # drop(countdown);
    /// ```
    pub fn unfold<S, F>(state: S, mut function: F) -> Source<T>
    where
        S: Clone + Send + Sync + 'static,
        F: FnMut(&mut S) -> Option<T> + Clone + Send + Sync + 'static,
    {
        Source::try_unfold(state, move |state: &mut S| Ok(function(state)))
    }

    /// As [`Source::unfold`], for a function that can fail.
    pub fn try_unfold<S, F>(mut state: S, mut function: F) -> Source<T>
    where
        S: Clone + Send + Sync + 'static,
        F: FnMut(&mut S) -> Result<Option<T>, StreamError> + Clone + Send + Sync + 'static,
    {
        let next = move || match function(&mut state) {
            Ok(Some(element)) => Step::Emit(element),
            Ok(None) => Step::Done,
            Err(error) => Step::Fail(error),
        };
        generator("unfold", move || next)
    }

    /// A source of the user's: the factory makes a function for each materialization, on the core that runs it, and the
    /// function is asked for each element.
    pub fn generate<G, F>(factory: F) -> Source<T>
    where
        G: FnMut() -> Step<T> + 'static,
        F: Fn() -> G + Clone + Send + Sync + 'static,
    {
        generator("generate", factory)
    }
}
