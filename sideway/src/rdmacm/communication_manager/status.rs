//! What the status of an event means.

use std::fmt;

use libc::c_int;

use crate::error::Errno;
use crate::ffi::open_enum;

open_enum! {
    /// Why a peer, or its machine, rejected a connection: the reasons of the REJ message (InfiniBand specification, volume 1,
    /// 12.6.7.2).
    pub enum RejectReason {
        /// Out of queue pairs.
        NoQueuePair = 1 => "the peer has no queue pair",
        /// Out of end-to-end contexts.
        NoEndToEndContext = 2 => "the peer has no end-to-end context",
        /// Out of something else.
        NoResources = 3 => "the peer is out of resources",
        /// Somebody waited for too long.
        Timeout = 4 => "a side took too long",
        /// The request was not understood.
        UnsupportedRequest = 5 => "the peer does not support the request",
        /// A message of a connection that is not there.
        InvalidCommunicationId = 6 => "unknown communication identifier",
        /// A message of another connection.
        InvalidCommunicationInstance = 7 => "unknown communication instance",
        /// Nobody listens.
        InvalidServiceId = 8 => "nobody listens there",
        /// Another transport than the listener's.
        InvalidTransportServiceType = 9 => "the listener serves another transport",
        /// The queue pair has been in this connection a moment ago.
        StaleConnection = 10 => "the queue pair is still known from an earlier connection",
        /// No such reliable datagram channel.
        ReliableDatagramChannelDoesNotExist = 11 => "no such reliable datagram channel",
        /// The GID of the path is not the peer's.
        InvalidGid = 12 => "the peer does not have that GID",
        /// The LID of the path is not the peer's.
        InvalidLid = 13 => "the peer does not have that LID",
        /// The service level of the path does not fit.
        InvalidServiceLevel = 14 => "invalid service level",
        /// The traffic class of the path does not fit.
        InvalidTrafficClass = 15 => "invalid traffic class",
        /// The hop limit of the path does not fit.
        InvalidHopLimit = 16 => "invalid hop limit",
        /// The packet rate of the path does not fit.
        InvalidPacketRate = 17 => "invalid packet rate",
        /// The GID of the alternate path is not the peer's.
        InvalidAlternateGid = 18 => "invalid GID of the alternate path",
        /// The LID of the alternate path is not the peer's.
        InvalidAlternateLid = 19 => "invalid LID of the alternate path",
        /// The service level of the alternate path does not fit.
        InvalidAlternateServiceLevel = 20 => "invalid service level of the alternate path",
        /// The traffic class of the alternate path does not fit.
        InvalidAlternateTrafficClass = 21 => "invalid traffic class of the alternate path",
        /// The hop limit of the alternate path does not fit.
        InvalidAlternateHopLimit = 22 => "invalid hop limit of the alternate path",
        /// The packet rate of the alternate path does not fit.
        InvalidAlternatePacketRate = 23 => "invalid packet rate of the alternate path",
        /// The peer is at another port.
        PortCmRedirect = 24 => "the peer is at another port",
        /// The peer's service is at another port.
        PortRedirect = 25 => "the service is at another port",
        /// The path MTU does not fit.
        InvalidMtu = 26 => "the peer cannot have that path MTU",
        /// Too many reads and atomics at once.
        InsufficientResponderResources = 27 => "more reads at once were asked for than the peer serves",
        /// The program on the other side said no; or its kernel, where a program listens at the port of another address (seen with
        /// Linux 6.1).
        ConsumerDefined = 28 => "the program there said no",
        /// The retry count for absent receives does not fit.
        InvalidRnrRetry = 29 => "invalid count of retries for want of a receive",
        /// The local communication identifier is in use.
        DuplicateLocalCommunicationId = 30 => "a communication identifier was used twice",
        /// The class version does not fit.
        InvalidClassVersion = 31 => "invalid version of the connection manager's class",
        /// The flow label does not fit.
        InvalidFlowLabel = 32 => "invalid flow label",
        /// The flow label of the alternate path does not fit.
        InvalidAlternateFlowLabel = 33 => "invalid flow label of the alternate path",
        /// The vendor's options do not fit (ECE).
        VendorOptionNotSupported = 35 => "the peer does not support the vendor's options",
    }
}

open_enum! {
    /// Why a lookup of a queue pair for datagrams was refused: the status of the SIDR_REP message (InfiniBand specification,
    /// volume 1, 12.11.2.1).
    pub enum SidrStatus {
        /// Found.
        Success = 0 => "found",
        /// Nobody listens.
        UnsupportedServiceId = 1 => "nobody listens there",
        /// The program on the other side said no.
        Rejected = 2 => "the program there said no",
        /// There is no queue pair.
        NoQueuePair = 3 => "the peer has no queue pair",
        /// The peer is at another port.
        Redirected = 4 => "the peer is at another port",
        /// The version is not supported.
        UnsupportedVersion = 5 => "the peer does not support the version",
    }
}

/// The status of an event: 0, an errno below zero, or above zero what the transport says.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventStatus {
    raw: c_int,
    errno: c_int,
}

impl EventStatus {
    /// `errno` is what the call that brought the event left: the library stores -1 where a step of its own has failed.
    pub(in crate::rdmacm) fn new(raw: c_int, errno: c_int) -> Self {
        Self { raw, errno }
    }

    /// The number as C has it.
    pub fn raw(self) -> c_int {
        self.raw
    }

    /// Whether nothing is wrong.
    pub fn is_success(self) -> bool {
        self.raw == 0
    }

    /// The errno, where it is one.
    pub fn errno(self) -> Option<Errno> {
        match self.raw {
            0.. => None,
            -1 if self.errno != 0 => Some(Errno::from_raw(self.errno)),
            raw => Some(Errno::from_raw(raw.checked_neg().unwrap_or(libc::EIO))),
        }
    }

    /// Why the peer rejected a connection, where it is that: InfiniBand and RoCE give a reason, iWARP an errno.
    pub fn reject_reason(self) -> Option<RejectReason> {
        u32::try_from(self.raw).ok().filter(|&raw| raw > 0).map(RejectReason::from_raw)
    }

    /// Why the peer refused a lookup, where it is that.
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
    fn a_status_is_an_errno_a_reason_or_nothing() {
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
    fn minus_one_is_the_errno_of_the_step_that_failed() {
        assert_eq!(EventStatus::new(-1, libc::EMFILE).errno(), Some(Errno::EMFILE));
        assert_eq!(EventStatus::new(-1, 0).errno(), Some(Errno::EPERM));
        assert_eq!(EventStatus::new(c_int::MIN, 0).errno(), Some(Errno::EIO));
    }

    #[test]
    fn reasons_that_nobody_has_named_print_their_number() {
        assert_eq!(RejectReason::InvalidServiceId.to_string(), "nobody listens there");
        assert_eq!(RejectReason::from_raw(999).to_string(), "unknown (999)");
        assert_eq!(SidrStatus::from_raw(77).to_string(), "unknown (77)");
    }
}
