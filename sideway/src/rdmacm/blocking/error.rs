//! Why there is no connection.

use std::net::SocketAddr;
use std::time::Duration;
use std::{error, fmt, io};

use super::ConnectStep;
use crate::error::VerbError;
use crate::rdmacm::communication_manager::{CreateEventChannelError, EventStatus, EventType, Rejection, Unreachable};

/// Why there is no connection: what was being done, for which address, and what came of it.
///
/// The text says what usually helps:
///
/// ```text
/// connecting to 192.0.2.7:7174: rejected: nobody listens there
/// resolving the address 192.0.2.8:7174: nobody answered within 10s: is the address right, and that machine up?
/// rdma_bind_addr: EADDRNOTAVAIL (Cannot assign requested address): binding to 0.0.0.0:7174: the port is in use: …
/// ```
///
/// As an [`io::Error`] it has the kind that a socket would give: `ConnectionRefused`, `TimedOut`, `AddrInUse`, ….
#[derive(Debug)]
pub struct ConnectError(
    // One pointer wide, so that a call which succeeds carries no room for its failure.
    Box<Failure>,
);

#[derive(Debug)]
struct Failure {
    step: ConnectStep,
    address: Option<SocketAddr>,
    name: Option<String>,
    cause: ConnectCause,
    earlier: Vec<ConnectError>,
}

/// What came of it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectCause {
    /// The name could not be looked up.
    Name(io::Error),
    /// The name has no address.
    NoAddress,
    /// There is no event channel: no librdmacm, no device, too many files.
    Channel(CreateEventChannelError),
    /// A call of the library failed.
    Verb(VerbError),
    /// An event reported a failure.
    Event {
        /// Which.
        event_type: EventType,
        /// Its status.
        status: EventStatus,
    },
    /// The peer, or its machine, said no.
    Rejected(Rejection),
    /// The peer's machine does not answer; or (datagrams) said no.
    Unreachable(Unreachable),
    /// The time has passed.
    TimedOut {
        /// What there was.
        after: Duration,
    },
    /// The peer has gone before the connection was there.
    Disconnected,
    /// The device is going away.
    DeviceRemoval,
    /// An event came that cannot come here.
    Unexpected(EventType),
}

impl ConnectError {
    #[cold]
    pub(super) fn new(step: ConnectStep, address: Option<SocketAddr>, cause: impl Into<ConnectCause>) -> Self {
        Self(Box::new(Failure { step, address, name: None, cause: cause.into(), earlier: Vec::new() }))
    }

    /// A failure to find the addresses of `name`.
    #[cold]
    pub(super) fn of_name(name: &dyn fmt::Debug, cause: ConnectCause) -> Self {
        let mut error = Self::new(ConnectStep::LookUpName, None, cause);
        error.0.name = Some(format!("{name:?}"));
        error
    }

    /// The last of several, of which each was tried.
    #[cold]
    pub(super) fn of_all(name: &dyn fmt::Debug, mut errors: Vec<Self>) -> Self {
        match errors.pop() {
            Some(mut last) => {
                last.0.earlier = errors;
                last
            }
            None => Self::of_name(name, ConnectCause::NoAddress),
        }
    }

    /// What was being done.
    pub fn step(&self) -> ConnectStep {
        self.0.step
    }

