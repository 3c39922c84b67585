//! Why a batch was not posted, and which of its requests is at fault.

use std::{error, fmt};

use crate::error::{Errno, VerbError};
use crate::ibverbs::queue_pair::SendOperationFlags;

/// Why [`post`](super::PostSendGuard::post) failed.
pub type PostSendError = PostError;

/// Why [`PostRecvGuard::post`](super::PostRecvGuard::post) failed.
pub type PostRecvError = PostError;

/// A batch of requests that was not posted as a whole.
#[derive(Clone, PartialEq, Eq)]
pub struct PostError(
    // One pointer wide, so that a successful post costs no more than in C.
    Box<Inner>,
);

crate::error::debug_is_text!(PostError);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    kind: PostErrorKind,
    source: VerbError,
    refusal: Option<RefusalReason>,
    failed: Option<FailedRequest>,
    posted: Option<usize>,
    limit: Option<usize>,
}

/// What a program can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// A value of a request is wrong: too many entries, too much inline data, an operation that the transport has not.
    InvalidWorkRequest,
    /// The queue pair cannot take requests in its state.
    InvalidQueuePair,
    /// The queue is full: poll its completion queue, then post again. [`queue_limit`](PostError::queue_limit) returns how many
    /// requests it was built for. A batch that fails so on an empty queue is too large in itself: it has more requests, entries or
    /// inline data than the queue pair was built for.
    NotEnoughResources,
    /// The queue pair was not built for this operation, or the device does not have it.
    OperationNotEnabled(SendOperationFlags),
    /// Anything else.
    Verb,
}

/// The request at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRequest {
    /// Its place in the batch, from 0, where it is known.
    pub index: Option<usize>,
    /// Its number.
    pub wr_id: u64,
}

/// A request that this crate refused while the batch was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) failed: FailedRequest,
    pub(crate) reason: RefusalReason,
}

