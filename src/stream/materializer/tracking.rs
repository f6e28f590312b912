//! Island tracking: from the slots of the whole graph to the slots of each island.
//!
//! Global slots are counted over the whole walk. An island that encloses others has *holes* there; its *segments* are the
//! contiguous runs of slots between entering and leaving islands. A local slot is the global one less the offset of the
//! island and less the slots of the holes before it:
//!
//! ```text
//! global  0    1    2    3    4    5    6
//!        |-- island 0 --|- island 1 -|- island 0 -|
//! local   0    1    2    0    1       3    4        skipped = 2 in the last segment
//! ```
//!
//! A backward wire leads to a slot in the current segment, in another segment of the same island, or in another island. A
//! forward wire is kept until its inlet is visited. With one island and backward wires nothing is allocated here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::phase::{LocalSlot, OpenWire};

/// Position of a phase in the order of entering; 0 is the outermost.
pub(super) type PhaseIndex = u32;

/// A segment that is complete. Those of no slots are not kept.
#[derive(Debug)]
struct Segment {
    global_base: u32,
    length: u32,
    /// The local slot of its first inlet.
    local_base: u32,
    phase: PhaseIndex,
}

/// A wire whose inlet was not visited yet. Ordered by the slot of that inlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ForwardWire {
    pub(super) to_global: u32,
    pub(super) open: OpenWire,
    pub(super) from_phase: PhaseIndex,
}

/// What is put aside when another island is entered.
struct SavedIsland {
    island_offset: u32,
    last_visited: u32,
    skipped: u32,
    phase: PhaseIndex,
}

/// Where a slot that was visited is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    InSegment(LocalSlot),
    AcrossSegments(LocalSlot),
    AcrossIslands(PhaseIndex, LocalSlot),
}

pub(super) struct Tracking {
    /// The global slot of the next inlet.
    pub(super) current: u32,
    segment_offset: u32,
    island_offset: u32,
    /// Slots of the enclosed islands so far.
    skipped: u32,
    pub(super) phase: PhaseIndex,
    segments: Vec<Segment>,
    saved: Vec<SavedIsland>,
    /// The wire with the nearest inlet is on top: inlets are visited in order.
    forward: BinaryHeap<Reverse<ForwardWire>>,
    opened: u32,
}

/// What [`Tracking::complete_segment`] found, for the narration.
pub(super) struct CompletedSegment {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) phase: PhaseIndex,
}

impl Tracking {
    pub(super) fn new() -> Tracking {
        Tracking {
            current: 0,
            segment_offset: 0,
            island_offset: 0,
            skipped: 0,
            phase: 0,
            segments: Vec::new(),
            saved: Vec::new(),
            forward: BinaryHeap::new(),
            opened: 0,
        }
    }

    pub(super) fn enter(&mut self, phase: PhaseIndex) -> CompletedSegment {
        let completed = self.complete_segment();
        self.saved.push(SavedIsland {
            island_offset: self.island_offset,
            last_visited: self.current,
            skipped: self.skipped,
            phase: self.phase,
        });
        self.island_offset = self.current;
        self.segment_offset = self.current;
        self.skipped = 0;
        self.phase = phase;
        completed
    }

    /// `None` if no island was entered.
    pub(super) fn exit(&mut self) -> Option<CompletedSegment> {
        let saved = self.saved.pop()?;
        let completed = self.complete_segment();
        self.segment_offset = self.current;
        self.island_offset = saved.island_offset;
        self.skipped = saved.skipped + (self.current - saved.last_visited);
        self.phase = saved.phase;
        Some(completed)
    }

    pub(super) fn is_nested(&self) -> bool {
        !self.saved.is_empty()
    }

    fn complete_segment(&mut self) -> CompletedSegment {
        let length = self.current - self.segment_offset;
        if length > 0 {
            self.segments.push(Segment {
                global_base: self.segment_offset,
                length,
                local_base: self.segment_offset - self.island_offset - self.skipped,
                phase: self.phase,
            });
        }
        CompletedSegment { from: self.segment_offset, to: self.current, phase: self.phase }
    }

    /// The local slot of a global one in the current segment.
    #[inline]
    pub(super) fn local(&self, global: u32) -> LocalSlot {
        LocalSlot(global - self.island_offset - self.skipped)
    }

    /// Visits the next inlet: its slot, and the forward wire that leads to it.
    #[inline]
    pub(super) fn visit_inlet(&mut self) -> (LocalSlot, Option<ForwardWire>) {
        let local = self.local(self.current);
        let arrived = self.arrive();
        self.current += 1;
        (local, arrived)
    }

    #[inline]
    fn arrive(&mut self) -> Option<ForwardWire> {
        let Reverse(nearest) = self.forward.peek()?;
        if nearest.to_global != self.current {
            return None;
        }
        self.forward.pop().map(|Reverse(wire)| wire)
    }

    /// The forward wire that is nearest to its inlet; at the end of a walk, one that leads nowhere.
    pub(super) fn nearest_forward(&self) -> Option<ForwardWire> {
        self.forward.peek().map(|Reverse(wire)| *wire)
    }

    /// A new name for an outlet of the current island.
    pub(super) fn open(&mut self) -> OpenWire {
        let open = OpenWire(self.opened);
        self.opened += 1;
        open
    }

    /// Keeps a wire until its inlet is visited.
    pub(super) fn keep_forward(&mut self, to_global: u32) -> OpenWire {
        let open = self.open();
        self.forward.push(Reverse(ForwardWire { to_global, open, from_phase: self.phase }));
        open
    }

    /// Where the inlet with this slot is, which was visited: `global` is less than `current`.
    #[inline]
    pub(super) fn find(&self, global: u32) -> Place {
        if global >= self.segment_offset { Place::InSegment(self.local(global)) } else { self.find_segment(global) }
    }

    fn find_segment(&self, global: u32) -> Place {
        // Segments without gaps cover all slots before the current segment, so one always matches.
        let after = self.segments.partition_point(|segment| segment.global_base <= global);
        let segment = &self.segments[after - 1];
        debug_assert!(global - segment.global_base < segment.length, "segments leave no gap");
        let local = LocalSlot(global - segment.global_base + segment.local_base);
        match segment.phase == self.phase {
            true => Place::AcrossSegments(local),
            false => Place::AcrossIslands(segment.phase, local),
        }
    }
}
