//! The server: what an `atoll manager` runs.
//!
//! Called by the command, and by tests. One thread answers all connections and never touches the disk; one writes the
//! control records, one the saved state. A slow disk thus delays changes, but no renewal of a lease.
//!
//! Invariants: every lease has its whole time after a start, and after a pause of the process or of the machine; what
//! was answered is on the disk; the server ends as a whole when a disk fails, so that whoever watches it starts it again.

use core::cell::RefCell;
use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};
use tokio::task::LocalSet;

use super::connection::{self, Shop};
use super::core::{Core, Counted, LeaseClock, ServerCounters};
use super::disk::{self, Disk, Durable};
use super::protocol::Broken;
use crate::control::store_state::{LeaseMode, StoreState};
use crate::stores::control_file::{ControlFile, OpenError};
use crate::stores::state::{StateFile, Worker};

/// Connections by default: two for each of 500 pods.
pub const CONNECTIONS_MAX: usize = 1024;
/// Bytes that wait for one connection before its watches get a gap, by default.
pub const QUEUE_BYTES_MAX: usize = 8 << 20;
/// How often leases are looked at: how late a lapse is seen.
const TICK: Duration = Duration::from_millis(50);
/// Pause after the system had no socket for a further connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What to serve, and where.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Folder of the records and of saved state.
    pub directory: PathBuf,
    /// The clock of the leases.
    pub clock: LeaseClock,
    /// Most connections.
    pub connections_max: usize,
    /// Bytes that wait for one connection before its watches get a gap.
    pub queue_bytes_max: usize,
}

impl ServerOptions {
    /// The defaults.
    #[must_use]
    pub fn new(listen: SocketAddr, directory: PathBuf, clock: LeaseClock) -> ServerOptions {
        ServerOptions { listen, directory, clock, connections_max: CONNECTIONS_MAX, queue_bytes_max: QUEUE_BYTES_MAX }
    }
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data directory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The address is taken.
    #[error("another process listens at {0}; stop it or pass another --listen")]
    AddressInUse(SocketAddr),
    /// The address cannot be used.
    #[error("the address {address} cannot be listened at ({error}); pass another --listen")]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// A thread could not be made.
    #[error("a thread could not be started: {0}; check `ulimit -u`")]
    Thread(#[from] io::Error),
    /// The disk failed.
    #[error("the disk of {} failed ({reason}); free space or replace it, then start again", directory.display())]
    Disk {
        /// The data directory.
        directory: PathBuf,
        /// What the disk says.
        reason: String,
    },
}

/// A running server.
pub struct StoreServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    failed: oneshot::Receiver<ServerError>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counted>,
}

impl StoreServer {
    /// Opens the data directory, listens, and serves on threads of its own.
    ///
    /// # Errors
    /// If the directory or the address cannot be used.
    pub fn start(options: ServerOptions) -> Result<StoreServer, ServerError> {
        // First the address: a second start on the same machine fails on it without touching the files.
        let listener = bind(options.listen)?;
        let (file, state) = ControlFile::open(&options.directory, LeaseMode::Expiring)?;
        StoreServer::run(options, listener, state, file)
    }

    fn run(
        options: ServerOptions,
        listener: std::net::TcpListener,
        state: StoreState,
        disk: impl Disk,
    ) -> Result<StoreServer, ServerError> {
        let worker = Worker::start(StateFile::open(&options.directory)?)?;
        let address = listener.local_addr()?;
        let counters = Arc::new(Counted::default());
        let (stop, stopped) = oneshot::channel();
        let (fail, failed) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counted = Arc::clone(&counters);
        let (batches, durable, disk) = disk::start(disk)?;
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
            let ServerOptions { directory, clock, connections_max, queue_bytes_max, .. } = options;
            let core = Core::new(state, clock, batches, queue_bytes_max, Arc::clone(&counted));
            let shop = Shop { core: RefCell::new(core), state: worker.clone(), queue_bytes_max, counters: counted };
            let served = LocalSet::new().block_on(&runtime, async {
                let shop = Rc::new(shop);
                tokio::select! {
                    _ = stopped => Ok(()),
                    error = accept(listener, connections_max, &shop) => Err(ServerError::Thread(error)),
                    reason = follow_disk(durable, &shop) => Err(ServerError::Disk { directory, reason }),
                    () = tick(&shop) => Ok(()),
                }
            });
            // Ends the tasks and with them every sender to the disk's thread, which then writes what it has and ends.
            drop(runtime);
            if disk.join().is_err() {
                tracing::error!("the thread of the disk panicked");
            }
            worker.close();
            if let Err(error) = served {
                // Nobody waits for it after a stop.
                let _ = fail.send(error);
            }
        })?;
        Ok(StoreServer { address, stop: Some(stop), failed, thread: Some(thread), counters })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> ServerCounters {
        self.counters.with(|counters| counters.clone())
    }

    /// Waits until the server fails; while it runs this does not end.
    pub async fn failed(&mut self) -> ServerError {
        match (&mut self.failed).await {
            Ok(error) => error,
            Err(_) => ServerError::Thread(io::Error::other("the thread of the store ended")),
        }
    }

    /// Stops: what was answered is on the disk and the data directory is free when this returns.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            // A thread that failed is gone already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the store panicked");
        }
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves from any disk, for tests.
#[cfg(test)]
pub(super) fn serve_on(options: ServerOptions, state: StoreState, disk: impl Disk) -> Result<StoreServer, ServerError> {
    let listener = bind(options.listen)?;
    StoreServer::run(options, listener, state, disk)
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener, ServerError> {
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ServerError::AddressInUse(address),
        _ => ServerError::Address { address, error },
    })
}

async fn accept(listener: std::net::TcpListener, connections_max: usize, shop: &Rc<Shop>) -> io::Error {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    let mut last = 0;
    let open = Rc::new(());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if Rc::strong_count(&open) > connections_max {
            shop.counters.closed(&Broken::TooMany);
            continue;
        }
        last += 1;
        let (id, shop, open) = (last, Rc::clone(shop), Rc::clone(&open));
        shop.counters.with(|counters| counters.connections += 1);
        tokio::task::spawn_local(async move {
            let broken = connection::serve(stream, id, Rc::clone(&shop)).await;
            shop.counters.closed(&broken);
            shop.counters.with(|counters| counters.connections = counters.connections.saturating_sub(1));
            if !matches!(broken, Broken::Closed) {
                tracing::info!(connection = id, why = %broken, "closed a connection");
            }
            drop(open);
        });
    }
}

async fn follow_disk(mut durable: UnboundedReceiver<Durable>, shop: &Rc<Shop>) -> String {
    loop {
        match durable.recv().await {
            Some(Ok(sequence)) => shop.core.borrow_mut().durable(sequence),
            Some(Err(reason)) => return reason,
            None => return "its thread ended".to_owned(),
        }
    }
}

async fn tick(shop: &Rc<Shop>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shop.core.borrow_mut().tick();
    }
}
