//! Streams: blueprints and their layout, the interpreter, the language and its operators. Needs no runtime.

mod allocations;
mod attributes;
mod composite_builder;
mod first;
mod linear_builder;
mod long_chains;
mod materialized_values;
mod materializing;
mod own_island;
mod random_graphs;
mod support;
