//! The two stages of a boundary: the end of one island and the beginning of another.
//!
//! Made by [`super::BoundaryType`] for the materializer, around one [`ring`](super::ring). The output takes elements out
//! of its island as long as there is a free place; the input gives them out in the other island as they are asked for.
//! Invariants: an inlet is pulled only if there is a place for the element; what is written is published when the
//! consumer is idle, when a batch is full, or when the run of the island ends, whichever comes first.

use super::patience::{Advice, Patience};
use super::ring::{Consumer, End, Producer};
use crate::stream::attributes::Attributes;
use crate::stream::error::{AbruptTermination, Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet, Outlet, WiringError};
use crate::stream::stage::erased::{BuilderHandle, Seed};
use crate::stream::stage::{Logic, Setup};

/// Elements that are published together while the consumer is busy: at this size the cost of a publication is hidden,
/// and larger ones gain nothing.
const PUBLISHED_AT: u64 = 16;

const OUTPUT: &str = "boundary-output";
const INPUT: &str = "boundary-input";

/// The last stage of an island: an inlet whose elements go to another island.
pub(super) struct BoundaryOutput<T> {
    inlet: Inlet<T>,
    producer: Producer<T>,
    publish_at: u64,
    patience: Patience,
    /// There was no place when one was wanted.
    starved: bool,
    /// `on_run_end` is going to be called.
    at_run_end: bool,
    /// `on_look` is going to be called.
    looking: bool,
}

impl<T: Send + 'static> BoundaryOutput<T> {
    fn new(inlet: Inlet<T>, mut producer: Producer<T>, setup: &Setup<'_>) -> Self {
        producer.attach(setup.waker());
        let publish_at = PUBLISHED_AT.min(producer.capacity() as u64 / 2).max(1);
        let patience = Patience::new();
        BoundaryOutput { inlet, producer, publish_at, patience, starved: false, at_run_end: false, looking: false }
    }

    /// Asks for the next element if there is a place for it.
    #[inline(always)]
    fn advance(&mut self, context: &mut Context) {
        if self.producer.has_room() {
            self.patience.rewarded(context.now());
            self.starved = false;
            self.inlet.pull(context);
        } else {
            self.starve(context);
        }
    }

    #[cold]
    #[inline(never)]
    fn starve(&mut self, context: &mut Context) {
        self.starved = true;
        self.producer.publish();
        if self.looking {
            return;
        }
        if self.patience.disappointed(context.now()) != Advice::Wait || !self.producer.wait() {
            self.looking = true;
            context.look_again();
        }
    }

    /// Something may have changed on the other side.
    fn look(&mut self, context: &mut Context) {
        if let Some(cause) = self.producer.cancellation() {
            self.cancel(context, cause);
        } else if self.starved && !self.inlet.is_closed(context) {
            self.advance(context);
        }
    }

    #[cold]
    #[inline(never)]
    fn cancel(&mut self, context: &mut Context, cause: Option<Cancellation>) {
        let cause = cause.unwrap_or_else(|| Cancellation::Failed(StreamError::new(AbruptTermination)));
        self.inlet.cancel_because(context, cause);
    }
}

impl<T: Send + 'static> Logic for BoundaryOutput<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.starved = true;
        self.look(context);
    }

    #[inline(always)]
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        if let Some(cause) = self.producer.cancellation() {
            drop(element);
            self.cancel(context, cause);
            return;
        }
        // There is a place: it was there when the inlet was pulled.
        drop(self.producer.write(element));
        if self.producer.unpublished() >= self.publish_at || self.producer.is_consumer_idle() {
            self.producer.publish();
        } else if !self.at_run_end {
            self.at_run_end = true;
            context.call_at_run_end();
        }
        // The element may have come together with the end of upstream, which is handled next.
        self.advance(context);
    }

    fn on_upstream_finish(&mut self, _: &mut Context, _: usize) {
        self.producer.complete();
    }

    fn on_upstream_failure(&mut self, _: &mut Context, _: usize, error: StreamError) {
        self.producer.fail(error);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.look(context);
    }

    fn on_look(&mut self, context: &mut Context) {
        self.looking = false;
        self.look(context);
    }

    fn on_run_end(&mut self, _: &mut Context) {
        self.at_run_end = false;
        self.producer.publish();
    }
}

/// The first stage of an island: an outlet whose elements come from another island.
pub(super) struct BoundaryInput<T> {
    outlet: Outlet<T>,
    consumer: Consumer<T>,
    patience: Patience,
    looking: bool,
}

