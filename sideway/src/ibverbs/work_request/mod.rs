//! Work requests, which are posted to a queue pair.
//!
//! The last step of building a request sets its data (`setup_sge`, `setup_inline_data`, …) and adds the request to the
//! batch. The device does not process any request before [`post`](PostSendGuard::post) is called. If a handle is
//! dropped before the last step, its request is not added. If a guard is dropped without `post`, its requests are
//! discarded.
//!
//! ```text
//! start_post_send ─► guard ── construct_wr(wr_id, flags) ─► WorkRequestHandle
//!                                   setup_write(rkey, addr) ─► LocalBufferHandle
//!                                         unsafe setup_sge(lkey, addr, len)     the request is in the batch
//!                    guard ── post()                                            the device has the batch
//! ```
//!
//! The step that names memory (`setup_sge`, `setup_sge_list`) is unsafe, because the device accesses the memory after
//! the call has returned. Inline data is copied during the call, so setting it is safe.

mod address;
mod batch;
mod data;
mod local_buffer;
pub(crate) mod operation;
mod post_error;
mod receive;
mod ring;
mod send;

pub use self::address::{Addressed, DatagramAddress, SendAddress, SharedReceiveQueueNumber};
pub(crate) use self::batch::{Batch, MOST_REQUESTS, Requests, no_room, refused_by_driver};
pub(crate) use self::data::{BasicSlot, PACKET_START, SendData};
pub use self::local_buffer::{CarriesInlineData, LocalBufferHandle, SetInlineData, SetScatterGatherEntry};
pub use self::operation::{
    AtomicWrite, BindMemoryWindow, CompareSwap, Either, FetchAdd, Flush, FlushLevel, FlushPlacement, LocalInvalidate,
    Read, Send, SendImm, SendInv, SendOperation, SendTso, WorkRequestOperationType, Write, WriteImm,
};
pub(crate) use self::post_error::Refusal;
pub use self::post_error::RefusalReason;
pub use self::post_error::{FailedRequest, PostError, PostErrorKind, PostRecvError, PostSendError};
pub use self::receive::{PostRecvGuard, ReceiveQueue, ReceiveTarget, RecvWorkRequestHandle};
pub(crate) use self::ring::Ring;
pub(crate) use self::send::SendSink;
pub use self::send::{HoldsFor, PostSendGuard, WorkRequestFlags, WorkRequestHandle};
pub use super::memory_region::entry::ScatterGatherEntry;
