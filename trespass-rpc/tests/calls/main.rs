//! Calls over RDMA, on the device in software, and over TCP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bulk;
mod common;
mod ends;
mod faults;
mod streams;
mod unary;
