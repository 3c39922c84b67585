//! The reason why a call failed, and whether it may have run.

use std::borrow::Cow;
use std::fmt;

/// An error of a `tower` service.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The status of a call. Its value is the number that the protocol uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($number);)*
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str($text),)*
                    other => write!(f, "status {other}"),
                }
            }
        }
    };
}

statuses! {
    /// The call has a result.
    OK = 0, "ok";
    /// The handler returned an error of the method's own type.
    APPLICATION = 1, "the handler returned an error";
    /// The caller cancelled the call.
    CANCELLED = 2, "the call was cancelled";
    /// The deadline passed.
    DEADLINE = 3, "the deadline has passed";
    /// The peer has no such method.
    UNIMPLEMENTED = 4, "the peer does not serve this method";
    /// The arguments, an item or the result could not be decoded.
    INVALID = 5, "the bytes cannot be decoded";
    /// A body or an attachment is longer than the peer accepts.
    TOO_LARGE = 6, "too large for the peer";
    /// The peer is overloaded; the call may be retried later.
    OVERLOADED = 7, "the peer is overloaded";
    /// No connection is established, or the connection is closing.
    UNAVAILABLE = 8, "the connection is not available";
    /// The handler panicked, or the library failed.
    INTERNAL = 9, "internal error";
    /// TLS refused the connection, or the caller is not permitted to make this call.
    UNAUTHENTICATED = 10, "not authenticated";
    /// The peer declares the method with different types.
    MISMATCH = 11, "the method has different types at the peer";
    /// The peer broke the protocol.
    PROTOCOL = 12, "the peer violated the protocol";
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self})", self.0)
    }
}

/// Whether a failed call may have run at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Certainty {
    /// The call was not sent.
    NotSent,
    /// The peer rejected the call and did not run it.
    Refused,
    /// The call may have run, completely or partly.
    Unknown,
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSent => "not sent",
            Self::Refused => "refused, not run",
            Self::Unknown => "may have run",
        })
    }
}

/// The error of a call that failed in the library or the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// The status of the call.
    pub status: Status,
    /// Whether the call may have run.
    pub certainty: Certainty,
    /// Details for the log or for the user. This text may be empty.
    pub detail: Cow<'static, str>,
}

impl RpcError {
    /// Creates an error with a detail.
    pub fn new(status: Status, certainty: Certainty, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, certainty, detail: detail.into() }
    }

    /// Whether the failed call may be retried: it did not run, or it is idempotent.
    pub fn is_retryable(&self, is_idempotent: bool) -> bool {
        let is_passing = matches!(self.status, Status::OVERLOADED | Status::UNAVAILABLE);
        is_passing && (is_idempotent || self.certainty != Certainty::Unknown)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        write!(f, " ({})", self.certainty)
    }
}

impl std::error::Error for RpcError {}

/// The error of a call: from the handler, the library or the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error<E> {
    /// The error that the handler returned.
    Application(E),
    /// The library or the connection failed.
    Rpc(RpcError),
}

impl<E> Error<E> {
    /// Returns the error if the library or the connection failed. Returns `None` if the handler returned the error.
    pub fn rpc(&self) -> Option<&RpcError> {
        match self {
            Self::Application(_) => None,
            Self::Rpc(error) => Some(error),
        }
    }
}

impl<E> From<RpcError> for Error<E> {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Application(error) => error.fmt(f),
            Self::Rpc(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Error<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Application(error) => error.source(),
            Self::Rpc(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_this_side_does_not_name_the_peer() {
        let error = RpcError::new(Status::INTERNAL, Certainty::NotSent, "out of memory");
        assert_eq!(error.to_string(), "internal error: out of memory (not sent)");
    }
}
