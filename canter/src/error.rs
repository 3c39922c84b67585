//! Errors of requests, connections and cores.

use std::net::SocketAddr;

use sideway::error::VerbError;
use sideway::ibverbs::completion::WorkCompletionStatus;
use sideway::ibverbs::queue_pair::ConnectQueuePairError;
use sideway::ibverbs::work_request::PostSendError;

/// Why a request, a connection or a core failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A verb failed. The text names it.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The device did not accept a request.
    #[error(transparent)]
    Post(#[from] PostSendError),
    /// The queue pair could not be connected with the peer's.
    #[error(transparent)]
    QueuePair(#[from] ConnectQueuePairError),
    /// A request failed, and ended its connection.
    #[error("a request ended with: {status} (vendor's code {vendor_err:#x}); the connection has ended")]
    Request {
        /// The status of the completion.
        status: WorkCompletionStatus,
        /// The vendor's error code.
        vendor_err: u32,
    },
    /// The peer, or this side, ended the connection. A peer that was killed ends it too.
    #[error("the connection was closed")]
    Closed,
    /// The connection could not be made.
    #[error(transparent)]
    Connect(Box<NotConnected>),
    /// No device has this name. The text lists the names.
    #[error("{0}")]
    NoDevice(Box<str>),
    /// The peer sent more messages than the program received.
    #[error("the peer sent more than {limit} messages that the program has not received; see Builder::unread")]
    Unread {
        /// The maximum number of messages.
        limit: usize,
    },
    /// The peer sent a message that exceeds the receives.
    #[error("the peer sent a message of more than {limit} bytes; see Builder::receive_size")]
    MessageTooLong {
        /// The maximum length, in bytes.
        limit: usize,
    },
    /// The core has as many connections as it can serve.
    #[error("the core serves at most {limit} connections; see Builder::connections")]
    Connections {
        /// The maximum number of connections.
        limit: usize,
    },
    /// A batch has more requests than the send queue holds.
    #[error("a batch of {length} requests exceeds the send queue, which holds {limit}; see Builder::depth")]
    BatchTooLong {
        /// The number of requests.
        length: usize,
        /// The number of requests that a queue holds.
        limit: usize,
    },
    /// Bytes exceed a buffer.
    #[error("{length} bytes exceed the buffer, which holds {capacity}")]
    TooLong {
        /// The number of bytes.
        length: usize,
        /// The capacity of the buffer.
        capacity: usize,
    },
    /// A range exceeds the memory of the peer, or of this side.
    #[error("{length} bytes at offset {offset} exceed the memory of {size} bytes")]
    OutOfRange {
        /// The first byte.
        offset: usize,
        /// The number of bytes.
        length: usize,
        /// The size of the memory.
        size: usize,
    },
    /// Atomic operations need 8 bytes at an address that 8 divides.
    #[error("an atomic operation needs 8 bytes at a multiple of 8, and was given {length} bytes at {address:#x}")]
    Unaligned {
        /// The address at the peer.
        address: u64,
        /// The number of bytes.
        length: usize,
    },
    /// The buffer belongs to a pool of another core.
    #[error("the buffer belongs to a pool of another core")]
    OtherCore,
    /// The core cannot have this shape.
    #[error("{0}")]
    Shape(Box<str>),
    /// The device was removed.
    #[error("the device was removed")]
    Removed,
    /// A call of the system failed.
    #[error("{0}")]
    System(Box<str>),
    /// The task was dropped before it ended, or its result was taken before.
    #[error("the task was dropped, or its result was taken before")]
    NoResult,
    /// The time passed.
    #[error("the time limit has passed")]
    TimedOut,
}

/// Why a connection could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot connect{}: {cause}", peer.map(|peer| format!(" with {peer}")).unwrap_or_default())]
pub struct NotConnected {
    peer: Option<SocketAddr>,
    cause: String,
}

impl NotConnected {
    pub(crate) fn error(peer: Option<SocketAddr>, cause: String) -> Error {
        Error::Connect(Box::new(Self { peer, cause }))
    }

    /// Returns the peer, if it is known.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            Error::Closed => ErrorKind::ConnectionAborted,
            Error::TimedOut => ErrorKind::TimedOut,
            Error::Connect(_) => ErrorKind::ConnectionRefused,
            Error::Request { .. } | Error::Unread { .. } | Error::MessageTooLong { .. } => ErrorKind::ConnectionReset,
            Error::NoDevice(_) => ErrorKind::NotFound,
            Error::Verb(verb) => std::io::Error::from_raw_os_error(verb.errno().raw()).kind(),
            Error::Removed => ErrorKind::NetworkDown,
            Error::Post(_) | Error::QueuePair(_) | Error::System(_) => ErrorKind::Other,
            _ => ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// The failure of a call of the system.
pub(crate) fn system(call: &str, error: impl std::fmt::Display) -> Error {
    Error::System(format!("{call}: {error}").into())
}

/// What a core or a pool cannot be.
pub(crate) fn shape(text: impl Into<String>) -> Error {
    Error::Shape(text.into().into())
}
