//! What an island is doing, for people who look for the stage that everybody waits for.
//!
//! Taken by the host between two runs. Stages that are a function of single elements pass pulls on, so in a row of them
//! demand is seen at both ends only, and the connections between them look as if upstream waited.
//! A snapshot is plain data; [`draw_dot`] and [`draw_mermaid`] make pictures of it.
#![allow(unsafe_code)]

use std::fmt::Write as _;

use super::connection::{CLOSED, IN_READY};
use super::context::{Context, IslandId};
use super::island::Island;

/// One island at one time.
#[derive(Clone, Debug)]
pub struct IslandSnapshot {
    /// The island.
    pub island: IslandId,
    /// Its stages, in the order in which they start.
    pub stages: Vec<StageSnapshot>,
    /// Its connections.
    pub connections: Vec<ConnectionSnapshot>,
    /// Whether events wait that its budget left for the next run.
    pub is_suspended: bool,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSnapshot {
    /// Its name.
    pub name: String,
    /// Whether it has not stopped.
    pub is_running: bool,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSnapshot {
    /// Position of the stage that gives.
    pub from: usize,
    /// Position of the stage that takes.
    pub to: usize,
    /// Who waits for whom.
    pub state: Waits,
}

/// Who waits for whom at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Upstream, for a pull.
    ForPull,
    /// Downstream, for an element.
    ForPush,
    /// Nobody: a side has closed it.
    Closed,
}

impl Context<'_> {
    fn snapshot(&self) -> IslandSnapshot {
        let stages = self
            .stages
            .iter()
            .zip(0..)
            .map(|(entry, stage)| StageSnapshot { name: self.name_of(stage), is_running: entry.logic.is_some() });
        let connections = self.connections.iter().map(|entry| {
            // SAFETY: connections live as long as the context.
            let header = unsafe { entry.connection.as_ref() };
            let state = match header.state.get() {
                state if state & CLOSED != 0 => Waits::Closed,
                state if state & IN_READY != 0 => Waits::ForPull,
                _ => Waits::ForPush,
            };
            ConnectionSnapshot { from: header.out_owner.get() as usize, to: header.in_owner.get() as usize, state }
        });
        IslandSnapshot {
            island: self.island,
            stages: stages.collect(),
            connections: connections.collect(),
            is_suspended: self.is_suspended(),
        }
    }
}

impl Island {
    /// What it is doing.
    #[must_use]
    pub fn snapshot(&self) -> IslandSnapshot {
        self.context_ref().snapshot()
    }
}

/// A drawing for Graphviz: an arrow goes from whoever waits to whom it waits for.
#[must_use]
pub fn draw_dot(islands: &[IslandSnapshot]) -> String {
    let mut drawing = "digraph waits {\n".to_owned();
    for island in islands {
        let id = island.island.0;
        let suspended = if island.is_suspended { ", suspended" } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(drawing, "  subgraph cluster_{id} {{\n    label=\"island {id}{suspended}\";");
        for (at, stage) in island.stages.iter().enumerate() {
            let style = if stage.is_running { "" } else { ", style=dotted" };
            let _ = writeln!(drawing, "    i{id}s{at} [label={:?}{style}];", stage.name);
        }
        for connection in &island.connections {
            let ConnectionSnapshot { from, to, state } = *connection;
            let _ = match state {
                Waits::ForPull => writeln!(drawing, "    i{id}s{from} -> i{id}s{to} [label=\"waits for a pull\"];"),
                Waits::ForPush => writeln!(drawing, "    i{id}s{to} -> i{id}s{from} [label=\"waits for an element\"];"),
                Waits::Closed => writeln!(drawing, "    i{id}s{from} -> i{id}s{to} [style=dotted, arrowhead=none];"),
            };
        }
        drawing.push_str("  }\n");
    }
    drawing.push_str("}\n");
    drawing
}

/// The same for Mermaid.
#[must_use]
pub fn draw_mermaid(islands: &[IslandSnapshot]) -> String {
    let mut drawing = "flowchart LR\n".to_owned();
    for island in islands {
        let id = island.island.0;
        let suspended = if island.is_suspended { ", suspended" } else { "" };
        let _ = writeln!(drawing, "  subgraph i{id}[\"island {id}{suspended}\"]");
        for (at, stage) in island.stages.iter().enumerate() {
            let stopped = if stage.is_running { "" } else { " (stopped)" };
            let name = stage.name.replace('"', "#quot;");
            let _ = writeln!(drawing, "    i{id}s{at}[\"{name}{stopped}\"]");
        }
        for connection in &island.connections {
            let ConnectionSnapshot { from, to, state } = *connection;
            let _ = match state {
                Waits::ForPull => writeln!(drawing, "    i{id}s{from} -->|pull?| i{id}s{to}"),
                Waits::ForPush => writeln!(drawing, "    i{id}s{to} -->|element?| i{id}s{from}"),
                Waits::Closed => writeln!(drawing, "    i{id}s{from} -.- i{id}s{to}"),
            };
        }
        drawing.push_str("  end\n");
    }
    drawing
}
