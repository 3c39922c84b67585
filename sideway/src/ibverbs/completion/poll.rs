//! Polling a completion queue of any kind.

use super::queue::AsCore;
use super::{
    BasicCompletionQueue, BasicWorkCompletion, CompletionQueueCore, CreateCompletionQueueWorkCompletionFlags as Fields,
    ExtendedCompletionQueue, ExtendedWorkCompletion, FieldNotEnabled, GenericCompletionQueue, GenericWorkCompletion,
    TagMatchingInfo, WorkCompletionFlags, WorkCompletionOperationType, WorkCompletionSource, WorkCompletionStatus,
};
use crate::error::VerbError;
use crate::ffi::Sealed;
use crate::ibverbs::memory_region::RemoteKey;

/// The maximum number of completions per [`poll_records`](PollCompletions::poll_records).
pub(in crate::ibverbs) const BATCH: u32 = 64;

/// The reason why [`start_poll`](super::ExtendedCompletionQueue::start_poll) returned no poller.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollCompletionQueueError {
    /// The queue has no completions.
    #[error("the completion queue is empty")]
    CompletionQueueEmpty,
    /// The queue is broken, because it overran or the device was removed.
    #[error(transparent)]
    Verb(#[from] VerbError),
}

crate::error::debug_is_text!(PollCompletionQueueError);

/// A completion queue that can be polled: [basic](BasicCompletionQueue), [extended](ExtendedCompletionQueue),
/// [generic](GenericCompletionQueue) or [single-threaded](crate::ibverbs::single_threaded::SingleThreadedCompletionQueue). This trait is sealed.
///
/// The compiler generates a separate copy of a generic function for each kind of queue, so the function costs no more
/// than the methods of the concrete type:
///
/// ```
/// use sideway::ibverbs::completion::{PollCompletionQueueError, PollCompletions, WorkCompletion, WorkCompletionStatus};
///
/// /// Takes up to 32 completions and returns their number.
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
    /// A completion, borrowed until the next one is taken.
    type Completion<'p>: WorkCompletion
    where
        Self: Sized;

    /// Passes up to `most` completions to `take` one by one, in one poll. Returns the number of completions, which is 0
    /// if the queue is empty.
    ///
    /// # Errors
    ///
    /// Returns the error of `take` or the driver's error, like `poll_each` of the concrete type.
    fn poll_each<E: From<PollCompletionQueueError>>(
        &mut self,
        most: u32,
        take: impl FnMut(Self::Completion<'_>) -> Result<(), E>,
    ) -> Result<u32, E>
    where
        Self: Sized;

    /// Polls up to 64 completions and appends them to `records` as plain values. It is meant for teardown and other
    /// code outside the hot path.
    ///
    /// When this method returns, the poll has ended, and the program may drop queue pairs that use the queue.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue is broken. The completions taken before the error are appended nevertheless.
    fn poll_records(&mut self, records: &mut Vec<CompletionRecord>) -> Result<(), PollCompletionQueueError>;
}

/// A completion of a queue of any kind. Generic code uses this trait to read the borrowed
/// [completions](PollCompletions::Completion). The trait is sealed.
pub trait WorkCompletion: Sealed {
    /// The request's number.
    fn wr_id(&self) -> u64;
    /// The request's status. If the request failed, only the status, the request's number, the number of the queue pair
    /// and the vendor's error code are valid.
    fn status(&self) -> WorkCompletionStatus;
    /// The completed operation.
    fn opcode(&self) -> WorkCompletionOperationType;
    /// The vendor's error code.
    fn vendor_err(&self) -> u32;
    /// The number of bytes that were received, read, or fetched by an atomic. It is unspecified for sends and writes.
    fn byte_len(&self) -> u32;
    /// The immediate data, in host byte order. It is valid if the completion has
    /// [`WorkCompletionFlags::WithImmediate`].
    fn imm_data(&self) -> u32;
    /// The key that the peer invalidated. It is valid if the completion has [`WorkCompletionFlags::WithInvalidate`].
    fn invalidated_rkey(&self) -> RemoteKey;
    /// The number of the local queue pair.
    fn qp_num(&self) -> u32;
    /// The number of the sender's queue pair. It is valid only for datagrams.
    fn src_qp(&self) -> u32;
    /// Flags that describe the message and its valid fields.
    fn wc_flags(&self) -> WorkCompletionFlags;
    /// The sender's LID. It is valid only for datagrams.
    fn slid(&self) -> u32;
    /// The service level. It is valid only for datagrams.
    fn sl(&self) -> u8;
    /// The low bits of the destination LID. They are valid only for datagrams.
    fn dlid_path_bits(&self) -> u8;
    /// The datagram's source.
    fn source(&self) -> WorkCompletionSource;
    /// The completion time, in cycles of the device's clock.
    ///
    /// # Errors
    ///
    /// Returns an error on a basic queue, and on an extended queue that was built without the field. This applies to
    /// the fields below as well.
    fn completion_timestamp(&self) -> Result<u64, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::CompletionTimestamp))
    }
    /// The completion time, in nanoseconds of the wall clock, since 1970.
    ///
    /// # Errors
    ///
    /// See [`completion_timestamp`](Self::completion_timestamp).
    fn completion_wallclock_ns(&self) -> Result<u64, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::CompletionTimestampWallclock))
    }
    /// The VLAN tag that the device removed from a received packet.
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
    /// The tag of a message received by a shared receive queue with tag matching.
    ///
    /// # Errors
    ///
    /// See [`completion_timestamp`](Self::completion_timestamp).
    fn tag_matching_info(&self) -> Result<TagMatchingInfo, FieldNotEnabled> {
        Err(FieldNotEnabled::new(Fields::TagMatchingInformation))
    }
}

