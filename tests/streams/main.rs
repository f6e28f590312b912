//! The stream engine, against the behaviour tables of the reference: one module for each table.
mod bench_chains;
mod bench_graphs;
mod bench_stages;
mod bench_support;
mod ports;
