//! One stream becomes many: a prefix and the rest, a substream for each key, segments.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::marker::PhantomData;

use super::substream::{SubOutlet, Substreams};
use crate::stream::attributes::SubstreamCancelStrategy;
use crate::stream::dsl::Source;
use crate::stream::error::{Cancellation, StreamError};
use crate::stream::interpreter::Context;
use crate::stream::stage::made::{Blueprint, blueprint};
use crate::stream::stage::{FlowPorts, FlowShape, Logic, Setup};

blueprint!(
    /// Takes so many elements off the front and gives the rest as a source.
    ///
    /// Emits once: the elements (fewer if upstream had not more) and the rest. Completes when the rest has. The rest can run
    /// once.
    PrefixAndTail<T> { wanted: usize }
);

impl<T> PrefixAndTail<T> {
    /// So many elements.
    #[must_use]
    pub fn new(wanted: usize) -> PrefixAndTail<T> {
        PrefixAndTail { wanted, elements: PhantomData }
    }
}

/// The running stage of [`PrefixAndTail`].
pub struct PrefixAndTailLogic<T> {
    ports: FlowPorts<T, (Vec<T>, Source<T>)>,
    substreams: Substreams,
    wanted: usize,
    prefix: Vec<T>,
    tail: Option<SubOutlet<T>>,
}

impl<T: Send + 'static> Blueprint for PrefixAndTail<T> {
    type Shape = FlowShape<T, (Vec<T>, Source<T>)>;
    type Logic = PrefixAndTailLogic<T>;
    const NAME: &'static str = "prefix_and_tail";

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn logic(self, ports: FlowPorts<T, (Vec<T>, Source<T>)>, setup: &Setup<'_>) -> Self::Logic {
        let PrefixAndTail { wanted, .. } = self;
        PrefixAndTailLogic { ports, substreams: Substreams::new(setup), wanted, prefix: Vec::new(), tail: None }
    }
}

impl<T: Send + 'static> PrefixAndTailLogic<T> {
    /// Gives what was gathered and goes on with the rest, of which there is none if upstream has ended.
    fn give(&mut self, context: &mut Context, has_ended: bool) {
        let (mut tail, source) = self.substreams.begin();
        if has_ended {
            tail.complete();
        }
        self.tail = Some(tail);
        let prefix = std::mem::take(&mut self.prefix);
        context.emit(&self.ports.outlet, (prefix, source));
        self.ports.outlet.complete(context);
        self.ask(context);
    }

    fn ask(&mut self, context: &mut Context) {
        if self.ports.inlet.is_closed(context) {
            return;
        }
        let Some(tail) = &mut self.tail else { return };
        if let Some(cause) = tail.cancellation() {
            self.ports.inlet.cancel_because(context, cause);
        } else if tail.has_room() {
            self.ports.inlet.try_pull(context);
        }
    }
}

impl<T: Send + 'static> Logic for PrefixAndTailLogic<T> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.ports.inlet.grab(context);
        match &mut self.tail {
            Some(tail) => {
                tail.push(element);
                self.ask(context);
            }
            None => {
                self.prefix.push(element);
                if self.prefix.len() >= self.wanted {
                    self.give(context, false);
                } else {
                    self.ports.inlet.try_pull(context);
                }
            }
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.prefix.len() >= self.wanted {
            self.give(context, false);
        } else {
            self.ports.inlet.try_pull(context);
        }
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.ask(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        match &mut self.tail {
            Some(tail) => tail.complete(),
            None => self.give(context, true),
        }
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        match &mut self.tail {
            Some(tail) => tail.fail(error),
            None => context.fail_stage(error),
        }
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        // With the rest given away, downstream has no part in it any more.
        if self.tail.is_none() {
            context.cancel_stage(cause);
        }
    }
}

/// More keys than a `group_by` may have substreams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {max} substreams: allow `group_by` more, or use a key with fewer values")]
pub struct TooManySubstreams {
    /// How many were allowed.
    pub max: usize,
}

blueprint!(
    /// A substream for each key.
    ///
    /// Emits a key and its substream when the first element of the key comes. Back-pressures when the substream of an element
    /// does: one that is not read holds all up. Completes when upstream does. Fails with [`TooManySubstreams`]. Elements for
    /// a substream that has cancelled are dropped; its key still counts.
    GroupBy<T, K; F> { max: usize, key: F }
);

