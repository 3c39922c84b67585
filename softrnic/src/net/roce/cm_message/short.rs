//! The messages with few fields.

use super::body::{Body, bits};
use super::{Ids, Subject};
use crate::net::roce::mad::At;

/// The announcement of a late response (MRA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mra {
    pub(crate) ids: Ids,
    /// The message whose response is late.
    pub(crate) subject: Subject,
    /// The time until the response, as an exponent: 4.096 μs × 2ⁿ.
    pub(crate) timeout: u8,
    pub(crate) private: [u8; Self::PRIVATE],
}

/// The confirmation that the connection is ready to use (RTU).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rtu {
    pub(crate) ids: Ids,
    pub(crate) private: [u8; Self::PRIVATE],
}

/// The request to end a connection (DREQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dreq {
    pub(crate) ids: Ids,
    /// The QP of the receiver of this message.
    pub(crate) remote_qp_number: u32,
    pub(crate) private: [u8; Self::PRIVATE],
}

/// The confirmation that a connection has ended (DREP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drep {
    pub(crate) ids: Ids,
    pub(crate) private: [u8; Self::PRIVATE],
}

impl Mra {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 222;

    pub(super) fn read(body: &Body) -> Self {
        Self {
            ids: Ids::read(body),
            subject: Subject::of_byte(body.byte::<8>()),
            timeout: bits(body.byte::<9>(), 3, 0x1f),
            private: body.get(At::<10>),
        }
    }

    pub(super) fn body(&self) -> Body {
        let mut body = self.ids.body();
        body.put(At::<8>, [self.subject.byte(), self.timeout << 3]);
        body.put(At::<10>, self.private);
        body
    }
}

impl Rtu {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 224;

    pub(super) fn read(body: &Body) -> Self {
        Self { ids: Ids::read(body), private: body.get(At::<8>) }
    }

    pub(super) fn body(&self) -> Body {
        let mut body = self.ids.body();
        body.put(At::<8>, self.private);
        body
    }
}

impl Dreq {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 220;

    pub(super) fn read(body: &Body) -> Self {
        Self { ids: Ids::read(body), remote_qp_number: body.word24::<8>(), private: body.get(At::<12>) }
    }

    pub(super) fn body(&self) -> Body {
        let mut body = self.ids.body();
        body.put_word24::<8>(self.remote_qp_number);
        body.put(At::<12>, self.private);
        body
    }
}

impl Drep {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 224;

    pub(super) fn read(body: &Body) -> Self {
        Self { ids: Ids::read(body), private: body.get(At::<8>) }
    }

    pub(super) fn body(&self) -> Body {
        let mut body = self.ids.body();
        body.put(At::<8>, self.private);
        body
    }
}
