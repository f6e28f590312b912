//! What is measured: the operation, where it happens, its pace, and the names under which scenarios are reported.
//! Used by the command line, the floors, the drive and the report. Plain data.

use core::time::Duration;

use serde::Serialize;

/// Entities that asks and tells go round, by default.
pub const ENTITIES: u32 = 1_000;
/// Entities that one round of a start scenario starts, by default: enough to see the directory grow.
pub const ENTITIES_STARTED: u32 = 1_000_000;
/// Body bytes of a remote message, by default. Local messages carry a number and no body.
pub const PAYLOAD_BYTES: u32 = 64;
/// Most messages in flight that an open loop allows before it holds sends back.
pub const OPEN_LOOP_IN_FLIGHT_MAX: u32 = 16_384;

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A message and its reply.
    Ask,
    /// A message without a reply.
    Tell,
    /// The first message to an entity that is not running yet.
    Start,
}

/// Where sender and entity are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// On the same core of this process.
    Local,
    /// On two cores of this process.
    CrossCore,
    /// In two processes, over TCP.
    Remote,
}

/// When the next message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As soon as fewer than `outstanding` are in flight.
    Closed {
        /// Messages in flight at any time.
        outstanding: u32,
    },
    /// At times fixed beforehand, whatever the replies do.
    Open {
        /// Intended sends per second.
        rate_per_second: f64,
    },
}

/// What the handler of the reference entity does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Handler {
    /// It answers at its first poll.
    Ready,
    /// It yields once before it answers.
    Yields,
}

/// How long a core looks for work before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spin {
    /// It never sleeps.
    Always,
    /// It sleeps after this long without work.
    For(Duration),
}

/// One thing to measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// What one operation does.
    pub operation: Operation,
    /// Where sender and entity are.
    pub place: Place,
    /// When the next message is sent.
    pub pace: Pace,
    /// What the handler does.
    pub handler: Handler,
    /// Entities that the messages go round, or entities started in a round.
    pub entities: u32,
    /// Body bytes of a message; 0 means a bare number.
    pub payload_bytes: u32,
}

impl Scenario {
    /// A closed loop with the default handler, entities and payload.
    pub fn closed(operation: Operation, place: Place, outstanding: u32) -> Self {
        Self {
            operation,
            place,
            pace: Pace::Closed { outstanding },
            handler: Handler::Ready,
            entities: if operation == Operation::Start { ENTITIES_STARTED } else { ENTITIES },
            payload_bytes: if place == Place::Remote { PAYLOAD_BYTES } else { 0 },
        }
    }

    /// Messages in flight at any time; an open loop has no fixed number and counts as one.
    pub fn outstanding(&self) -> u32 {
        match self.pace {
            Pace::Closed { outstanding } => outstanding,
            Pace::Open { .. } => 1,
        }
    }

    /// The name in tables, JSON and `flamegraphs/`: what differs from the defaults is spelled out.
    pub fn name(&self) -> String {
        let operation = match self.operation {
            Operation::Ask => "ask",
            Operation::Tell => "tell",
            Operation::Start => "start",
        };
        let place = match self.place {
            Place::Local => "local",
            Place::CrossCore => "cross-core",
            Place::Remote => "remote",
        };
        let default = Self::closed(self.operation, self.place, 1);
        let mut name = match self.pace {
            Pace::Closed { outstanding } => format!("{operation}-{place}-{outstanding}"),
            Pace::Open { rate_per_second } => format!("{operation}-{place}-rate-{rate_per_second:.0}"),
        };
        if self.handler == Handler::Yields {
            name.push_str("-yields");
        }
        if self.entities != default.entities {
            name.push_str(&format!("-{}-entities", self.entities));
        }
        if self.payload_bytes != default.payload_bytes {
            name.push_str(&format!("-{}-bytes", self.payload_bytes));
        }
        name
    }

    /// What `atoll-bench` without arguments measures. The first one is the headline of its JSON.
    pub fn canonical() -> Vec<Self> {
        use Operation::{Ask, Start, Tell};
        use Place::{CrossCore, Local, Remote};
        let crowd = Self { entities: 100_000, ..Self::closed(Ask, Local, 64) };
        let yields = Self { handler: Handler::Yields, ..Self::closed(Ask, Local, 64) };
        vec![
            Self::closed(Ask, Remote, 64),
            Self::closed(Ask, Remote, 1),
            Self::closed(Ask, Remote, 1_024),
            Self::closed(Ask, Local, 1),
            Self::closed(Ask, Local, 64),
            crowd,
            yields,
            Self::closed(Ask, CrossCore, 1),
            Self::closed(Tell, Local, 64),
            Self::closed(Start, Local, 1),
        ]
    }

    /// The canonical scenario of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::canonical().into_iter().find(|scenario| scenario.name() == name)
    }

    /// The command line (without the program) that measures this scenario.
    pub fn command_line(&self) -> Vec<String> {
        let operation = match self.operation {
            Operation::Ask => "ask",
            Operation::Tell => "tell",
            Operation::Start => "start",
        };
        let mut line = vec![operation.to_owned()];
        match self.place {
            Place::Local => line.push("--local".into()),
            Place::CrossCore => line.push("--cross-core".into()),
            Place::Remote => {}
        }
        match self.pace {
            Pace::Closed { outstanding } => line.extend(["--outstanding".into(), outstanding.to_string()]),
            Pace::Open { rate_per_second } => line.extend(["--rate".into(), rate_per_second.to_string()]),
        }
        if self.handler == Handler::Yields {
            line.extend(["--handler".into(), "yields".into()]);
        }
        line.extend(["--entities".into(), self.entities.to_string()]);
        line.extend(["--payload".into(), self.payload_bytes.to_string()]);
        line
    }
}

/// Under what circumstances a scenario is measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Addresses of pods that run already; empty: one is started for the run.
    pub pods: Vec<String>,
    /// The processor of the pod's core, and of everything local.
    pub pod_cpu: usize,
    /// The processor of the client's core.
    pub client_cpu: usize,
    /// How long a core looks for work before it sleeps.
    pub spin: Spin,
    /// Rounds whose median is reported.
    pub rounds: u32,
    /// Unmeasured time at the start of each round.
    pub warm_up: Duration,
    /// Measured time of each round.
    pub duration: Duration,
    /// Whether floor rounds are run; off only while a flame graph is recorded.
    pub floor: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_names_are_distinct_and_lead_back() {
        let scenarios = Scenario::canonical();
        for scenario in &scenarios {
            assert_eq!(Scenario::named(&scenario.name()).as_ref(), Some(scenario));
            assert_eq!(scenarios.iter().filter(|other| other.name() == scenario.name()).count(), 1);
        }
    }

    #[test]
    fn a_name_spells_out_what_is_not_default() {
        let scenario = Scenario {
            pace: Pace::Open { rate_per_second: 5_000.0 },
            handler: Handler::Yields,
            payload_bytes: 512,
            ..Scenario::closed(Operation::Ask, Place::Remote, 1)
        };
        assert_eq!(scenario.name(), "ask-remote-rate-5000-yields-512-bytes");
    }
}
