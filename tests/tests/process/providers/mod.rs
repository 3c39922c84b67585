//! Two providers in one process, each a small table: the union of their devices, and the routing of calls.
#![expect(clippy::unwrap_used, reason = "a test")]

mod connections;
mod devices;
mod tables;
