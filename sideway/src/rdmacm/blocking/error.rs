//! Errors of connection setup.

use std::net::SocketAddr;
use std::time::Duration;
use std::{error, fmt, io};

use super::ConnectStep;
use crate::error::{Errno, VerbError};
use crate::rdmacm::communication_manager::{
    CreateEventChannelError, EventStatus, EventType, RejectReason, Rejection, Unreachable,
};

/// An error of a connection: the step that failed, the address, and the cause.
///
/// The text includes the usual remedy:
///
/// ```text
/// connecting to 192.0.2.7:7174: rejected: no listener on that port
/// resolving the address 192.0.2.8:7174: no reply within 10s; check the address, and that the machine is up
/// rdma_bind_addr: EADDRNOTAVAIL (Cannot assign requested address): binding to 0.0.0.0:7174: the port is in use: …
/// ```
///
/// When it is converted to an [`io::Error`], it has the kind that a socket would report, such as `ConnectionRefused`,
/// `TimedOut` or `AddrInUse`.
pub struct ConnectError(
    // The error is a boxed pointer, so that `Result`s stay small.
    Box<Failure>,
);

crate::error::debug_is_text!(ConnectError);

#[derive(Debug)]
struct Failure {
    step: ConnectStep,
    address: Option<SocketAddr>,
    name: Option<String>,
    cause: ConnectCause,
    earlier: Vec<ConnectError>,
}

/// The cause of a [`ConnectError`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectCause {
    /// The name lookup failed.
    Name(io::Error),
    /// The name has no address.
    NoAddress,
    /// The event channel could not be created, because librdmacm is not installed, there is no device, or too many
    /// files are open.
    Channel(CreateEventChannelError),
    /// A library call failed.
    Verb(VerbError),
    /// An event reported a failure.
    Event {
        /// The type of the event.
        event_type: EventType,
        /// The status of the event.
        status: EventStatus,
    },
    /// The peer or its machine rejected the request.
    Rejected(Rejection),
    /// The peer's machine does not respond, or it rejected the lookup of a queue pair for datagrams.
    Unreachable(Unreachable),
    /// The time limit expired.
    TimedOut {
        /// The time limit that was set.
        after: Duration,
    },
    /// The peer disconnected before the connection was established.
    Disconnected,
    /// The device is being removed.
    DeviceRemoval,
    /// An unexpected event.
    Unexpected(EventType),
    /// The program's own function failed ([`Resolved::connect_with`](super::Resolved::connect_with)).
    Program(Box<dyn error::Error + Send + Sync>),
}

impl ConnectError {
    #[cold]
    pub(super) fn new(step: ConnectStep, address: Option<SocketAddr>, cause: impl Into<ConnectCause>) -> Self {
        Self(Box::new(Failure { step, address, name: None, cause: cause.into(), earlier: Vec::new() }))
    }

    /// Creates the error of looking up `name`.
    #[cold]
    pub(super) fn of_name(name: &dyn fmt::Debug, cause: ConnectCause) -> Self {
        let mut error = Self::new(ConnectStep::LookUpName, None, cause);
        error.0.name = Some(format!("{name:?}"));
        error
    }

    /// Combines the errors of all addresses. Returns the last error, which contains the others as its earlier errors.
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

    /// Returns the step that failed.
    pub fn step(&self) -> ConnectStep {
        self.0.step
    }

