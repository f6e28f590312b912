//! Writing a file: [`FileSink`].

use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::task::Poll;

use super::driver::{File, FileWork, Open, start};
use super::{FileError, IoResult};
use crate::stream::attributes::{Attributes, InputBuffer};
use crate::stream::boundary::ring::{Consumer, End, Producer, ring};
use crate::stream::completion::{Completion, Promise, completion};
use crate::stream::dsl::Sink;
use crate::stream::error::{AbruptTermination, Cancellation, StreamError};
use crate::stream::interpreter::{Context, Inlet};
use crate::stream::stage::{GraphStage, Logic, Setup, SinkShape};

/// Where writing begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    At(u64),
    End,
}

/// A file to be written, as a blueprint: each run opens it anew.
#[derive(Clone, Debug)]
pub struct FileSink {
    path: PathBuf,
    open: Open,
    start: Start,
    syncs: bool,
}

impl FileSink {
    /// The file at this path. It is made if it is not there, and emptied.
    pub fn new(path: impl Into<PathBuf>) -> FileSink {
        FileSink { path: path.into(), open: Open::Truncate, start: Start::At(0), syncs: false }
    }

    /// Writes after what is in the file.
    #[must_use]
    pub fn append(mut self) -> FileSink {
        (self.open, self.start) = (Open::Keep, Start::End);
        self
    }

    /// The file must not be there.
    #[must_use]
    pub fn create_new(mut self) -> FileSink {
        (self.open, self.start) = (Open::New, Start::At(0));
        self
    }

    /// Keeps what is in the file, and writes over it from this position.
    #[must_use]
    pub fn start_position(mut self, position: u64) -> FileSink {
        (self.open, self.start) = (Open::Keep, Start::At(position));
        self
    }

    /// The data is on the device before the materialized value says that all is well.
    #[must_use]
    pub fn sync(mut self) -> FileSink {
        self.syncs = true;
        self
    }

    /// Writes the elements to the file, one after another.
    ///
    /// Back-pressures when as many chunks wait to be written as the attribute [`InputBuffer`] says. Cancels with
    /// [`FileError`] if the file cannot be written. The materialized value says how many bytes were written, when the file
    /// is closed; it fails with [`FileError`] if the stream failed or the file could not be written.
    #[must_use]
    pub fn sink(self) -> Sink<Vec<u8>, Completion<IoResult>> {
        Sink::from_stage(self)
    }
}

/// What writes.
pub struct Writing {
    file: FileSink,
    consumer: Consumer<Vec<u8>>,
    promise: Promise<IoResult>,
}

impl Writing {
    /// The next chunk; `None` at the end.
    async fn next(&mut self, count: u64) -> Result<Option<Vec<u8>>, StreamError> {
        let (consumer, path) = (&mut self.consumer, &self.file.path);
        poll_fn(|task| {
            // A task has one waker for its whole life.
            consumer.attach(task.waker().clone());
            loop {
                // The end first: what was published before it is seen after it.
                let end = consumer.end();
                let cause = match &end {
                    End::Failed(cause) => Some(cause.clone()),
                    End::Gone => Some(StreamError::new(AbruptTermination)),
                    End::Open | End::Completed => None,
                };
                if let Some(cause) = cause {
                    let incomplete = FileError::Incomplete { path: path.clone(), count, cause };
                    return Poll::Ready(Err(StreamError::new(incomplete)));
                }
                if let Some(chunk) = consumer.take() {
                    consumer.release();
                    return Poll::Ready(Ok(Some(chunk)));
                }
                if let End::Completed = end {
                    return Poll::Ready(Ok(None));
                }
                if consumer.wait() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    async fn write<F: File>(&mut self, file: &F) -> Result<u64, StreamError> {
        let start = match self.file.start {
            Start::At(position) => position,
            Start::End => file.size().await.map_err(|source| FileError::io("measure", &self.file.path, source))?,
        };
        let mut count = 0;
        while let Some(chunk) = self.next(count).await? {
            if chunk.is_empty() {
                continue;
            }
            let bytes = chunk.len();
            let written = match file.write_at(chunk, start.saturating_add(count)).await {
                Ok(written) if written < bytes => {
                    Err(io::Error::new(io::ErrorKind::WriteZero, "a part was not written; is the device full?"))
                }
                written => written,
            };
            count += written.map_err(|source| FileError::io("write", &self.file.path, source))? as u64;
        }
        if self.file.syncs {
            file.sync().await.map_err(|source| FileError::io("sync", &self.file.path, source))?;
        }
        Ok(count)
    }
}

impl FileWork for Writing {
    fn path(&self) -> &Path {
        &self.file.path
    }

    async fn work<F: File>(mut self) {
        let outcome = match F::open(&self.file.path, self.file.open).await {
            Ok(file) => {
                let outcome = self.write(&file).await;
                let closed = file.close().await.map_err(|source| FileError::io("close", &self.file.path, source));
                outcome.and_then(|count| closed.map(|()| count))
            }
            Err(source) => Err(FileError::io("open", &self.file.path, source)),
        };
        match outcome {
            Ok(count) => self.promise.succeed(IoResult { count }),
            Err(error) => {
                self.consumer.cancel(Cancellation::Failed(error.clone()));
                self.promise.fail(error);
            }
        }
    }
}

impl GraphStage for FileSink {
    type Shape = SinkShape<Vec<u8>>;
    type Seed = (Writing, Producer<Vec<u8>>);
    type Mat = Completion<IoResult>;
    type Logic = FileSinkLogic;

    fn name(&self) -> &'static str {
        "file_sink"
    }

    fn shape(&self) -> Self::Shape {
        SinkShape::new()
    }

    fn prepare(&self, attributes: &Attributes) -> (Self::Seed, Self::Mat) {
        let (promise, outcome) = completion();
        let (producer, consumer) = ring(attributes.mandatory::<InputBuffer>().max());
        ((Writing { file: self.clone(), consumer, promise }, producer), outcome)
    }

    fn create((writing, mut producer): Self::Seed, inlet: Inlet<Vec<u8>>, setup: &Setup<'_>) -> FileSinkLogic {
        producer.attach(setup.waker());
        FileSinkLogic { inlet, producer, writing: Some(writing) }
    }
}

/// The running stage.
pub struct FileSinkLogic {
    inlet: Inlet<Vec<u8>>,
    producer: Producer<Vec<u8>>,
    writing: Option<Writing>,
}

impl FileSinkLogic {
    fn look(&mut self, context: &mut Context) {
        loop {
            if let Some(cause) = self.producer.cancellation() {
                let cause = cause.unwrap_or_else(|| Cancellation::Failed(StreamError::new(AbruptTermination)));
                return self.inlet.cancel_because(context, cause);
            }
            if self.producer.has_room() {
                return self.inlet.try_pull(context);
            }
            if self.producer.wait() {
                return;
            }
        }
    }
}

impl Logic for FileSinkLogic {
    fn pre_start(&mut self, context: &mut Context) {
        if let Some(writing) = self.writing.take()
            && let Err(error) = start(writing)
        {
            return context.fail_stage(error);
        }
        self.look(context);
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let chunk = self.inlet.grab(context);
        // There was a place when the inlet was pulled; after a cancellation the chunk is nobody's.
        drop(self.producer.write(chunk));
        self.producer.publish();
        self.look(context);
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
}
