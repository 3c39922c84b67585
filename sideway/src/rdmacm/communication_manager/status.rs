//! The status of an event.

use std::fmt;

use libc::c_int;

use crate::error::Errno;
use crate::ffi::open_enum;

open_enum! {
    /// The reason why a peer's program or its machine rejected a connection. These are the reasons of the REJ message
    /// (InfiniBand specification, volume 1, 12.6.7.2).
    pub enum RejectReason {
        /// The peer has no free queue pair.
        NoQueuePair = 1 => "the peer has no queue pair",
        /// The peer has no free end-to-end context.
        NoEndToEndContext = 2 => "the peer has no end-to-end context",
        /// The peer has no other resource left.
        NoResources = 3 => "the peer is out of resources",
        /// One side exceeded its time limit.
        Timeout = 4 => "one side timed out",
        /// The peer does not support the request.
        UnsupportedRequest = 5 => "the peer does not support the request",
        /// The message belongs to an unknown connection.
        InvalidCommunicationId = 6 => "unknown communication identifier",
        /// The message belongs to another connection.
        InvalidCommunicationInstance = 7 => "unknown communication instance",
        /// No program listens on the port.
        InvalidServiceId = 8 => "no listener on that port",
        /// The listener uses another transport.
        InvalidTransportServiceType = 9 => "the listener uses another transport",
        /// The queue pair was used by another connection shortly before.
        StaleConnection = 10 => "the queue pair still belongs to an earlier connection",
        /// The reliable datagram channel does not exist.
        ReliableDatagramChannelDoesNotExist = 11 => "no such reliable datagram channel",
        /// The GID of the path is not a GID of the peer.
        InvalidGid = 12 => "the peer does not have that GID",
        /// The LID of the path is not a LID of the peer.
        InvalidLid = 13 => "the peer does not have that LID",
        /// The service level of the path is invalid.
        InvalidServiceLevel = 14 => "invalid service level",
        /// The traffic class of the path is invalid.
        InvalidTrafficClass = 15 => "invalid traffic class",
        /// The hop limit of the path is invalid.
        InvalidHopLimit = 16 => "invalid hop limit",
        /// The packet rate of the path is invalid.
        InvalidPacketRate = 17 => "invalid packet rate",
        /// The GID of the alternate path is not a GID of the peer.
        InvalidAlternateGid = 18 => "invalid GID of the alternate path",
        /// The LID of the alternate path is not a LID of the peer.
        InvalidAlternateLid = 19 => "invalid LID of the alternate path",
        /// The service level of the alternate path is invalid.
        InvalidAlternateServiceLevel = 20 => "invalid service level of the alternate path",
        /// The traffic class of the alternate path is invalid.
        InvalidAlternateTrafficClass = 21 => "invalid traffic class of the alternate path",
        /// The hop limit of the alternate path is invalid.
        InvalidAlternateHopLimit = 22 => "invalid hop limit of the alternate path",
        /// The packet rate of the alternate path is invalid.
        InvalidAlternatePacketRate = 23 => "invalid packet rate of the alternate path",
        /// The peer is on another port.
        PortCmRedirect = 24 => "the peer is on another port",
        /// The peer's service is on another port.
        PortRedirect = 25 => "the service is on another port",
        /// The peer does not support the path MTU.
        InvalidMtu = 26 => "the peer does not support that path MTU",
        /// The request specifies more outstanding reads and atomics than the peer serves.
        InsufficientResponderResources = 27 => "more outstanding reads were requested than the peer serves",
        /// The peer's program rejected the request. Or the peer's kernel rejected it, because the program listens on
        /// the port, but at another address (seen with Linux 6.1).
        ConsumerDefined = 28 => "the program there declined the request",
        /// The receiver-not-ready retry count is invalid.
        InvalidRnrRetry = 29 => "invalid receiver-not-ready retry count",
        /// The local communication identifier is in use.
        DuplicateLocalCommunicationId = 30 => "a communication identifier was used twice",
        /// The class version of the connection manager is invalid.
        InvalidClassVersion = 31 => "invalid class version of the connection manager",
        /// The flow label is invalid.
        InvalidFlowLabel = 32 => "invalid flow label",
        /// The flow label of the alternate path is invalid.
        InvalidAlternateFlowLabel = 33 => "invalid flow label of the alternate path",
        /// The peer does not support the vendor's options (ECE).
        VendorOptionNotSupported = 35 => "the peer does not support the vendor's options",
    }
}

