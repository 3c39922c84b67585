//! RDMA in Rust: the modern verbs of libibverbs, with the comfort of `Arc` on the control path, and on the data path the
//! driver's functions called as C calls them.
//!
//! - [`ibverbs`] wraps the verbs: [devices](ibverbs::device), [memory](ibverbs::protection_domain),
//!   [completion queues](ibverbs::completion), [queue pairs](ibverbs::queue_pair), [requests](ibverbs::work_request).
//! - [`rdmacm`] makes connections by address.
//! - [`error`] has the one shape of failures: the verb, the errno, and what to change.
//! - `mlx5` and `efa`, behind features of the same names, wrap what two vendors add.
//! - [`manual`] explains how to live with all that; it begins with a [first program](manual::getting_started).
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

#[cfg(feature = "efa")]
pub mod efa;
pub mod error;
pub mod ibverbs;
pub mod manual;
#[cfg(feature = "mlx5")]
pub mod mlx5;
pub mod rdmacm;

mod ffi;
