//! The reason why a batch was not posted, and the request at fault.

use std::{error, fmt};

use crate::error::{Errno, VerbError};
use crate::ibverbs::queue_pair::SendOperationFlags;

/// The error of [`post`](super::PostSendGuard::post).
pub type PostSendError = PostError;

/// The error of [`PostRecvGuard::post`](super::PostRecvGuard::post).
pub type PostRecvError = PostError;

/// The error of a batch of requests that was not posted, or was posted only partly.
#[derive(Clone, PartialEq, Eq)]
pub struct PostError(
    // The error is a boxed pointer, so that a successful post costs no more than in C.
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

/// The kind of a post error, which determines the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// A request is invalid. For example, it has too many entries or too much inline data, or the transport does not
    /// support its operation.
    InvalidWorkRequest,
    /// The queue pair accepts no requests in its current state.
    InvalidQueuePair,
    /// The queue is full. Poll its completion queue, then post again. [`queue_limit`](PostError::queue_limit) returns
    /// its capacity. If this occurs on an empty queue, the batch is too large: it has more requests, entries or inline
    /// data than the queue pair was built for.
    NotEnoughResources,
    /// The queue pair was not built for this operation, or the device does not support it.
    OperationNotEnabled(SendOperationFlags),
    /// Any other error.
    Verb,
}

/// The request at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedRequest {
    /// The index of the request in the batch, counted from 0, if it is known.
    pub index: Option<usize>,
    /// The number of the request (`wr_id`).
    pub wr_id: u64,
}

/// A request that this crate rejected while the batch was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) failed: FailedRequest,
    pub(crate) reason: RefusalReason,
}

/// The reason why this crate rejected a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The batch has more requests than the queue was built for.
    BatchTooLong {
        /// The maximum number of requests.
        limit: usize,
    },
    /// The list has more entries than the queue was built for.
    TooManyEntries {
        /// The number of entries.
        given: usize,
        /// The maximum number of entries.
        limit: usize,
    },
    /// The inline data is longer than the queue pair was built for.
    InlineTooLong {
        /// The length in bytes.
        given: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The flag [`Inline`](super::WorkRequestFlags::Inline) was set on a request with registered memory. On basic queue
    /// pairs, sideway 0.4 copied this memory when the request was posted. A program that relied on that would reuse its
    /// buffer too early.
    InlineMemory,
    /// The packet header is longer than a request permits, or than the queue pair was built for.
    HeaderTooLong {
        /// The length in bytes.
        given: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The packet header is shorter than an Ethernet header.
    HeaderTooShort {
        /// The length in bytes.
        given: usize,
        /// The minimum length in bytes.
        least: usize,
    },
    /// An object that the request names belongs to another device context.
    OfAnotherDevice,
    /// The window cannot be bound to this range.
    InvalidBind(&'static str),
    /// The basic verbs do not have this operation.
    ExtendedOnly(SendOperationFlags),
    /// The queue pair has a shared receive queue.
    ReceivesAreShared,
    /// The queue does not support this setting, or this value of it.
    Invalid(&'static str),
    /// The queue pair has no receive queue.
    NoReceives,
    /// The queue pair was not built for this operation.
    NotEnabled(SendOperationFlags),
    /// The device does not report support for this operation.
    NotOfDevice(SendOperationFlags),
    /// The driver is known to execute this request incorrectly.
    DriverFault(&'static str),
}

impl PostError {
    /// Creates the error of a batch that the driver rejected. `failed` is the request at fault, if the driver reports
    /// it. `posted` is the number of posted requests, if it is known. The queue was built for `limit` requests.
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
            "the queue is full{room}, or the request has more entries or inline data than the queue pair supports; \
            poll the completion queue before posting more",
        ));
        Self(Box::new(Inner { kind, source, refusal: None, failed, posted, limit }))
    }

    /// Creates the error of a batch that this crate rejected. No request was posted.
    #[cold]
    pub(crate) fn from_refusal(verb: &'static str, refusal: Refusal) -> Self {
        let (kind, errno, hint) = match refusal.reason {
            RefusalReason::BatchTooLong { limit } => (
                PostErrorKind::NotEnoughResources,
                libc::ENOMEM,
                format!("the batch exceeds the {limit} requests that the queue was built for; post fewer at once"),
            ),
            RefusalReason::TooManyEntries { given, limit } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                format!(
                    "the list has {given} entries, but the queue was built for {limit}; use fewer, or raise the \
                    builder's limit"
                ),
            ),
            RefusalReason::InlineTooLong { given, limit } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                format!(
                    "the inline data has {given} bytes, but the queue pair was built for {limit}; raise \
                    QueuePairBuilder::setup_max_inline_data"
                ),
            ),
            RefusalReason::InlineMemory => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                "the flag Inline does not copy registered memory; pass the bytes to setup_inline_data, or omit the \
                flag"
                    .to_owned(),
            ),
            RefusalReason::HeaderTooLong { given, limit } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                if limit == usize::from(u16::MAX) {
                    format!("the header has {given} bytes; use at most {limit}")
                } else {
                    format!(
                        "the header has {given} bytes, but the queue pair was built for {limit}; raise \
                        QueuePairBuilder::setup_max_tso_header"
                    )
                },
            ),
            RefusalReason::HeaderTooShort { given, least } => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                format!("the header has {given} bytes; use at least the {least} of an Ethernet header"),
            ),
            RefusalReason::OfAnotherDevice => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                "an object that the request names (address handle or memory window) belongs to another device \
                context than the queue pair"
                    .to_owned(),
            ),
            RefusalReason::InvalidBind(what) => (PostErrorKind::InvalidWorkRequest, libc::EINVAL, what.to_owned()),
            RefusalReason::ExtendedOnly(operation) => (
                PostErrorKind::OperationNotEnabled(operation),
                libc::EOPNOTSUPP,
                format!("the basic verbs do not support {}; use an extended queue pair (build_ex)", name_of(operation)),
            ),
            RefusalReason::ReceivesAreShared => (
                PostErrorKind::InvalidWorkRequest,
                libc::EINVAL,
                "the queue pair has a shared receive queue; post receives there".to_owned(),
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
                    "the queue pair was not built for {}; add it with QueuePairBuilder::setup_send_ops_flags, if \
                    the device supports it",
                    name_of(operation)
                ),
            ),
            RefusalReason::NotOfDevice(operation) => (
                PostErrorKind::OperationNotEnabled(operation),
                libc::EOPNOTSUPP,
                format!(
                    "the device does not report {0} (DeviceAttr::device_cap_flags); use another operation",
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

    /// Creates the error of a list that was refused as a whole.
    #[cold]
    pub(crate) fn from_list_refusal(verb: &'static str, reason: RefusalReason) -> Self {
        let mut error = Self::from_refusal(verb, Refusal { failed: FailedRequest { index: None, wr_id: 0 }, reason });
        error.0.failed = None;
        error
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> PostErrorKind {
        self.0.kind
    }

    /// Returns why this crate rejected the batch without calling the driver, or `None` if the driver rejected the
    /// batch.
    pub fn refusal(&self) -> Option<RefusalReason> {
        self.0.refusal
    }

    /// Returns the request at fault. Returns `None` for the extended verbs, which do not report it.
    pub fn failed_request(&self) -> Option<FailedRequest> {
        self.0.failed
    }

    /// Returns how many requests at the start of the batch were posted despite the error, or `None` if the driver does
    /// not report this. As after a successful post, the device uses the memory of all requests that may have been
    /// posted.
    ///
    /// According to their documentation, the extended verbs do not post any request of a failed batch. However, the
    /// soft-RoCE driver may post the whole batch and then fail to ring the doorbell.
    pub fn posted(&self) -> Option<usize> {
        self.0.posted
    }

    /// Returns the capacity of the queue if it was full ([`NotEnoughResources`](PostErrorKind::NotEnoughResources)).
    /// The queue of the driver may have space for more requests.
    pub fn queue_limit(&self) -> Option<usize> {
        self.0.limit
    }

    /// Returns the verb and its errno.
    pub fn verb_error(&self) -> &VerbError {
        &self.0.source
    }
}

fn name_of(operation: SendOperationFlags) -> &'static str {
    operation.iter_names().next().map_or("this operation", |(name, _)| name)
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
            Some(posted) => write!(f, "; the {posted} requests before it were posted"),
            None => f.write_str("; the driver does not report how many requests of the batch were posted"),
        }
    }
}

