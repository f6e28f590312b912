//! What the sinks of [`super::sinks`] and the `into_…` methods of sources make of the elements.
//!
//! Each function here gives the factory of a running gatherer. Those with user functions keep their state through a
//! failing element if the decider says so.

use std::collections::VecDeque;
use std::marker::PhantomData;

use crate::stream::attributes::{Directive, Supervision};
use crate::stream::error::{NoSuchElement, StreamError};
use crate::stream::stage::gathering::{Gathered, Gatherer};
use crate::stream::stage::supervised::attempt;

/// Takes an element by a function that gets the state by value, so that a failure would take it along.
fn take_by_value<G: Gatherer, S: Clone>(
    gatherer: &mut G,
    state: impl Fn(&mut G) -> &mut Option<S>,
    element: G::In,
    supervision: &Supervision,
) -> Gathered<G::Out> {
    let kept = state(gatherer).clone();
    match attempt(supervision, || gatherer.take(element).or_failure()) {
        Ok(gathered) => return gathered,
        Err((Directive::Stop, error)) => return Gathered::Fail(error),
        Err((Directive::Resume, _)) => *state(gatherer) = kept,
        Err((Directive::Restart, _)) => gatherer.restart(),
    }
    Gathered::More
}

/// A state, and what an element makes of it.
pub struct Folding<T, A, F> {
    zero: A,
    state: Option<A>,
    function: F,
    element: PhantomData<fn(T)>,
}

impl<T, A: Clone, F> Folding<T, A, F> {
    pub(super) fn new(zero: A, function: F) -> Self {
        Folding { state: Some(zero.clone()), zero, function, element: PhantomData }
    }
}

impl<T: 'static, A: Clone + 'static, F> Gatherer for Folding<T, A, F>
where
    F: FnMut(A, T) -> Result<A, StreamError> + 'static,
{
    type In = T;
    type Out = A;

    #[inline(always)]
    fn take(&mut self, element: T) -> Gathered<A> {
        let Some(state) = self.state.take() else { return Gathered::More };
        match (self.function)(state, element) {
            Ok(state) => self.state = Some(state),
            Err(error) => return Gathered::Fail(error),
        }
        Gathered::More
    }

    fn finish(&mut self) -> Result<A, StreamError> {
        self.state.take().ok_or_else(|| StreamError::new(NoSuchElement))
    }

    fn restart(&mut self) {
        self.state = Some(self.zero.clone());
    }

    fn take_supervised(&mut self, element: T, supervision: &Supervision) -> Gathered<A> {
        take_by_value(self, |folding| &mut folding.state, element, supervision)
    }
}

/// As [`Folding`], until a predicate of the state no longer holds.
pub struct FoldingWhile<T, A, F, P> {
    folding: Folding<T, A, F>,
    predicate: P,
}

impl<T, A: Clone, F, P> FoldingWhile<T, A, F, P> {
    pub(super) fn new(zero: A, predicate: P, function: F) -> Self {
        FoldingWhile { folding: Folding::new(zero, function), predicate }
    }

    fn after(&mut self, gathered: Gathered<A>) -> Gathered<A>
    where
        P: FnMut(&A) -> bool,
    {
        match gathered {
            Gathered::More => match &self.folding.state {
                Some(state) if !(self.predicate)(state) => {
                    Gathered::Done(self.folding.state.take().ok_or_else(|| StreamError::new(NoSuchElement)))
                }
                _ => Gathered::More,
            },
            other => other,
        }
    }
}

impl<T: 'static, A: Clone + 'static, F, P> Gatherer for FoldingWhile<T, A, F, P>
where
    F: FnMut(A, T) -> Result<A, StreamError> + 'static,
    P: FnMut(&A) -> bool + 'static,
{
    type In = T;
    type Out = A;

    fn take(&mut self, element: T) -> Gathered<A> {
        let gathered = self.folding.take(element);
        self.after(gathered)
    }

    fn finish(&mut self) -> Result<A, StreamError> {
        self.folding.finish()
    }

    fn restart(&mut self) {
        self.folding.restart();
    }

    fn take_supervised(&mut self, element: T, supervision: &Supervision) -> Gathered<A> {
        take_by_value(self, |this| &mut this.folding.state, element, supervision)
    }
}

/// The first element is the state, the others are folded into it.
pub struct Reducing<T, F> {
    state: Option<T>,
    function: F,
}

impl<T, F> Reducing<T, F> {
    pub(super) fn new(function: F) -> Self {
        Reducing { state: None, function }
    }
}

impl<T: Clone + 'static, F: FnMut(T, T) -> T + 'static> Gatherer for Reducing<T, F> {
    type In = T;
    type Out = T;

    #[inline(always)]
    fn take(&mut self, element: T) -> Gathered<T> {
        self.state = Some(match self.state.take() {
            Some(state) => (self.function)(state, element),
            None => element,
        });
        Gathered::More
    }

    fn finish(&mut self) -> Result<T, StreamError> {
        self.state.take().ok_or_else(|| StreamError::new(NoSuchElement))
    }

    fn restart(&mut self) {
        self.state = None;
    }

    fn take_supervised(&mut self, element: T, supervision: &Supervision) -> Gathered<T> {
        take_by_value(self, |reducing| &mut reducing.state, element, supervision)
    }
}

/// A function is called with each element.
pub struct ForEach<T, F>(F, PhantomData<fn(T)>);

