//! The features of mlx5 devices (ConnectX, BlueField) that are not part of the verbs. They use libmlx5, which is loaded
//! on first use.
//!
//! | feature | functions |
//! |---|---|
//! | detecting mlx5 devices, and their attributes | [`is_mlx5`], [`DeviceContext::query_mlx5_device`] |
//! | dynamic connections (DC): one queue pair that sends to many targets | [`ProtectionDomain::create_dci_builder`], [`ProtectionDomain::create_dct_builder`] |
//! | completion timestamps in nanoseconds | [`DeviceContext::mlx5_clock_info`] |
//!
//! # Dynamic connections
//!
//! An initiator (DCI) connects to the target (DCT) of each request. A request selects its target by an address handle,
//! the target's number and its key. The service is reliable, and supports all operations of a reliable connection
//! except receives.
//!
//! ```no_run
//! use sideway::ibverbs::address::AddressHandle;
//! use sideway::ibverbs::queue_pair::{ExtendedQueuePair, PostSendGuard, QueuePair, SetInlineData};
//! use sideway::ibverbs::work_request::{PostSendError, WorkRequestFlags};
//! use sideway::mlx5::DynamicallyConnected;
//!
//! fn send_hello(
//!     dci: &mut ExtendedQueuePair<DynamicallyConnected>,
//!     handle: &AddressHandle,
//!     (number, key): (u32, u64),
//! ) -> Result<(), PostSendError> {
//!     let mut guard = dci.start_post_send();
//!     let request = guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send();
//!     request.setup_dc_addr(handle, number, key).setup_inline_data(b"hello");
//!     guard.post()
//! }
//! ```
//!
//! # References
//!
//! [mlx5dv(7)](https://man7.org/linux/man-pages/man7/mlx5dv.7.html)
//!
//! [`DeviceContext::query_mlx5_device`]: crate::ibverbs::device_context::DeviceContext::query_mlx5_device
//! [`DeviceContext::mlx5_clock_info`]: crate::ibverbs::device_context::DeviceContext::mlx5_clock_info
//! [`ProtectionDomain::create_dci_builder`]: crate::ibverbs::protection_domain::ProtectionDomain::create_dci_builder
//! [`ProtectionDomain::create_dct_builder`]: crate::ibverbs::protection_domain::ProtectionDomain::create_dct_builder

mod address;
mod device;
mod initiator;
mod service;
mod target;

pub use self::address::DcAddress;
pub use self::device::{ClockInfo, DciStreams, Mlx5DeviceAttr, Mlx5DeviceFlags, is_mlx5};
pub use self::service::{DynamicallyConnected, DynamicallyConnectedTarget};
