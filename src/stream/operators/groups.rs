//! Operators that make groups of elements: `grouped` and its like, `sliding`, and `map_concat`, which takes groups apart.
//!
//! All of them back-pressure while downstream does and something is left to emit; they complete when upstream has and
//! what is left is emitted, and cancel when downstream cancels. A failure drops what is gathered.

use std::collections::VecDeque;
use std::marker::PhantomData;

use crate::stream::dsl::{FlowOps, Plain};
use crate::stream::error::{IllegalArgument, StreamError};
use crate::stream::stage::elementwise::Step;
use crate::stream::stage::transform::{self, Transform};

/// Elements for which a group is sized beforehand at most: a larger one grows when it has to.
const GROUP_SIZED_MAX: usize = 1024;

fn not_zero(operator: &'static str, what: &'static str, value: u64) -> Result<(), StreamError> {
    if value == 0 { Err(StreamError::new(IllegalArgument { operator, what })) } else { Ok(()) }
}

struct Grouped<T> {
    size: usize,
    group: Vec<T>,
}

impl<T: 'static> Transform for Grouped<T> {
    type In = T;
    type Out = Vec<T>;

    fn start(&mut self) -> Result<(), StreamError> {
        not_zero("grouped", "a group needs at least one element", self.size as u64)
    }

    #[inline]
    fn element(&mut self, element: T) -> Step<Vec<T>> {
        if self.group.capacity() == 0 {
            self.group.reserve_exact(self.size.min(GROUP_SIZED_MAX));
        }
        self.group.push(element);
        if self.group.len() < self.size { Step::Skip } else { Step::Emit(std::mem::take(&mut self.group)) }
    }

    fn has_more(&mut self) -> bool {
        !self.group.is_empty()
    }

    fn end(&mut self) -> Step<Vec<T>> {
        Step::Last(std::mem::take(&mut self.group))
    }

    fn restart(&mut self) -> Result<(), StreamError> {
        self.group.clear();
        Ok(())
    }
}

struct GroupedWeighted<T, F> {
    min_weight: u64,
    weight: u64,
    cost: F,
    group: Vec<T>,
}

impl<T: 'static, F: FnMut(&T) -> u64 + 'static> Transform for GroupedWeighted<T, F> {
    type In = T;
    type Out = Vec<T>;

    fn start(&mut self) -> Result<(), StreamError> {
        not_zero("grouped_weighted", "the weight of a group must be over 0", self.min_weight)
    }

    fn element(&mut self, element: T) -> Step<Vec<T>> {
        self.weight = self.weight.saturating_add((self.cost)(&element));
        self.group.push(element);
        if self.weight < self.min_weight {
            return Step::Skip;
        }
        self.weight = 0;
        Step::Emit(std::mem::take(&mut self.group))
    }

    fn has_more(&mut self) -> bool {
        !self.group.is_empty()
    }

    fn end(&mut self) -> Step<Vec<T>> {
        Step::Last(std::mem::take(&mut self.group))
    }

    fn restart(&mut self) -> Result<(), StreamError> {
        self.group.clear();
        self.weight = 0;
        Ok(())
    }
}

struct GroupedAdjacent<T, K, F, C> {
    key_of: F,
    cost: C,
    max_weight: u64,
    key: Option<K>,
    weight: u64,
    group: Vec<T>,
    /// An element that is too heavy for any group: emitted alone, next.
    heavy: Option<T>,
}

