//! RDMA in Rust: a wrapper of libibverbs's modern verbs. Objects keep each other alive with `Arc`. Posting and polling
//! call the driver's functions directly, as in C.
//!
//! Building requires only rustc and a linker. Neither rdma-core nor a NIC is required to build or start a program.
//! Without libibverbs, the first verb returns an error that names the packages to install. The crate `softrnic` adds a
//! software NIC to the device list, for development and [tests](manual::testing). The README has a complete program.
//!
//! - [`ibverbs`] wraps the verbs: [devices](ibverbs::device), [memory](ibverbs::protection_domain),
//!   [completion queues](ibverbs::completion), [queue pairs](ibverbs::queue_pair), [requests](ibverbs::work_request).
//! - [`rdmacm`] connects queue pairs by address.
//! - [`error`] has the common error type [`VerbError`](error::VerbError), which contains the verb, the errno, and a
//!   hint.
//! - `mlx5` and `efa` wrap the extensions of two vendors. They require the features of the same names.
//! - [`prelude`] has the traits and types that most programs use.
//! - [`manual`] has guides: a [first program](manual::getting_started), [what is unsafe](manual::memory),
//!   [ownership](manual::ownership), the [hot path](manual::hot_path), [errors by symptom](manual::errors),
//!   [testing](manual::testing), [porting](manual::porting) from other crates, and the [Rust item for each C
//!   function](manual::coverage).
//!
//! The first verb loads libibverbs. If it is missing, [`DeviceList::new`] returns an error:
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

// On docs.rs, the documentation shows the feature that each item requires. This needs a nightly rustdoc.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "efa")]
pub mod efa;
pub mod error;
pub mod ibverbs;
pub mod manual;
#[cfg(feature = "mlx5")]
pub mod mlx5;
pub mod prelude;
pub mod rdmacm;

mod ffi;
mod io_error;
#[cfg(doctest)]
mod misuse;
