//! The messages of the InfiniBand connection manager (InfiniBand Architecture Specification, volume 1, section 12.6),
//! which set up connections of RoCE too. The names are those of the specification.
//!
//! - `body`: the bytes of a message, and its fields
//! - `req`, `rep`: the request of a connection, and its reply
//! - `rej`: a rejection
//! - `short`: the messages with few fields, which are MRA, RTU, DREQ and DREP
//! - `sidr`: the resolution of a service id to a QP for datagrams, which are SIDR_REQ and SIDR_REP
//! - `service`: the service ids of librdmacm, and the addresses in its private data
//!
//! The reader accepts any bytes without a panic. It ignores reserved fields, alternate paths and LIDs, which RoCE does
//! not have.

mod body;
mod rej;
mod rep;
mod req;
mod service;
mod short;
mod sidr;
#[cfg(test)]
mod tests;

pub(crate) use self::rej::{Information, Rej};
pub(crate) use self::rep::Rep;
pub(crate) use self::req::{PrimaryPath, Req, TransportService};
pub(crate) use self::service::{AddressHeader, Addresses, service_id, service_of};
pub(crate) use self::short::{Drep, Dreq, Mra, Rtu};
pub(crate) use self::sidr::{SidrRep, SidrReq};

use self::body::Body;
use super::mad::Mad;
use super::packet::Malformed;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Requests a connection.
    Req(Req),
    /// Announces a late response.
    Mra(Mra),
    /// Rejects a message.
    Rej(Rej),
    /// Accepts a connection.
    Rep(Rep),
    /// Confirms that the connection is ready to use.
    Rtu(Rtu),
    /// Requests the end of a connection.
    Dreq(Dreq),
    /// Confirms the end of a connection.
    Drep(Drep),
    /// Requests the QP of a service.
    SidrReq(SidrReq),
    /// Returns the QP of a service.
    SidrRep(SidrRep),
}

/// The vendor and the options of enhanced connection establishment (ECE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ece {
    /// A number of 24 bits.
    pub(crate) vendor: u32,
    pub(crate) options: u32,
}

/// The communication ids of a connection, which each end chooses for itself. `local` is the one of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) local: u32,
    pub(crate) remote: u32,
}

/// The kind of the message to which another one responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Req,
    Rep,
    /// LAP, or another message.
    Other,
}

/// Returns private data, padded with zeros, or `None` if it is longer than the field for it.
pub(crate) fn padded<const N: usize>(data: &[u8]) -> Option<[u8; N]> {
    let mut padded = [0; N];
    padded.get_mut(..data.len())?.copy_from_slice(data);
    Some(padded)
}

impl Message {
    /// Reads a MAD, and returns its transaction id and its message.
    pub(crate) fn read(bytes: &[u8]) -> Result<(u64, Self), Malformed> {
        let mad = Mad::read(bytes)?;
        let body = Body(mad.body);
        let message = match mad.attribute {
            0x10 => Self::Req(Req::read(&body, mad.modifier)),
            0x11 => Self::Mra(Mra::read(&body)),
            0x12 => Self::Rej(Rej::read(&body)?),
            0x13 => Self::Rep(Rep::read(&body, mad.modifier)),
            0x14 => Self::Rtu(Rtu::read(&body)),
            0x15 => Self::Dreq(Dreq::read(&body)),
            0x16 => Self::Drep(Drep::read(&body)),
            0x17 => Self::SidrReq(SidrReq::read(&body)),
            0x18 => Self::SidrRep(SidrRep::read(&body, mad.modifier)?),
            _ => return Err(Malformed("a MAD has an unknown attribute")),
        };
        Ok((mad.transaction, message))
    }

    /// Returns the MAD of the message.
    pub(crate) fn bytes(&self, transaction: u64) -> [u8; 256] {
        let (attribute, body, ece) = match self {
            Self::Req(req) => (0x10, req.body(), req.ece),
            Self::Mra(mra) => (0x11, mra.body(), Ece::default()),
            Self::Rej(rej) => (0x12, rej.body(), Ece::default()),
            Self::Rep(rep) => (0x13, rep.body(), rep.ece),
            Self::Rtu(rtu) => (0x14, rtu.body(), Ece::default()),
            Self::Dreq(dreq) => (0x15, dreq.body(), Ece::default()),
            Self::Drep(drep) => (0x16, drep.body(), Ece::default()),
            Self::SidrReq(req) => (0x17, req.body(), Ece::default()),
            Self::SidrRep(rep) => (0x18, rep.body(), rep.ece),
        };
        Mad { transaction, attribute, modifier: ece.options, body: body.0 }.bytes()
    }
}

impl Ids {
    fn read(body: &Body) -> Self {
        Self { local: body.word::<0>(), remote: body.word::<4>() }
    }

    /// Returns a body with these ids.
    fn body(self) -> Body {
        let mut body = Body::ZERO;
        body.put_word::<0>(self.local);
        body.put_word::<4>(self.remote);
        body
    }
}

impl Subject {
    fn of_byte(byte: u8) -> Self {
        match byte >> 6 {
            0 => Self::Req,
            1 => Self::Rep,
            _ => Self::Other,
        }
    }

    fn byte(self) -> u8 {
        (self as u8) << 6
    }
}
