//! Copies files and trees over a connection. The threads of both sides drive the state machines of [`crate::proto`].

mod chain;
mod limiter;
mod options;
mod progress;
mod read;
mod sink;
mod source;
mod target;
mod writer;

pub use options::CopyOptions;
pub use progress::Progress;
pub use sink::receive;
pub use source::send;
pub use target::{Target, below};

use crate::error::{Error, Kind};
use crate::proto::Totals;

/// The result of a copy that was not aborted.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Totals of the copy.
    pub totals: Totals,
    /// Bytes that this side sent or received.
    pub carried: u64,
    /// Error texts of the entries that failed.
    pub failures: Vec<Error>,
}

impl Outcome {
    /// The exit status: 0, 24 if sources vanished or changed and nothing else failed, otherwise 23.
    pub fn status(&self) -> u8 {
        match self.failures.iter().map(Error::kind).max_by_key(|kind| *kind != Kind::Vanished) {
            None => 0,
            Some(Kind::Vanished) => 24,
            Some(_) => 23,
        }
    }
}
