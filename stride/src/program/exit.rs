//! Exit statuses. If the arguments are invalid, the program exits with status 2 before anything else runs.

use std::process::ExitCode;

use super::interrupt::Signal;
use crate::control::{Cause, Failure};

/// The outcome of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The program succeeded.
    Done,
    /// The program failed.
    Failed,
    /// The test ran, but missed a limit or was worse than the baseline.
    Missed,
    /// The peer could not be reached, or has disconnected.
    NoContact,
    /// RDMA failed, either while queue pairs were being connected or afterwards.
    Rdma,
    /// The user ended the test early.
    Interrupted(Signal),
}

impl Exit {
    /// Returns the outcome of a program that ended with this failure.
    pub(super) fn of(failure: &Failure) -> Self {
        match failure.cause() {
            Cause::Contact => Self::NoContact,
            Cause::Rdma => Self::Rdma,
            Cause::Other => Self::Failed,
        }
    }

    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(self.status())
    }

    pub(super) fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Missed => 3,
            Self::NoContact => 4,
            Self::Rdma => 5,
            Self::Interrupted(signal) => signal.status(),
        }
    }
}
