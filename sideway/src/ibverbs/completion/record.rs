//! Completions as plain values, from queues of any kind: for teardown and other places that are not hot.

use super::{
    BasicCompletionQueue, CompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue, PollCompletionQueueError,
    WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionStatus,
};

/// Completions that one call takes off an extended queue at most.
const BATCH: usize = 64;

/// What a completion said, kept beyond its poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRecord {
    /// The number that the request was given.
    pub wr_id: u64,
    /// How the request ended. Where it failed, only this, the number, the queue pair and the vendor's code mean anything.
    pub status: WorkCompletionStatus,
    /// Which operation it was.
    pub opcode: WorkCompletionOperationType,
    /// The vendor's code for a failure.
    pub vendor_err: u32,
    /// Bytes received, read, or fetched.
    pub byte_len: u32,
    /// The local queue pair.
    pub qp_num: u32,
    /// What else the completion says.
    pub wc_flags: WorkCompletionFlags,
}

/// Polling a queue whose kind does not matter.
pub trait PollCompletions: CompletionQueue {
    /// Takes some completions off the queue and appends them; none where the queue is empty.
    ///
    /// The poll has ended when this returns: the program may do what it likes with queue pairs of the queue.
    ///
    /// # Errors
    ///
    /// The queue is broken; what was taken before is appended all the same.
    fn poll_records(&mut self, records: &mut Vec<CompletionRecord>) -> Result<(), PollCompletionQueueError>;
}

macro_rules! record {
    ($wc:ident) => {
        CompletionRecord {
            wr_id: $wc.wr_id(),
            status: $wc.status(),
            opcode: $wc.opcode(),
            vendor_err: $wc.vendor_err(),
            byte_len: $wc.byte_len(),
            qp_num: $wc.qp_num(),
            wc_flags: $wc.wc_flags(),
        }
    };
}

impl PollCompletions for BasicCompletionQueue {
    fn poll_records(&mut self, records: &mut Vec<CompletionRecord>) -> Result<(), PollCompletionQueueError> {
        let mut poller = match self.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(()),
            Err(error) => return Err(error),
        };
        // To its end: what the poll has taken off the queue is in the poller alone.
        while let Some(wc) = poller.next()? {
            records.push(record!(wc));
        }
        Ok(())
    }
}

impl PollCompletions for ExtendedCompletionQueue {
    fn poll_records(&mut self, records: &mut Vec<CompletionRecord>) -> Result<(), PollCompletionQueueError> {
        let mut poller = match self.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(()),
            Err(error) => return Err(error),
        };
        // Bounded: a queue that fills as fast as it is read must not hold the caller up.
        for _ in 0..BATCH {
            let Some(wc) = poller.next()? else { break };
            records.push(record!(wc));
        }
        Ok(())
    }
}

impl PollCompletions for GenericCompletionQueue {
    fn poll_records(&mut self, records: &mut Vec<CompletionRecord>) -> Result<(), PollCompletionQueueError> {
        match self {
            Self::Basic(cq) => cq.poll_records(records),
            Self::Extended(cq) => cq.poll_records(records),
        }
    }
}
