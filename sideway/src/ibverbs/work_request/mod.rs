//! Work requests: what is handed to a queue pair.
//!
//! Building a request is cheap; nothing of it reaches the device before its last step, the one that gives the data
//! (`setup_sge`, `setup_inline_data`, …), and nothing is processed before [`post`](PostSendGuard::post). A handle dropped
//! half-way leaves no trace; a guard dropped without `post` takes its requests back.
//!
//! ```text
//! start_post_send ─► guard ── construct_wr(wr_id, flags) ─► WorkRequestHandle
//!                                   setup_write(rkey, addr) ─► LocalBufferHandle
//!                                         unsafe setup_sge(lkey, addr, len)     the request is in the batch
//!                    guard ── post()                                            the batch is on its way
//! ```
//!
//! Naming memory (`setup_sge`, `setup_sge_list`) is the unsafe step: the device reads or writes it after the call has
//! returned. Inline data is copied at once, so that giving it is safe.

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
pub(crate) use self::batch::{Batch, MOST_REQUESTS, Requests, no_room};
pub use self::data::ScatterGatherEntry;
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
