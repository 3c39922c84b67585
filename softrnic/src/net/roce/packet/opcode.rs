//! The opcode of a packet: the transport service in its upper three bits, and the operation in the others.

use super::{Body, Packet, Place, SendEnd, Transport};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Reliable,
    Unreliable,
    Datagram,
    Extended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Send(Place, Tail),
    Write(Place, Tail),
    Read,
    ReadResponse(Place),
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
}

/// The header that follows the last or only packet of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    Nothing,
    Immediate,
    Invalidate,
}

/// The opcode of a congestion notification.
pub(super) const CONGESTION: u8 = 0x81;

const SERVICE: u8 = 0xe0;

/// Returns the service and the operation, or `None` if the service does not have this operation.
pub(super) fn parse(opcode: u8) -> Option<(Service, Operation)> {
    let service = match opcode & SERVICE {
        0x00 => Service::Reliable,
        0x20 => Service::Unreliable,
        0x60 => Service::Datagram,
        0xa0 => Service::Extended,
        _ => return None,
    };
    let operation = Operation::parse(opcode & !SERVICE)?;
    service.has(operation).then_some((service, operation))
}

impl Service {
    fn has(self, operation: Operation) -> bool {
        use Operation as O;
        match self {
            Self::Reliable | Self::Extended => true,
            Self::Unreliable => matches!(operation, O::Send(_, Tail::Nothing | Tail::Immediate) | O::Write(..)),
            Self::Datagram => matches!(operation, O::Send(Place::Only, Tail::Nothing | Tail::Immediate)),
        }
    }
}

impl Operation {
    fn parse(number: u8) -> Option<Self> {
        use Place::{First, Last, Middle, Only};
        use Tail::{Immediate, Invalidate, Nothing};
        Some(match number {
            0x00 => Self::Send(First, Nothing),
            0x01 => Self::Send(Middle, Nothing),
            0x02 => Self::Send(Last, Nothing),
            0x03 => Self::Send(Last, Immediate),
            0x04 => Self::Send(Only, Nothing),
            0x05 => Self::Send(Only, Immediate),
            0x06 => Self::Write(First, Nothing),
            0x07 => Self::Write(Middle, Nothing),
            0x08 => Self::Write(Last, Nothing),
            0x09 => Self::Write(Last, Immediate),
            0x0a => Self::Write(Only, Nothing),
            0x0b => Self::Write(Only, Immediate),
            0x0c => Self::Read,
            0x0d => Self::ReadResponse(First),
            0x0e => Self::ReadResponse(Middle),
            0x0f => Self::ReadResponse(Last),
            0x10 => Self::ReadResponse(Only),
            0x11 => Self::Acknowledge,
            0x12 => Self::AtomicAcknowledge,
            0x13 => Self::CompareSwap,
            0x14 => Self::FetchAdd,
            0x16 => Self::Send(Last, Invalidate),
            0x17 => Self::Send(Only, Invalidate),
            0x1c => Self::Flush,
            0x1d => Self::AtomicWrite,
            _ => return None,
        })
    }

    /// Whether a responder sends the packet.
    pub(super) fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse(_) | Self::Acknowledge | Self::AtomicAcknowledge)
    }

    /// Whether the operation allows a payload of this length.
    pub(super) fn has_payload(self, length: usize) -> bool {
        match self {
            Self::Send(..) | Self::Write(..) | Self::ReadResponse(_) => true,
            Self::AtomicWrite => length == 8,
            _ => length == 0,
        }
    }
}

impl Packet {
    /// Returns the opcode. Combinations that `read` rejects have the number that results from both parts.
    pub(super) fn opcode(&self) -> u8 {
        let service = match self.transport {
            Transport::Reliable => 0x00,
            Transport::Unreliable => 0x20,
            Transport::Datagram { .. } => 0x60,
            Transport::Congestion => 0x80,
            Transport::Extended { .. } | Transport::ExtendedResponse => 0xa0,
        };
        service | self.body.number()
    }
}

impl Body {
    fn number(&self) -> u8 {
        match *self {
            Self::Send { place, end } => match (place, end) {
                (Place::First, _) => 0x00,
                (Place::Middle, _) => 0x01,
                (Place::Last, SendEnd::Nothing) => 0x02,
                (Place::Last, SendEnd::Immediate(_)) => 0x03,
                (Place::Only, SendEnd::Nothing) => 0x04,
                (Place::Only, SendEnd::Immediate(_)) => 0x05,
                (Place::Last, SendEnd::Invalidate(_)) => 0x16,
                (Place::Only, SendEnd::Invalidate(_)) => 0x17,
            },
            Self::Write { place, immediate, .. } => match (place, immediate) {
                (Place::First, _) => 0x06,
                (Place::Middle, _) => 0x07,
                (Place::Last, None) => 0x08,
                (Place::Last, Some(_)) => 0x09,
                (Place::Only, None) => 0x0a,
                (Place::Only, Some(_)) => 0x0b,
            },
            Self::Read(_) => 0x0c,
            Self::ReadResponse { place, .. } => match place {
                Place::First => 0x0d,
                Place::Middle => 0x0e,
                Place::Last => 0x0f,
                Place::Only => 0x10,
            },
            Self::Acknowledge(_) => 0x11,
            Self::AtomicAcknowledge { .. } => 0x12,
            Self::CompareSwap { .. } => 0x13,
            Self::FetchAdd { .. } => 0x14,
            Self::Flush { .. } => 0x1c,
            Self::AtomicWrite(_) => 0x1d,
            Self::Congestion => CONGESTION & !SERVICE,
        }
    }
}