    /// Returns the address of the peer, or the local address of a listener.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.address
    }

    /// Returns the cause.
    pub fn cause(&self) -> &ConnectCause {
        &self.0.cause
    }

    /// Returns the errors of the addresses that were tried before, if the name has several addresses.
    pub fn earlier(&self) -> &[ConnectError] {
        &self.0.earlier
    }

    /// Returns the peer's rejection, if that is the cause.
    pub fn rejection(&self) -> Option<&Rejection> {
        match self.cause() {
            ConnectCause::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    /// Whether the program's time limit expired.
    pub fn is_timed_out(&self) -> bool {
        matches!(self.cause(), ConnectCause::TimedOut { .. })
    }

    /// Returns the kind that a socket would report.
    pub fn kind(&self) -> io::ErrorKind {
        match self.cause() {
            ConnectCause::Name(error) => error.kind(),
            ConnectCause::NoAddress => io::ErrorKind::NotFound,
            ConnectCause::Channel(CreateEventChannelError::Verb(error)) => error.kind(),
            ConnectCause::Channel(_) => io::ErrorKind::Unsupported,
            // The kernel returns this error if the port is in use and the listener requested all addresses.
            ConnectCause::Verb(error)
                if error.errno() == Errno::EADDRNOTAVAIL
                    && self.address().is_some_and(|address| address.ip().is_unspecified()) =>
            {
                io::ErrorKind::AddrInUse
            }
            ConnectCause::Verb(error) => error.kind(),
            ConnectCause::Event { status, .. } => status.errno().map_or(io::ErrorKind::Other, Errno::kind),
            // With iWARP, the status is an errno, both for a rejection and for a missing response.
            ConnectCause::Rejected(Rejection { status, .. })
            | ConnectCause::Unreachable(Unreachable { status, .. }) => {
                status.errno().map_or(io::ErrorKind::ConnectionRefused, Errno::kind)
            }
            ConnectCause::TimedOut { .. } => io::ErrorKind::TimedOut,
            ConnectCause::Disconnected => io::ErrorKind::ConnectionReset,
            ConnectCause::DeviceRemoval => io::ErrorKind::ConnectionAborted,
            ConnectCause::Unexpected(_) => io::ErrorKind::InvalidData,
            ConnectCause::Program(_) => io::ErrorKind::Other,
        }
    }

    /// Whether the cause's text contains the address.
    fn cause_has_address(&self) -> bool {
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
        if !self.cause_has_address() {
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
            Self::Name(error) if error.kind() == io::ErrorKind::InvalidInput => {
                write!(f, "{error}; pass an address or a name with a port, as in \"server:7174\" or (\"server\", 7174)")
            }
            Self::Name(error) => write!(f, "{error}"),
            Self::NoAddress => f.write_str("the name has no address"),
            Self::Channel(error) => write!(f, "{error}"),
            Self::Verb(error) => write!(f, "{error}"),
            Self::Event { event_type, status } => {
                write!(f, "{event_type}: {status}")?;
                f.write_str(advice(step, *status))
            }
            Self::Rejected(rejection) => {
                write!(f, "rejected: {rejection}")?;
                // The kernel rejects a request to the right port at the wrong address with the same reason.
                match rejection.reason() {
                    Some(RejectReason::ConsumerDefined) if rejection.private_data().trimmed().is_empty() => {
                        f.write_str(", or listens on another address")
                    }
                    _ => Ok(()),
                }
            }
            Self::Unreachable(unreachable) => match unreachable.status().errno().map(|errno| errno.raw()) {
                Some(libc::ETIMEDOUT) => {
                    f.write_str("unreachable: the machine does not respond, or the program there takes no requests")
                }
                _ => write!(f, "unreachable: {unreachable}"),
            },
            Self::TimedOut { after } => match step {
                ConnectStep::ResolveAddress => {
                    write!(f, "no reply within {after:?}; check the address, and that the machine is up")
                }
                ConnectStep::ResolveRoute => write!(f, "no route found within {after:?}"),
                ConnectStep::Connect | ConnectStep::Lookup => write!(
                    f,
                    "no response within {after:?}: the program there takes no requests, or the network drops them; \
                    check both"
                ),
                ConnectStep::Accept => write!(f, "the peer did not confirm within {after:?}"),
                ConnectStep::AwaitRequest => write!(f, "no request within {after:?}"),
                ConnectStep::Disconnect => write!(f, "the peer did not respond within {after:?}"),
                _ => write!(f, "no event within {after:?}"),
            },
            Self::Disconnected => f.write_str("the peer disconnected"),
            Self::DeviceRemoval => f.write_str("the device is being removed"),
            Self::Unexpected(event_type) => write!(f, "unexpected event: {event_type}"),
            Self::Program(error) => write!(f, "{error}"),
        }
    }
}

/// Returns the usual remedy, as the end of the text.
fn advice(step: ConnectStep, status: EventStatus) -> &'static str {
    match (step, status.errno().map(|errno| errno.raw())) {
        (ConnectStep::ResolveAddress, Some(libc::ENODEV)) => {
            ": no RDMA device leads there; use an address of a network device that `rdma link` lists"
        }
        (ConnectStep::ResolveAddress, Some(libc::EHOSTUNREACH | libc::ENETUNREACH)) => {
            "; check the address, and that the machine is up"
        }
        _ => "",
    }
}

