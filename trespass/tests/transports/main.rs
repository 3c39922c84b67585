//! Connections over RDMA on softrnic, and over TCP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;
mod connections;
mod ends;
mod event_loops;
mod futures;
mod growth;
mod hosts;
mod limits;
mod logger;
mod nonblocking;
mod processes;
mod profile;
mod random;
mod regions;
mod tasks;
