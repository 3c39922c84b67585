//! The features of EFA devices (Elastic Fabric Adapter) that are not part of the verbs. They use libefa, which is
//! loaded on first use.
//!
//! | feature | functions |
//! |---|---|
//! | attributes of the device | [`DeviceContext::query_efa_device`] |
//! | scalable reliable datagrams (SRD) | [`ProtectionDomain::create_srd_qp_builder`] |
//! | the number of an address handle, which completions contain | [`AddressHandle::efa_ahn`] |
//! | the GID of an unknown sender | [`CompletionQueueBuilder::build_efa_with_source_gid`] |
//!
//! # Scalable reliable datagrams
//!
//! As with datagrams, a queue pair can send to any other SRD queue pair. Delivery is reliable but unordered. Set the
//! destination of each request with [`setup_ud_addr`](crate::ibverbs::work_request::LocalBufferHandle::setup_ud_addr).
//!
//! ```no_run
//! use sideway::efa::ScalableReliableDatagram;
//! use sideway::ibverbs::address::AddressHandle;
//! use sideway::ibverbs::queue_pair::{ExtendedQueuePair, PostSendGuard, QueuePair, SetInlineData};
//! use sideway::ibverbs::work_request::{PostSendError, WorkRequestFlags};
//!
//! fn send_hello(
//!     qp: &mut ExtendedQueuePair<ScalableReliableDatagram>,
//!     handle: &AddressHandle,
//!     (number, qkey): (u32, u32),
//! ) -> Result<(), PostSendError> {
//!     let mut guard = qp.start_post_send();
//!     let request = guard.construct_wr(1, WorkRequestFlags::Signaled).setup_send();
//!     request.setup_ud_addr(handle, number, qkey).setup_inline_data(b"hello");
//!     guard.post()
//! }
//! ```
//!
//! # References
//!
//! [efadv(7)](https://man7.org/linux/man-pages/man7/efadv.7.html)
//!
//! [`DeviceContext::query_efa_device`]: crate::ibverbs::device_context::DeviceContext::query_efa_device
//! [`ProtectionDomain::create_srd_qp_builder`]: crate::ibverbs::protection_domain::ProtectionDomain::create_srd_qp_builder
//! [`AddressHandle::efa_ahn`]: crate::ibverbs::address::AddressHandle::efa_ahn
//! [`CompletionQueueBuilder::build_efa_with_source_gid`]: crate::ibverbs::completion::CompletionQueueBuilder::build_efa_with_source_gid

mod completion;
mod device;
mod queue_pair;

pub use self::completion::SourceGidReader;
pub use self::device::{EfaDeviceAttr, EfaDeviceCapabilityFlags};
pub use self::queue_pair::ScalableReliableDatagram;
