//! (in the making)

pub mod timers;
