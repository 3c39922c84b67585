//! The reason why a test ended.

use std::io;

use super::message::Reason;
use crate::endpoint::Role;
use crate::plan::Contradiction;

/// The reason why a test ended. `Display` formats it as an error for the user.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The peer could not be reached, or it closed the connection before its hello.
    #[error("{0}")]
    Unreachable(String),
    /// The server serves another client.
    #[error("{0}")]
    Busy(String),
    /// The peer is not stride-perf, or is another version of stride-perf.
    #[error("{0}")]
    Incompatible(String),
    /// The peer became silent, disconnected or violated the protocol.
    #[error("{0}")]
    Broken(String),
    /// The peer failed, and reported this reason.
    #[error("the {}: {}", name(*.0), .1.text)]
    Theirs(Role, Reason),
    /// This side failed for a reason other than RDMA.
    #[error("{0:#}")]
    Ours(anyhow::Error),
    /// An RDMA operation of this side failed, after the queue pairs had been created.
    #[error("{0:#}")]
    Rdma(anyhow::Error),
}

/// The class of a failure, which determines the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The connection to the peer failed: the peer is unreachable, is another program, or has disconnected.
    Contact,
    /// RDMA failed: queue pairs did not connect, a request failed, or data is corrupt.
    Rdma,
    /// Anything else failed, for example because a feature is missing or unsupported.
    Other,
}

impl Failure {
    /// Returns a failure of this side's queue pairs. If the operating system caused the error, returns `Ours` instead.
    pub(super) fn rdma(error: anyhow::Error) -> Self {
        if error.is::<io::Error>() { Self::Ours(error) } else { Self::Rdma(error) }
    }

    /// Returns the class of the failure, no matter which side failed.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Unreachable(_) | Self::Busy(_) | Self::Incompatible(_) | Self::Broken(_) => Cause::Contact,
            Self::Theirs(_, reason) if reason.is_rdma => Cause::Rdma,
            Self::Rdma(_) => Cause::Rdma,
            Self::Theirs(..) | Self::Ours(_) => Cause::Other,
        }
    }
}

impl From<Contradiction> for Failure {
    fn from(contradiction: Contradiction) -> Self {
        Self::Ours(contradiction.into())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Ours(error)
    }
}

/// Returns the name of the role, for use in texts.
pub(super) fn name(role: Role) -> &'static str {
    match role {
        Role::Client => "client",
        Role::Server => "server",
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn system_errors_are_not_rdma_failures() {
        assert_eq!(Failure::rdma(anyhow!("a request failed")).cause(), Cause::Rdma);
        let thread: anyhow::Result<()> = Err(io::Error::from_raw_os_error(libc::EAGAIN)).context("thread 7 of 7");
        assert_eq!(Failure::rdma(thread.unwrap_err()).cause(), Cause::Other);
    }

    #[test]
    fn peer_failure_carries_its_class() {
        for is_rdma in [false, true] {
            let failure = Failure::Theirs(Role::Server, Reason { text: "a sentence".to_owned(), is_rdma });
            assert_eq!(failure.cause(), if is_rdma { Cause::Rdma } else { Cause::Other });
            assert_eq!(failure.to_string(), "the server: a sentence");
        }
        assert_eq!(Failure::Busy(String::new()).cause(), Cause::Contact);
    }
}