    /// The address that it was for: the peer's, or this side's where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.address
    }

    /// What came of it.
    pub fn cause(&self) -> &ConnectCause {
        &self.0.cause
    }

    /// What came of the addresses that were tried before, where a name has several.
    pub fn earlier(&self) -> &[ConnectError] {
        &self.0.earlier
    }

    /// The no of the peer, if that is the cause.
    pub fn rejection(&self) -> Option<&Rejection> {
        match self.cause() {
            ConnectCause::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// Whether the time has passed that the program gave.
    pub fn is_timed_out(&self) -> bool {
        matches!(self.cause(), ConnectCause::TimedOut { .. })
    }

    /// The kind that a socket would give.
    pub fn kind(&self) -> io::ErrorKind {
        let of_errno = |errno: i32| io::Error::from_raw_os_error(errno).kind();
        match self.cause() {
            ConnectCause::Name(error) => error.kind(),
            ConnectCause::NoAddress => io::ErrorKind::NotFound,
            ConnectCause::Channel(CreateEventChannelError::Verb(error)) => of_errno(error.errno().raw()),
            ConnectCause::Channel(_) => io::ErrorKind::Unsupported,
            // So says the kernel of two that want one port at all addresses.
            ConnectCause::Verb(error)
                if error.errno().raw() == libc::EADDRNOTAVAIL
                    && self.address().is_some_and(|address| address.ip().is_unspecified()) =>
            {
                io::ErrorKind::AddrInUse
            }
            ConnectCause::Verb(error) => of_errno(error.errno().raw()),
            ConnectCause::Event { status, .. } => {
                status.errno().map_or(io::ErrorKind::Other, |errno| of_errno(errno.raw()))
            }
            ConnectCause::Rejected(_) => io::ErrorKind::ConnectionRefused,
            ConnectCause::Unreachable(unreachable) => match unreachable.status().errno() {
                Some(errno) => of_errno(errno.raw()),
                None => io::ErrorKind::ConnectionRefused,
            },
            ConnectCause::TimedOut { .. } => io::ErrorKind::TimedOut,
            ConnectCause::Disconnected => io::ErrorKind::ConnectionReset,
            ConnectCause::DeviceRemoval => io::ErrorKind::ConnectionAborted,
            ConnectCause::Unexpected(_) => io::ErrorKind::InvalidData,
        }
    }

    /// Whether the cause names the address itself.
    fn cause_says_where(&self) -> bool {
        match (self.cause(), self.address()) {
            (ConnectCause::Verb(error), Some(address)) => {
                error.hint().is_some_and(|hint| hint.contains(&address.to_string()))
            }
            _ => false,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cause_says_where() {
            self.step().write(f, self.address())?;
            if let Some(name) = &self.0.name {
                write!(f, " {name}")?;
            }
            f.write_str(": ")?;
        }
        self.cause().write(f, self.step())?;
        for earlier in self.earlier() {
            write!(f, "; before that, {earlier}")?;
        }
        Ok(())
    }
}

impl ConnectCause {
    fn write(&self, f: &mut fmt::Formatter<'_>, step: ConnectStep) -> fmt::Result {
        match self {
            Self::Name(error) => write!(f, "{error}"),
            Self::NoAddress => f.write_str("it has no address"),
            Self::Channel(error) => write!(f, "{error}"),
            Self::Verb(error) => write!(f, "{error}"),
            Self::Event { event_type, status } => {
                write!(f, "{event_type}: {status}")?;
                f.write_str(advice(step, *status))
            }
            Self::Rejected(rejection) => write!(f, "rejected: {rejection}"),
            Self::Unreachable(unreachable) => match unreachable.status().errno().map(|errno| errno.raw()) {
                Some(libc::ETIMEDOUT) => {
                    f.write_str("unreachable: that machine does not answer, or the program there takes no requests")
                }
                _ => write!(f, "unreachable: {unreachable}"),
            },
            Self::TimedOut { after } => match step {
                ConnectStep::ResolveAddress => {
                    write!(f, "nobody answered within {after:?}: is the address right, and that machine up?")
                }
                ConnectStep::ResolveRoute => write!(f, "no route was found within {after:?}"),
                ConnectStep::Connect | ConnectStep::Lookup => write!(
                    f,
                    "no answer within {after:?}: perhaps the program there takes no requests, or something on the way drops them"
                ),
                ConnectStep::Accept => write!(f, "the peer has not confirmed within {after:?}"),
                ConnectStep::AwaitRequest => write!(f, "nobody asked within {after:?}"),
                ConnectStep::Disconnect => write!(f, "the peer has not answered within {after:?}"),
                _ => write!(f, "nothing happened within {after:?}"),
            },
            Self::Disconnected => f.write_str("the peer has gone"),
            Self::DeviceRemoval => f.write_str("the device is going away"),
            Self::Unexpected(event_type) => write!(f, "an event came that cannot come here: {event_type}"),
        }
    }
}

/// What usually helps.
fn advice(step: ConnectStep, status: EventStatus) -> &'static str {
    match (step, status.errno().map(|errno| errno.raw())) {
        (ConnectStep::ResolveAddress, Some(libc::ENODEV)) => {
            ": no RDMA device leads there (`rdma link` shows which network devices have one)"
        }
        (ConnectStep::ResolveAddress, Some(libc::EHOSTUNREACH | libc::ENETUNREACH)) => {
            ": is the address right, and that machine up?"
        }
        _ => "",
    }
}

// The text is that of the cause, and so is its source.
impl error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self.cause() {
            ConnectCause::Name(error) => error.source(),
            ConnectCause::Channel(error) => error.source(),
            ConnectCause::Verb(error) => error.source(),
            _ => None,
        }
    }
}

impl From<VerbError> for ConnectCause {
    fn from(error: VerbError) -> Self {
        Self::Verb(error)
    }
}

impl From<CreateEventChannelError> for ConnectCause {
    fn from(error: CreateEventChannelError) -> Self {
        Self::Channel(error)
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        io::Error::new(error.kind(), error)
    }
}
