//! The pod: its configuration and its assembly from the layers below.

pub mod config;