impl<T, F> ForEach<T, F> {
    pub(super) fn new(function: F) -> Self {
        ForEach(function, PhantomData)
    }
}

impl<T: 'static, F: FnMut(T) -> Result<(), StreamError> + 'static> Gatherer for ForEach<T, F> {
    type In = T;
    type Out = ();

    #[inline(always)]
    fn take(&mut self, element: T) -> Gathered<()> {
        match (self.0)(element) {
            Ok(()) => Gathered::More,
            Err(error) => Gathered::Fail(error),
        }
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        Ok(())
    }
}

/// All elements in order.
pub struct Collecting<T, C>(C, PhantomData<fn(T)>);

impl<T, C: Default> Collecting<T, C> {
    pub(super) fn new() -> Self {
        Collecting(C::default(), PhantomData)
    }
}

impl<T: 'static, C: Default + Extend<T> + 'static> Gatherer for Collecting<T, C> {
    type In = T;
    type Out = C;

    #[inline(always)]
    fn take(&mut self, element: T) -> Gathered<C> {
        self.0.extend(std::iter::once(element));
        Gathered::More
    }

    fn finish(&mut self) -> Result<C, StreamError> {
        Ok(std::mem::take(&mut self.0))
    }
}

/// How many there are.
pub struct Counting<T>(u64, PhantomData<fn(T)>);

impl<T> Counting<T> {
    pub(super) fn new() -> Self {
        Counting(0, PhantomData)
    }
}

impl<T: 'static> Gatherer for Counting<T> {
    type In = T;
    type Out = u64;

    #[inline(always)]
    fn take(&mut self, _: T) -> Gathered<u64> {
        self.0 += 1;
        Gathered::More
    }

    fn finish(&mut self) -> Result<u64, StreamError> {
        Ok(self.0)
    }
}

/// The first element, if there is one.
pub struct Heading<T>(PhantomData<fn(T)>);

impl<T> Heading<T> {
    pub(super) fn new() -> Self {
        Heading(PhantomData)
    }
}

impl<T: 'static> Gatherer for Heading<T> {
    type In = T;
    type Out = Option<T>;

    fn take(&mut self, element: T) -> Gathered<Option<T>> {
        Gathered::Done(Ok(Some(element)))
    }

    fn finish(&mut self) -> Result<Option<T>, StreamError> {
        Ok(None)
    }
}

/// The last element, if there is one.
pub struct Lasting<T>(Option<T>);

impl<T> Lasting<T> {
    pub(super) fn new() -> Self {
        Lasting(None)
    }
}

impl<T: 'static> Gatherer for Lasting<T> {
    type In = T;
    type Out = Option<T>;

    #[inline(always)]
    fn take(&mut self, element: T) -> Gathered<Option<T>> {
        self.0 = Some(element);
        Gathered::More
    }

    fn finish(&mut self) -> Result<Option<T>, StreamError> {
        Ok(self.0.take())
    }
}

/// One that must give something.
pub struct Required<G>(pub(super) G);

impl<T: 'static, G: Gatherer<Out = Option<T>>> Gatherer for Required<G> {
    type In = G::In;
    type Out = T;

    #[inline(always)]
    fn take(&mut self, element: G::In) -> Gathered<T> {
        match self.0.take(element) {
            Gathered::More => Gathered::More,
            Gathered::Done(outcome) => Gathered::Done(required(outcome)),
            Gathered::Fail(error) => Gathered::Fail(error),
        }
    }

    fn finish(&mut self) -> Result<T, StreamError> {
        required(self.0.finish())
    }
}

fn required<T>(outcome: Result<Option<T>, StreamError>) -> Result<T, StreamError> {
    outcome?.ok_or_else(|| StreamError::new(NoSuchElement))
}

/// The last elements.
pub struct Tailing<T> {
    wanted: usize,
    last: VecDeque<T>,
}

impl<T> Tailing<T> {
    pub(super) fn new(wanted: usize) -> Self {
        Tailing { wanted, last: VecDeque::new() }
    }
}

impl<T: 'static> Gatherer for Tailing<T> {
    type In = T;
    type Out = Vec<T>;

    fn take(&mut self, element: T) -> Gathered<Vec<T>> {
        if self.wanted > 0 {
            if self.last.len() == self.wanted {
                self.last.pop_front();
            }
            self.last.push_back(element);
        }
        Gathered::More
    }

    fn finish(&mut self) -> Result<Vec<T>, StreamError> {
        Ok(std::mem::take(&mut self.last).into())
    }
}

/// Whether an element decides.
pub struct Deciding<T, F> {
    predicate: F,
    /// What the predicate says of the element that decides.
    decides: bool,
    /// The outcome if one decides; the other one if none does.
    outcome: bool,
    element: PhantomData<fn(T)>,
}

impl<T, F> Deciding<T, F> {
    pub(super) fn new(predicate: F, decides: bool, outcome: bool) -> Self {
        Deciding { predicate, decides, outcome, element: PhantomData }
    }
}

impl<T: 'static, F: FnMut(&T) -> bool + 'static> Gatherer for Deciding<T, F> {
    type In = T;
    type Out = bool;

    #[inline(always)]
    fn take(&mut self, element: T) -> Gathered<bool> {
        if (self.predicate)(&element) == self.decides { Gathered::Done(Ok(self.outcome)) } else { Gathered::More }
    }

    fn finish(&mut self) -> Result<bool, StreamError> {
        Ok(!self.outcome)
    }
}