// The text of this error includes the text of the inner error, so there is no source.
impl error::Error for PostError {}

const _: () = assert!(size_of::<Result<(), PostError>>() == size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_request_error_names_request_and_remedy() {
        let failed = FailedRequest { index: Some(3), wr_id: 7 };
        let error = PostError::from_refusal(
            "ibv_wr_complete",
            Refusal { failed, reason: RefusalReason::NotEnabled(SendOperationFlags::AtomicFetchAndAdd) },
        );
        assert_eq!(error.kind(), PostErrorKind::OperationNotEnabled(SendOperationFlags::AtomicFetchAndAdd));
        assert_eq!(error.failed_request(), Some(failed));
        assert_eq!(
            error.to_string(),
            "ibv_wr_complete: EOPNOTSUPP (Operation not supported): the queue pair was not built for \
            AtomicFetchAndAdd; add it with QueuePairBuilder::setup_send_ops_flags, if the device supports it; \
            request 3 (wr_id 7); nothing of the batch was posted"
        );
    }

    #[test]
    fn full_queue_has_its_own_kind() {
        let failed = Some(FailedRequest { index: Some(2), wr_id: 9 });
        let error = PostError::from_driver("ibv_post_send", Errno::ENOMEM, failed, Some(2), Some(16));
        assert_eq!(error.kind(), PostErrorKind::NotEnoughResources);
        assert_eq!((error.posted(), error.queue_limit()), (Some(2), Some(16)));
        assert!(error.to_string().contains("the queue is full: it was built for 16 requests"), "{error}");
        assert!(error.to_string().ends_with("request 2 (wr_id 9); the 2 requests before it were posted"), "{error}");
    }
}
