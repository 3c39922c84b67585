//! A NIC in software: RDMA devices on any Linux machine, with no NIC, kernel module, root or daemon.
//!
//! [`register`] adds its devices to those of `rdma-mummy-sys`. They then stand in the list of `ibv_get_device_list` beside real
//! ones, and everything above works on them unchanged. Queue pairs reach each other within a
//! process, and those of other processes of the same user on the host, unless [`PEERS_VARIABLE`] says no.
//!
//! `engine` is the NIC: memory, queues and the rules of the transport services, with nothing of the C API's objects.
//! `fabric` is the way to other processes. `front` is the C API, object by object, and `rdmacm` that of connections by address.
//! `host` asks the operating system. `fork` is about children of the process.

#[cfg(test)]
extern crate self as softrnic;

pub(crate) mod engine;
pub(crate) mod fabric;
pub(crate) mod fork;
pub(crate) mod front;
pub(crate) mod host;
pub(crate) mod rdmacm;

mod builder;

pub use builder::{Builder, DEVICES_VARIABLE, RegisterError, register};
pub use fabric::PEERS_VARIABLE;

/// Its code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
