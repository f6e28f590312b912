//! What random graphs have found, as cases of their own.
