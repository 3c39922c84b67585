//! Connections by RDMA, on the device in software, and by TCP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
mod connections;
mod hosts;
mod processes;
mod tasks;