impl<T: Send + 'static> BoundaryInput<T> {
    fn new(outlet: Outlet<T>, mut consumer: Consumer<T>, setup: &Setup<'_>) -> Self {
        consumer.attach(setup.waker());
        BoundaryInput { outlet, consumer, patience: Patience::new(), looking: false }
    }

    /// Gives out an element, which was asked for.
    #[inline(always)]
    fn supply(&mut self, context: &mut Context) {
        if self.consumer.is_open()
            && let Some(element) = self.consumer.take()
        {
            self.patience.rewarded(context.now());
            self.outlet.push(context, element);
            return;
        }
        self.supply_slowly(context);
    }

    #[cold]
    #[inline(never)]
    fn supply_slowly(&mut self, context: &mut Context) {
        match self.consumer.end() {
            // Empty: an end that came since the look before is seen by `wait`.
            End::Open => self.starve(context),
            End::Completed => {
                if let Some(element) = self.consumer.take() {
                    self.outlet.push(context, element);
                }
                if !self.consumer.has_next() {
                    self.outlet.complete(context);
                }
            }
            End::Failed(error) => self.fail(context, error),
            End::Gone => self.fail(context, StreamError::new(AbruptTermination)),
        }
    }

    fn starve(&mut self, context: &mut Context) {
        self.consumer.release();
        if self.looking {
            return;
        }
        let looks = match self.patience.disappointed(context.now()) {
            Advice::Look => true,
            Advice::SayIdle => {
                self.consumer.announce_idle();
                true
            }
            Advice::Wait => !self.consumer.wait(),
        };
        if looks {
            self.looking = true;
            context.look_again();
        }
    }

    fn fail(&mut self, context: &mut Context, error: StreamError) {
        // The elements in the ring are dropped with the consumer.
        self.outlet.fail(context, error);
    }

    /// Something may have changed on the other side. Ends reach downstream without demand, elements do not.
    fn look(&mut self, context: &mut Context) {
        if self.outlet.is_closed(context) {
            return;
        }
        if self.outlet.is_available(context) {
            self.supply(context);
            return;
        }
        match self.consumer.end() {
            End::Open => {}
            End::Completed => {
                if !self.consumer.has_next() {
                    self.outlet.complete(context);
                }
            }
            End::Failed(error) => self.fail(context, error),
            End::Gone => self.fail(context, StreamError::new(AbruptTermination)),
        }
    }
}

impl<T: Send + 'static> Logic for BoundaryInput<T> {
    fn pre_start(&mut self, context: &mut Context) {
        self.look(context);
    }

    #[inline(always)]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.supply(context);
    }

    fn on_downstream_finish(&mut self, _: &mut Context, _: usize, cause: Cancellation) {
        self.consumer.cancel(cause);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.look(context);
    }

    fn on_look(&mut self, context: &mut Context) {
        self.looking = false;
        self.look(context);
    }
}

/// What goes to the core of the producing island.
pub(super) struct OutputSeed<T>(pub Producer<T>);

/// What goes to the core of the consuming island.
pub(super) struct InputSeed<T>(pub Consumer<T>);

impl<T: Send + 'static> Seed for OutputSeed<T> {
    fn wire(&self, handle: &mut BuilderHandle<'_>) -> Result<usize, WiringError> {
        let mut wiring = handle.builder.begin(OUTPUT, handle.inlets, handle.outlets);
        wiring.inlet::<T>();
        Ok(wiring.finish()?.first_port())
    }

    fn grow(self: Box<Self>, handle: &mut BuilderHandle<'_>, attributes: &Attributes) -> Result<usize, WiringError> {
        let BuilderHandle { builder, inlets, outlets } = handle;
        let (stage, inbox) = (builder.next_stage(), std::sync::Arc::clone(builder.inbox()));
        let mut wiring = builder.begin(OUTPUT, inlets, outlets);
        let inlet = wiring.inlet();
        let wired = wiring.finish()?;
        let first_port = wired.first_port();
        let logic = BoundaryOutput::<T>::new(inlet, self.0, &Setup { attributes, inbox: &inbox, stage });
        builder.add(logic, wired, attributes)?;
        Ok(first_port)
    }
}

impl<T: Send + 'static> Seed for InputSeed<T> {
    fn wire(&self, handle: &mut BuilderHandle<'_>) -> Result<usize, WiringError> {
        let mut wiring = handle.builder.begin(INPUT, handle.inlets, handle.outlets);
        wiring.outlet::<T>();
        Ok(wiring.finish()?.first_port())
    }

    fn grow(self: Box<Self>, handle: &mut BuilderHandle<'_>, attributes: &Attributes) -> Result<usize, WiringError> {
        let BuilderHandle { builder, inlets, outlets } = handle;
        let (stage, inbox) = (builder.next_stage(), std::sync::Arc::clone(builder.inbox()));
        let mut wiring = builder.begin(INPUT, inlets, outlets);
        let outlet = wiring.outlet();
        let wired = wiring.finish()?;
        let first_port = wired.first_port();
        let logic = BoundaryInput::<T>::new(outlet, self.0, &Setup { attributes, inbox: &inbox, stage });
        builder.add(logic, wired, attributes)?;
        Ok(first_port)
    }
}
