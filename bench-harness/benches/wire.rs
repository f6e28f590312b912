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
        group.bench_function(bytes.to_string(), |bencher| bencher.iter(|| crc32c::crc32c(black_box(&data))));
    }
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

criterion_group!(benches, checksum, cross_core);
criterion_main!(benches);
