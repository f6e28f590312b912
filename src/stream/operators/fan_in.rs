//! Junctions that bring streams together: merge, concat, zip and their like.
//!
//! All of them ask each input for its first element when they start, which is what keeps cycles through them alive.
//! [`FanInOps`] has the short forms for two streams; the stages themselves are for [`GraphBuilder`].

use std::collections::VecDeque;
use std::marker::PhantomData;

use crate::stream::attributes::Attributes;
use crate::stream::dsl::{Flow, FlowOps, Fusable, GraphBuilder, Plain, Source};
use crate::stream::interpreter::{Context, Inlet, Outlet};
use crate::stream::stage::{FanInShape, GraphStage, Logic, Setup, ZipPorts, ZipShape};

/// Emits what comes first, from any input.
///
/// Emits when an input has an element, the one that waits for longest first. Completes when all inputs have, or with
/// [`Merge::eager_complete`] when one has.
pub struct Merge<T> {
    inputs: u16,
    eager: bool,
    element: PhantomData<fn(T)>,
}

impl<T> Merge<T> {
    /// A junction with so many inputs.
    #[must_use]
    pub fn new(inputs: u16) -> Merge<T> {
        Merge { inputs, eager: false, element: PhantomData }
    }

    /// Completes when the first input does.
    #[must_use]
    pub fn eager_complete(mut self) -> Merge<T> {
        self.eager = true;
        self
    }
}

/// The running stage of [`Merge`].
pub struct MergeLogic<T> {
    inlets: Vec<Inlet<T>>,
    outlet: Outlet<T>,
    /// Inputs with an element, in the order of its arrival; each at most once.
    waiting: VecDeque<usize>,
    open: usize,
    eager: bool,
}

impl<T: 'static> GraphStage for Merge<T> {
    type Shape = FanInShape<T, T>;
    type Seed = bool;
    type Mat = ();
    type Logic = MergeLogic<T>;

    fn name(&self) -> &'static str {
        "merge"
    }

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.inputs)
    }

    fn prepare(&self, _: &Attributes) -> (bool, ()) {
        (self.eager, ())
    }

    fn create(eager: bool, (inlets, outlet): (Vec<Inlet<T>>, Outlet<T>), _: &Setup<'_>) -> MergeLogic<T> {
        let open = inlets.len();
        MergeLogic { waiting: VecDeque::with_capacity(open), inlets, outlet, open, eager }
    }
}

impl<T: 'static> MergeLogic<T> {
    fn give(&mut self, context: &mut Context, inlet: usize) {
        let inlet = &self.inlets[inlet];
        if let Some(element) = inlet.try_grab(context) {
            self.outlet.push(context, element);
            inlet.try_pull(context);
        }
        if self.open == 0 && self.waiting.is_empty() {
            context.complete_stage();
        }
    }
}

impl<T: 'static> Logic for MergeLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.inlets.is_empty() {
            context.complete_stage();
        }
        for inlet in &self.inlets {
            inlet.try_pull(context);
        }
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        if self.outlet.is_available(context) {
            self.give(context, inlet);
        } else {
            self.waiting.push_back(inlet);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        while let Some(inlet) = self.waiting.pop_front() {
            if self.inlets[inlet].is_available(context) {
                self.give(context, inlet);
                return;
            }
        }
        if self.open == 0 {
            context.complete_stage();
        }
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        if self.eager {
            for inlet in &self.inlets {
                inlet.cancel(context);
            }
            self.open = 0;
            self.waiting.retain(|inlet| self.inlets[*inlet].is_available(context));
        } else {
            self.open -= 1;
        }
        if self.open == 0 && self.waiting.is_empty() {
            context.complete_stage();
        }
    }
}

/// As [`Merge`], but elements of the first input go before all others.
pub struct MergePreferred<T> {
    others: u16,
    element: PhantomData<fn(T)>,
}

impl<T> MergePreferred<T> {
    /// A junction with a preferred input (inlet 0) and so many others.
    #[must_use]
    pub fn new(others: u16) -> MergePreferred<T> {
        MergePreferred { others, element: PhantomData }
    }
}

/// The running stage of [`MergePreferred`].
pub struct MergePreferredLogic<T> {
    merge: MergeLogic<T>,
}

impl<T: 'static> GraphStage for MergePreferred<T> {
    type Shape = FanInShape<T, T>;
    type Seed = ();
    type Mat = ();
    type Logic = MergePreferredLogic<T>;

    fn name(&self) -> &'static str {
        "merge_preferred"
    }

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.others + 1)
    }

    fn prepare(&self, _: &Attributes) -> ((), ()) {
        ((), ())
    }

    fn create((): (), ports: (Vec<Inlet<T>>, Outlet<T>), setup: &Setup<'_>) -> MergePreferredLogic<T> {
        MergePreferredLogic { merge: Merge::create(false, ports, setup) }
    }
}

