//! Streams: blueprints and their layout, the interpreter against the behaviour tables of the reference, the language and
//! its operators. Needs no runtime.

mod allocations;
mod attributes;
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
mod buffers;
mod composite_builder;
mod drive;
mod elementwise;
mod first;
mod groups;
mod hand;
mod junctions;
mod linear_builder;
mod long_chains;
mod materialized_values;
mod materializing;
mod nested;
mod own_island;
mod ports;
mod random_graphs;
mod running;
mod sinks;
mod sources;
mod support;
