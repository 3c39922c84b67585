//! Two providers in one process, each a small table: whose devices are listed, and who is called.
#![expect(clippy::unwrap_used, reason = "a test")]

mod connections;
mod devices;
mod tables;
