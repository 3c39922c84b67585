//! The reason why a connection ended.

use std::fmt;
use std::io;
use std::sync::Arc;

/// The reason why a connection ended. Each later call on the connection returns an [`io::Error`] that contains it.
///
/// The errors of calls that leave the connection open contain none. So a program can distinguish a peer that no longer
/// responds from a deadline of its own, although the kind of both errors is `TimedOut`:
///
/// ```
/// fn has_ended(error: &std::io::Error) -> bool {
///     error.get_ref().is_some_and(|inner| inner.is::<trespass::Failure>())
/// }
/// # assert!(!has_ended(&std::io::ErrorKind::TimedOut.into()));
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) kind: io::ErrorKind,
    source: Arc<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    pub(crate) fn new(kind: io::ErrorKind, text: &'static str) -> Failure {
        Failure { kind, source: Arc::from(Box::from(text)) }
    }

    /// The peer violated the protocol.
    pub(crate) fn violation(text: &'static str) -> Failure {
        Failure::new(io::ErrorKind::InvalidData, text)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure { kind: error.kind(), source: Arc::new(error) }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        io::Error::new(failure.kind, failure)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}
