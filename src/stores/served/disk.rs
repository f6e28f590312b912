//! The thread that writes control records to the disk, so that a slow disk holds up answers and nothing else.
//!
//! Called by the server, which hands over the changes of each request and learns up to which of them all are durable.
//! Changes that wait while the disk works are written together. Invariant: they are written in the order in which they
//! were made. What waits is bounded by the requests that may be in flight and the leases that may lapse.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::control::store::Revision;
use crate::control::store_state::Write;
use crate::stores::control_file::ControlFile;

/// Batches that are written together: bounds the time of one commit.
const BATCHES_MAX: usize = 1024;

/// What keeps changes.
pub(crate) trait Disk: Send + 'static {
    /// Writes changes in their order; they are durable when it returns.
    fn persist(&mut self, writes: &[Write], revision: Revision) -> Result<(), String>;
}

impl Disk for ControlFile {
    fn persist(&mut self, writes: &[Write], revision: Revision) -> Result<(), String> {
        ControlFile::persist(self, writes, revision).map_err(|error| error.to_string())
    }
}

/// The changes of one request.
pub(super) struct Batch {
    /// Counts the batches.
    pub sequence: u64,
    /// The changes.
    pub writes: Vec<Write>,
    /// The revision after them.
    pub revision: Revision,
}

/// Up to which batch everything is durable, or why nothing will be any more.
pub(super) type Durable = Result<u64, String>;

/// The running thread; it ends when the sender is dropped and everything is written.
pub(super) fn start(disk: impl Disk) -> std::io::Result<(Sender<Batch>, UnboundedReceiver<Durable>, JoinHandle<()>)> {
    let (batches, received) = channel();
    let (durable, reported) = unbounded_channel();
    let thread =
        std::thread::Builder::new().name("store-disk".to_owned()).spawn(move || run(disk, &received, &durable))?;
    Ok((batches, reported, thread))
}

fn run(mut disk: impl Disk, batches: &Receiver<Batch>, durable: &UnboundedSender<Durable>) {
    while let Ok(mut batch) = batches.recv() {
        for _ in 0..BATCHES_MAX {
            let Ok(next) = batches.try_recv() else { break };
            batch.writes.extend(next.writes);
            (batch.sequence, batch.revision) = (next.sequence, next.revision);
        }
        let written = disk.persist(&batch.writes, batch.revision).map(|()| batch.sequence);
        let failed = written.is_err();
        if durable.send(written).is_err() || failed {
            return;
        }
    }
}
