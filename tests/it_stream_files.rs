//! Files as streams: on the cores of a pod, where the executor reads and writes, and on a thread without one.
#![cfg(feature = "runtime")]

mod support;

use std::path::Path;

use atoll::Pod;
use atoll::base::CoreIndex;
use atoll::runtime::StreamRuntime;
use atoll::runtime::files::{FileError, FileSink, FileSource, IoResult};
use atoll::stream::StreamError;
use atoll::stream::attributes::Placement;
use atoll::stream::completion::Completion;
use atoll::stream::dsl::{FlowOps, RunnableGraph, Sink, Source, keep};
use atoll::stream::operators::{ElementwiseOps, WithinOps};
use support::*;

/// Where graphs run in these tests.
enum Place {
    Pod(Pod),
    Thread(StreamRuntime),
}

impl Place {
    fn run<T: Send + 'static>(&self, graph: &RunnableGraph<Completion<T>>) -> Result<T, StreamError> {
        match self {
            Place::Pod(pod) => block_on(pod.run_stream(CoreIndex(1), graph).unwrap()),
            Place::Thread(runtime) => {
                let outcome = runtime.run(graph).unwrap();
                runtime.block_on(outcome)
            }
        }
    }

    fn both<T: Send + 'static, U: Send + 'static>(
        &self,
        graph: &RunnableGraph<(Completion<T>, Completion<U>)>,
    ) -> (Result<T, StreamError>, Result<U, StreamError>) {
        match self {
            Place::Pod(pod) => {
                let (first, second) = pod.run_stream(CoreIndex(1), graph).unwrap();
                (block_on(first), block_on(second))
            }
            Place::Thread(runtime) => {
                let (first, second) = runtime.run(graph).unwrap();
                (runtime.block_on(first), runtime.block_on(second))
            }
        }
    }
}

fn everywhere(test: impl Fn(&Place, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    let places =
        [Place::Thread(StreamRuntime::single()), Place::Pod(Pod::builder().config(config(2)).start().unwrap())];
    for (number, place) in places.iter().enumerate() {
        let directory = directory.path().join(number.to_string());
        std::fs::create_dir(&directory).unwrap();
        test(place, &directory);
    }
    for place in places {
        if let Place::Pod(pod) = place {
            pod.stop();
        }
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 31 % 251) as u8).collect()
}

fn joined() -> Sink<Vec<u8>, Completion<Vec<u8>>> {
    Sink::fold(Vec::new(), |mut all: Vec<u8>, chunk: Vec<u8>| {
        all.extend(chunk);
        all
    })
}

#[test]
fn a_file_is_read_in_chunks() {
    everywhere(|place, directory| {
        let path = directory.join("read");
        for (size, chunk, start) in
            [(0, 8, 0), (1, 8, 0), (8, 8, 0), (1000, 7, 0), (1000, 7, 990), (10, 8, 20), (300_000, 4096, 5)]
        {
            let content = bytes(size);
            std::fs::write(&path, &content).unwrap();
            let source = FileSource::new(&path).chunk_bytes(chunk).start_position(start as u64).source();
            let (read, all) = place.both(&source.to_mat(joined(), keep::both));
            let expected = content.get(start..).unwrap_or_default();
            assert_eq!(all.unwrap(), expected, "{size} bytes from {start}");
            assert_eq!(read.unwrap(), IoResult { count: expected.len() as u64 });
        }
    });
}

#[test]
fn a_file_is_written_as_it_is_told() {
    everywhere(|place, directory| {
        let path = directory.join("written");
        let write = |sink: FileSink, chunks: Vec<&'static str>| {
            let source =
                Source::from_iterator(move || chunks.clone().into_iter().map(|chunk| chunk.as_bytes().to_vec()));
            place.run(&source.to_right(sink.sink()))
        };
        let content = || std::fs::read_to_string(&path).unwrap();
        assert_eq!(write(FileSink::new(&path), vec!["one ", "", "two"]).unwrap().count, 7);
        assert_eq!(content(), "one two");
        write(FileSink::new(&path).append().sync(), vec![" three"]).unwrap();
        assert_eq!(content(), "one two three");
        write(FileSink::new(&path).start_position(4), vec!["TWO"]).unwrap();
        assert_eq!(content(), "one TWO three");
        write(FileSink::new(&path), vec!["new"]).unwrap();
        assert_eq!(content(), "new");
        let refused = write(FileSink::new(&path).create_new(), vec!["again"]).unwrap_err();
        assert!(refused.to_string().contains("written"), "the error names the file: {refused}");
        assert_eq!(content(), "new");
        write(FileSink::new(&path), vec![]).unwrap();
        assert_eq!(content(), "");
    });
}

