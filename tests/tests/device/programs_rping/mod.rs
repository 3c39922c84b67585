//! The example `rping` as a program: with itself, with rdma-core's program of that name in either role, and with peers that
//! misbehave.

mod failures;
mod hostile;
mod peers;
