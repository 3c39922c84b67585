//! Conformance of the RoCEv2 device: a peer of the test writes packets byte by byte, and compares the packets with which
//! the device answers. The codec of the test is independent of softrnic's.
//!
//! The peer sends no packet again. If another process that used the port ended, packets in its sockets would be lost, so
//! tests that start processes are in `roce_processes`.
//!
//! The references are chapter 9 of volume 1 of the InfiniBand Architecture Specification, and rdma_rxe for what the
//! specification leaves open.

#[path = "../common/mod.rs"]
mod common;

mod acknowledgements;
mod atomics;
mod attacks;
mod congestion;
mod connections;
mod counters;
mod duplicates;
mod invalid;
mod keys;
mod manager;
mod order;
mod packet;
mod peer;
mod port;
mod reads;
mod requester;
