//! The stream engine, against the behaviour tables of the reference: one module for each table.
mod bench_support;
mod ports;
