//! One behaviour of a move at a time.
