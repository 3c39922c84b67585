//! Completion queues.

mod queue;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_wc_opcode, ibv_wc_status};

pub(crate) use queue::CompletionQueue;

/// The slots of a send queue that are released when the program polls a completion. As with a NIC, a request occupies
/// its slot until the program polls the completion of this request or of a later one.
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
    /// The completion event that the program requested with `ibv_req_notify_cq` is due.
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
    /// The immediate data that the peer sent, or the key that the message invalidated.
    pub(crate) immediate: u32,
    pub(crate) number: u32,
    pub(crate) source_number: u32,
    pub(crate) service_level: u8,
    /// The time in nanoseconds by the device's clock and by the wall clock. The completion queue sets both.
    pub(crate) timestamp: u64,
    pub(crate) wall_clock: u64,
    pub(crate) slots: Option<Slots>,
}

/// The events for which a completion queue is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    /// The queue is armed for the next completion that is solicited or an error.
    Solicited,
    Next,
}

/// The clocks that a completion queue reads for each completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub(crate) device: bool,
    pub(crate) wall: bool,
}