open_enum! {
    /// The result of a lookup of a queue pair for datagrams. It is the status of the SIDR_REP message (InfiniBand
    /// specification, volume 1, 12.11.2.1).
    pub enum SidrStatus {
        /// Found.
        Success = 0 => "found",
        /// No program listens on the port.
        UnsupportedServiceId = 1 => "no listener on that port",
        /// The peer's program rejected the lookup.
        Rejected = 2 => "the program there declined the request",
        /// The peer has no queue pair.
        NoQueuePair = 3 => "the peer has no queue pair",
        /// The peer is on another port.
        Redirected = 4 => "the peer is on another port",
        /// The peer does not support the version.
        UnsupportedVersion = 5 => "the peer does not support the version",
    }
}

/// The status of an event. It is 0 for success, a negative errno, or a positive code of the transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventStatus {
    raw: c_int,
    errno: c_int,
}

impl EventStatus {
    /// Creates a status. `errno` is the errno after the call that returned the event. It is needed because the library
    /// stores only -1 in the event if one of its own steps failed.
    pub(in crate::rdmacm) fn new(raw: c_int, errno: c_int) -> Self {
        Self { raw, errno }
    }

    /// Returns the C value.
    pub fn raw(self) -> c_int {
        self.raw
    }

    /// Whether the status is success.
    pub fn is_success(self) -> bool {
        self.raw == 0
    }

    /// Returns the errno, if the status contains one.
    pub fn errno(self) -> Option<Errno> {
        match self.raw {
            0.. => None,
            -1 if self.errno != 0 => Some(Errno::from_raw(self.errno)),
            raw => Some(Errno::from_raw(raw.checked_neg().unwrap_or(libc::EIO))),
        }
    }

    /// Returns the reason for a rejection, if the status contains one. InfiniBand and RoCE report a reason, whereas
    /// iWARP reports an errno.
    pub fn reject_reason(self) -> Option<RejectReason> {
        u32::try_from(self.raw).ok().filter(|&raw| raw > 0).map(RejectReason::from_raw)
    }

    /// Returns the reason for refusing a lookup, if the status contains one.
    pub fn sidr_status(self) -> Option<SidrStatus> {
        u32::try_from(self.raw).ok().filter(|&raw| raw > 0).map(SidrStatus::from_raw)
    }
}

impl fmt::Display for EventStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno() {
            Some(errno) => errno.fmt(f),
            None if self.raw == 0 => f.write_str("success"),
            None => write!(f, "status {}", self.raw),
        }
    }
}

impl fmt::Debug for EventStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventStatus({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_errno_or_reason_or_success() {
        let timed_out = EventStatus::new(-libc::ETIMEDOUT, 0);
        assert_eq!(timed_out.errno(), Some(Errno::ETIMEDOUT));
        assert_eq!(timed_out.reject_reason(), None);
        let rejected = EventStatus::new(28, 0);
        assert_eq!(rejected.reject_reason(), Some(RejectReason::ConsumerDefined));
        assert_eq!(rejected.errno(), None);
        assert_eq!(EventStatus::new(2, 0).sidr_status(), Some(SidrStatus::Rejected));
        assert!(EventStatus::new(0, 7).is_success());
        assert_eq!(EventStatus::new(0, 7).errno(), None);
    }

    #[test]
    fn minus_one_is_errno_of_failed_step() {
        assert_eq!(EventStatus::new(-1, libc::EMFILE).errno(), Some(Errno::EMFILE));
        assert_eq!(EventStatus::new(-1, 0).errno(), Some(Errno::EPERM));
        assert_eq!(EventStatus::new(c_int::MIN, 0).errno(), Some(Errno::EIO));
    }

    #[test]
    fn unknown_reasons_print_their_number() {
        assert_eq!(RejectReason::InvalidServiceId.to_string(), "no listener on that port");
        assert_eq!(RejectReason::from_raw(999).to_string(), "unknown (999)");
        assert_eq!(SidrStatus::from_raw(77).to_string(), "unknown (77)");
    }
}
