//! The load test of atoll. Every figure stands beside a floor: the same work written by hand with nothing around it,
//! measured in rounds that alternate with the subject's.
//!
//! - [`arguments`]: the command line.
//! - [`scenario`]: what is measured, and the names of the canonical scenarios.
//! - [`schedule`]: open loop: send times fixed beforehand, lateness, refusal.
//! - [`measure`]: clock, histograms, processor time, memory, disturbed rounds.
//! - [`floors`]: the hand-written comparisons.
//! - [`drive`]: starts the pod and sends.
//! - [`cluster`]: several pods that are killed, stopped and paused; it knows atoll too.
//! - [`rounds`]: alternates floor and subject, repeats disturbed rounds.
//! - [`report`]: progress line, table, JSON, distributions, a page with charts.
//! - [`compare`]: what changed between two reports, and what of that is more than noise.
//! - [`flame`]: records a scenario with perf and renders the flame graph.
//! - [`run`]: puts a command together; [`child`]: processes made of this very binary.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod arguments;
pub mod child;
pub mod cluster;
pub mod compare;
pub mod drive;
pub mod flame;
pub mod floors;
pub mod measure;
pub mod report;
pub mod rounds;
pub mod run;
pub mod scenario;
pub mod schedule;
pub mod streams;
pub mod sweep;