/// A copy of a completion, which remains valid after the poll has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompletionRecord {
    /// The request's number.
    pub wr_id: u64,
    /// The request's status. If the request failed, only the status, the request's number, the number of the queue pair
    /// and the vendor's error code are valid.
    pub status: WorkCompletionStatus,
    /// The completed operation.
    pub opcode: WorkCompletionOperationType,
    /// The vendor's error code.
    pub vendor_err: u32,
    /// Bytes received, read, or fetched.
    pub byte_len: u32,
    /// The number of the local queue pair.
    pub qp_num: u32,
    /// Flags that describe the message and its valid fields.
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

pub(in crate::ibverbs) mod sealed {
    use std::sync::Arc;

    use super::CompletionQueueCore;

    pub trait Queue {
        fn queue(&self, _: Token) -> &Arc<CompletionQueueCore>;
    }

    /// A token that only this crate can create. So only this crate can call the methods that take it as an argument.
    #[derive(Clone, Copy, Debug)]
    pub struct Token(());

    impl Token {
        pub(crate) const fn new() -> Self {
            Self(())
        }
    }
}

pub(crate) use self::sealed::Token;

/// Implements [`PollCompletions`] by the methods of the queue.
macro_rules! polled {
    ($($Queue:ty: $Completion:ident, by $core:expr;)+) => { $(
        impl $crate::ibverbs::completion::poll::sealed::Queue for $Queue {
            fn queue(&self, _: $crate::ibverbs::completion::Token) -> &::std::sync::Arc<$crate::ibverbs::completion::CompletionQueueCore> {
                let core: fn(&Self) -> &::std::sync::Arc<$crate::ibverbs::completion::CompletionQueueCore> = $core;
                core(self)
            }
        }

        impl $crate::ibverbs::completion::PollCompletions for $Queue {
            type Completion<'p> = $Completion<'p>;

            #[inline(always)]
            fn poll_each<E: From<$crate::ibverbs::completion::PollCompletionQueueError>>(
                &mut self,
                most: u32,
                take: impl FnMut($Completion<'_>) -> Result<(), E>,
            ) -> Result<u32, E> {
                <$Queue>::poll_each(self, most, take)
            }

            fn poll_records(&mut self, records: &mut Vec<$crate::ibverbs::completion::CompletionRecord>) -> Result<(), $crate::ibverbs::completion::PollCompletionQueueError> {
                // The number of completions is limited, because a queue that fills as fast as it is read must not block
                // the caller.
                <$Queue>::poll_each(self, $crate::ibverbs::completion::poll::BATCH, |wc| {
                    records.push($crate::ibverbs::completion::CompletionRecord::from(&wc));
                    Ok(())
                })
                .map(|_| ())
            }
        }
    )+ };
}

pub(in crate::ibverbs) use polled;

polled! {
    BasicCompletionQueue: BasicWorkCompletion, by AsCore::core;
    ExtendedCompletionQueue: ExtendedWorkCompletion, by AsCore::core;
    GenericCompletionQueue: GenericWorkCompletion, by AsCore::core;
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