impl<T, K, F: FnMut(&T) -> K> GroupBy<T, K, F> {
    /// At most so many keys.
    pub fn new(max: usize, key: F) -> Self {
        GroupBy { max, key, elements: PhantomData }
    }
}

/// The running stage of [`GroupBy`].
pub struct GroupByLogic<T, K, F> {
    ports: FlowPorts<T, (K, Source<T>)>,
    substreams: Substreams,
    max: usize,
    key: F,
    open: HashMap<K, SubOutlet<T>>,
    closed: HashSet<K>,
    /// An element whose substream has no room, or is new while downstream does not ask.
    pending: Option<(K, T)>,
}

impl<T: Send + 'static, K, F> Blueprint for GroupBy<T, K, F>
where
    K: Hash + Eq + Clone + Send + 'static,
    F: FnMut(&T) -> K + Clone + Send + Sync + 'static,
{
    type Shape = FlowShape<T, (K, Source<T>)>;
    type Logic = GroupByLogic<T, K, F>;
    const NAME: &'static str = "group_by";

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn logic(self, ports: FlowPorts<T, (K, Source<T>)>, setup: &Setup<'_>) -> Self::Logic {
        let GroupBy { max, key, .. } = self;
        GroupByLogic {
            ports,
            substreams: Substreams::new(setup),
            max,
            key,
            open: HashMap::new(),
            closed: HashSet::new(),
            pending: None,
        }
    }
}

impl<T: Send + 'static, K: Hash + Eq + Clone + Send + 'static, F: FnMut(&T) -> K + 'static> GroupByLogic<T, K, F> {
    /// Gives the element that waits if there is room for it, then asks for the next one.
    fn step(&mut self, context: &mut Context) {
        if let Some((key, element)) = self.pending.take()
            && let Some(again) = self.place(context, key, element)
        {
            self.pending = Some(again);
            return;
        }
        if self.ports.inlet.is_closed(context) {
            self.end(context);
        } else {
            self.ports.inlet.try_pull(context);
        }
    }

    /// The element back if it has to wait.
    fn place(&mut self, context: &mut Context, key: K, element: T) -> Option<(K, T)> {
        if let Some(substream) = self.open.get_mut(&key) {
            if substream.cancellation().is_some() {
                self.open.remove(&key);
                self.closed.insert(key);
                return None;
            }
            if !substream.has_room() {
                return Some((key, element));
            }
            substream.push(element);
            return None;
        }
        if self.closed.contains(&key) || self.ports.outlet.is_closed(context) {
            return None;
        }
        if self.open.len() + self.closed.len() >= self.max {
            context.fail_stage(StreamError::new(TooManySubstreams { max: self.max }));
            return None;
        }
        if !self.ports.outlet.is_available(context) {
            return Some((key, element));
        }
        let (mut substream, source) = self.substreams.begin();
        substream.push(element);
        self.open.insert(key.clone(), substream);
        self.ports.outlet.push(context, (key, source));
        None
    }

    fn end(&mut self, context: &mut Context) {
        for substream in self.open.values_mut() {
            substream.complete();
        }
        context.complete_stage();
    }
}

