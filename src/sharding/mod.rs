//! Who owns which shard, as the senders of messages see it.
//!
//! Called by `control`, which builds the tables, and by the engine of each core, which looks owners up in its own
//! copy. Invariants: a table never changes; a newer epoch replaces it as a whole.

pub mod table;

pub use table::{InvalidTable, Owner, PodRecord, ShardTable, TableParts};
