//! One byte stream, as `rdsend`, `rdrecv` and the segments of `rdpipe` transfer it.

mod receive;
mod send;

pub use receive::{Output, receive};
pub use send::send;

use std::time::Duration;

use crate::error::{Error, Kind};

/// How long the two sides try to establish the next connection after a connection broke.
pub const RECONNECT: Duration = Duration::from_secs(10);

/// Totals of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Bytes.
    pub bytes: u64,
    /// Time from the connection to the acknowledgement of the last byte.
    pub time: Duration,
}

impl Summary {
    /// Returns the line that `-v` prints.
    pub fn bandwidth(&self) -> String {
        format!("Bandwidth {:.3} GB/s", self.bytes as f64 / 1e9 / self.time.as_secs_f64().max(1e-9))
    }
}

/// The error of a receiving function: the file of such an error is the peer's, which has aborted the stream.
fn of_peer(error: Error) -> Error {
    if error.kind() == Kind::File { error.within("the peer failed") } else { error }
}

#[cfg(test)]
mod tests;
