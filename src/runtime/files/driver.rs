//! What does the work on files: a task of the core's executor, or a thread.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use glommio::io::{BufferedFile, OpenOptions};

use super::{FILE_THREADS_MAX, FileError};
use crate::runtime::Helpers;
use crate::stream::error::StreamError;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    Read,
    /// Made if it is not there; emptied.
    Truncate,
    /// Made if it is not there; kept.
    Keep,
    /// It must not be there.
    New,
}

/// A file, whoever works on it.
pub(super) trait File: Sized {
    async fn open(path: &Path, how: Open) -> io::Result<Self>;
    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Vec<u8>>;
    async fn write_at(&self, chunk: Vec<u8>, position: u64) -> io::Result<usize>;
    async fn size(&self) -> io::Result<u64>;
    async fn sync(&self) -> io::Result<()>;
    async fn close(self) -> io::Result<()>;
}

impl File for BufferedFile {
    async fn open(path: &Path, how: Open) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        match how {
            Open::Read => options.read(true),
            Open::Truncate => options.write(true).create(true).truncate(true),
            Open::Keep => options.write(true).create(true),
            Open::New => options.write(true).create_new(true),
        };
        Ok(options.buffered_open(path).await?)
    }

    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Vec<u8>> {
        Ok(BufferedFile::read_at(self, position, bytes).await?.to_vec())
    }

    async fn write_at(&self, chunk: Vec<u8>, position: u64) -> io::Result<usize> {
        Ok(BufferedFile::write_at(self, chunk, position).await?)
    }

    async fn size(&self) -> io::Result<u64> {
        Ok(self.file_size().await?)
    }

    async fn sync(&self) -> io::Result<()> {
        Ok(self.fdatasync().await?)
    }

    async fn close(self) -> io::Result<()> {
        Ok(BufferedFile::close(self).await?)
    }
}

impl File for fs::File {
    async fn open(path: &Path, how: Open) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        match how {
            Open::Read => options.read(true),
            Open::Truncate => options.write(true).create(true).truncate(true),
            Open::Keep => options.write(true).create(true).truncate(false),
            Open::New => options.write(true).create_new(true),
        };
        options.open(path)
    }

    async fn read_at(&self, position: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut chunk = vec![0; bytes];
        let read = FileExt::read_at(self, &mut chunk, position)?;
        chunk.truncate(read);
        Ok(chunk)
    }

    async fn write_at(&self, chunk: Vec<u8>, position: u64) -> io::Result<usize> {
        FileExt::write_at(self, &chunk, position)
    }

    async fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    async fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    async fn close(self) -> io::Result<()> {
        Ok(())
    }
}

/// Work on one file.
pub(super) trait FileWork: Send + 'static {
    fn path(&self) -> &Path;

    async fn work<F: File>(self);
}

/// Threads that work on files.
static THREADS: AtomicUsize = AtomicUsize::new(0);

struct ThreadGuard;

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Has the work done: by the executor of this core, or else by a thread.
pub(super) fn start(work: impl FileWork) -> Result<(), StreamError> {
    if let Some(helpers) = Helpers::of_this_core() {
        let guard = helpers.enter();
        let task = glommio::spawn_local(async move {
            let _guard = guard;
            work.work::<BufferedFile>().await;
        });
        task.detach();
        return Ok(());
    }
    let refused = FileError::NoThread { path: work.path().to_owned() };
    let guard = ThreadGuard;
    if THREADS.fetch_add(1, Ordering::Relaxed) >= FILE_THREADS_MAX {
        return Err(StreamError::new(refused));
    }
    let thread = std::thread::Builder::new().name("stream-file".to_owned()).spawn(move || {
        let _guard = guard;
        block_on(work.work::<fs::File>());
    });
    thread.map(drop).map_err(|_| StreamError::new(refused))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on(work: impl Future<Output = ()>) {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut work = pin!(work);
    while work.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
        std::thread::park();
    }
}
