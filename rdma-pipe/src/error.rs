//! Errors, and their exit statuses.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// An error of a transfer. Its text has the form `what failed: why; remedy`, after the name of the host if it is known.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    /// The host on which the operation failed; empty for this one.
    host: String,
    text: String,
}

/// The kind of an error, for programs to match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The command line, or the request to the far side, is invalid.
    Usage,
    /// The two sides have different keys.
    WrongKey,
    /// RDMA was required but is unavailable.
    NoRdma,
    /// The connection could not be established.
    Unreachable,
    /// A file or a standard stream failed.
    File,
    /// Some of the files were not copied.
    Partial,
    /// An entry was skipped, because the options do not select its type. This is no failure.
    Skipped,
    /// A source disappeared or changed while it was read.
    Vanished,
    /// The peer sent malformed input, or data was altered in transit.
    Protocol,
    /// The connection broke.
    Broken,
    /// A peer was silent for too long.
    TimedOut,
    /// The peer's host no longer answers, so the connection ended.
    Lost,
    /// A signal ended the transfer.
    Signal(u8),
}

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error with this text.
    pub fn new(kind: Kind, text: impl Into<String>) -> Error {
        Error { kind, host: String::new(), text: text.into() }
    }

    /// Creates an error for a failed operation on a file.
    pub fn file(what: &str, path: &Path, error: &io::Error) -> Error {
        Error::new(Kind::File, format!("cannot {what} {}: {}", escape(path), reason(error)))
    }

    /// Creates an error for malformed or altered input from the peer.
    pub fn protocol(text: impl Into<String>) -> Error {
        Error::new(Kind::Protocol, text)
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the connection was lost, so that the transfer can continue over another connection.
    pub fn is_disconnect(&self) -> bool {
        matches!(self.kind, Kind::Broken | Kind::Lost)
    }

    /// Names the host on which the operation failed, unless an earlier call has named one that is further away.
    #[must_use]
    pub fn on(mut self, host: &str) -> Error {
        if self.host.is_empty() {
            host.clone_into(&mut self.host);
        }
        self
    }

    /// The host on which the operation failed, and the rest of the text.
    pub fn parts(&self) -> (&str, &str) {
        (&self.host, &self.text)
    }

    /// Prefixes the text with the operation that failed.
    #[must_use]
    pub fn within(mut self, what: impl Display) -> Error {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// Returns the exit status of `rdcp` and `rdpipe`.
    pub fn copy_status(&self) -> u8 {
        match self.kind {
            Kind::Skipped => 0,
            Kind::Usage => 1,
            Kind::File | Kind::Partial => 23,
            Kind::Vanished => 24,
            Kind::TimedOut | Kind::Lost => 30,
            Kind::Signal(number) => 128_u8.saturating_add(number),
            Kind::WrongKey | Kind::NoRdma | Kind::Unreachable | Kind::Protocol | Kind::Broken => 12,
        }
    }

    /// Returns the exit status of `rdsend` and `rdrecv`.
    pub fn stream_status(&self) -> u8 {
        match self.kind {
            Kind::WrongKey => 20,
            Kind::NoRdma => 101,
            Kind::Unreachable => 199,
            Kind::File => 200,
            _ => self.copy_status(),
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.host.is_empty() {
            write!(f, "{}: ", self.host)?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Converts the error of a connection to an error that states whether the peer timed out, was lost or broke the
/// connection.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        let kind = match error.kind() {
            _ if is_deadline(&error) => Kind::TimedOut,
            io::ErrorKind::TimedOut => Kind::Lost,
            _ => Kind::Broken,
        };
        Error::new(kind, format!("the connection broke: {}", reason(&error)))
    }
}

/// Whether a call on a connection reached its own deadline, and the connection is still open.
pub(crate) fn is_deadline(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && !error.get_ref().is_some_and(|inner| inner.is::<trespass::Failure>())
}

/// Returns the text of an I/O error in lower case, without Rust's suffix `(os error 2)`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    let first = letters.next();
    // Not that of a name such as RDMA.
    let is_name = letters.clone().next().is_some_and(char::is_uppercase);
    first
        .map(|first| if is_name { text.to_owned() } else { first.to_lowercase().chain(letters).collect() })
        .unwrap_or_default()
}

/// Returns a path for display. Control characters are escaped, so that a name cannot control the terminal.
pub fn escape(path: &Path) -> String {
    let mut text = String::new();
    for letter in path.to_string_lossy().chars() {
        if letter.is_control() { text.extend(letter.escape_default()) } else { text.push(letter) }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_begin_in_lower_case_unless_with_a_name() {
        let text = |text: &str| reason(&io::Error::other(text));
        assert_eq!(text("Broken pipe (os error 32)"), "broken pipe");
        assert_eq!(text("RDMA request failed: fatal error"), "RDMA request failed: fatal error");
        assert_eq!(text(""), "");
    }

    #[test]
    fn control_characters_of_names_are_escaped() {
        assert_eq!(escape(Path::new("a\u{1b}[2Jb\n")), "a\\u{1b}[2Jb\\n");
    }

    #[test]
    fn exit_statuses_follow_the_table() {
        let status = |kind| (Error::new(kind, "").stream_status(), Error::new(kind, "").copy_status());
        assert_eq!(status(Kind::Usage), (1, 1));
        assert_eq!(status(Kind::WrongKey), (20, 12));
        assert_eq!(status(Kind::NoRdma), (101, 12));
        assert_eq!(status(Kind::Unreachable), (199, 12));
        assert_eq!(status(Kind::File), (200, 23));
        assert_eq!(status(Kind::Partial).1, 23);
        assert_eq!(status(Kind::Skipped).1, 0);
        assert_eq!(status(Kind::Vanished).1, 24);
        assert_eq!(status(Kind::Protocol), (12, 12));
        assert_eq!(status(Kind::Broken), (12, 12));
        assert_eq!(status(Kind::TimedOut), (30, 30));
        assert_eq!(status(Kind::Lost), (30, 30));
        assert_eq!(status(Kind::Signal(15)), (143, 143));
    }
}
