//! A queue of either kind, for programs that run on every device.

use std::sync::Arc;

use super::queue::{AsCore, CompletionQueue, CompletionQueueCore};
use super::{
    BasicCompletionQueue, BasicPoller, BasicWorkCompletion, CreateCompletionQueueWorkCompletionFlags as Fields,
    ExtendedCompletionQueue, ExtendedPoller, ExtendedWorkCompletion, FieldNotEnabled, PollCompletionQueueError,
    TagMatchingInfo, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionSource, WorkCompletionStatus,
};
use crate::error::VerbError;
use crate::ibverbs::memory_region::RemoteKey;

/// A completion queue of either kind. [`poll_each`](Self::poll_each) chooses once a poll; to hoist the choice out of a hot loop altogether,
/// match on the queue once.
#[derive(Debug)]
pub enum GenericCompletionQueue {
    /// Of the basic verbs.
    Basic(BasicCompletionQueue),
    /// Of the extended verbs.
    Extended(ExtendedCompletionQueue),
}

impl GenericCompletionQueue {
    /// Begins to poll, as the queue's own `start_poll` does. Take all that the poller gives: of what is left in it when it is dropped
    /// an extended queue loses the first completion, where none was taken, and a basic one everything.
    ///
    /// # Errors
    ///
    /// [`CompletionQueueEmpty`](PollCompletionQueueError::CompletionQueueEmpty) when there is none; else the error of
    /// the queue's own `start_poll`.
    #[inline]
    pub fn start_poll(&mut self) -> Result<GenericPoller<'_>, PollCompletionQueueError> {
        match self {
            Self::Basic(cq) => cq.start_poll().map(GenericPoller::Basic),
            Self::Extended(cq) => cq.start_poll().map(GenericPoller::Extended),
        }
    }

    /// Gives up to `most` completions to `take`, one after the other, in one poll, as the queue's own `poll_each` does; how many these
    /// were, 0 where the queue is empty.
    ///
    /// The kind of the queue is chosen once a poll, and the compiler makes a loop for each kind, in which the completion's methods choose
    /// nothing. Where `take` is so large that it is not inlined into both, they do.
    ///
    /// # Errors
    ///
    /// As the queue's own: what `take` gave, or the driver's. With a basic queue, completions behind that which `take` failed or
    /// panicked with are lost.
    #[inline(always)]
    pub fn poll_each<E: From<PollCompletionQueueError>>(
        &mut self,
        most: u32,
        mut take: impl FnMut(GenericWorkCompletion<'_>) -> Result<(), E>,
    ) -> Result<u32, E> {
        match self {
            Self::Basic(cq) => cq.poll_each(most, |wc| take(GenericWorkCompletion::Basic(wc))),
            Self::Extended(cq) => cq.poll_each(most, |wc| take(GenericWorkCompletion::Extended(wc))),
        }
    }

    /// `ibv_resize_cq(cq, cqe)` — changes how many completions the queue holds, as the queue's own `resize` does.
    ///
    /// # Errors
    ///
    /// As [`BasicCompletionQueue::resize`].
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, cqe: u32) -> Result<(), VerbError> {
        match self {
            Self::Basic(cq) => cq.resize(cqe),
            Self::Extended(cq) => cq.resize(cqe),
        }
    }

    /// `ibv_destroy_cq(cq)` — destroys the queue and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// `EBUSY` where queue pairs or events hold the queue, which then goes with the last of them; else the driver's errno,
    /// and the queue is leaked.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn close(self) -> Result<(), VerbError> {
        match self {
            Self::Basic(cq) => cq.close(),
            Self::Extended(cq) => cq.close(),
        }
    }
}

impl From<BasicCompletionQueue> for GenericCompletionQueue {
    fn from(cq: BasicCompletionQueue) -> Self {
        Self::Basic(cq)
    }
}

impl From<ExtendedCompletionQueue> for GenericCompletionQueue {
    fn from(cq: ExtendedCompletionQueue) -> Self {
        Self::Extended(cq)
    }
}

