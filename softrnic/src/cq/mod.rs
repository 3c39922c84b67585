//! Completion queues.

mod queue;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_wc_opcode, ibv_wc_status};

pub(crate) use queue::CompletionQueue;

/// The slots of a send queue that are released when a completion is polled. As with a NIC, a request occupies its slot
/// until its own completion or a later one is polled.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    /// The number of slots in use.
    pub(crate) used: Arc<AtomicU32>,
    /// The number of slots that this completion releases.
    pub(crate) back: u32,
}

impl Slots {
    fn release(self) {
        self.used.fetch_sub(self.back, Ordering::Release);
    }
}

/// Events of a completion queue, implemented by the C API. The caller holds locks of the device, so implementations
/// neither block nor call back.
pub(crate) trait CompletionEvents: Debug + Send + Sync {
    /// A requested completion event is due (`ibv_req_notify_cq`).
    fn completed(&self);
    /// A completion was lost because the queue was full (`IBV_EVENT_CQ_ERR`).
    fn overrun(&self);
}

/// A completion with the fields of `struct ibv_wc` and of the extended readers.
#[derive(Clone, Debug)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: ibv_wc_status,
    pub(crate) opcode: ibv_wc_opcode,
    pub(crate) byte_len: u32,
    /// `IBV_WC_WITH_IMM`, `IBV_WC_WITH_INV`, `IBV_WC_GRH` …
    pub(crate) flags: u32,
    /// The immediate data of the peer, or the invalidated key.
    pub(crate) immediate: u32,
    pub(crate) number: u32,
    pub(crate) source_number: u32,
    pub(crate) service_level: u8,
    /// Set by the queue: nanoseconds of the device's clock and of the wall clock.
    pub(crate) timestamp: u64,
    pub(crate) wall_clock: u64,
    pub(crate) slots: Option<Slots>,
}

/// The armed state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    /// Armed for the next solicited completion or error.
    Solicited,
    Next,
}

/// The clocks that are read for each completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub(crate) device: bool,
    pub(crate) wall: bool,
}
