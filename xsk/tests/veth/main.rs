//! Sockets on a veth pair, in a network namespace of each test's thread. These tests need root; without it they report that they did not run.

#![allow(clippy::unwrap_used, reason = "a test")]

mod link;
mod net;
mod objects;
mod traffic;
