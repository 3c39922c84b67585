//! Polling a completion queue of any kind.

use std::sync::Arc;

use super::queue::AsCore;
use super::{
    BasicCompletionQueue, BasicWorkCompletion, CompletionQueueCore, CreateCompletionQueueWorkCompletionFlags as Fields,
    ExtendedCompletionQueue, ExtendedWorkCompletion, FieldNotEnabled, GenericCompletionQueue, GenericWorkCompletion,
    TagMatchingInfo, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionSource, WorkCompletionStatus,
};
use crate::error::VerbError;
use crate::ffi::Sealed;
use crate::ibverbs::memory_region::RemoteKey;
use crate::ibverbs::single_threaded::SingleThreadedCompletionQueue;

/// Completions that [`poll_records`](PollCompletions::poll_records) takes at most.
const BATCH: u32 = 64;

/// Why [`start_poll`](super::ExtendedCompletionQueue::start_poll) gave no poller.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollCompletionQueueError {
    /// Nothing has completed since the last poll.
    #[error("the completion queue is empty")]
    CompletionQueueEmpty,
    /// The queue is broken: it overran, or the device is gone.
    #[error(transparent)]
    Verb(#[from] VerbError),
}

crate::error::debug_is_text!(PollCompletionQueueError);

/// A completion queue that can be polled: [basic](BasicCompletionQueue), [extended](ExtendedCompletionQueue),
/// [generic](GenericCompletionQueue) or [single-threaded](SingleThreadedCompletionQueue). Sealed.
///
/// A function that is generic over it is compiled for each kind of queue, and costs what the queue's own methods cost:
///
/// ```
/// use sideway::ibverbs::completion::{PollCompletionQueueError, PollCompletions, WorkCompletion, WorkCompletionStatus};
///
/// /// Takes up to 32 completions; returns how many there were.
/// fn reap(cq: &mut impl PollCompletions) -> Result<u32, PollCompletionQueueError> {
///     cq.poll_each(32, |completion| {
///         if completion.status() != WorkCompletionStatus::Success {
///             eprintln!("request {}: {}", completion.wr_id(), completion.status());
///         }
///         Ok(())
///     })
/// }
/// ```
pub trait PollCompletions: sealed::Queue {
    /// One completion, lent until the next.
    type Completion<'p>: WorkCompletion
    where
        Self: Sized;

    /// Passes up to `most` completions to `take`, one after the other, in one poll. Returns how many there were, 0 if the queue is
    /// empty.
    ///
    /// # Errors
    ///
    /// As the queue's own `poll_each`: what `take` returned, or the driver's error.
    fn poll_each<E: From<PollCompletionQueueError>>(
        &mut self,
        most: u32,
        take: impl FnMut(Self::Completion<'_>) -> Result<(), E>,
    ) -> Result<u32, E>
    where
        Self: Sized;

    /// Takes some completions off the queue and appends them as plain values; none if the queue is empty. For teardown and other
    /// places that are not hot.
    ///
    /// The poll has ended when this returns: the program may drop queue pairs of the queue.
    ///
    /// # Errors
    ///
    /// The queue is broken; what was taken before is appended all the same.
    fn poll_records(&mut self, records: &mut Vec<CompletionRecord>) -> Result<(), PollCompletionQueueError>;
}

/// One completion of a queue of any kind: what generic code reads of the [completions](PollCompletions::Completion) that it is lent.
/// Sealed.
pub trait WorkCompletion: Sealed {
    /// The number that the request was given.
    fn wr_id(&self) -> u64;
    /// How the request ended. If it failed, only this, the number, the queue pair and the vendor's code are valid.
    fn status(&self) -> WorkCompletionStatus;
    /// Which operation it was.
    fn opcode(&self) -> WorkCompletionOperationType;
    /// The vendor's code for a failure.
    fn vendor_err(&self) -> u32;
    /// Bytes received, read, or fetched; unspecified for sends and writes.
    fn byte_len(&self) -> u32;
    /// Immediate data, in host byte order; valid with [`WorkCompletionFlags::WithImmediate`].
    fn imm_data(&self) -> u32;
    /// The key that the peer invalidated; valid with [`WorkCompletionFlags::WithInvalidate`].
    fn invalidated_rkey(&self) -> RemoteKey;
    /// The local queue pair.
    fn qp_num(&self) -> u32;
    /// The sender's queue pair; for datagrams.
    fn src_qp(&self) -> u32;
    /// Which fields are valid, and what the device found.
    fn wc_flags(&self) -> WorkCompletionFlags;
    /// The sender's LID; for datagrams.
    fn slid(&self) -> u32;
    /// The service level; for datagrams.
    fn sl(&self) -> u8;
    /// The low bits of the LID that was addressed; for datagrams.
    fn dlid_path_bits(&self) -> u8;
    /// Where the datagram came from.
    fn source(&self) -> WorkCompletionSource;
    /// When the request completed, in cycles of the device's clock.
    ///
    /// # Errors
    ///
    /// On a basic queue, or if the queue was not asked for the field; this applies to the fields below as well.
    fn completion_timestamp(&self) -> Result<u64, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::CompletionTimestamp))
    }
    /// When the request completed, in nanoseconds of the wall clock, since 1970.
    ///
    /// # Errors
    ///
    /// See [`completion_timestamp`](Self::completion_timestamp).
    fn completion_wallclock_ns(&self) -> Result<u64, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::CompletionTimestampWallclock))
    }
    /// The VLAN tag that the device took off a received packet.
    ///
    /// # Errors
    ///
    /// See [`completion_timestamp`](Self::completion_timestamp).
    fn cvlan(&self) -> Result<u16, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::CustomerVlan))
    }
    /// The tag of the flow rule that the received packet matched.
    ///
    /// # Errors
    ///
    /// See [`completion_timestamp`](Self::completion_timestamp).
    fn flow_tag(&self) -> Result<u32, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::FlowTag))
    }
    /// The tag of a message that came to a shared receive queue with tag matching.
    ///
    /// # Errors
    ///
    /// See [`completion_timestamp`](Self::completion_timestamp).
    fn tag_matching_info(&self) -> Result<TagMatchingInfo, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::TagMatchingInformation))
    }
}

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
    /// Immediate data, in host byte order, if the peer sent any.
    pub imm_data: Option<u32>,
}

