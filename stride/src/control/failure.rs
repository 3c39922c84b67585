//! Why a test ended.

use std::io;

use super::message::Reason;
use crate::endpoint::Role;
use crate::plan::Contradiction;

/// Why a test ended. Each prints as a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No side was reached, or it closed the connection before its hello.
    #[error("{0}")]
    Unreachable(String),
    /// The server serves somebody else.
    #[error("{0}")]
    Busy(String),
    /// Who is there is no stride-perf, or another version of it.
    #[error("{0}")]
    Stranger(String),
    /// The other side fell silent, went away or said what it must not.
    #[error("{0}")]
    Broken(String),
    /// What the other side could not do, in its own words.
    #[error("the {}: {}", name(*.0), .1.text)]
    Theirs(Role, Reason),
    /// What this side could not do.
    #[error("{0:#}")]
    Ours(anyhow::Error),
    /// What failed of RDMA at this side, once its queue pairs were made.
    #[error("{0:#}")]
    Rdma(anyhow::Error),
}

/// What a failure is of, for those who look at no sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The other side: it was not reached, is another program or is gone.
    Contact,
    /// RDMA: queue pairs that do not connect, requests that fail, bytes that are not those that were sent.
    Rdma,
    /// All else: what is asked for is not there, or cannot be.
    Other,
}

impl Failure {
    /// What this side could not do with its queue pairs, unless it is the system that has failed.
    pub(super) fn rdma(error: anyhow::Error) -> Self {
        if error.is::<io::Error>() { Self::Ours(error) } else { Self::Rdma(error) }
    }

    /// What it is of, at whichever side.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Unreachable(_) | Self::Busy(_) | Self::Stranger(_) | Self::Broken(_) => Cause::Contact,
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

/// As it stands in sentences.
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
    fn what_the_system_refuses_is_not_of_rdma() {
        assert_eq!(Failure::rdma(anyhow!("a request failed")).cause(), Cause::Rdma);
        let thread: anyhow::Result<()> = Err(io::Error::from_raw_os_error(libc::EAGAIN)).context("thread 7 of 7");
        assert_eq!(Failure::rdma(thread.unwrap_err()).cause(), Cause::Other);
    }

    #[test]
    fn the_other_side_says_what_its_own_is_of() {
        for is_rdma in [false, true] {
            let failure = Failure::Theirs(Role::Server, Reason { text: "a sentence".to_owned(), is_rdma });
            assert_eq!(failure.cause(), if is_rdma { Cause::Rdma } else { Cause::Other });
            assert_eq!(failure.to_string(), "the server: a sentence");
        }
        assert_eq!(Failure::Busy(String::new()).cause(), Cause::Contact);
    }
}