impl<T, K, F, C> Transform for GroupedAdjacent<T, K, F, C>
where
    T: 'static,
    K: PartialEq + 'static,
    F: FnMut(&T) -> K + 'static,
    C: FnMut(&T) -> u64 + 'static,
{
    type In = T;
    type Out = Vec<T>;

    fn start(&mut self) -> Result<(), StreamError> {
        not_zero("grouped_adjacent_by", "the weight of a group must be over 0", self.max_weight)
    }

    fn element(&mut self, element: T) -> Step<Vec<T>> {
        let (key, cost) = ((self.key_of)(&element), (self.cost)(&element));
        if cost > self.max_weight {
            if self.group.is_empty() {
                return Step::Emit(vec![element]);
            }
            self.heavy = Some(element);
            return Step::Emit(std::mem::take(&mut self.group));
        }
        let weight = self.weight.saturating_add(cost);
        if !self.group.is_empty() && self.key.as_ref() == Some(&key) && weight <= self.max_weight {
            self.weight = weight;
            self.group.push(element);
            return Step::Skip;
        }
        (self.key, self.weight) = (Some(key), cost);
        let group = std::mem::replace(&mut self.group, vec![element]);
        if group.is_empty() { Step::Skip } else { Step::Emit(group) }
    }

    fn left_over(&mut self) -> Step<Vec<T>> {
        self.heavy.take().map_or(Step::Skip, |element| Step::Emit(vec![element]))
    }

    fn has_more(&mut self) -> bool {
        self.heavy.is_some() || !self.group.is_empty()
    }

    fn end(&mut self) -> Step<Vec<T>> {
        Step::Last(std::mem::take(&mut self.group))
    }

    fn restart(&mut self) -> Result<(), StreamError> {
        self.group.clear();
        (self.key, self.weight, self.heavy) = (None, 0, None);
        Ok(())
    }
}

struct Sliding<T> {
    size: usize,
    step: usize,
    window: VecDeque<T>,
    /// Elements to drop before the next window.
    skip: usize,
    /// The window has an element that was in none before.
    is_new: bool,
}

impl<T: Clone + 'static> Transform for Sliding<T> {
    type In = T;
    type Out = Vec<T>;

    fn start(&mut self) -> Result<(), StreamError> {
        not_zero("sliding", "a window needs at least one element", self.size as u64)?;
        not_zero("sliding", "a window has to move by at least one element", self.step as u64)
    }

    fn element(&mut self, element: T) -> Step<Vec<T>> {
        if self.skip > 0 {
            self.skip -= 1;
            return Step::Skip;
        }
        self.window.push_back(element);
        self.is_new = true;
        if self.window.len() < self.size {
            return Step::Skip;
        }
        self.is_new = false;
        if self.step >= self.size {
            self.skip = self.step - self.size;
            return Step::Emit(self.window.drain(..).collect());
        }
        let window = self.window.iter().cloned().collect();
        self.window.drain(..self.step);
        Step::Emit(window)
    }

    fn has_more(&mut self) -> bool {
        self.is_new
    }

    fn end(&mut self) -> Step<Vec<T>> {
        Step::Last(self.window.drain(..).collect())
    }
}

struct MapConcat<T, I: IntoIterator, G, F> {
    factory: F,
    function: G,
    rest: Option<I::IntoIter>,
    next: Option<I::Item>,
    element: PhantomData<fn(T)>,
}

impl<T: 'static, I, G, F> Transform for MapConcat<T, I, G, F>
where
    I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
    G: FnMut(T) -> I + 'static,
    F: Fn() -> G + 'static,
{
    type In = T;
    type Out = I::Item;

    #[inline]
    fn element(&mut self, element: T) -> Step<I::Item> {
        let rest = self.rest.insert((self.function)(element).into_iter());
        rest.next().map_or(Step::Skip, Step::Emit)
    }

    #[inline]
    fn left_over(&mut self) -> Step<I::Item> {
        if let Some(next) = self.next.take() {
            return Step::Emit(next);
        }
        match self.rest.as_mut().and_then(Iterator::next) {
            Some(next) => Step::Emit(next),
            None => {
                self.rest = None;
                Step::Skip
            }
        }
    }

    fn has_more(&mut self) -> bool {
        if self.next.is_none() {
            self.next = self.rest.as_mut().and_then(Iterator::next);
        }
        self.next.is_some()
    }

    fn restart(&mut self) -> Result<(), StreamError> {
        (self.rest, self.next) = (None, None);
        self.function = (self.factory)();
        Ok(())
    }
}

