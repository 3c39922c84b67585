//! A NIC in software: RDMA devices on any Linux machine, with no NIC, kernel module, root or daemon.
//!
//! [`register`] adds its devices to those of `rdma-mummy-sys`. They then stand in the list of `ibv_get_device_list` beside real
//! ones, and everything above works on them unchanged. Queue pairs reach each other within a
//! process, and those of other processes of the same user on the host, unless [`PEERS_VARIABLE`] says no.
//!
//! ```
//! use std::ffi::CStr;
//!
//! use rdma_mummy_sys::{ibv_free_device_list, ibv_get_device_list, ibv_get_device_name};
//!
//! softrnic::register()?;
//! let mut count = 0;
//! // SAFETY: `count` can be written to, the list holds `count` devices, and it is freed after its last use.
//! unsafe {
//!     let list = ibv_get_device_list(&mut count);
//!     assert!(!list.is_null());
//!     for index in 0..count as usize {
//!         println!("{:?}", CStr::from_ptr(ibv_get_device_name(*list.add(index)))); // at last: "soft0"
//!     }
//!     ibv_free_device_list(list);
//! }
//! # Ok::<(), softrnic::RegisterError>(())
//! ```
//!
//! With the crate `sideway` that is `DeviceList::new()`, and its `manual::testing` shows a test file for CI and how to provoke faults.
//! [`Builder`] names other devices, or several; so does the environment variable [`DEVICES_VARIABLE`]. What a device can do, what it
//! checks and how it differs from hardware is in the README.
//!
//! # How it is made
//!
//! Each layer uses those before it: `sys` is the operating system, and `wire` what travels between queue pairs; `mem` has
//! registered memory, `cq` and `srq` have queues, `qp` has the rules of the transport services; `ipc` is the way to other processes;
//! `verbs` is the C API, object by object, and `cm` that of connections by address.

#[cfg(test)]
extern crate self as softrnic;

pub(crate) mod cm;
pub(crate) mod cq;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub(crate) mod ipc;
pub(crate) mod mem;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod sys;
pub(crate) mod verbs;
pub(crate) mod wire;

mod builder;
mod wiring;

pub use builder::{Builder, DEVICES_VARIABLE, RegisterError, register};
pub use ipc::PEERS_VARIABLE;
#[doc(hidden)]
pub use verbs::kernel_file::{attribute_file, is_device_file};

/// Its code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
