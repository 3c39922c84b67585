//! An RDMA NIC in software: verbs on any Linux machine, with no NIC, kernel module, root or daemon.
//!
//! [`register`] adds soft devices to the device list of `rdma-mummy-sys`, after the system's devices. Programs use them
//! through the same functions as hardware. Queue pairs reach each other within a process and between processes of the
//! same user on the host; [`PEERS_VARIABLE`] can disable the latter.
//!
//! ```
//! use std::ffi::CStr;
//!
//! use rdma_mummy_sys::{ibv_free_device_list, ibv_get_device_list, ibv_get_device_name};
//!
//! softrnic::register()?;
//! let mut count = 0;
//! // SAFETY: `count` is writable, the list holds `count` devices, and it is freed after its last use.
//! unsafe {
//!     let list = ibv_get_device_list(&mut count);
//!     assert!(!list.is_null());
//!     for index in 0..count as usize {
//!         // The last ones are "soft0" and "softiw0".
//!         println!("{:?}", CStr::from_ptr(ibv_get_device_name(*list.add(index))));
//!     }
//!     ibv_free_device_list(list);
//! }
//! # Ok::<(), softrnic::RegisterError>(())
//! ```
//!
//! With the crate `sideway`, `DeviceList::new()` lists the devices. The module `manual::testing` of `sideway` contains
//! a test file for CI and ways to inject faults. [`Builder`] and the environment variable [`DEVICES_VARIABLE`] set the
//! number and names of the devices, and a [`Profile`] gives them the limits of a NIC. The README lists the features of
//! a device and its differences from hardware.
//!
//! # Layers
//!
//! Each layer uses only the layers listed before it:
//!
//! - `sys`: the operating system
//! - `wire`: the messages that queue pairs exchange
//! - `mem`: registered memory
//! - `cq`, `srq`: completion queues, shared receive queues
//! - `qp`: queue pairs and the rules of the transport services
//! - `ipc`: the transport to other processes
//! - `net`: transports to other hosts
//! - `verbs`: the C API of libibverbs, one file per object
//! - `cm`: the C API of librdmacm
//! - [`control`]: faults of devices

#[cfg(test)]
extern crate self as softrnic;

pub(crate) mod cm;
pub mod control;
pub(crate) mod cq;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub(crate) mod ipc;
pub(crate) mod mem;
pub(crate) mod net;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod sys;
pub(crate) mod verbs;
pub(crate) mod wire;

mod builder;
mod wiring;

pub use builder::{Builder, DEVICES_VARIABLE, PROFILE_VARIABLE, RegisterError, register};
pub use ipc::PEERS_VARIABLE;
#[doc(hidden)]
pub use verbs::files::{File, files, serve_files};
pub use verbs::limits::Profile;

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
