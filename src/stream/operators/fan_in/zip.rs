//! Elements of two inputs side by side.

use std::marker::PhantomData;

use crate::stream::interpreter::Context;
use crate::stream::stage::made::{Blueprint, blueprint};
use crate::stream::stage::{Logic, Setup, ZipPorts, ZipShape};

blueprint!(
    /// Pairs up elements of two inputs by a function.
    ///
    /// Emits when both inputs have an element. Completes when an input has and none of its elements waits.
    ZipWith<A, B, O; F> { function: F }
);

impl<A, B, O, F: FnMut(A, B) -> O> ZipWith<A, B, O, F> {
    /// The junction of a function.
    pub fn new(function: F) -> Self {
        ZipWith { function, elements: PhantomData }
    }
}

/// Pairs up elements of two inputs.
pub struct Zip;

impl Zip {
    /// The junction that makes pairs.
    #[must_use]
    #[allow(clippy::new_ret_no_self, clippy::type_complexity)]
    pub fn new<A, B>() -> ZipWith<A, B, (A, B), fn(A, B) -> (A, B)> {
        ZipWith::new(|first, second| (first, second))
    }
}

/// The running stage of [`ZipWith`].
pub struct ZipWithLogic<A, B, O, F> {
    ports: ZipPorts<A, B, O>,
    function: F,
    /// An input has ended; the element that it left behind is the last.
    ends: bool,
}

impl<A: 'static, B: 'static, O: 'static, F> Blueprint for ZipWith<A, B, O, F>
where
    F: FnMut(A, B) -> O + Clone + Send + Sync + 'static,
{
    type Shape = ZipShape<A, B, O>;
    type Logic = ZipWithLogic<A, B, O, F>;
    const NAME: &'static str = "zip";

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn logic(self, ports: ZipPorts<A, B, O>, _: &Setup<'_>) -> Self::Logic {
        let ZipWith { function, .. } = self;
        ZipWithLogic { ports, function, ends: false }
    }
}

impl<A: 'static, B: 'static, O: 'static, F: FnMut(A, B) -> O + 'static> ZipWithLogic<A, B, O, F> {
    #[inline]
    fn step(&mut self, context: &mut Context) {
        let ports = &self.ports;
        if !ports.first.is_available(context)
            || !ports.second.is_available(context)
            || !ports.outlet.is_available(context)
        {
            return;
        }
        let (first, second) = (ports.first.grab(context), ports.second.grab(context));
        let element = (self.function)(first, second);
        ports.outlet.push(context, element);
        if self.ends {
            context.complete_stage();
        } else {
            ports.first.pull(context);
            ports.second.pull(context);
        }
    }
}

impl<A: 'static, B: 'static, O: 'static, F: FnMut(A, B) -> O + 'static> Logic for ZipWithLogic<A, B, O, F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.ports.first.pull(context);
        self.ports.second.pull(context);
    }

    #[inline]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        let ports = &self.ports;
        let waits = if inlet == 0 { ports.first.is_available(context) } else { ports.second.is_available(context) };
        if waits {
            self.ends = true;
        } else {
            context.complete_stage();
        }
    }
}

blueprint!(
    /// Pairs the latest elements of two inputs, each time one of them has a new one.
    ///
    /// Emits when either input has an element, after both had one. Completes when both inputs have; a first input that ends
    /// without an element completes it at once.
    ZipLatestWith<A, B, O; F> { function: F }
);

impl<A, B, O, F: FnMut(&A, &B) -> O> ZipLatestWith<A, B, O, F> {
    /// The junction of a function.
    pub fn new(function: F) -> Self {
        ZipLatestWith { function, elements: PhantomData }
    }
}

/// The running stage of [`ZipLatestWith`].
pub struct ZipLatestLogic<A, B, O, F> {
    ports: ZipPorts<A, B, O>,
    function: F,
    first: Option<A>,
    second: Option<B>,
    /// There is a pair that was not emitted.
    news: bool,
}

impl<A: 'static, B: 'static, O: 'static, F> Blueprint for ZipLatestWith<A, B, O, F>
where
    F: FnMut(&A, &B) -> O + Clone + Send + Sync + 'static,
{
    type Shape = ZipShape<A, B, O>;
    type Logic = ZipLatestLogic<A, B, O, F>;
    const NAME: &'static str = "zip_latest";

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn logic(self, ports: ZipPorts<A, B, O>, _: &Setup<'_>) -> Self::Logic {
        let ZipLatestWith { function, .. } = self;
        ZipLatestLogic { ports, function, first: None, second: None, news: false }
    }
}

impl<A: 'static, B: 'static, O: 'static, F: FnMut(&A, &B) -> O + 'static> ZipLatestLogic<A, B, O, F> {
    fn step(&mut self, context: &mut Context) {
        let ports = &self.ports;
        // A new element is taken only when the pair before it is gone, so no pair is lost.
        if !self.news {
            if let Some(first) = ports.first.try_grab(context) {
                self.first = Some(first);
                self.news = self.second.is_some();
            }
            if !self.news
                && let Some(second) = ports.second.try_grab(context)
            {
                self.second = Some(second);
                self.news = self.first.is_some();
            }
        }
        if self.news
            && ports.outlet.is_available(context)
            && let (Some(first), Some(second)) = (&self.first, &self.second)
        {
            let element = (self.function)(first, second);
            ports.outlet.push(context, element);
            self.news = false;
            // An element that has arrived meanwhile waits in its inlet, which must not be pulled then.
            if !ports.first.is_available(context) {
                ports.first.try_pull(context);
            }
            if !ports.second.is_available(context) {
                ports.second.try_pull(context);
            }
        }
        let ended = |closed: bool, available: bool| closed && !available;
        let first_ended = ended(ports.first.is_closed(context), ports.first.is_available(context));
        let second_ended = ended(ports.second.is_closed(context), ports.second.is_available(context));
        let hopeless = (first_ended && self.first.is_none()) || (second_ended && self.second.is_none());
        if hopeless || (first_ended && second_ended && !self.news) {
            context.complete_stage();
        }
    }
}

impl<A: 'static, B: 'static, O: 'static, F: FnMut(&A, &B) -> O + 'static> Logic for ZipLatestLogic<A, B, O, F> {
    fn pre_start(&mut self, context: &mut Context) {
        self.ports.first.pull(context);
        self.ports.second.pull(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }
}
