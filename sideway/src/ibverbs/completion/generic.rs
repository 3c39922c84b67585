//! A completion queue of either kind, for programs that run on every device.

use std::sync::Arc;

use super::queue::{AsCore, CompletionQueue, CompletionQueueCore};
use super::{
    BasicCompletionQueue, BasicPoller, BasicWorkCompletion, CreateCompletionQueueWorkCompletionFlags as Fields,
    ExtendedCompletionQueue, ExtendedPoller, ExtendedWorkCompletion, FieldNotEnabled, PollCompletionQueueError,
    TagMatchingInfo, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionSource, WorkCompletionStatus,
};
use crate::error::VerbError;
use crate::ibverbs::memory_region::RemoteKey;

/// A completion queue of either kind. [`poll_each`](Self::poll_each) matches on the kind once per poll. To avoid even
/// this match in a hot loop, match on the queue outside the loop.
#[derive(Debug)]
pub enum GenericCompletionQueue {
    /// A queue of the basic verbs.
    Basic(BasicCompletionQueue),
    /// A queue of the extended verbs.
    Extended(ExtendedCompletionQueue),
}

impl GenericCompletionQueue {
    /// Starts a poll, like `start_poll` of the basic or extended queue. The caller must take all completions from the
    /// poller. If the poller is dropped earlier, a basic queue loses all completions that are left. An extended queue
    /// loses the first completion if none was taken.
    ///
    /// # Errors
    ///
    /// Returns [`CompletionQueueEmpty`](PollCompletionQueueError::CompletionQueueEmpty) if there is no completion;
    /// otherwise the error of `start_poll` of the basic or extended queue.
    #[inline]
    pub fn start_poll(&mut self) -> Result<GenericPoller<'_>, PollCompletionQueueError> {
        match self {
            Self::Basic(cq) => cq.start_poll().map(GenericPoller::Basic),
            Self::Extended(cq) => cq.start_poll().map(GenericPoller::Extended),
        }
    }

    /// Passes up to `most` completions to `take` one by one, in one poll, like `poll_each` of the basic or extended
    /// queue. Returns the number of completions, which is 0 if the queue is empty.
    ///
    /// This method matches on the kind once per poll, and the compiler generates one loop for each kind. In these
    /// loops, the methods of the completion do not match on the kind again. They do so only if `take` is too large to
    /// be inlined into both loops.
    ///
    /// # Errors
    ///
    /// Returns the error of `take` or the driver's error, like `poll_each` of the basic or extended queue. If `take`
    /// returns an error or panics on a basic queue, the remaining completions of the poll are lost.
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

    /// `ibv_resize_cq(cq, cqe)` — changes the queue's capacity, like `resize` of a basic or extended queue.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`BasicCompletionQueue::resize`].
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, cqe: u32) -> Result<(), VerbError> {
        match self {
            Self::Basic(cq) => cq.resize(cqe),
            Self::Extended(cq) => cq.resize(cqe),
        }
    }

    /// `ibv_destroy_cq(cq)` — destroys the queue. This method returns an error of the verb, whereas drop only logs it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if queue pairs or events still reference the queue. The queue is then destroyed when the last
    /// reference is dropped. Otherwise returns the driver's errno, and the queue is leaked.
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

/// An open poll.
#[derive(Debug)]
pub enum GenericPoller<'cq> {
    /// A poll of a basic queue.
    Basic(BasicPoller<'cq>),
    /// A poll of an extended queue.
    Extended(ExtendedPoller<'cq>),
}

impl GenericPoller<'_> {
    /// Returns the next completion, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// The driver's errno; the queue is then broken.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot return borrowed items, and the cursor moves")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<GenericWorkCompletion<'_>>, PollCompletionQueueError> {
        Ok(match self {
            Self::Basic(poller) => poller.next()?.map(GenericWorkCompletion::Basic),
            Self::Extended(poller) => poller.next()?.map(GenericWorkCompletion::Extended),
        })
    }
}

/// A completion of either kind of queue.
#[derive(Debug)]
pub enum GenericWorkCompletion<'p> {
    /// A completion of a basic queue.
    Basic(BasicWorkCompletion<'p>),
    /// A completion of an extended queue.
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
                /// Returns an error on a basic queue, and on an extended queue that was built without the field.
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
    /// The completion time, in cycles of the device's clock.
    completion_timestamp -> u64, by CompletionTimestamp;
    /// The completion time, in nanoseconds of the wall clock, since 1970.
    completion_wallclock_ns -> u64, by CompletionTimestampWallclock;
    /// The VLAN tag that the device removed from a received packet.
    cvlan -> u16, by CustomerVlan;
    /// The tag of the flow rule that the received packet matched.
    flow_tag -> u32, by FlowTag;
    /// The tag of a message received by a shared receive queue with tag matching.
    tag_matching_info -> TagMatchingInfo, by TagMatchingInformation;
}

either! {
    /// The request's number.
    wr_id -> u64;
    /// The request's status.
    status -> WorkCompletionStatus;
    /// The completed operation.
    opcode -> WorkCompletionOperationType;
    /// The vendor's error code.
    vendor_err -> u32;
    /// The number of bytes that were received, read, or fetched by an atomic. It is unspecified for sends and writes.
    byte_len -> u32;
    /// The immediate data, in host byte order. It is valid if the completion has
    /// [`WorkCompletionFlags::WithImmediate`].
    imm_data -> u32;
    /// The key that the peer invalidated. It is valid if the completion has [`WorkCompletionFlags::WithInvalidate`].
    invalidated_rkey -> RemoteKey;
    /// The number of the local queue pair.
    qp_num -> u32;
    /// The number of the sender's queue pair. It is valid only for datagrams.
    src_qp -> u32;
    /// Flags that describe the message and its valid fields.
    wc_flags -> WorkCompletionFlags;
    /// The sender's LID. It is valid only for datagrams.
    slid -> u32;
    /// The service level. It is valid only for datagrams.
    sl -> u8;
    /// The low bits of the destination LID. They are valid only for datagrams.
    dlid_path_bits -> u8;
    /// The datagram's source.
    source -> WorkCompletionSource;
}