impl AsCore for GenericCompletionQueue {
    fn core(&self) -> &Arc<CompletionQueueCore> {
        match self {
            Self::Basic(cq) => cq.core(),
            Self::Extended(cq) => cq.core(),
        }
    }
}

impl CompletionQueue for GenericCompletionQueue {}

/// A poll under way.
#[derive(Debug)]
pub enum GenericPoller<'cq> {
    /// Of a basic queue.
    Basic(BasicPoller<'cq>),
    /// Of an extended queue.
    Extended(ExtendedPoller<'cq>),
}

impl GenericPoller<'_> {
    /// The next completion, `None` when there is no further one.
    ///
    /// # Errors
    ///
    /// The driver's errno; the queue is broken then.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend, and the cursor moves")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<GenericWorkCompletion<'_>>, PollCompletionQueueError> {
        Ok(match self {
            Self::Basic(poller) => poller.next()?.map(GenericWorkCompletion::Basic),
            Self::Extended(poller) => poller.next()?.map(GenericWorkCompletion::Extended),
        })
    }
}

/// One completion.
#[derive(Debug)]
pub enum GenericWorkCompletion<'p> {
    /// Of a basic queue.
    Basic(BasicWorkCompletion<'p>),
    /// Of an extended queue.
    Extended(ExtendedWorkCompletion<'p>),
}

macro_rules! either {
    ($( $(#[$meta:meta])* $name:ident -> $Type:ty; )+) => {
        impl GenericWorkCompletion<'_> {
            $(
                $(#[$meta])*
                #[inline]
                pub fn $name(&self) -> $Type {
                    match self {
                        Self::Basic(wc) => wc.$name(),
                        Self::Extended(wc) => wc.$name(),
                    }
                }
            )+
        }
    };
}

macro_rules! extended_only {
    ($( $(#[$meta:meta])* $name:ident -> $Type:ty, by $Field:ident; )+) => {
        impl GenericWorkCompletion<'_> {
            $(
                $(#[$meta])*
                #[inline]
                ///
                /// # Errors
                ///
                /// On a basic queue, and where the queue was not asked for the field.
                pub fn $name(&self) -> Result<$Type, FieldNotEnabled> {
                    match self {
                        Self::Basic(_) => Err(FieldNotEnabled::new(Fields::$Field)),
                        Self::Extended(wc) => wc.$name(),
                    }
                }
            )+
        }
    };
}

extended_only! {
    /// When the request completed, in cycles of the device's clock.
    completion_timestamp -> u64, by CompletionTimestamp;
    /// When the request completed, in nanoseconds of the wall clock, since 1970.
    completion_wallclock_ns -> u64, by CompletionTimestampWallclock;
    /// The VLAN tag that the device took off a received packet.
    cvlan -> u16, by CustomerVlan;
    /// The tag of the flow rule that the received packet matched.
    flow_tag -> u32, by FlowTag;
    /// The tag of a message that came to a shared receive queue with tag matching.
    tag_matching_info -> TagMatchingInfo, by TagMatchingInformation;
}

either! {
    /// The number that the request was given.
    wr_id -> u64;
    /// How the request ended.
    status -> WorkCompletionStatus;
    /// Which operation it was.
    opcode -> WorkCompletionOperationType;
    /// The vendor's code for a failure.
    vendor_err -> u32;
    /// Bytes received, read, or fetched; unspecified for sends and writes.
    byte_len -> u32;
    /// Immediate data, in host byte order; valid with [`WorkCompletionFlags::WithImmediate`].
    imm_data -> u32;
    /// The key that the peer invalidated; valid with [`WorkCompletionFlags::WithInvalidate`].
    invalidated_rkey -> RemoteKey;
    /// The local queue pair.
    qp_num -> u32;
    /// The sender's queue pair; for datagrams.
    src_qp -> u32;
    /// What else the completion says.
    wc_flags -> WorkCompletionFlags;
    /// The sender's LID; for datagrams.
    slid -> u32;
    /// The service level; for datagrams.
    sl -> u8;
    /// The low bits of the LID that was addressed; for datagrams.
    dlid_path_bits -> u8;
    /// Where the datagram came from.
    source -> WorkCompletionSource;
}