impl<T: Send + 'static, K: Hash + Eq + Clone + Send + 'static, F: FnMut(&T) -> K + 'static> Logic
    for GroupByLogic<T, K, F>
{
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.ports.inlet.grab(context);
        let key = (self.key)(&element);
        self.pending = Some((key, element));
        self.step(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        // A substream that has cancelled frees its memory now and not with its next element.
        let closed = &mut self.closed;
        self.open.retain(|key, substream| {
            let is_open = substream.cancellation().is_none();
            if !is_open {
                closed.insert(key.clone());
            }
            is_open
        });
        if self.ports.outlet.is_closed(context) && self.open.is_empty() {
            context.cancel_stage(Cancellation::NoMoreElementsNeeded);
        } else if self.pending.is_some() {
            self.step(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.pending.is_none() {
            self.end(context);
        }
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        for substream in self.open.values_mut() {
            substream.fail(error.clone());
        }
        context.fail_stage(error);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        // Substreams that were given away go on; new keys are dropped.
        if self.open.is_empty() {
            context.cancel_stage(cause);
        } else if self.pending.is_some() {
            self.step(context);
        }
    }
}

/// Where a [`Split`] cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The element for which the predicate holds begins a substream.
    When,
    /// It ends one.
    After,
}

blueprint!(
    /// Segments of the stream as substreams, one after the other.
    ///
    /// Emits a substream when a segment begins. Back-pressures when the present substream does. Completes when upstream does.
    /// What happens when a substream cancels is said by [`SubstreamCancelStrategy`]: the rest of its segment is dropped, or
    /// the whole stream is cancelled.
    Split<T; F> { cut: Cut, predicate: F }
);

impl<T, F: FnMut(&T) -> bool> Split<T, F> {
    /// Cuts where the predicate holds.
    pub fn new(cut: Cut, predicate: F) -> Self {
        Split { cut, predicate, elements: PhantomData }
    }
}

/// The running stage of [`Split`].
pub struct SplitLogic<T, F> {
    ports: FlowPorts<T, Source<T>>,
    substreams: Substreams,
    cut: Cut,
    predicate: F,
    propagates: bool,
    /// The present substream, and whether it still takes elements.
    substream: Option<(SubOutlet<T>, bool)>,
    /// An element that waits, and whether it begins a substream.
    pending: Option<(T, bool)>,
    /// The next element begins a substream.
    begins: bool,
}

impl<T: Send + 'static, F: FnMut(&T) -> bool + Clone + Send + Sync + 'static> Blueprint for Split<T, F> {
    type Shape = FlowShape<T, Source<T>>;
    type Logic = SplitLogic<T, F>;
    const NAME: &'static str = "split";

    fn shape(&self) -> Self::Shape {
        FlowShape::new()
    }

    fn logic(self, ports: FlowPorts<T, Source<T>>, setup: &Setup<'_>) -> Self::Logic {
        let Split { cut, predicate, .. } = self;
        let strategy = setup.attributes().get::<SubstreamCancelStrategy>();
        SplitLogic {
            ports,
            substreams: Substreams::new(setup),
            cut,
            predicate,
            propagates: strategy == Some(&SubstreamCancelStrategy::Propagate),
            substream: None,
            pending: None,
            begins: true,
        }
    }
}

impl<T: Send + 'static, F: FnMut(&T) -> bool + 'static> SplitLogic<T, F> {
    fn step(&mut self, context: &mut Context) {
        if let Some((element, begins)) = self.pending.take()
            && let Some(again) = self.place(context, element, begins)
        {
            self.pending = Some(again);
            return;
        }
        if self.propagates
            && let Some((substream, _)) = &self.substream
            && let Some(cause) = substream.cancellation()
        {
            context.cancel_stage(cause);
        } else if self.ports.inlet.is_closed(context) {
            self.end(context);
        } else {
            self.ports.inlet.try_pull(context);
        }
    }

    /// The element back if it has to wait.
    fn place(&mut self, context: &mut Context, element: T, begins: bool) -> Option<(T, bool)> {
        if begins {
            if let Some((mut before, _)) = self.substream.take() {
                before.complete();
            }
            if self.ports.outlet.is_closed(context) {
                context.complete_stage();
                return None;
            }
            if !self.ports.outlet.is_available(context) {
                return Some((element, true));
            }
            let (mut substream, source) = self.substreams.begin();
            substream.push(element);
            self.substream = Some((substream, true));
            self.ports.outlet.push(context, source);
            return None;
        }
        let (substream, open) = self.substream.as_mut()?;
        if !*open || substream.cancellation().is_some() {
            *open = false;
            return None;
        }
        if !substream.has_room() {
            return Some((element, false));
        }
        substream.push(element);
        None
    }

    fn end(&mut self, context: &mut Context) {
        if let Some((substream, _)) = &mut self.substream {
            substream.complete();
        }
        context.complete_stage();
    }
}

impl<T: Send + 'static, F: FnMut(&T) -> bool + 'static> Logic for SplitLogic<T, F> {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.ports.inlet.grab(context);
        let cuts = (self.predicate)(&element);
        let begins = match self.cut {
            Cut::When => self.begins || cuts,
            Cut::After => self.begins,
        };
        self.begins = self.cut == Cut::After && cuts;
        self.pending = Some((element, begins));
        self.step(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        if !self.ports.inlet.is_closed(context) || self.pending.is_some() {
            self.step(context);
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.pending.is_none() {
            self.end(context);
        }
    }

    fn on_upstream_failure(&mut self, context: &mut Context, _: usize, error: StreamError) {
        if let Some((substream, _)) = &mut self.substream {
            substream.fail(error.clone());
        }
        context.fail_stage(error);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        // The present segment is finished for whoever reads it.
        if !self.substream.as_ref().is_some_and(|(substream, open)| *open && substream.cancellation().is_none()) {
            context.cancel_stage(cause);
        }
    }
}
