//! RDMA in Rust: the modern verbs of libibverbs, with the comfort of `Arc` on the control path, and on the data path the
//! driver's functions called as C calls them.
//!
//! Building needs rustc and a linker. Neither rdma-core nor a NIC has to be there, to build or to run: without libibverbs the first
//! verb says what to install, and the crate `softrnic` adds a NIC in software to the list of devices, for development and
//! [tests](manual::testing). The README has a whole program.
//!
//! - [`ibverbs`] wraps the verbs: [devices](ibverbs::device), [memory](ibverbs::protection_domain),
//!   [completion queues](ibverbs::completion), [queue pairs](ibverbs::queue_pair), [requests](ibverbs::work_request).
//! - [`rdmacm`] makes connections by address.
//! - [`error`] has the one shape of failures: the verb, the errno, and what to change.
//! - `mlx5` and `efa`, behind features of the same names, wrap what two vendors add.
//! - [`manual`] explains how to live with all that: a [first program](manual::getting_started), [what is unsafe](manual::memory),
//!   [who keeps what alive](manual::ownership), the [hot path](manual::hot_path), [errors by symptom](manual::errors), your own
//!   [tests](manual::testing), [porting](manual::porting) from other crates, and [what each C function is here](manual::coverage).
//!
//! libibverbs is opened when the first verb is called. Where it is missing, [`DeviceList::new`] says so:
//!
//! ```
//! use sideway::ibverbs::device::{DeviceInfo, DeviceList};
//!
//! match DeviceList::new() {
//!     Ok(devices) => devices.iter().for_each(|device| println!("{}", device.name())),
//!     Err(error) => println!("{error}"),
//! }
//! ```
//!
//! [`DeviceList::new`]: ibverbs::device::DeviceList::new

// On docs.rs items say which feature they need; that takes a nightly rustdoc.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "efa")]
pub mod efa;
pub mod error;
pub mod ibverbs;
pub mod manual;
#[cfg(feature = "mlx5")]
pub mod mlx5;
pub mod rdmacm;

mod ffi;