#[test]
fn a_file_is_copied_across_cores() {
    everywhere(|place, directory| {
        let (from, to) = (directory.join("from"), directory.join("to"));
        let content = bytes(1_000_000);
        std::fs::write(&from, &content).unwrap();
        let source = FileSource::new(&from).source();
        let source = match place {
            Place::Pod(_) => source.on(Placement::Index(0)),
            Place::Thread(_) => source,
        };
        let (read, written) = place.both(&source.to_mat(FileSink::new(&to).sink(), keep::both));
        assert_eq!((read.unwrap(), written.unwrap()), (IoResult { count: 1_000_000 }, IoResult { count: 1_000_000 }));
        assert_eq!(std::fs::read(&to).unwrap(), content);
    });
}

#[test]
fn what_cannot_be_opened_fails_the_stream_and_names_the_file() {
    everywhere(|place, directory| {
        let missing = directory.join("missing");
        let (read, all) = place.both(&FileSource::new(&missing).source().to_mat(joined(), keep::both));
        for error in [read.unwrap_err(), all.unwrap_err()] {
            assert!(matches!(error.downcast_ref(), Some(FileError::Io { action: "open", .. })), "{error}");
            assert!(error.to_string().contains("missing"));
        }
        let nowhere = directory.join("no/such/directory");
        let endless = Source::from_iterator(|| std::iter::repeat_n(vec![1_u8], 1_000_000_000));
        let error = place.run(&endless.to_right(FileSink::new(nowhere).sink())).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(FileError::Io { action: "open", .. })), "{error}");
    });
}

#[test]
fn a_cancelled_source_says_what_it_has_read() {
    everywhere(|place, directory| {
        let path = directory.join("long");
        std::fs::write(&path, bytes(1_000_000)).unwrap();
        let first = FileSource::new(&path).chunk_bytes(100).source().take(1);
        let (read, all) = place.both(&first.to_mat(joined(), keep::both));
        assert_eq!(all.unwrap(), bytes(100));
        let count = read.unwrap().count;
        assert!((100..=100 * 100).contains(&count), "it does not read far ahead: {count}");
    });
}

#[test]
fn a_sink_whose_stream_fails_says_that_the_file_is_incomplete() {
    everywhere(|place, directory| {
        let path = directory.join("part");
        let source = Source::from_iterator(|| 0..3).try_map(|n| match n {
            2 => Err(StreamError::text("boom")),
            _ => Ok(b"chunk".to_vec()),
        });
        let error = place.run(&source.to_right(FileSink::new(&path).sink())).unwrap_err();
        let Some(FileError::Incomplete { cause, .. }) = error.downcast_ref() else { panic!("{error}") };
        assert_eq!(cause.to_string(), "boom");
    });
}

#[test]
fn a_file_that_is_read_slowly_waits_for_demand() {
    everywhere(|place, directory| {
        let path = directory.join("slow");
        std::fs::write(&path, bytes(5000)).unwrap();
        let delay = std::time::Duration::from_millis(20);
        let slow = FileSource::new(&path).chunk_bytes(1000).source().initial_delay(delay);
        assert_eq!(place.run(&slow.to_right(joined())).unwrap(), bytes(5000));
    });
}

#[test]
fn files_of_a_pod_that_stops_end_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let pod = Pod::builder().config(config(1)).start().unwrap();
    let endless = Source::from_iterator(|| std::iter::repeat(vec![7_u8; 100]))
        .initial_delay(std::time::Duration::from_secs(3600));
    let graph = endless.to_right(FileSink::new(directory.path().join("open")).sink());
    let outcome = pod.run_stream(CoreIndex(0), &graph).unwrap();
    pod.stop();
    assert!(block_on(outcome).is_err());
}
