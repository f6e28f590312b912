//! One input after the other: whole, in segments, or the second only if the first is empty.

use std::marker::PhantomData;

use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::made::{Blueprint, blueprint};
use crate::stream::stage::{FanInShape, Logic, Setup, ZipPorts, ZipShape};

blueprint!(
    /// Segments of each input in turn.
    ///
    /// Emits so many elements of an input, then of the next. Completes when all inputs have; an input that is complete is
    /// passed over.
    Interleave<T> { inputs: u16, segment: usize, eager: bool }
);

impl<T> Interleave<T> {
    /// A junction with so many inputs and segments of so many elements (at least one).
    #[must_use]
    pub fn new(inputs: u16, segment: usize) -> Interleave<T> {
        Interleave { inputs, segment: segment.max(1), eager: false, elements: PhantomData }
    }

    /// Completes when the first input does.
    #[must_use]
    pub fn eager_close(mut self) -> Interleave<T> {
        self.eager = true;
        self
    }
}

/// The running stage of [`Interleave`].
pub struct InterleaveLogic<T> {
    inlets: Vec<Inlet<T>>,
    outlet: Outlet<T>,
    segment: usize,
    eager: bool,
    current: usize,
    given: usize,
    open: usize,
}

impl<T: 'static> Blueprint for Interleave<T> {
    type Shape = FanInShape<T, T>;
    type Logic = InterleaveLogic<T>;
    const NAME: &'static str = "interleave";

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.inputs)
    }

    fn logic(self, (inlets, outlet): (Vec<Inlet<T>>, Outlet<T>), _: &Setup<'_>) -> Self::Logic {
        let Interleave { segment, eager, .. } = self;
        let open = inlets.len();
        InterleaveLogic { inlets, outlet, segment, eager, current: 0, given: 0, open }
    }
}

impl<T: 'static> InterleaveLogic<T> {
    fn next_input(&mut self, context: &Context) {
        self.given = 0;
        for _ in 0..self.inlets.len() {
            self.current = (self.current + 1) % self.inlets.len();
            let inlet = &self.inlets[self.current];
            if !inlet.is_closed(context) || inlet.is_available(context) {
                return;
            }
        }
    }
}

impl<T: 'static> Logic for InterleaveLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.inlets.is_empty() {
            context.complete_stage();
        }
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        let element = self.inlets[inlet].grab(context);
        self.outlet.push(context, element);
        self.given += 1;
        if self.given == self.segment {
            self.next_input(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlets[self.current].try_pull(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        self.open -= 1;
        if self.open == 0 || self.eager {
            context.complete_stage();
        } else if inlet == self.current {
            self.next_input(context);
            if self.outlet.is_available(context) {
                self.inlets[self.current].try_pull(context);
            }
        }
    }
}

blueprint!(
    /// One input after the other.
    ///
    /// Emits what the present input has; when it completes the next one follows. Completes when all inputs have.
    Concat<T> { inputs: u16, detached: bool }
);

impl<T> Concat<T> {
    /// A junction with so many inputs, each of which is asked for its first element at once.
    #[must_use]
    pub fn new(inputs: u16) -> Concat<T> {
        Concat { inputs, detached: true, elements: PhantomData }
    }

    /// An input is asked for nothing before it is its turn.
    #[must_use]
    pub fn lazy(mut self) -> Concat<T> {
        self.detached = false;
        self
    }
}

/// The running stage of [`Concat`].
pub struct ConcatLogic<T> {
    inlets: Vec<Inlet<T>>,
    outlet: Outlet<T>,
    detached: bool,
    active: usize,
    ended: Vec<bool>,
}

impl<T: 'static> Blueprint for Concat<T> {
    type Shape = FanInShape<T, T>;
    type Logic = ConcatLogic<T>;
    const NAME: &'static str = "concat";

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.inputs)
    }

    fn logic(self, (inlets, outlet): (Vec<Inlet<T>>, Outlet<T>), _: &Setup<'_>) -> Self::Logic {
        let Concat { detached, .. } = self;
        let ended = vec![false; inlets.len()];
        ConcatLogic { inlets, outlet, detached, active: 0, ended }
    }
}

impl<T: 'static> ConcatLogic<T> {
    /// Gives an element of the active input if it is there and wanted, asks for one if not.
    fn step(&mut self, context: &mut Context) {
        while let Some(inlet) = self.inlets.get(self.active) {
            if inlet.is_available(context) {
                if self.outlet.is_available(context)
                    && let Some(element) = inlet.try_grab(context)
                {
                    self.outlet.push(context, element);
                    if self.detached {
                        inlet.try_pull(context);
                    }
                }
                // The element that was pushed may have been the last of all.
                if inlet.is_available(context) || !self.ended[self.active] {
                    return;
                }
            } else if !self.ended[self.active] {
                if self.outlet.is_available(context) {
                    inlet.try_pull(context);
                }
                return;
            }
            self.active += 1;
        }
        context.complete_stage();
    }
}

impl<T: 'static> Logic for ConcatLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.inlets.is_empty() {
            context.complete_stage();
        }
        if self.detached {
            for inlet in &self.inlets {
                inlet.try_pull(context);
            }
        }
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        if inlet == self.active {
            self.step(context);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.step(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        self.ended[inlet] = true;
        if inlet == self.active {
            self.step(context);
        }
    }
}

blueprint!(
    /// The second input only if the first ends without an element.
    ///
    /// Emits what the first input has; the second is cancelled with its first element. Completes with the one that is used.
    OrElse<T> {}
);

impl<T> OrElse<T> {
    /// The junction: inlet 0 is the primary.
    #[must_use]
    pub fn new() -> OrElse<T> {
        OrElse { elements: PhantomData }
    }
}

impl<T> Default for OrElse<T> {
    fn default() -> Self {
        OrElse::new()
    }
}

/// The running stage of [`OrElse`].
pub struct OrElseLogic<T> {
    ports: ZipPorts<T, T, T>,
    /// The first input has given an element, or ended.
    decided: bool,
    uses_second: bool,
}

impl<T: 'static> Blueprint for OrElse<T> {
    type Shape = ZipShape<T, T, T>;
    type Logic = OrElseLogic<T>;
    const NAME: &'static str = "or_else";

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn logic(self, ports: ZipPorts<T, T, T>, _: &Setup<'_>) -> Self::Logic {
        OrElseLogic { ports, decided: false, uses_second: false }
    }
}

impl<T: 'static> Logic for OrElseLogic<T> {
    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        let ports = &self.ports;
        if inlet == 0 {
            if !self.decided {
                self.decided = true;
                ports.second.cancel(context);
            }
            let element = ports.first.grab(context);
            ports.outlet.push(context, element);
        } else {
            let element = ports.second.grab(context);
            ports.outlet.push(context, element);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        if self.uses_second { self.ports.second.try_pull(context) } else { self.ports.first.try_pull(context) }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        if inlet == 0 {
            if self.decided || self.ports.second.is_closed(context) {
                context.complete_stage();
                return;
            }
            self.decided = true;
            self.uses_second = true;
            if self.ports.outlet.is_available(context) {
                self.ports.second.try_pull(context);
            }
        } else if self.uses_second || self.ports.first.is_closed(context) {
            context.complete_stage();
        }
    }
}
