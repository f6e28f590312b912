//! The stream engine, against the behaviour tables of the reference: one module for each table.
mod bench_callbacks;
mod bench_cancellation;
mod bench_chains;
mod bench_chasing;
mod bench_emitting;
mod bench_failures;
mod bench_graphs;
mod bench_leaks;
mod bench_lifecycle;
mod bench_stages;
mod bench_stress;
mod bench_supervision;
mod bench_support;
mod ports;
