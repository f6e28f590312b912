//! Ends of streams that are held outside of them: [`Source::queue`] to put elements in, [`Sink::queue`] to take them out.
//!
//! Both handles work from any thread. Invariants: what was said to be enqueued is emitted unless the stream fails or is
//! cancelled; the flag that says the stage waits is set before it looks once more, and read after an element is there,
//! with a sequentially consistent fence on both sides, so no element is left lying.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use crossbeam_queue::ArrayQueue;
use futures_core::Stream;

use super::nested::RingSink;
use crate::stream::attributes::InputBuffer;
use crate::stream::boundary::ring::{CAPACITY_MAX, Consumer, End, ring};
use crate::stream::dsl::{Fusable, RunnableGraph, Sink, Source};
use crate::stream::error::{AbruptTermination, Cancellation, IllegalArgument, StreamError};
use crate::stream::interpreter::{Context, Outlet};
use crate::stream::stage::made::stage_with;
use crate::stream::stage::{Logic, Setup, SinkShape, SourceShape};

/// No element is taken any more.
const CLOSED: usize = 1;
/// One offer that is being made.
const OFFERING: usize = 2;

/// What became of an offer.
#[derive(Debug)]
#[must_use = "the element may have been refused"]
pub enum Offered<T> {
    /// It will be emitted, unless the stream fails or is cancelled.
    Enqueued,
    /// The buffer is full.
    Dropped(T),
    /// The source has failed.
    Failed(StreamError),
    /// The source has completed, was cancelled, or was stopped.
    Closed(T),
}

impl<T> Offered<T> {
    /// Whether it was taken.
    #[must_use]
    pub fn is_enqueued(&self) -> bool {
        matches!(self, Offered::Enqueued)
    }
}

struct Shared<T> {
    elements: ArrayQueue<T>,
    /// [`CLOSED`], and [`OFFERING`] for each offer that is being made.
    state: AtomicUsize,
    /// The stage found nothing when it was asked.
    is_starved: AtomicBool,
    handles: AtomicUsize,
    failure: Mutex<Option<StreamError>>,
    waker: Mutex<Option<Waker>>,
}

impl<T> Shared<T> {
    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker.wake_by_ref();
        }
    }

    fn failure(&self) -> Option<StreamError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
    }
}

/// Puts elements into a [`Source::queue`], from any thread. When the last clone is dropped the source completes.
pub struct BoundedQueue<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for BoundedQueue<T> {
    fn clone(&self) -> Self {
        self.shared.handles.fetch_add(1, Ordering::Relaxed);
        BoundedQueue { shared: Arc::clone(&self.shared) }
    }
}

impl<T> BoundedQueue<T> {
    /// Puts an element in. Never waits.
    pub fn offer(&self, element: T) -> Offered<T> {
        let shared = &*self.shared;
        if shared.state.fetch_add(OFFERING, Ordering::AcqRel) & CLOSED != 0 {
            shared.state.fetch_sub(OFFERING, Ordering::AcqRel);
            return match shared.failure() {
                Some(error) => Offered::Failed(error),
                None => Offered::Closed(element),
            };
        }
        let pushed = shared.elements.push(element);
        // Closed meanwhile: the stage waits for the last offer before it completes.
        let was_closed = shared.state.fetch_sub(OFFERING, Ordering::AcqRel) & CLOSED != 0;
        fence(Ordering::SeqCst);
        if was_closed || shared.is_starved.swap(false, Ordering::AcqRel) {
            shared.wake();
        }
        match pushed {
            Ok(()) => Offered::Enqueued,
            Err(element) => Offered::Dropped(element),
        }
    }

    /// The source completes when everything in the queue is emitted. Nothing more is taken.
    pub fn complete(&self) {
        self.shared.close();
        self.shared.wake();
    }

    /// The source fails at once; what is in the queue is dropped. Nothing happens if it has completed or failed before.
    pub fn fail(&self, error: StreamError) {
        let mut failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.state.load(Ordering::Acquire) & CLOSED == 0 {
            *failure = Some(error);
            self.shared.close();
        }
        drop(failure);
        self.shared.wake();
    }

    /// Whether it takes no elements any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Elements that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.elements.len()
    }

    /// Whether no element waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.elements.is_empty()
    }
}

impl<T> Drop for BoundedQueue<T> {
    fn drop(&mut self) {
        if self.shared.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete();
        }
    }
}

struct QueueSource<T> {
    outlet: Outlet<T>,
    shared: Arc<Shared<T>>,
    is_refused: bool,
}

impl<T: 'static> QueueSource<T> {
    fn look(&mut self, context: &mut Context) {
        let shared = &*self.shared;
        // Read before the queue: if it is closed and nobody offers, an empty queue stays empty.
        let state = shared.state.load(Ordering::Acquire);
        if state & CLOSED != 0
            && let Some(error) = shared.failure()
        {
            return context.fail_stage(error);
        }
        if self.outlet.is_available(context) {
            let mut element = shared.elements.pop();
            if element.is_none() {
                shared.is_starved.store(true, Ordering::Release);
                fence(Ordering::SeqCst);
                element = shared.elements.pop();
            }
            if let Some(element) = element {
                shared.is_starved.store(false, Ordering::Relaxed);
                self.outlet.push(context, element);
            }
        }
        if state == CLOSED && shared.elements.is_empty() {
            context.complete_stage();
        }
    }
}

impl<T: 'static> Logic for QueueSource<T> {
    fn pre_start(&mut self, context: &mut Context) {
        if self.is_refused {
            self.shared.close();
            let what = "it needs room for at least one element";
            return context.fail_stage(StreamError::new(IllegalArgument { operator: "queue", what }));
        }
        self.look(context);
    }

    #[inline]
    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.look(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.look(context);
    }
}

