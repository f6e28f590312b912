//! The lanes of a link, as two cores see them whose bytes the test carries: credit for each lane by itself, large bodies
//! in parts, and the order of messages.

#[path = "support/host.rs"]
mod host;
#[path = "support/wire.rs"]
mod wire;

#[path = "lanes/store.rs"]
mod store;
#[path = "lanes/watch.rs"]
mod watch;

#[path = "lanes/directed.rs"]
mod directed;
#[path = "lanes/random.rs"]
mod random;
