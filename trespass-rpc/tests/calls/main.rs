//! Calls over RDMA on softrnic, and over TCP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bulk;
mod common;
mod ends;
mod faults;
mod observed;
mod on_top;
mod processes;
mod readme;
mod streams;
mod tls;
mod tower;
mod unary;
