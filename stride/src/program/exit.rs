//! Exit statuses. Invalid arguments exit with 2 before anything else runs.

use std::process::ExitCode;

use super::interrupt::Signal;
use crate::control::{Cause, Failure};

/// The outcome of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Success.
    Done,
    /// A failure.
    Failed,
    /// The test ran, and missed a limit or the baseline.
    Missed,
    /// The peer was unreachable or disconnected.
    NoContact,
    /// RDMA failed on or while connecting queue pairs.
    Rdma,
    /// The user ended the test early.
    Interrupted(Signal),
}

impl Exit {
    /// The outcome for a failure.
    pub(super) fn of(failure: &Failure) -> Self {
        match failure.cause() {
            Cause::Contact => Self::NoContact,
            Cause::Rdma => Self::Rdma,
            Cause::Other => Self::Failed,
        }
    }

    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Missed => 3,
            Self::NoContact => 4,
            Self::Rdma => 5,
            Self::Interrupted(signal) => signal.status(),
        })
    }
}
