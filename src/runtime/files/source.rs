//! Reading a file: [`FileSource`].

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::task::Poll;

use super::driver::{File, FileWork, Open, start};
use super::{CHUNK_BYTES, CHUNK_BYTES_MAX, FileError, IoResult};
use crate::stream::attributes::{Attributes, InputBuffer};
use crate::stream::boundary::ring::{Consumer, End, Producer, ring};
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::Source;
use crate::stream::error::{AbruptTermination, Cancellation, StreamError};
use crate::stream::interpreter::{Context, Outlet};
use crate::stream::stage::{GraphStage, Logic, Setup, SourceShape};

/// A file to be read, as a blueprint: each run opens it anew.
///
/// ```
/// use atoll::runtime::StreamRuntime;
/// use atoll::runtime::files::FileSource;
/// use atoll::stream::dsl::{Sink, keep};
///
/// let runtime = StreamRuntime::single();
/// let graph = FileSource::new("Cargo.toml").source().to_right(Sink::fold(0, |bytes, chunk: Vec<u8>| bytes + chunk.len()));
/// let bytes = runtime.run(&graph)?;
/// assert!(runtime.block_on(bytes)? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
    chunk_bytes: usize,
    position: u64,
}

impl FileSource {
    /// The file at this path, from its beginning, in chunks of [`CHUNK_BYTES`].
    pub fn new(path: impl Into<PathBuf>) -> FileSource {
        FileSource { path: path.into(), chunk_bytes: CHUNK_BYTES, position: 0 }
    }

    /// Bytes of a chunk, 1 to [`CHUNK_BYTES_MAX`]; the last one may be shorter.
    #[must_use]
    pub fn chunk_bytes(mut self, bytes: usize) -> FileSource {
        self.chunk_bytes = bytes.clamp(1, CHUNK_BYTES_MAX);
        self
    }

    /// Where reading begins, in bytes from the beginning of the file.
    #[must_use]
    pub fn start_position(mut self, position: u64) -> FileSource {
        self.position = position;
        self
    }

    /// Emits the chunks of the file.
    ///
    /// Emits when a chunk is read and downstream asks; as many chunks are read ahead as the attribute [`InputBuffer`]
    /// says. Completes at the end of the file. Fails with [`FileError`]. The materialized value says how many bytes were
    /// read, also after a cancellation.
    #[must_use]
    pub fn source(self) -> Source<Vec<u8>, Completion<IoResult>> {
        Source::from_stage(self)
    }
}

/// What reads.
pub struct Reading {
    file: FileSource,
    producer: Producer<Vec<u8>>,
    promise: Promise<IoResult>,
}

impl Reading {
    /// Waits for a place for a chunk. False if the stage takes no more.
    async fn has_place(&mut self) -> bool {
        let producer = &mut self.producer;
        poll_fn(|task| {
            // A task has one waker for its whole life.
            producer.attach(task.waker().clone());
            if producer.cancellation().is_none() && !producer.has_room() && producer.wait() {
                return Poll::Pending;
            }
            Poll::Ready(producer.cancellation().is_none())
        })
        .await
    }

    async fn read<F: File>(&mut self, file: &F) -> Result<u64, StreamError> {
        let mut count = 0;
        while self.has_place().await {
            let position = self.file.position.saturating_add(count);
            let chunk = file.read_at(position, self.file.chunk_bytes).await;
            let chunk = chunk.map_err(|source| FileError::io("read", &self.file.path, source))?;
            if chunk.is_empty() {
                break;
            }
            count += chunk.len() as u64;
            drop(self.producer.write(chunk));
            self.producer.publish();
        }
        Ok(count)
    }
}

impl FileWork for Reading {
    fn path(&self) -> &Path {
        &self.file.path
    }

    async fn work<F: File>(mut self) {
        let outcome = match F::open(&self.file.path, Open::Read).await {
            Ok(file) => {
                let outcome = self.read(&file).await;
                // Nothing was written: a failure to close loses nothing.
                drop(file.close().await);
                outcome
            }
            Err(source) => Err(FileError::io("open", &self.file.path, source)),
        };
        match outcome {
            Ok(count) => {
                match self.producer.cancellation() {
                    Some(None) => self.promise.fail(StreamError::new(AbruptTermination)),
                    _ => self.promise.succeed(IoResult { count }),
                }
                self.producer.complete();
            }
            Err(error) => {
                self.promise.fail(error.clone());
                self.producer.fail(error);
            }
        }
    }
}

impl GraphStage for FileSource {
    type Shape = SourceShape<Vec<u8>>;
    type Seed = (Reading, Consumer<Vec<u8>>);
    type Mat = Completion<IoResult>;
    type Logic = FileSourceLogic;

    fn name(&self) -> &'static str {
        "file_source"
    }

    fn shape(&self) -> Self::Shape {
        SourceShape::new()
    }

    fn prepare(&self, attributes: &Attributes) -> (Self::Seed, Self::Mat) {
        let (promise, outcome) = completion();
        let (producer, consumer) = ring(attributes.mandatory::<InputBuffer>().max());
        ((Reading { file: self.clone(), producer, promise }, consumer), outcome)
    }

    fn create((reading, mut consumer): Self::Seed, outlet: Outlet<Vec<u8>>, setup: &Setup<'_>) -> FileSourceLogic {
        consumer.attach(setup.waker());
        FileSourceLogic { outlet, consumer, reading: Some(reading) }
    }
}

/// The running stage.
pub struct FileSourceLogic {
    outlet: Outlet<Vec<u8>>,
    consumer: Consumer<Vec<u8>>,
    reading: Option<Reading>,
}

impl FileSourceLogic {
    fn look(&mut self, context: &mut Context) {
        let is_asked = self.outlet.is_available(context);
        // The end first: what was published before it is seen after it.
        match self.consumer.end() {
            End::Failed(error) => return context.fail_stage(error),
            End::Gone => return context.fail_stage(StreamError::new(AbruptTermination)),
            End::Completed if !self.consumer.has_next() => return context.complete_stage(),
            End::Completed | End::Open => {}
        }
        if !is_asked {
            // Elements wait for demand, but an end does not.
            if !self.consumer.has_next() && !self.consumer.wait() {
                self.look_for_end(context);
            }
            return;
        }
        loop {
            if let Some(chunk) = self.consumer.take() {
                self.consumer.release();
                self.outlet.push(context, chunk);
                return self.look_for_end(context);
            }
            if !self.consumer.is_open() {
                return self.look(context);
            }
            if self.consumer.wait() {
                return;
            }
        }
    }

    fn look_for_end(&mut self, context: &mut Context) {
        if let End::Completed = self.consumer.end()
            && !self.consumer.has_next()
        {
            context.complete_stage();
        }
    }
}

impl Logic for FileSourceLogic {
    fn pre_start(&mut self, context: &mut Context) {
        if let Some(reading) = self.reading.take()
            && let Err(error) = start(reading)
        {
            context.fail_stage(error);
        }
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.look(context);
    }

    fn on_wake(&mut self, context: &mut Context) {
        self.look(context);
    }

    fn on_downstream_finish(&mut self, context: &mut Context, _: usize, cause: Cancellation) {
        self.consumer.cancel(cause.clone());
        context.cancel_stage(cause);
    }
}
