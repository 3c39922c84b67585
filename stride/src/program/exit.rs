//! How the program ends. Arguments that make no sense end it with 2, before anything else.

use std::process::ExitCode;

use super::interrupt::Signal;
use crate::control::{Cause, Failure};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// As it should.
    Done,
    /// Something has failed.
    Failed,
    /// The test was done, and a limit of the user's was missed, or the baseline.
    Missed,
    /// The other side was not reached, or is gone.
    NoContact,
    /// RDMA has failed while the sides were connected, or as they were to be.
    Rdma,
    /// The user has ended the test before its end.
    Interrupted(Signal),
}

impl Exit {
    /// After a failure.
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
