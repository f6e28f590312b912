//! Futures without a runtime, and conditions.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use atoll::base::CoreIndex;
use atoll::{Client, Pod};

use super::PATIENCE;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which is no core. Fails when it takes for ever.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let give_up = Instant::now() + 2 * PATIENCE;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(Instant::now() < give_up, "a future is not ready after {:?}", 2 * PATIENCE);
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// Polls a future once, with a waker that does nothing.
pub fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once inside a task, whose waker is kept.
pub async fn started<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Awaits all, at the same time; they are started in order.
pub async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

/// A place whose cores run futures.
pub trait Cores {
    fn spawn<F: Future<Output = ()> + 'static>(&self, core: u16, make: impl FnOnce() -> F + Send + 'static);
}

impl Cores for Pod {
    fn spawn<F: Future<Output = ()> + 'static>(&self, core: u16, make: impl FnOnce() -> F + Send + 'static) {
        self.spawn_on(CoreIndex(core), make).unwrap();
    }
}

impl Cores for Client {
    fn spawn<F: Future<Output = ()> + 'static>(&self, core: u16, make: impl FnOnce() -> F + Send + 'static) {
        self.spawn_on(CoreIndex(core), make).unwrap();
    }
}

/// Runs a future on a core and waits for what comes out.
pub fn run_on<T, F>(cores: &impl Cores, core: u16, make: impl FnOnce() -> F + Send + 'static) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (sender, receiver) = channel();
    cores.spawn(core, move || {
        let future = make();
        async move { drop(sender.send(future.await)) }
    });
    receiver.recv_timeout(2 * PATIENCE).expect("the core answers")
}

/// Waits until something is there.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
