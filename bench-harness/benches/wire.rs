//! Criterion benches of what every frame pays, and of the floor of a cross-core hop.

use std::hint::black_box;

use bench_harness::floors::spsc_ping_pong::Pair;
use bench_harness::measure::pin_to;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn checksum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crc32c");
    for bytes in [64_usize, 1_024] {
        let data = vec![0x5a_u8; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(bytes.to_string(), |bencher| {
            bencher.iter(|| atoll::wire::checksum::crc32c(black_box(&data)))
        });
    }
    group.finish();
}

/// A message of 64 bytes into and out of a warm buffer, as a link does it.
fn codec(criterion: &mut Criterion) {
    let message = atoll::services::echo::echo::Block { block: [7; 8] };
    let mut group = criterion.benchmark_group("codec of 64 bytes");
    let mut bytes = Vec::with_capacity(4_096);
    group.bench_function("encode", |bencher| {
        bencher.iter(|| {
            bytes.clear();
            atoll::wire::codec::encode(black_box(&message), &mut bytes, 4_096)
        });
    });
    group.bench_function("validate and decode", |bencher| {
        bencher.iter(|| atoll::wire::codec::decode::<atoll::services::echo::echo::Block>(black_box(&bytes)));
    });
    group.finish();
}

/// A reply frame, from its start to its checksums, and back through the decoder.
fn frame(criterion: &mut Criterion) {
    use atoll::base::{ShardId, Token};
    use atoll::wire::{FrameDecoder, FrameFlags, FrameKind, Lane, SendBuffer};
    let mut group = criterion.benchmark_group("frame of 64 bytes");
    let (mut buffer, mut sent) = (SendBuffer::new(1 << 20), Vec::new());
    group.bench_function("write", |bencher| {
        bencher.iter(|| {
            let flags = FrameFlags::new(Lane::Messages);
            let start = buffer.begin_frame(FrameKind::Reply, flags, 7, ShardId(3), Token(1), 42);
            buffer.bytes_mut().extend_from_slice(black_box(&[7; 64]));
            let finished = buffer.finish_frame(start, 0);
            sent.clear();
            (finished, buffer.take(&mut sent))
        });
    });
    let mut decoder = FrameDecoder::new(1 << 20);
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let mut at = 0;
            decoder.next_frame(black_box(&sent), &mut at)
        });
    });
    group.finish();
}

fn cross_core(criterion: &mut Criterion) {
    // Two spinning threads on one processor would only measure its scheduler.
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 || pin_to(1).is_err() {
        eprintln!("spsc ping-pong skipped: it needs processors 0 and 1");
        return;
    }
    match Pair::start(0) {
        Ok(mut pair) => {
            criterion.bench_function("spsc ping-pong", |bencher| bencher.iter(|| pair.round_trip(black_box(1))));
        }
        Err(error) => eprintln!("spsc ping-pong skipped: {error}"),
    }
}

criterion_group!(benches, checksum, codec, frame, cross_core);
criterion_main!(benches);