/// Why a request is refused before a driver sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// More requests than the queue was asked to hold.
    BatchTooLong {
        /// Requests.
        limit: usize,
    },
    /// More entries in a list than the queue was asked for.
    TooManyEntries {
        /// Entries.
        given: usize,
        /// Entries.
        limit: usize,
    },
    /// More inline data than the queue pair was asked for.
    InlineTooLong {
        /// Bytes.
        given: usize,
        /// Bytes.
        limit: usize,
    },
    /// The flag [`Inline`](super::WorkRequestFlags::Inline) with registered memory. sideway 0.4 copied the memory at the post, on
    /// basic queue pairs; a program that relied on it would reuse its buffer too early.
    InlineMemory,
    /// A packet header longer than a request can say, or than the queue pair was built for.
    HeaderTooLong {
        /// Bytes.
        given: usize,
        /// Bytes.
        limit: usize,
    },
    /// A packet header shorter than that of Ethernet.
    HeaderTooShort {
        /// Bytes.
        given: usize,
        /// Bytes.
        least: usize,
    },
    /// An object that the request names is of another device context.
    OfAnotherDevice,
    /// The window cannot be bound so.
    InvalidBind(&'static str),
    /// The basic verbs have no such request.
    ExtendedOnly(SendOperationFlags),
    /// The queue pair takes its receives from a shared queue.
    ReceivesAreShared,
    /// The queue does not do this, or not with this value.
    Invalid(&'static str),
    /// The queue pair only sends.
    NoReceives,
    /// The queue pair was not built for it.
    NotEnabled(SendOperationFlags),
    /// The device does not report that it has it.
    NotOfDevice(SendOperationFlags),
    /// This version of the driver is known to do it wrong.
    DriverFault(&'static str),
}

impl PostError {
    /// The driver refused a batch, at `failed` where it says so, after `posted` requests where that is known. The queue was built for
    /// `limit` requests.
    #[cold]
    pub(crate) fn from_driver(
        verb: &'static str,
        errno: Errno,
        failed: Option<FailedRequest>,
        posted: Option<usize>,
        limit: Option<usize>,
    ) -> Self {
        let kind = match errno.raw() {
            libc::EINVAL => PostErrorKind::InvalidWorkRequest,
            libc::EFAULT => PostErrorKind::InvalidQueuePair,
            libc::ENOMEM | libc::ENOSPC => PostErrorKind::NotEnoughResources,
            _ => PostErrorKind::Verb,
        };
        let source = VerbError::new(verb, errno);
        if kind != PostErrorKind::NotEnoughResources {
            return Self(Box::new(Inner { kind, source, refusal: None, failed, posted, limit: None }));
        }
        let room = limit.map_or(String::new(), |limit| format!(": it was built for {limit} requests"));
        let source = source.with_hint(format!(
            "the queue is full{room} (or the request has more entries or inline data than the queue pair holds); \
             poll the completion queue before posting more",
        ));
        Self(Box::new(Inner { kind, source, refusal: None, failed, posted, limit }))
    }

    /// This crate refused the batch; nothing was posted.
    #[cold]
    pub(crate) fn from_refusal(verb: &'static str, refusal: Refusal) -> Self {
        let (kind, errno, hint) = match refusal.reason {
            RefusalReason::BatchTooLong { limit } => (
                PostErrorKind::NotEnoughResources,
                libc::ENOMEM,
                format!("the batch has more requests than the {limit} that the queue was built for"),
            ),
            RefusalReason::TooManyEntries { given, limit } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                format!("the list has {given} entries and the queue was built for {limit}"),
            ),
            RefusalReason::InlineTooLong { given, limit } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                format!("the inline data is {given} bytes long and the queue pair was built for {limit}"),
            ),
            RefusalReason::InlineMemory => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                "the flag Inline does not copy registered memory: give the bytes by setup_inline_data, or leave the flag out"
                    .to_owned(),
            ),
            RefusalReason::HeaderTooLong { given, limit } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                if limit == usize::from(u16::MAX) {
                    format!("the header is {given} bytes long and can be {limit}")
                } else {
                    format!(
                        "the header is {given} bytes long and the queue pair was built for {limit}: \
                         QueuePairBuilder::setup_max_tso_header"
                    )
                },
            ),
            RefusalReason::HeaderTooShort { given, least } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                format!("the header is {given} bytes long, and that of Ethernet alone has {least}"),
            ),
            RefusalReason::OfAnotherDevice => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                "an object that the request names (address handle or memory window) belongs to another device context \
                 than the queue pair"
                    .to_owned(),
            ),
            RefusalReason::InvalidBind(what) => (PostErrorKind::InvalidWorkRequest, libc::EINVAL, what.to_owned()),
            RefusalReason::ExtendedOnly(operation) => (
                PostErrorKind::OperationNotEnabled(operation),
                libc::EOPNOTSUPP,
                format!("the basic verbs have no {}: use an extended queue pair (build_ex)", name_of(operation)),
            ),
            RefusalReason::ReceivesAreShared => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                "the queue pair takes its receives from a shared receive queue: post them there".to_owned(),
            ),
            RefusalReason::Invalid(what) => (PostErrorKind::InvalidWorkRequest, libc::EINVAL, what.to_owned()),
            RefusalReason::NoReceives => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                "the queue pair is the initiator of an XRC connection and has no receive queue".to_owned(),
            ),
            RefusalReason::NotEnabled(operation) => (
                PostErrorKind::OperationNotEnabled(operation),
                libc::EOPNOTSUPP,
                format!(
                    "the queue pair was not built for {}: name it in QueuePairBuilder::setup_send_ops_flags, if the \
                     device has it",
                    name_of(operation)
                ),
            ),
            RefusalReason::NotOfDevice(operation) => (
                PostErrorKind::OperationNotEnabled(operation),
                libc::EOPNOTSUPP,
                format!(
                    "the device does not report {0} (DeviceAttr::device_cap_flags): do without it",
                    name_of(operation)
                ),
            ),
            RefusalReason::DriverFault(what) => (PostErrorKind::InvalidWorkRequest, libc::EOPNOTSUPP, what.to_owned()),
        };
        let source = VerbError::new(verb, Errno::from_raw(errno)).with_hint(hint);
        let Refusal { failed, reason } = refusal;
        let limit = match reason {
            RefusalReason::BatchTooLong { limit } => Some(limit),
            _ => None,
        };
        Self(Box::new(Inner { kind, source, refusal: Some(reason), failed: Some(failed), posted: Some(0), limit }))
    }

    /// What a program can do about it.
    pub fn kind(&self) -> PostErrorKind {
        self.0.kind
    }

    /// Why this crate refused the batch before the driver saw it; `None` if the driver did.
    pub fn refusal(&self) -> Option<RefusalReason> {
        self.0.refusal
    }

    /// The request at fault. The extended verbs do not say which it is: `None`.
    pub fn failed_request(&self) -> Option<FailedRequest> {
        self.0.failed
    }

    /// How many requests of the batch, the first ones, were posted all the same; `None` where the driver does not say.
    /// The memory of requests that may have been posted stays the device's, as after a post that succeeded.
    ///
    /// The extended verbs are documented to post nothing of a batch that fails; soft-RoCE's driver may post all of it and
    /// fail to ring the doorbell.
    pub fn posted(&self) -> Option<usize> {
        self.0.posted
    }

    /// How many requests the queue was built for, if it was full ([`NotEnoughResources`](PostErrorKind::NotEnoughResources)). A driver
    /// may hold more.
    pub fn queue_limit(&self) -> Option<usize> {
        self.0.limit
    }

    /// The verb and its errno.
    pub fn verb_error(&self) -> &VerbError {
        &self.0.source
    }
}

