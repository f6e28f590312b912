//! Tags of islands: which phase runs a part of a graph.

use std::fmt;

/// Names the phase that materializes an island. Users define tags of their own and give the materializer a factory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IslandTag(pub &'static str);

impl IslandTag {
    /// Islands whose operators share one interpreter. Levels with an asynchronous boundary get this tag.
    pub const FUSED: IslandTag = IslandTag("fused");
}

impl fmt::Display for IslandTag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}