impl<C: WorkCompletion> From<&C> for CompletionRecord {
    fn from(wc: &C) -> Self {
        let status = wc.status();
        let has_imm =
            status == WorkCompletionStatus::Success && wc.wc_flags().contains(WorkCompletionFlags::WithImmediate);
        Self {
            wr_id: wc.wr_id(),
            status,
            opcode: wc.opcode(),
            vendor_err: wc.vendor_err(),
            byte_len: wc.byte_len(),
            qp_num: wc.qp_num(),
            wc_flags: wc.wc_flags(),
            imm_data: has_imm.then(|| wc.imm_data()),
        }
    }
}

mod sealed {
    use std::sync::Arc;

    use super::CompletionQueueCore;

    pub trait Queue {
        fn queue(&self, _: Token) -> &Arc<CompletionQueueCore>;
    }

    /// This crate alone makes one, and so reaches the shared part of a queue.
    #[derive(Clone, Copy, Debug)]
    pub struct Token(());

    impl Token {
        pub(crate) const fn new() -> Self {
            Self(())
        }
    }
}

pub(crate) use self::sealed::Token;

macro_rules! polled {
    ($($Queue:ty: $Completion:ident, by $core:expr;)+) => { $(
        impl sealed::Queue for $Queue {
            fn queue(&self, _: Token) -> &Arc<CompletionQueueCore> {
                let core: fn(&Self) -> &Arc<CompletionQueueCore> = $core;
                core(self)
            }
        }

        impl PollCompletions for $Queue {
            type Completion<'p> = $Completion<'p>;

            #[inline(always)]
            fn poll_each<E: From<PollCompletionQueueError>>(
                &mut self,
                most: u32,
                take: impl FnMut($Completion<'_>) -> Result<(), E>,
            ) -> Result<u32, E> {
                <$Queue>::poll_each(self, most, take)
            }

            fn poll_records(&mut self, records: &mut Vec<CompletionRecord>) -> Result<(), PollCompletionQueueError> {
                // Bounded: a queue that fills as fast as it is read must not hold the caller up.
                <$Queue>::poll_each(self, BATCH, |wc| {
                    records.push(CompletionRecord::from(&wc));
                    Ok(())
                })
                .map(|_| ())
            }
        }
    )+ };
}

polled! {
    BasicCompletionQueue: BasicWorkCompletion, by AsCore::core;
    ExtendedCompletionQueue: ExtendedWorkCompletion, by AsCore::core;
    GenericCompletionQueue: GenericWorkCompletion, by AsCore::core;
    SingleThreadedCompletionQueue: ExtendedWorkCompletion, by |cq| cq.inner().core();
}

macro_rules! readers {
    ($Completion:ident: $($name:ident -> $Type:ty,)+) => {
        impl Sealed for $Completion<'_> {}

        impl WorkCompletion for $Completion<'_> {
            $(
                #[inline]
                fn $name(&self) -> $Type {
                    $Completion::$name(self)
                }
            )+
        }
    };
}

macro_rules! completions {
    ($($Completion:ident { $($extended:ident -> $Extended:ty,)* })+) => { $(
        readers! {
            $Completion:
            wr_id -> u64,
            status -> WorkCompletionStatus,
            opcode -> WorkCompletionOperationType,
            vendor_err -> u32,
            byte_len -> u32,
            imm_data -> u32,
            invalidated_rkey -> RemoteKey,
            qp_num -> u32,
            src_qp -> u32,
            wc_flags -> WorkCompletionFlags,
            slid -> u32,
            sl -> u8,
            dlid_path_bits -> u8,
            source -> WorkCompletionSource,
            $($extended -> $Extended,)*
        }
    )+ };
}

completions! {
    BasicWorkCompletion {}
    ExtendedWorkCompletion {
        completion_timestamp -> Result<u64, FieldNotEnabled>,
        completion_wallclock_ns -> Result<u64, FieldNotEnabled>,
        cvlan -> Result<u16, FieldNotEnabled>,
        flow_tag -> Result<u32, FieldNotEnabled>,
        tag_matching_info -> Result<TagMatchingInfo, FieldNotEnabled>,
    }
    GenericWorkCompletion {
        completion_timestamp -> Result<u64, FieldNotEnabled>,
        completion_wallclock_ns -> Result<u64, FieldNotEnabled>,
        cvlan -> Result<u16, FieldNotEnabled>,
        flow_tag -> Result<u32, FieldNotEnabled>,
        tag_matching_info -> Result<TagMatchingInfo, FieldNotEnabled>,
    }
}