impl<T> Drop for QueueSource<T> {
    fn drop(&mut self) {
        self.shared.close();
        while self.shared.elements.pop().is_some() {}
    }
}

impl<T: Send + 'static> Source<T, BoundedQueue<T>> {
    /// Emits what is put into the materialized queue, which holds `buffer` elements (up to 65536).
    ///
    /// Emits when downstream asks and there is an element. A full queue refuses elements. Completes when the queue was
    /// completed, or all its handles dropped, and everything is emitted. Fails with [`IllegalArgument`] if `buffer` is 0.
    ///
    /// ```
    /// use atoll::stream::dsl::{FlowOps, Sink, Source, keep};
    /// use atoll::stream::operators::queues::Offered;
    ///
    /// let graph = Source::queue(16).to_mat(Sink::<u32, _>::seq(), keep::both);
    /// # let host = atoll::stream::host::StreamHost::new(atoll::stream::host::HostInbox::new());
    /// let (queue, mut all) = graph.run_on(&host)?;
    /// assert!(queue.offer(1).is_enqueued());
    /// queue.complete();
    /// assert!(matches!(queue.offer(2), Offered::Closed(2)));
    /// # while host.run_one(atoll::base::Nanos::ZERO) {}
    /// assert_eq!(all.try_take().unwrap()?, [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn queue(buffer: usize) -> Source<T, BoundedQueue<T>> {
        Source::from_stage(stage_with("queue", SourceShape::new(), move |_| {
            let shared = Arc::new(Shared {
                elements: ArrayQueue::new(buffer.clamp(1, CAPACITY_MAX)),
                state: AtomicUsize::new(0),
                is_starved: AtomicBool::new(false),
                handles: AtomicUsize::new(1),
                failure: Mutex::new(None),
                waker: Mutex::new(None),
            });
            let queue = BoundedQueue { shared: Arc::clone(&shared) };
            let create = move |outlet, setup: &Setup<'_>| {
                *shared.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(setup.waker());
                QueueSource { outlet, shared, is_refused: buffer == 0 }
            };
            (create, queue)
        }))
    }
}

/// Takes elements out of a [`Sink::queue`]: by [`SinkQueue::pull`], or as a [`Stream`] on any executor. When it is dropped
/// the stream is cancelled.
pub struct SinkQueue<T> {
    consumer: Consumer<T>,
    waker: Arc<Mutex<Option<Waker>>>,
    is_ended: bool,
}

/// The ring takes one waker, but the task that waits may change.
struct Forward(Arc<Mutex<Option<Waker>>>);

impl std::task::Wake for Forward {
    fn wake(self: Arc<Self>) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Send> SinkQueue<T> {
    fn new(mut consumer: Consumer<T>) -> SinkQueue<T> {
        let waker = Arc::default();
        consumer.attach(Waker::from(Arc::new(Forward(Arc::clone(&waker)))));
        SinkQueue { consumer, waker, is_ended: false }
    }

    /// The next element, when it is there; `None` when the stream has completed.
    ///
    /// # Errors
    /// The stream has failed, or was stopped.
    pub async fn pull(&mut self) -> Result<Option<T>, StreamError> {
        poll_fn(|task| self.poll_pull(task)).await
    }

    fn end(&mut self, end: Option<StreamError>) -> Poll<Result<Option<T>, StreamError>> {
        self.is_ended = true;
        Poll::Ready(end.map_or(Ok(None), Err))
    }

    fn poll_pull(&mut self, task: &mut TaskContext<'_>) -> Poll<Result<Option<T>, StreamError>> {
        if self.is_ended {
            return Poll::Ready(Ok(None));
        }
        loop {
            match self.consumer.end() {
                End::Failed(error) => return self.end(Some(error)),
                End::Gone => return self.end(Some(StreamError::new(AbruptTermination))),
                End::Open | End::Completed if self.consumer.has_next() => {
                    let element = self.consumer.take();
                    self.consumer.release();
                    return Poll::Ready(Ok(element));
                }
                End::Completed => return self.end(None),
                End::Open => {}
            }
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(task.waker().clone());
            if self.consumer.wait() {
                return Poll::Pending;
            }
        }
    }

    /// Cancels the stream.
    pub fn cancel(mut self) {
        self.consumer.cancel(Cancellation::NoMoreElementsNeeded);
    }
}

impl<T> Drop for SinkQueue<T> {
    fn drop(&mut self) {
        self.consumer.cancel(Cancellation::NoMoreElementsNeeded);
    }
}

impl<T: Send> Stream for SinkQueue<T> {
    type Item = Result<T, StreamError>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_pull(task).map(Result::transpose)
    }
}

impl<T: Send + 'static> Sink<T, SinkQueue<T>> {
    /// Elements are taken out by the materialized queue.
    ///
    /// Back-pressures when as many elements wait as the attribute [`InputBuffer`] says. Cancels when the queue is dropped.
    #[must_use]
    pub fn queue() -> Sink<T, SinkQueue<T>> {
        Sink::from_stage(stage_with("queue", SinkShape::new(), |attributes| {
            let (producer, consumer) = ring(attributes.mandatory::<InputBuffer>().max());
            let create = |inlet, setup: &Setup<'_>| RingSink::new(inlet, Some(producer), setup);
            (create, SinkQueue::new(consumer))
        }))
    }
}

impl<Out: Send + 'static, Mat: 'static, P: Fusable<Out = Out>> Source<Out, Mat, P> {
    /// The source as a graph whose materialized value is a [`Stream`] of its elements, for any executor on this or
    /// another thread. It ends after the first `Err`, which is the failure of the source.
    pub fn into_stream(self) -> RunnableGraph<SinkQueue<Out>> {
        self.to_right(Sink::queue())
    }
}