fn name_of(operation: SendOperationFlags) -> &'static str {
    operation.iter_names().next().map_or("such operation", |(name, _)| name)
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        inner.source.fmt(f)?;
        match inner.failed {
            Some(FailedRequest { index: Some(index), wr_id }) => write!(f, "; request {index} (wr_id {wr_id})")?,
            Some(FailedRequest { index: None, wr_id }) => write!(f, "; wr_id {wr_id}")?,
            None => {}
        }
        match inner.posted {
            Some(0) => f.write_str("; nothing of the batch was posted"),
            Some(posted) => write!(f, "; the {posted} before it were posted"),
            None => f.write_str("; the driver does not say how many of the batch were posted"),
        }
    }
}

// The text has that of the error inside, and so the source is that one's: none.
impl error::Error for PostError {}

const _: () = assert!(size_of::<Result<(), PostError>>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_request_and_what_to_change() {
        let failed = FailedRequest { index: Some(3), wr_id: 7 };
        let error = PostError::from_refusal(
            "ibv_wr_complete",
            Refusal { failed, reason: RefusalReason::NotEnabled(SendOperationFlags::AtomicFetchAndAdd) },
        );
        assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::AtomicFetchAndAdd));
        assert_eq!(error.failed_request(), Some(failed));
        assert_eq!(
            error.to_string(),
            "ibv_wr_complete: EOPNOTSUPP (Operation not supported): the queue pair was not built for AtomicFetchAndAdd: \
             name it in QueuePairBuilder::setup_send_ops_flags, if the device has it; request 3 (wr_id 7); nothing of \
             the batch was posted"
        );
    }

    #[test]
    fn a_full_queue_is_a_kind_of_its_own() {
        let failed = Some(FailedRequest { index: Some(2), wr_id: 9 });
        let error = PostError::from_driver("ibv_post_send", Errno::ENOMEM, failed, Some(2), Some(16));
        assert_eq!(error.kind(), PostErrorKind::NotEnoughResources);
        assert_eq!((error.posted(), error.queue_limit()), (Some(2), Some(16)));
        assert!(error.to_string().contains("the queue is full: it was built for 16 requests"), "{error}");
        assert!(error.to_string().ends_with("request 2 (wr_id 9); the 2 before it were posted"), "{error}");
    }
}