/// Operators that make groups of elements, or take them apart.
pub trait GroupOps: FlowOps {
    /// Emits vectors of so many elements; the last one may be shorter. Fails with [`IllegalArgument`] if it is to be 0.
    ///
    /// Emits when a group is full, or upstream completed. Back-pressures when a group is full and downstream does.
    /// Completes when upstream completed and the last group is emitted. Cancels when downstream cancels.
    fn grouped(self, size: usize) -> Plain<Self, Vec<Self::Out>> {
        self.via_stage(transform::stage_of("grouped", move || Grouped { size, group: Vec::new() }))
    }

    /// Emits groups that weigh at least so much; the last one may be lighter.
    fn grouped_weighted<F>(self, min_weight: u64, cost: F) -> Plain<Self, Vec<Self::Out>>
    where
        F: FnMut(&Self::Out) -> u64 + Clone + Send + Sync + 'static,
    {
        let factory = move || GroupedWeighted { min_weight, weight: 0, cost, group: Vec::new() };
        self.via_stage(transform::stage_of("grouped_weighted", factory))
    }

    /// Emits groups of neighbours with the same key.
    fn grouped_adjacent_by<K: PartialEq + 'static, F>(self, key: F) -> Plain<Self, Vec<Self::Out>>
    where
        F: FnMut(&Self::Out) -> K + Clone + Send + Sync + 'static,
    {
        self.grouped_adjacent_by_weighted(key, u64::MAX, |_| 0)
    }

    /// Emits groups of neighbours with the same key that weigh at most so much together. An element that weighs more by
    /// itself is emitted alone.
    fn grouped_adjacent_by_weighted<K, F, C>(self, key: F, max_weight: u64, cost: C) -> Plain<Self, Vec<Self::Out>>
    where
        K: PartialEq + 'static,
        F: FnMut(&Self::Out) -> K + Clone + Send + Sync + 'static,
        C: FnMut(&Self::Out) -> u64 + Clone + Send + Sync + 'static,
    {
        let factory = move || GroupedAdjacent {
            key_of: key,
            cost,
            max_weight,
            key: None,
            weight: 0,
            group: Vec::new(),
            heavy: None,
        };
        self.via_stage(transform::stage_of("grouped_adjacent_by", factory))
    }

    /// Emits windows of so many elements, each `step` elements after the one before. The last one may be shorter, if it
    /// has an element that was in none before.
    fn sliding(self, size: usize, step: usize) -> Plain<Self, Vec<Self::Out>>
    where
        Self::Out: Clone,
    {
        let factory = move || Sliding { size, step, window: VecDeque::new(), skip: 0, is_new: false };
        self.via_stage(transform::stage_of("sliding", factory))
    }

    /// Emits, one by one, what the function makes of each element.
    ///
    /// Emits when there is something, or the function makes something of the next element. Back-pressures when downstream
    /// does or something is left. Completes when upstream completed and nothing is left. Cancels when downstream cancels.
    fn map_concat<I, F>(self, function: F) -> Plain<Self, I::Item>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
        F: FnMut(Self::Out) -> I + Clone + Send + Sync + 'static,
    {
        map_concat(self, "map_concat", move || function.clone())
    }

    /// As [`GroupOps::map_concat`], with a function that the factory makes for each materialization, and anew after a
    /// failure with the directive `Restart`.
    fn stateful_map_concat<I, G, F>(self, factory: F) -> Plain<Self, I::Item>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
        G: FnMut(Self::Out) -> I + 'static,
        F: Fn() -> G + Clone + Send + Sync + 'static,
    {
        map_concat(self, "stateful_map_concat", factory)
    }
}

fn map_concat<S: FlowOps, I, G, F>(flow: S, name: &'static str, factory: F) -> Plain<S, I::Item>
where
    I: IntoIterator<Item: 'static, IntoIter: 'static> + 'static,
    G: FnMut(S::Out) -> I + 'static,
    F: Fn() -> G + Clone + Send + Sync + 'static,
{
    flow.via_stage(transform::stage_of(name, move || MapConcat::<S::Out, I, G, F> {
        function: factory(),
        factory,
        rest: None,
        next: None,
        element: PhantomData,
    }))
}

impl<S: FlowOps> GroupOps for S {}
