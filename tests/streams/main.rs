//! Streams: blueprints and their layout, the interpreter, the language and its operators. Needs no runtime.

mod attributes;
mod buffers;
mod composite_builder;
mod drive;
mod elementwise;
mod first;
mod groups;
mod hand;
mod linear_builder;
mod materialized_values;
mod random_graphs;
mod sinks;
mod sources;
mod support;
