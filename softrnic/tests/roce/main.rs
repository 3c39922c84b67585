//! Conformance of the RoCEv2 device: a peer of the test writes packets byte by byte, and compares the packets with which
//! the device answers. The codec of the test is independent of softrnic's.
//!
//! The references are chapter 9 of volume 1 of the InfiniBand Architecture Specification, and rdma_rxe for what the
//! specification leaves open.

#[path = "../common/child.rs"]
mod child;
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
mod reads;
mod requester;
