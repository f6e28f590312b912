//! Ends of streams that are held outside of them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use atoll::stream::StreamError;
use atoll::stream::attributes::InputBuffer;
use atoll::stream::dsl::{Sink, Source, keep};
use atoll::stream::operators::{BoundedQueue, ElementwiseOps, Offered, SinkQueue};

use crate::running::{Running, all, outcome};

type Ends = (BoundedQueue<u32>, atoll::stream::completion::Completion<Vec<u32>>);

fn start(running: &Running, buffer: usize) -> Ends {
    running.start(&Source::queue(buffer).to_mat(all(), keep::both))
}

#[test]
fn what_is_enqueued_is_emitted_before_the_end() {
    for buffer in [1, 2, 7, 64] {
        let running = Running::new();
        let (queue, mut end) = start(&running, buffer);
        let mut taken = Vec::new();
        for n in 0..1000 {
            match queue.offer(n) {
                Offered::Enqueued => taken.push(n),
                Offered::Dropped(refused) => {
                    assert_eq!(refused, n);
                    running.settle();
                }
                other => panic!("{other:?}"),
            }
        }
        queue.complete();
        assert!(matches!(queue.offer(0), Offered::Closed(0)));
        running.settle();
        assert_eq!(end.try_take().unwrap().unwrap(), taken);
        assert!(taken.len() > 400, "only what finds it full is refused");
        assert_eq!(running.host.islands(), 0);
    }
}

#[test]
fn a_queue_holds_as_many_elements_as_it_says() {
    let running = Running::new();
    let (queue, _end) = running.start(&Source::queue(3).to_mat(Sink::never(), keep::both));
    running.settle();
    for n in 0..3 {
        assert!(queue.offer(n).is_enqueued());
    }
    assert!(matches!(queue.offer(3), Offered::Dropped(3)));
    assert_eq!(queue.len(), 3);
}

#[test]
fn a_failed_queue_fails_at_once() {
    let running = Running::new();
    let (queue, mut end) = start(&running, 8);
    running.settle();
    assert!(queue.offer(1).is_enqueued());
    queue.fail(StreamError::text("boom"));
    queue.fail(StreamError::text("again"));
    queue.complete();
    assert!(matches!(queue.offer(2), Offered::Failed(error) if error.to_string() == "boom"));
    running.settle();
    assert_eq!(end.try_take().unwrap().unwrap_err().to_string(), "boom");
    let (queue, mut end) = start(&running, 8);
    queue.complete();
    queue.fail(StreamError::text("late"));
    running.settle();
    assert!(end.try_take().unwrap().is_ok(), "the first word counts");
}

#[test]
fn a_queue_whose_stream_has_ended_is_closed() {
    let running = Running::new();
    let (queue, mut end) = running.start(&Source::queue(4).take(1).to_mat(all(), keep::both));
    assert!(queue.offer(1).is_enqueued() && queue.offer(2).is_enqueued());
    running.settle();
    assert_eq!(end.try_take().unwrap().unwrap(), [1]);
    assert!(queue.is_closed() && queue.is_empty());
    assert!(matches!(queue.offer(3), Offered::Closed(3)));
}

#[test]
fn a_source_completes_when_its_last_handle_is_dropped() {
    let running = Running::new();
    let (queue, mut end) = start(&running, 4);
    let other = queue.clone();
    drop(queue);
    assert!(other.offer(1).is_enqueued());
    running.settle();
    assert!(end.try_take().is_none());
    drop(other);
    running.settle();
    assert_eq!(end.try_take().unwrap().unwrap(), [1]);
    assert!(outcome(Source::<u32, _>::queue(0)).is_err());
}

#[test]
fn many_threads_offer() {
    const THREADS: u32 = 4;
    const EACH: u32 = if cfg!(miri) { 50 } else { 5_000 };
    let running = Running::new();
    let (queue, mut end) = start(&running, 16);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let queue = queue.clone();
            std::thread::spawn(move || {
                for n in 0..EACH {
                    while let Offered::Dropped(_) = queue.offer(thread * EACH + n) {
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    drop(queue);
    let all = loop {
        running.settle();
        if let Some(all) = end.try_take() {
            break all.unwrap();
        }
        std::thread::yield_now();
    };
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(all.len() as u32, THREADS * EACH);
    for thread in 0..THREADS {
        let of_thread: Vec<u32> = all.iter().copied().filter(|n| n / EACH == thread).collect();
        assert!(of_thread.is_sorted(), "elements of one thread keep their order");
    }
}

fn pull(queue: &mut SinkQueue<u32>) -> Option<Result<Option<u32>, String>> {
    let mut pulled = std::pin::pin!(queue.pull());
    match pulled.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome.map_err(|error| error.to_string())),
        Poll::Pending => None,
    }
}

#[test]
fn elements_are_taken_out_by_hand() {
    let running = Running::new();
    let (source, mut sink) = running.start(&Source::queue(4).to_mat(Sink::queue(), keep::both));
    assert_eq!(pull(&mut sink), None);
    assert!(source.offer(1).is_enqueued());
    running.settle();
    assert_eq!(pull(&mut sink), Some(Ok(Some(1))));
    assert_eq!(pull(&mut sink), None);
    assert!(source.offer(2).is_enqueued());
    source.complete();
    running.settle();
    assert_eq!(pull(&mut sink), Some(Ok(Some(2))));
    assert_eq!(pull(&mut sink), Some(Ok(None)));
    assert_eq!(pull(&mut sink), Some(Ok(None)));
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn whoever_pulls_is_woken() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let running = Running::new();
    let (source, mut sink) = running.start(&Source::queue(4).to_mat(Sink::<u32, _>::queue(), keep::both));
    running.settle();
    let count = Arc::new(Count(Default::default()));
    let waker = Waker::from(Arc::clone(&count));
    {
        let mut pulled = std::pin::pin!(sink.pull());
        assert!(pulled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(source.offer(1).is_enqueued());
        running.settle();
        assert_eq!(count.0.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert!(pulled.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
    let mut pulled = std::pin::pin!(sink.pull());
    assert!(pulled.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    source.fail(StreamError::text("boom"));
    running.settle();
    assert_eq!(count.0.load(std::sync::atomic::Ordering::Relaxed), 2);
    assert!(matches!(pulled.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Err(_))));
}

#[test]
fn a_sink_queue_backpressures_and_cancels_when_it_is_dropped() {
    let running = Running::new();
    let sink = Sink::queue().add_attributes(&atoll::stream::Attributes::of(InputBuffer::new(4, 4).unwrap()));
    let (source, mut sink) = running.start(&Source::queue(100).to_mat(sink, keep::both));
    for n in 0..20 {
        assert!(source.offer(n).is_enqueued());
    }
    running.settle();
    assert_eq!(source.len(), 16);
    for n in 0..10 {
        assert_eq!(pull(&mut sink), Some(Ok(Some(n))));
        running.settle();
    }
    assert_eq!(source.len(), 6);
    drop(sink);
    running.settle();
    assert!(source.is_closed());
    assert_eq!(running.host.islands(), 0);
}

#[test]
fn a_stream_that_is_stopped_says_so() {
    let running = Running::new();
    let mut stream = running.start(&Source::<u32>::never().into_stream());
    running.settle();
    running.host.abort();
    assert!(matches!(pull(&mut stream), Some(Err(_))));
}
