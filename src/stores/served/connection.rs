//! One connection to the server: hello, requests in, answers and events out.
//!
//! Called by the server for each connection that it accepts. Invariants: what arrives is checked before it is used, and
//! a violation closes the connection with a counted reason; no further request is read while too many of the connection
//! are unanswered or its peer does not take what it asked for.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::core::{ConnectionId, Core};
use super::outlet::Outlet;
use super::protocol::{
    ANSWER_BYTES_MAX, Asked, Broken, CONTROL_SCHEMA, Frames, PREFACE_BYTES, REQUEST_BYTES_MAX, Service,
    compare_preface, frame, preface, read, service_of, sign_of_life,
};
use crate::base::limits::HELLO_TIMEOUT;
use crate::stores::state::{STATE_SCHEMA, StateAsked, StateTold, Worker};

/// Requests of one connection that wait for their answer.
const REQUESTS_MAX: usize = 64;
/// A connection from which nothing comes for so long is dead: clients send a sign of life each 2 s.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Bytes received at a time.
const RECEIVE_BYTES: usize = 64 << 10;

/// What all connections share.
pub(super) struct Shop {
    pub core: RefCell<Core>,
    pub state: Worker,
    pub queue_bytes_max: usize,
    pub counters: Arc<super::core::Counted>,
}

/// Serves a connection until it ends; returns why.
pub(super) async fn serve(mut stream: TcpStream, id: ConnectionId, shop: Rc<Shop>) -> Broken {
    let service = match timeout(HELLO_TIMEOUT, hello(&mut stream)).await {
        Ok(Ok(service)) => service,
        Ok(Err(broken)) => return broken,
        Err(_) => return Broken::LateHello,
    };
    let (receiver, sender) = stream.into_split();
    match service {
        Service::Control => control(receiver, sender, id, &shop).await,
        Service::State => state(receiver, sender, &shop).await,
    }
}

async fn hello(stream: &mut TcpStream) -> Result<Service, Broken> {
    stream.set_nodelay(true)?;
    let mut theirs = [0; PREFACE_BYTES];
    stream.read_exact(&mut theirs).await?;
    let service = service_of(&theirs)?;
    let schema = match service {
        Service::Control => CONTROL_SCHEMA,
        Service::State => STATE_SCHEMA,
    };
    // Sent in any case: the other side says what does not fit in its own words.
    stream.write_all(&preface(service, schema)).await?;
    compare_preface(&theirs, service, schema)?;
    Ok(service)
}

/// Receives some bytes.
async fn receive(receiver: &mut OwnedReadHalf, buffer: &mut [u8], frames: &mut Frames) -> Result<(), Broken> {
    match timeout(SILENCE_MAX, receiver.read(buffer)).await {
        Err(_) => Err(Broken::Silent),
        Ok(Ok(0)) => Err(Broken::Closed),
        Ok(Ok(count)) => {
            frames.push(&buffer[..count]);
            Ok(())
        }
        Ok(Err(error)) => Err(error.into()),
    }
}

async fn control(receiver: OwnedReadHalf, sender: OwnedWriteHalf, id: ConnectionId, shop: &Shop) -> Broken {
    let outlet = Rc::new(Outlet::default());
    shop.core.borrow_mut().open(id, Rc::clone(&outlet));
    let broken = tokio::select! {
        broken = control_requests(receiver, id, shop, &outlet) => broken,
        broken = control_answers(sender, shop, &outlet) => broken,
    };
    shop.core.borrow_mut().close(id);
    broken.err().unwrap_or(Broken::Closed)
}

async fn control_requests(
    mut receiver: OwnedReadHalf,
    id: ConnectionId,
    shop: &Shop,
    outlet: &Outlet,
) -> Result<(), Broken> {
    let mut frames = Frames::new(REQUEST_BYTES_MAX);
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        receive(&mut receiver, &mut buffer, &mut frames).await?;
        while let Some(body) = frames.next()? {
            if body.is_empty() {
                let mut bytes = Vec::new();
                sign_of_life(&mut bytes);
                outlet.push_urgent(&bytes);
            } else {
                let Asked { id: request, request: asked } = read(body)?;
                shop.core.borrow_mut().handle(id, request, asked);
            }
            outlet.room(REQUESTS_MAX, shop.queue_bytes_max).await;
        }
    }
}

async fn control_answers(mut sender: OwnedWriteHalf, shop: &Shop, outlet: &Outlet) -> Result<(), Broken> {
    let durable = Rc::clone(&shop.core.borrow().durable);
    let mut out = Vec::new();
    loop {
        out.clear();
        outlet.take(&durable, &mut out).await;
        sender.write_all(&out).await?;
        outlet.sent(out.len());
    }
}

async fn state(receiver: OwnedReadHalf, sender: OwnedWriteHalf, shop: &Shop) -> Broken {
    // Bounded by the permits of the requests.
    let (answers, answered) = mpsc::unbounded_channel();
    let broken = tokio::select! {
        broken = state_requests(receiver, shop, answers) => broken,
        broken = state_answers(sender, answered) => broken,
    };
    broken.err().unwrap_or(Broken::Closed)
}

type Answered = (Vec<u8>, Option<tokio::sync::OwnedSemaphorePermit>);

async fn state_requests(
    mut receiver: OwnedReadHalf,
    shop: &Shop,
    answers: mpsc::UnboundedSender<Answered>,
) -> Result<(), Broken> {
    let mut frames = Frames::new(REQUEST_BYTES_MAX);
    let mut buffer = vec![0; RECEIVE_BYTES];
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        receive(&mut receiver, &mut buffer, &mut frames).await?;
        while let Some(body) = frames.next()? {
            // It is never closed.
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return Ok(()) };
            if body.is_empty() {
                let mut bytes = Vec::new();
                sign_of_life(&mut bytes);
                let _ = answers.send((bytes, Some(permit)));
                continue;
            }
            let StateAsked { id, request } = read(body)?;
            shop.counters.with(|counters| counters.state_requests += 1);
            let answers = answers.clone();
            let answer = move |result| {
                let mut bytes = Vec::new();
                // Values are bounded far below the limit when they are saved. The connection may be gone.
                if frame(&StateTold { id, result }, &mut bytes, ANSWER_BYTES_MAX).is_ok() {
                    let _ = answers.send((bytes, Some(permit)));
                }
            };
            shop.state.submit(request, Box::new(answer));
        }
    }
}

async fn state_answers(
    mut sender: OwnedWriteHalf,
    mut answered: mpsc::UnboundedReceiver<Answered>,
) -> Result<(), Broken> {
    while let Some((bytes, permit)) = answered.recv().await {
        sender.write_all(&bytes).await?;
        drop(permit);
    }
    Ok(())
}
