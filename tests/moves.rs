//! How shards move between pods, as senders and owners see it: on several cores of several processes in memory, under
//! interleavings that seeds decide, with an oracle.

#[path = "support/cluster.rs"]
mod cluster;

#[path = "moves/ledger.rs"]
mod ledger;
#[path = "moves/world.rs"]
mod world;

#[path = "moves/directed.rs"]
mod directed;
#[path = "moves/random.rs"]
mod random;
