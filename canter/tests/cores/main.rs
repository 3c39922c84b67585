//! Cores that talk to each other.

mod cancel;
mod connections;
#[path = "common.rs"]
mod cores;
mod ends;
mod executor;
mod hosts;
