//! The reason why a test ended.

use std::io;

use super::message::Reason;
use crate::endpoint::Role;
use crate::plan::Contradiction;

/// The reason why a test ended. `Display` formats it as an error for the user.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The peer was not reached, or closed the connection before its hello.
    #[error("{0}")]
    Unreachable(String),
    /// The server serves another client.
    #[error("{0}")]
    Busy(String),
    /// The peer is not stride-perf, or a different version.
    #[error("{0}")]
    Incompatible(String),
    /// The peer became silent, disconnected or violated the protocol.
    #[error("{0}")]
    Broken(String),
    /// The peer's failure, with its text.
    #[error("the {}: {}", name(*.0), .1.text)]
    Theirs(Role, Reason),
    /// A failure of this side.
    #[error("{0:#}")]
    Ours(anyhow::Error),
    /// An RDMA failure of this side, after queue pairs were created.
    #[error("{0:#}")]
    Rdma(anyhow::Error),
}

/// The class of a failure, for the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Connection to the peer: unreachable, another program, or disconnected.
    Contact,
    /// RDMA: queue pairs do not connect, requests fail, or data is corrupt.
    Rdma,
    /// Any other failure, such as a missing or unsupported feature.
    Other,
}

impl Failure {
    /// A failure of this side's queue pairs, unless the system caused it.
    pub(super) fn rdma(error: anyhow::Error) -> Self {
        if error.is::<io::Error>() { Self::Ours(error) } else { Self::Rdma(error) }
    }

    /// The class, on either side.
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

/// The role in texts.
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
