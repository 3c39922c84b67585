//! Reading packets.

use super::opcode::{self, Operation, Service, Tail};
use super::{
    ACK, ASKS, Acknowledgement, BECN, Body, KIND, Malformed, NAK, NOT_READY, NOTIFICATION, Nak, PADDING, Packet, Range,
    SOLICITED, SendEnd, Syndrome, Transport, VERSION,
};
use crate::net::take;

impl Packet {
    /// Reads a packet from the first byte of its BTH to the last one of its padding, and returns its payload.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut rest = Rest(bytes);
        let [opcode, flags] = rest.array()?;
        let partition = u16::from_be_bytes(rest.array()?);
        let [congestion] = rest.array()?;
        let destination = rest.word24()?;
        let [asks] = rest.array()?;
        let psn = rest.word24()?;
        if flags & VERSION != 0 {
            return Err(Malformed::VERSION);
        }
        if !bytes.len().is_multiple_of(4) {
            return Err(Malformed::ALIGNMENT);
        }
        let padding = usize::from((flags & PADDING) >> PADDING.trailing_zeros());
        let (transport, body, payload) = if opcode == opcode::CONGESTION {
            if padding != 0 || rest.0.len() != NOTIFICATION {
                return Err(Malformed::PAYLOAD);
            }
            (Transport::Congestion, Body::Congestion, &[][..])
        } else {
            let (service, operation) = opcode::parse(opcode).ok_or(Malformed::OPCODE)?;
            let transport = rest.transport(service, operation)?;
            let body = rest.body(operation)?;
            let length = rest.0.len().checked_sub(padding).ok_or(Malformed::PADDING)?;
            if !operation.has_payload(length) {
                return Err(Malformed::PAYLOAD);
            }
            (transport, body, &rest.0[..length])
        };
        let packet = Self {
            transport,
            body,
            is_solicited: flags & SOLICITED != 0,
            asks: asks & ASKS != 0,
            has_becn: congestion & BECN != 0,
            partition,
            destination,
            psn,
        };
        Ok((packet, payload))
    }
}

/// The unread bytes of a packet.
struct Rest<'p>(&'p [u8]);

impl Rest<'_> {
    fn transport(&mut self, service: Service, operation: Operation) -> Result<Transport, Malformed> {
        Ok(match service {
            Service::Reliable => Transport::Reliable,
            Service::Unreliable => Transport::Unreliable,
            Service::Datagram => {
                let (key, [_reserved]) = (self.word()?, self.array()?);
                Transport::Datagram { key, source: self.word24()? }
            }
            Service::Extended if operation.is_response() => Transport::ExtendedResponse,
            Service::Extended => {
                let [_reserved] = self.array()?;
                Transport::Extended { queue: self.word24()? }
            }
        })
    }

    fn body(&mut self, operation: Operation) -> Result<Body, Malformed> {
        Ok(match operation {
            Operation::Send(place, tail) => {
                let end = match tail {
                    Tail::Nothing => SendEnd::Nothing,
                    Tail::Immediate => SendEnd::Immediate(u32::from_ne_bytes(self.array()?)),
                    Tail::Invalidate => SendEnd::Invalidate(self.word()?),
                };
                Body::Send { place, end }
            }
            Operation::Write(place, tail) => {
                let range = if place.is_first() { Some(self.range()?) } else { None };
                let has_immediate = tail == Tail::Immediate;
                let immediate = if has_immediate { Some(u32::from_ne_bytes(self.array()?)) } else { None };
                Body::Write { place, range, immediate }
            }
            Operation::Read => Body::Read(self.range()?),
            Operation::ReadResponse(place) => {
                let is_middle = !place.is_first() && !place.is_last();
                let acknowledgement = if is_middle { None } else { Some(self.acknowledgement()?) };
                Body::ReadResponse { place, acknowledgement }
            }
            Operation::Acknowledge => Body::Acknowledge(self.acknowledgement()?),
            Operation::AtomicAcknowledge => {
                Body::AtomicAcknowledge { acknowledgement: self.acknowledgement()?, original: self.long()? }
            }
            Operation::CompareSwap => {
                let (address, rkey, swap) = (self.long()?, self.word()?, self.long()?);
                Body::CompareSwap { address, rkey, compare: self.long()?, swap }
            }
            Operation::FetchAdd => {
                let (address, rkey, add, _compare) = (self.long()?, self.word()?, self.long()?, self.long()?);
                Body::FetchAdd { address, rkey, add }
            }
            Operation::Flush => {
                let [_, _, _, kind] = self.array()?;
                Body::Flush { range: self.range()?, placement: kind & 0xf, level: kind >> 4 & 3 }
            }
            Operation::AtomicWrite => Body::AtomicWrite(self.range()?),
        })
    }

    fn range(&mut self) -> Result<Range, Malformed> {
        Ok(Range { address: self.long()?, rkey: self.word()?, length: self.word()? })
    }

    fn acknowledgement(&mut self) -> Result<Acknowledgement, Malformed> {
        let [syndrome] = self.array()?;
        let syndrome = match (syndrome & KIND, syndrome & !KIND) {
            (ACK, _credits) => Syndrome::Ack,
            (NOT_READY, time) => Syndrome::NotReady(time),
            (NAK, code) => Syndrome::Nak(Nak::parse(code).ok_or(Malformed::SYNDROME)?),
            _ => return Err(Malformed::SYNDROME),
        };
        Ok(Acknowledgement { syndrome, messages: self.word24()? })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        take(&mut self.0).ok_or(Malformed::SHORT)
    }

    fn word24(&mut self) -> Result<u32, Malformed> {
        let [a, b, c] = self.array()?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn long(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }
}

impl Nak {
    fn parse(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Sequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperation,
            4 => Self::InvalidDatagram,
            _ => return None,
        })
    }
}