impl<T: 'static> Logic for MergePreferredLogic<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.merge.pre_start(context);
    }

    fn on_push(&mut self, context: &mut Context, inlet: usize) {
        self.merge.on_push(context, inlet);
    }

    fn on_pull(&mut self, context: &mut Context, outlet: usize) {
        if let Some(at) = self.merge.waiting.iter().position(|inlet| *inlet == 0) {
            self.merge.waiting.remove(at);
            self.merge.waiting.push_front(0);
        }
        self.merge.on_pull(context, outlet);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, inlet: usize) {
        self.merge.on_upstream_finish(context, inlet);
    }
}

/// Two sorted streams become one sorted stream.
///
/// Emits when both inputs have an element, or one has and the other is complete. Completes when both have.
pub struct MergeSorted<T, F> {
    before: F,
    element: PhantomData<fn(T)>,
}

impl<T: Ord> MergeSorted<T, fn(&T, &T) -> bool> {
    /// By the order of the elements.
    #[must_use]
    pub fn new() -> Self {
        MergeSorted { before: |left, right| left <= right, element: PhantomData }
    }
}

impl<T: Ord> Default for MergeSorted<T, fn(&T, &T) -> bool> {
    fn default() -> Self {
        MergeSorted::new()
    }
}

impl<T, F: Fn(&T, &T) -> bool> MergeSorted<T, F> {
    /// By a function that says whether the first may go before the second.
    pub fn by(before: F) -> Self {
        MergeSorted { before, element: PhantomData }
    }
}

/// The running stage of [`MergeSorted`].
pub struct MergeSortedLogic<T, F> {
    ports: ZipPorts<T, T, T>,
    before: F,
    left: Option<T>,
    right: Option<T>,
}

impl<T: 'static, F: Fn(&T, &T) -> bool + Clone + Send + Sync + 'static> GraphStage for MergeSorted<T, F> {
    type Shape = ZipShape<T, T, T>;
    type Seed = F;
    type Mat = ();
    type Logic = MergeSortedLogic<T, F>;

    fn name(&self) -> &'static str {
        "merge_sorted"
    }

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (F, ()) {
        (self.before.clone(), ())
    }

    fn create(before: F, ports: ZipPorts<T, T, T>, _: &Setup<'_>) -> Self::Logic {
        MergeSortedLogic { ports, before, left: None, right: None }
    }
}

impl<T: 'static, F: Fn(&T, &T) -> bool + 'static> MergeSortedLogic<T, F> {
    fn step(&mut self, context: &mut Context) {
        let ports = &self.ports;
        if self.left.is_none() {
            self.left = ports.first.try_grab(context);
        }
        if self.right.is_none() {
            self.right = ports.second.try_grab(context);
        }
        let left_ended = self.left.is_none() && ports.first.is_closed(context);
        let right_ended = self.right.is_none() && ports.second.is_closed(context);
        if left_ended && right_ended {
            context.complete_stage();
            return;
        }
        if !ports.outlet.is_available(context) {
            return;
        }
        let take_left = match (&self.left, &self.right) {
            (Some(left), Some(right)) => (self.before)(left, right),
            (Some(_), None) if right_ended => true,
            (None, Some(_)) if left_ended => false,
            _ => return,
        };
        let (element, inlet) =
            if take_left { (self.left.take(), &ports.first) } else { (self.right.take(), &ports.second) };
        if let Some(element) = element {
            ports.outlet.push(context, element);
            inlet.try_pull(context);
        }
        let ended = |element: &Option<T>, inlet: &Inlet<T>, context: &Context| {
            element.is_none() && inlet.is_closed(context) && !inlet.is_available(context)
        };
        if ended(&self.left, &ports.first, context) && ended(&self.right, &ports.second, context) {
            context.complete_stage();
        }
    }
}

