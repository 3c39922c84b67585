//! One side of a connected pair, its receives and completions.

use std::fmt;

use sideway::ibverbs::completion::{
    GenericCompletionQueue, GenericWorkCompletion, WorkCompletionFlags, WorkCompletionOperationType,
    WorkCompletionStatus,
};
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{Connected, PostSendGuard, QueuePair, Service, SetScatterGatherEntry};
use sideway::ibverbs::work_request::{ScatterGatherEntry, WorkRequestFlags};

use super::kind::{Kind, Named};
use super::memory::Memory;
use crate::waiting;

/// One side: a queue pair, its completion queue, its memory.
#[derive(Debug)]
pub struct End<Q> {
    // Fields are dropped in this order, so the queue pair is destroyed before its memory is freed.
    /// The queue pair.
    pub qp: Q,
    /// The completion queue of the QP.
    pub cq: GenericCompletionQueue,
    /// The memory of its requests.
    pub memory: Memory,
}

/// What tests copy from a completion.
pub trait Copied: fmt::Debug {
    /// Copies it; the number is that of the queue pair whose completion queue has it.
    fn of(completion: &GenericWorkCompletion<'_>, qp_num: u32) -> Self;

    /// Whether a request of this queue pair has succeeded.
    fn is_success(&self, qp_num: u32) -> bool;
}

/// A service whose completions tests copy.
pub trait Copying: Service {
    /// What they copy.
    type Completion: Copied;
}

impl Copying for Connected {
    type Completion = Completion;
}

type CompletionOf<Q> = <<Q as QueuePair>::Service as Copying>::Completion;

impl<Q: QueuePair<Service: Copying> + Named> End<Q> {
    /// A range of this side's memory.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[track_caller]
    pub fn range(&self, offset: usize, len: usize) -> Range {
        Range::of(&self.memory, offset, len)
    }

    /// The remote address and key of this side's memory from `offset` on, for the peer.
    pub fn remote(&self, offset: usize) -> (RemoteKey, u64) {
        (self.memory.rkey(), self.memory.addr() + offset as u64)
    }

    /// The contents of the memory.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[track_caller]
    pub fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes);
        bytes
    }

    /// Posts one receive.
    ///
    /// # Panics
    ///
    /// If the receive cannot be posted.
    #[track_caller]
    pub fn post_receive(&mut self, wr_id: u64, offset: usize, len: usize) {
        let range = self.range(offset, len);
        let mut batch = self.qp.start_post_recv();
        batch.construct_wr(wr_id).give(range);
        batch.post().unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
    }

    /// Waits for the next completion.
    ///
    /// # Panics
    ///
    /// If no completion arrives.
    #[track_caller]
    pub fn completion(&mut self) -> CompletionOf<Q> {
        waiting::first(Q::NAME, || self.poll())
    }

    /// Waits for the next completion, which must be a success.
    ///
    /// # Panics
    ///
    /// If no completion arrives, or if the request failed.
    #[track_caller]
    pub fn success(&mut self) -> CompletionOf<Q> {
        let completion = self.completion();
        assert!(completion.is_success(self.qp.qp_number()), "{}: {completion:?}", Q::NAME);
        completion
    }

    /// Asserts that nothing completes.
    ///
    /// # Panics
    ///
    /// If a request completes.
    #[track_caller]
    pub fn silence(&mut self) {
        waiting::nothing(Q::NAME, || self.poll());
    }

    /// Polls all completions, and returns their number.
    ///
    /// # Panics
    ///
    /// If the queue is broken.
    #[track_caller]
    pub fn drain(&mut self) -> usize {
        std::iter::from_fn(|| self.poll()).count()
    }

    /// One completion, if there is one.
    ///
    /// # Panics
    ///
    /// If the queue is broken.
    #[track_caller]
    pub fn poll(&mut self) -> Option<CompletionOf<Q>> {
        let qp_num = self.qp.qp_number();
        waiting::take(&mut self.cq, |completion| Copied::of(&completion, qp_num))
    }
}

impl<Q: Kind> End<Q> {
    /// Posts one signaled send.
    ///
    /// # Panics
    ///
    /// If the send cannot be posted.
    #[track_caller]
    pub fn post_send(&mut self, wr_id: u64, offset: usize, len: usize) {
        let range = self.range(offset, len);
        let mut batch = self.qp.start_post_send();
        batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().give(range);
        batch.post().unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
    }
}

/// A completion, copied off the queue. Fields that are undefined after a failure are `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number of the request.
    pub wr_id: u64,
    /// Its status.
    pub status: WorkCompletionStatus,
    /// The number of its queue pair.
    pub qp_num: u32,
    /// The operation.
    pub opcode: Option<WorkCompletionOperationType>,
    /// Bytes.
    pub byte_len: Option<u32>,
    /// Immediate data, if present.
    pub imm_data: Option<u32>,
    /// Its flags.
    pub wc_flags: Option<WorkCompletionFlags>,
    /// The key that the peer invalidated if the flags report that; otherwise undefined.
    pub invalidated_rkey: Option<RemoteKey>,
}

impl Copied for Completion {
    fn of(completion: &GenericWorkCompletion<'_>, _qp_num: u32) -> Self {
        let is_success = completion.status() == WorkCompletionStatus::Success;
        Self {
            wr_id: completion.wr_id(),
            status: completion.status(),
            qp_num: completion.qp_num(),
            opcode: is_success.then(|| completion.opcode()),
            byte_len: is_success.then(|| completion.byte_len()),
            imm_data: (is_success && completion.wc_flags().contains(WorkCompletionFlags::WithImmediate))
                .then(|| completion.imm_data()),
            wc_flags: is_success.then(|| completion.wc_flags()),
            invalidated_rkey: is_success.then(|| completion.invalidated_rkey()),
        }
    }

    fn is_success(&self, qp_num: u32) -> bool {
        (self.status, self.qp_num) == (WorkCompletionStatus::Success, qp_num)
    }
}

/// A range of the memory of an [`End`].
#[derive(Clone, Copy, Debug)]
pub struct Range(ScatterGatherEntry);

impl Range {
    /// `len` bytes of `memory`.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[track_caller]
    pub fn of(memory: &Memory, offset: usize, len: usize) -> Self {
        assert!(offset + len <= memory.len());
        Self(ScatterGatherEntry::new(memory.lkey(), memory.addr() + offset as u64, len as u32))
    }
}

/// Adds ranges of an [`End`] to requests.
pub trait Give: SetScatterGatherEntry + Sized {
    /// One range.
    fn give(self, range: Range) {
        let Range(entry) = range;
        // SAFETY: the range is registered memory without references: it is only copied from and to. If the memory is
        // freed too early, its registration ends first, and the device completes the request with an error.
        unsafe { self.setup_sge(entry.lkey(), entry.addr(), entry.length()) }
    }

    /// Several, in order.
    fn give_list(self, ranges: &[Range]) {
        let entries: Vec<ScatterGatherEntry> = ranges.iter().map(|Range(entry)| *entry).collect();
        // SAFETY: as for one.
        unsafe { self.setup_sge_list(&entries) }
    }
}

impl<T: SetScatterGatherEntry> Give for T {}
