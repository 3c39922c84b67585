//! Calls over RDMA on softrnic, and over TCP.
#![expect(clippy::unwrap_used, reason = "tests")]

mod blocked;
mod bulk;
mod ends;
mod faults;
mod hostile;
mod neighbours;
mod on_top;
mod processes;
mod readme;
mod streams;
mod unary;
mod wakers;