impl<T: 'static, F: Fn(&T, &T) -> bool + 'static> Logic for MergeSortedLogic<T, F> {
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

/// Segments of each input in turn.
///
/// Emits so many elements of an input, then of the next. Completes when all inputs have; an input that is complete is
/// passed over.
pub struct Interleave<T> {
    inputs: u16,
    segment: usize,
    eager: bool,
    element: PhantomData<fn(T)>,
}

impl<T> Interleave<T> {
    /// A junction with so many inputs and segments of so many elements (at least one).
    #[must_use]
    pub fn new(inputs: u16, segment: usize) -> Interleave<T> {
        Interleave { inputs, segment: segment.max(1), eager: false, element: PhantomData }
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

impl<T: 'static> GraphStage for Interleave<T> {
    type Shape = FanInShape<T, T>;
    type Seed = (usize, bool);
    type Mat = ();
    type Logic = InterleaveLogic<T>;

    fn name(&self) -> &'static str {
        "interleave"
    }

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.inputs)
    }

    fn prepare(&self, _: &Attributes) -> (Self::Seed, ()) {
        ((self.segment, self.eager), ())
    }

    fn create(
        (segment, eager): Self::Seed,
        (inlets, outlet): (Vec<Inlet<T>>, Outlet<T>),
        _: &Setup<'_>,
    ) -> Self::Logic {
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

/// One input after the other.
///
/// Emits what the present input has; when it completes the next one follows. Completes when all inputs have.
pub struct Concat<T> {
    inputs: u16,
    detached: bool,
    element: PhantomData<fn(T)>,
}

impl<T> Concat<T> {
    /// A junction with so many inputs, each of which is asked for its first element at once.
    #[must_use]
    pub fn new(inputs: u16) -> Concat<T> {
        Concat { inputs, detached: true, element: PhantomData }
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

impl<T: 'static> GraphStage for Concat<T> {
    type Shape = FanInShape<T, T>;
    type Seed = bool;
    type Mat = ();
    type Logic = ConcatLogic<T>;

    fn name(&self) -> &'static str {
        "concat"
    }

    fn shape(&self) -> Self::Shape {
        FanInShape::new(self.inputs)
    }

    fn prepare(&self, _: &Attributes) -> (bool, ()) {
        (self.detached, ())
    }

    fn create(detached: bool, (inlets, outlet): (Vec<Inlet<T>>, Outlet<T>), _: &Setup<'_>) -> ConcatLogic<T> {
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

/// The second input only if the first ends without an element.
///
/// Emits what the first input has; the second is cancelled with its first element. Completes with the one that is used.
pub struct OrElse<T>(PhantomData<fn(T)>);

impl<T> OrElse<T> {
    /// The junction: inlet 0 is the primary.
    #[must_use]
    pub fn new() -> OrElse<T> {
        OrElse(PhantomData)
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

impl<T: 'static> GraphStage for OrElse<T> {
    type Shape = ZipShape<T, T, T>;
    type Seed = ();
    type Mat = ();
    type Logic = OrElseLogic<T>;

    fn name(&self) -> &'static str {
        "or_else"
    }

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn prepare(&self, _: &Attributes) -> ((), ()) {
        ((), ())
    }

    fn create((): (), ports: ZipPorts<T, T, T>, _: &Setup<'_>) -> OrElseLogic<T> {
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

/// Pairs up elements of two inputs by a function.
///
/// Emits when both inputs have an element. Completes when an input has and none of its elements waits.
pub struct ZipWith<A, B, O, F> {
    function: F,
    types: PhantomData<fn(A, B) -> O>,
}

impl<A, B, O, F: FnMut(A, B) -> O> ZipWith<A, B, O, F> {
    /// The junction of a function.
    pub fn new(function: F) -> Self {
        ZipWith { function, types: PhantomData }
    }
}

/// Pairs up elements of two inputs.
pub struct Zip;

impl Zip {
    /// The junction that makes pairs.
    #[must_use]
    #[allow(clippy::new_ret_no_self)]
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

impl<A: 'static, B: 'static, O: 'static, F> GraphStage for ZipWith<A, B, O, F>
where
    F: FnMut(A, B) -> O + Clone + Send + Sync + 'static,
{
    type Shape = ZipShape<A, B, O>;
    type Seed = F;
    type Mat = ();
    type Logic = ZipWithLogic<A, B, O, F>;

    fn name(&self) -> &'static str {
        "zip"
    }

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (F, ()) {
        (self.function.clone(), ())
    }

    fn create(function: F, ports: ZipPorts<A, B, O>, _: &Setup<'_>) -> Self::Logic {
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

/// Pairs the latest elements of two inputs, each time one of them has a new one.
///
/// Emits when either input has an element, after both had one. Completes when both inputs have; a first input that ends
/// without an element completes it at once.
pub struct ZipLatestWith<A, B, O, F> {
    function: F,
    types: PhantomData<fn(A, B) -> O>,
}

impl<A, B, O, F: FnMut(&A, &B) -> O> ZipLatestWith<A, B, O, F> {
    /// The junction of a function.
    pub fn new(function: F) -> Self {
        ZipLatestWith { function, types: PhantomData }
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

impl<A: 'static, B: 'static, O: 'static, F> GraphStage for ZipLatestWith<A, B, O, F>
where
    F: FnMut(&A, &B) -> O + Clone + Send + Sync + 'static,
{
    type Shape = ZipShape<A, B, O>;
    type Seed = F;
    type Mat = ();
    type Logic = ZipLatestLogic<A, B, O, F>;

    fn name(&self) -> &'static str {
        "zip_latest"
    }

    fn shape(&self) -> Self::Shape {
        ZipShape::new()
    }

    fn prepare(&self, _: &Attributes) -> (F, ()) {
        (self.function.clone(), ())
    }

    fn create(function: F, ports: ZipPorts<A, B, O>, _: &Setup<'_>) -> Self::Logic {
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

/// A junction of several inputs as a flow: what comes in is input 0, the other source is input 1.
fn beside<T: 'static, M: 'static, P: Fusable<Out = T>, G>(junction: G, other: Source<T, M, P>) -> Flow<T, T, M>
where
    G: GraphStage<Shape = FanInShape<T, T>>,
{
    let (mut graph, source) = GraphBuilder::with(other);
    let junction = graph.add_stage(junction);
    graph.connect(source, junction.inlets[1]);
    graph.flow(junction.inlets[0], junction.outlet).expect("both inputs of the junction are used")
}

/// A junction of two types as a flow.
fn across<A: 'static, B: 'static, O: 'static, M: 'static, P: Fusable<Out = B>, G>(
    junction: G,
    other: Source<B, M, P>,
) -> Flow<A, O, M>
where
    G: GraphStage<Shape = ZipShape<A, B, O>>,
{
    let (mut graph, source) = GraphBuilder::with(other);
    let junction = graph.add_stage(junction);
    graph.connect(source, junction.second);
    graph.flow(junction.first, junction.outlet).expect("both inputs of the junction are used")
}

/// Short forms for junctions with one other source. The materialized value is that of this stream; use
/// [`FlowOps::via_mat`] with the flows of a [`GraphBuilder`] for others.
pub trait FanInOps: FlowOps {
    /// See [`Merge`].
    fn merge<M: 'static, P: Fusable<Out = Self::Out>>(self, other: Source<Self::Out, M, P>) -> Plain<Self, Self::Out> {
        self.via(beside(Merge::new(2), other))
    }

    /// See [`MergePreferred`]; this stream is the preferred one.
    fn merge_preferred<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        self.via(beside(MergePreferred::new(1), other))
    }

    /// See [`MergeSorted`].
    fn merge_sorted<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out>
    where
        Self::Out: Ord,
    {
        self.via(across(MergeSorted::new(), other))
    }

    /// See [`Interleave`].
    fn interleave<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
        segment: usize,
    ) -> Plain<Self, Self::Out> {
        self.via(beside(Interleave::new(2, segment), other))
    }

    /// See [`Concat`]: the other source starts at once and is asked for its first element.
    fn concat<M: 'static, P: Fusable<Out = Self::Out>>(self, other: Source<Self::Out, M, P>) -> Plain<Self, Self::Out> {
        self.via(beside(Concat::new(2), other))
    }

    /// See [`Concat::lazy`].
    fn concat_lazy<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        self.via(beside(Concat::new(2).lazy(), other))
    }

    /// The other source before this stream; see [`Concat`].
    fn prepend<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        let (mut graph, source) = GraphBuilder::with(other);
        let concat = graph.add_stage(Concat::new(2));
        graph.connect(source, concat.inlets[0]);
        let flow: Flow<Self::Out, Self::Out, M> =
            graph.flow(concat.inlets[1], concat.outlet).expect("both inputs of the junction are used");
        self.via(flow)
    }

    /// See [`OrElse`].
    fn or_else<M: 'static, P: Fusable<Out = Self::Out>>(
        self,
        other: Source<Self::Out, M, P>,
    ) -> Plain<Self, Self::Out> {
        self.via(across(OrElse::new(), other))
    }

    /// See [`Zip`].
    fn zip<B: 'static, M: 'static, P: Fusable<Out = B>>(self, other: Source<B, M, P>) -> Plain<Self, (Self::Out, B)> {
        self.via(across(Zip::new(), other))
    }

    /// See [`ZipWith`].
    fn zip_with<B: 'static, O: 'static, M: 'static, P: Fusable<Out = B>>(
        self,
        other: Source<B, M, P>,
        function: impl FnMut(Self::Out, B) -> O + Clone + Send + Sync + 'static,
    ) -> Plain<Self, O> {
        self.via(across(ZipWith::new(function), other))
    }

    /// See [`ZipLatestWith`].
    fn zip_latest_with<B: 'static, O: 'static, M: 'static, P: Fusable<Out = B>>(
        self,
        other: Source<B, M, P>,
        function: impl FnMut(&Self::Out, &B) -> O + Clone + Send + Sync + 'static,
    ) -> Plain<Self, O> {
        self.via(across(ZipLatestWith::new(function), other))
    }
}

impl<S: FlowOps> FanInOps for S {}
