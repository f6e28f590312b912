//! The subject: the only module of the harness that knows atoll. It starts the pod (by re-executing this binary), opens
//! the client, and runs rounds of a scenario. [`crate::run`] calls it; nothing else does.

use anyhow::bail;

use crate::arguments::PodArguments;
use crate::measure::{RoundLength, Sample};
use crate::scenario::{Scenario, Setting};

/// A scenario that is ready to run rounds.
#[derive(Debug)]
pub struct Subject {
    never: core::convert::Infallible,
}

impl Subject {
    /// Starts what the scenario needs: a pod unless `setting.pods` names some, or an executor in this process.
    pub fn prepare(scenario: &Scenario, _setting: &Setting) -> anyhow::Result<Self> {
        bail!("{} needs a pod, which this build cannot start yet; `atoll-bench floor all` works", scenario.name())
    }

    /// Bytes of a request and of a reply on the wire, for the bare ring. Not asked for local scenarios.
    pub fn frame_bytes(&self) -> (usize, usize) {
        match self.never {}
    }

    /// Called before a round of the floor: whatever spins leaves its processor.
    pub fn pause(&mut self) {
        match self.never {}
    }

    /// Runs one round; the subject may be paused before it.
    pub fn round(&mut self, _length: RoundLength) -> anyhow::Result<Sample> {
        match self.never {}
    }

    /// Ends the pod in order.
    pub fn finish(self) -> anyhow::Result<()> {
        match self.never {}
    }
}

/// What the pod process does: prints the address it listens on as its first line, serves until it is ended.
pub fn pod(_arguments: &PodArguments) -> anyhow::Result<()> {
    bail!("this build has no pod yet")
}
