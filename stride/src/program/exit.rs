//! How the program ends. Arguments that make no sense end it with 2, before anything else.

use std::process::ExitCode;

use super::interrupt::Signal;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// As it should.
    Done,
    /// Something has failed.
    Failed,
    /// The test was done, and a limit of the user's was missed, or the baseline.
    Missed,
    /// The user has ended the test before its end.
    Interrupted(Signal),
}

impl Exit {
    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Missed => 3,
            Self::Interrupted(signal) => signal.status(),
        })
    }
}
