//! The layout of streams: builders, traversals and the materializer, shown by phases that record instead of running.
//! Needs no runtime.

mod allocations;
mod attributes;
mod composite_builder;
mod linear_builder;
mod long_chains;
mod materialized_values;
mod materializing;
mod own_island;
mod random_graphs;
mod support;
