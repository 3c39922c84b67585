//! Completion queues.

mod queue;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rdma_mummy_sys::{ibv_wc_opcode, ibv_wc_status};

pub(crate) use queue::CompletionQueue;

/// Slots of a send queue that a completion gives back when it is polled: as with a NIC, a request holds its slot until a
/// completion of its own or of a later request is taken.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    /// In use.
    pub(crate) used: Arc<AtomicU32>,
    /// How many this completion gives back.
    pub(crate) back: u32,
}

impl Slots {
    /// Gives them back.
    fn release(self) {
        self.used.fetch_sub(self.back, Ordering::Release);
    }
}

/// Events of a completion queue, implemented by the C API. It is called with locks of the NIC held, and so neither blocks nor calls back.
pub(crate) trait CompletionEvents: Debug + Send + Sync {
    /// A completion has come that was asked for (`ibv_req_notify_cq`).
    fn completed(&self);
    /// One was lost for want of room (`IBV_EVENT_CQ_ERR`).
    fn overrun(&self);
}

/// A completion, as much of it as `struct ibv_wc` and the extended readers show.
#[derive(Clone, Debug)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: ibv_wc_status,
    pub(crate) opcode: ibv_wc_opcode,
    pub(crate) byte_len: u32,
    /// `IBV_WC_WITH_IMM`, `IBV_WC_WITH_INV`, `IBV_WC_GRH` …
    pub(crate) flags: u32,
    /// The immediate as the peer gave it, or the key that was invalidated.
    pub(crate) immediate: u32,
    pub(crate) number: u32,
    pub(crate) source_number: u32,
    pub(crate) service_level: u8,
    /// Filled in by the queue: nanoseconds of the device's clock, and of the wall's.
    pub(crate) timestamp: u64,
    pub(crate) wall_clock: u64,
    pub(crate) slots: Option<Slots>,
}

/// How a queue is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    No,
    /// For the next solicited completion, or error.
    Solicited,
    Next,
}

/// Which clocks are read for each completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clocks {
    pub(crate) device: bool,
    pub(crate) wall: bool,
}