// The text of this error contains the text of the cause, so the source of this error is the source of the cause.
impl error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self.cause() {
            ConnectCause::Name(error) => error.source(),
            ConnectCause::Channel(error) => error.source(),
            ConnectCause::Verb(error) => error.source(),
            ConnectCause::Program(error) => error.source(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmacm::communication_manager::PrivateData;

    const PEER: &str = "192.0.2.7:7174";

    fn error(step: ConnectStep, cause: impl Into<ConnectCause>) -> ConnectError {
        ConnectError::new(step, PEER.parse().ok(), cause)
    }

    fn rejected(reason: RejectReason, data: &[u8]) -> ConnectCause {
        let status = EventStatus::new(reason.raw() as i32, 0);
        ConnectCause::Rejected(Rejection { status, private_data: PrivateData::from(data) })
    }

    fn unreachable(status: i32) -> ConnectCause {
        let status = EventStatus::new(status, 0);
        ConnectCause::Unreachable(Unreachable { status, private_data: PrivateData::default() })
    }

    fn verb(verb: &'static str, errno: i32, hint: &'static str) -> VerbError {
        VerbError::new(verb, Errno::from_raw(errno)).with_hint(hint)
    }

    #[test]
    fn rejection_text_reports_reason_and_data() {
        let nobody = error(ConnectStep::Connect, rejected(RejectReason::InvalidServiceId, &[0; 148]));
        assert_eq!(nobody.to_string(), "connecting to 192.0.2.7:7174: rejected: no listener on that port");
        assert_eq!(nobody.kind(), io::ErrorKind::ConnectionRefused);
        let no = error(ConnectStep::Connect, rejected(RejectReason::ConsumerDefined, b"no\0\0"));
        assert_eq!(
            no.to_string(),
            "connecting to 192.0.2.7:7174: rejected: the program there declined the request, with 2 bytes of data"
        );
        assert_eq!(no.rejection().map(|no| no.private_data().len()), Some(4));
        let silent = error(ConnectStep::Connect, rejected(RejectReason::ConsumerDefined, &[0; 148]));
        assert!(
            silent.to_string().ends_with("the program there declined the request, or listens on another address"),
            "{silent}"
        );
        let lookup = error(ConnectStep::Lookup, unreachable(1));
        assert_eq!(
            lookup.to_string(),
            "looking up the queue pair at 192.0.2.7:7174: unreachable: no listener on that port"
        );
        assert_eq!((lookup.kind(), lookup.rejection()), (io::ErrorKind::ConnectionRefused, None));
        // The rejection that iWARP reports.
        let status = EventStatus::new(-libc::ECONNRESET, 0);
        let reset = ConnectCause::Rejected(Rejection { status, private_data: PrivateData::default() });
        assert_eq!(error(ConnectStep::Connect, reset).kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn timeout_text_depends_on_step_and_has_limit() {
        let after = Duration::from_millis(1500);
        let texts = [
            (
                ConnectStep::ResolveAddress,
                "resolving the address 192.0.2.7:7174: no reply within 1.5s; check the address, and that the \
                machine is up",
            ),
            (ConnectStep::ResolveRoute, "resolving the route to 192.0.2.7:7174: no route found within 1.5s"),
            (
                ConnectStep::Connect,
                "connecting to 192.0.2.7:7174: no response within 1.5s: the program there takes no requests, or the \
                network drops them; check both",
            ),
            (ConnectStep::Accept, "accepting the connection from 192.0.2.7:7174: the peer did not confirm within 1.5s"),
            (ConnectStep::AwaitRequest, "waiting for a request on 192.0.2.7:7174: no request within 1.5s"),
            (
                ConnectStep::Disconnect,
                "ending the connection with 192.0.2.7:7174: the peer did not respond within 1.5s",
            ),
            (ConnectStep::Wait, "waiting on the connection with 192.0.2.7:7174: no event within 1.5s"),
        ];
        for (step, text) in texts {
            let error = error(step, ConnectCause::TimedOut { after });
            assert_eq!(error.to_string(), text);
            assert!(error.is_timed_out());
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        let error = error(ConnectStep::Connect, unreachable(-libc::ETIMEDOUT));
        assert_eq!(
            error.to_string(),
            "connecting to 192.0.2.7:7174: unreachable: the machine does not respond, or the program there takes no \
            requests"
        );
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!error.is_timed_out());
    }

    #[test]
    fn address_appears_once_in_text() {
        let hint = "binding to 192.0.2.7:7174: the port is in use";
        let named = error(ConnectStep::Bind, verb("rdma_bind_addr", libc::EADDRINUSE, hint));
        assert_eq!(
            named.to_string(),
            "rdma_bind_addr: EADDRINUSE (Address already in use): binding to 192.0.2.7:7174: the port is in use"
        );
        assert_eq!(named.kind(), io::ErrorKind::AddrInUse);
        let not = error(ConnectStep::Connect, verb("rdma_connect", libc::EINVAL, "a depth is too large"));
        assert_eq!(
            not.to_string(),
            "connecting to 192.0.2.7:7174: rdma_connect: EINVAL (Invalid argument): a depth is too large"
        );
    }

    #[test]
    fn eaddrnotavail_at_unspecified_address_is_addr_in_use() {
        let error = |address: &str| {
            let cause = VerbError::new("rdma_bind_addr", Errno::EADDRNOTAVAIL);
            ConnectError::new(ConnectStep::Bind, address.parse().ok(), cause).kind()
        };
        assert_eq!(error("0.0.0.0:7174"), io::ErrorKind::AddrInUse);
        assert_eq!(error("[::]:7174"), io::ErrorKind::AddrInUse);
        assert_eq!(error("192.0.2.7:7174"), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn failure_event_text_names_missing_device() {
        let cause = |errno: i32| ConnectCause::Event {
            event_type: EventType::AddressError,
            status: EventStatus::new(-errno, 0),
        };
        assert_eq!(
            error(ConnectStep::ResolveAddress, cause(libc::ENODEV)).to_string(),
            "resolving the address 192.0.2.7:7174: address error: ENODEV (No such device): no RDMA device leads \
            there; use an address of a network device that `rdma link` lists"
        );
        let unreachable = error(ConnectStep::ResolveAddress, cause(libc::EHOSTUNREACH));
        assert!(unreachable.to_string().ends_with("check the address, and that the machine is up"), "{unreachable}");
        assert_eq!(unreachable.kind(), io::ErrorKind::HostUnreachable);
    }

    #[test]
    fn failed_name_lookup_text_has_name() {
        let cause = ConnectCause::Name(io::Error::other("no such name"));
        let error = ConnectError::of_name(&("no-host", 7174), cause);
        assert_eq!(error.to_string(), "looking up (\"no-host\", 7174): no such name");
        assert_eq!((error.step(), error.address()), (ConnectStep::LookUpName, None));
        let invalid = ConnectCause::Name(io::Error::new(io::ErrorKind::InvalidInput, "invalid socket address"));
        assert_eq!(
            ConnectError::of_name(&"host", invalid).to_string(),
            "looking up \"host\": invalid socket address; pass an address or a name with a port, as in \
            \"server:7174\" or (\"server\", 7174)"
        );
        let error = ConnectError::of_all(&"no-host:1", Vec::new());
        assert_eq!(error.to_string(), "looking up \"no-host:1\": the name has no address");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn text_lists_all_tried_addresses() {
        let errors = vec![
            error(ConnectStep::ResolveRoute, ConnectCause::Disconnected),
            error(ConnectStep::Connect, ConnectCause::DeviceRemoval),
        ];
        let error = ConnectError::of_all(&"name:1", errors);
        assert_eq!(
            error.to_string(),
            "connecting to 192.0.2.7:7174: the device is being removed; before that, resolving the route to \
            192.0.2.7:7174: the peer disconnected"
        );
        assert_eq!(error.earlier().len(), 1);
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionAborted);
    }

    #[test]
    fn connect_types_are_send_and_sync() {
        fn moves<T: Send + Sync + 'static>() {}
        use crate::rdmacm::{Connection, Connector, Listener, Request, Resolved};
        moves::<(Connection, Connector, Listener)>();
        moves::<(Request, Resolved)>();
        let error = error(ConnectStep::Accept, ConnectCause::Disconnected);
        let boxed: Box<dyn error::Error + Send + Sync> = error.into();
        assert!(boxed.downcast_ref::<ConnectError>().is_some_and(|error| error.step() == ConnectStep::Accept));
    }

    #[test]
    fn program_error_keeps_its_text() {
        let error = error(ConnectStep::Connect, ConnectCause::Program("the queue pair is purple".into()));
        assert_eq!(error.to_string(), "connecting to 192.0.2.7:7174: the queue pair is purple");
        let error = ConnectError::new(ConnectStep::Wait, None, ConnectCause::Unexpected(EventType::RouteResolved));
        assert_eq!(error.to_string(), "waiting on the connection: unexpected event: route resolved");
        assert_eq!(error.step().to_string(), "waiting on the connection");
    }
}
