//! The resolution of a service id to a QP, for datagrams (SIDR).

use super::body::Body;
use super::rej::Information;
use super::{Ece, Malformed};
use crate::net::roce::mad::At;

/// The request for the QP of a service (SIDR_REQ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SidrReq {
    pub(crate) request_id: u32,
    pub(crate) partition: u16,
    pub(crate) service: u64,
    pub(crate) private: [u8; Self::PRIVATE],
}

/// The response to a request for the QP of a service (SIDR_REP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SidrRep {
    pub(crate) request_id: u32,
    /// Zero if the request is accepted.
    pub(crate) status: u8,
    pub(crate) ece: Ece,
    pub(crate) qp_number: u32,
    pub(crate) service: u64,
    pub(crate) qkey: u32,
    pub(crate) information: Information,
    pub(crate) private: [u8; Self::PRIVATE],
}

impl SidrReq {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 216;

    pub(super) fn read(body: &Body) -> Self {
        Self {
            request_id: body.word::<0>(),
            partition: u16::from_be_bytes(body.get(At::<4>)),
            service: body.long::<8>(),
            private: body.get(At::<16>),
        }
    }

    pub(super) fn body(&self) -> Body {
        let mut body = Body::ZERO;
        body.put_word::<0>(self.request_id);
        body.put(At::<4>, self.partition.to_be_bytes());
        body.put_long::<8>(self.service);
        body.put(At::<16>, self.private);
        body
    }
}

impl SidrRep {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 136;

    pub(super) fn read(body: &Body, options: u32) -> Result<Self, Malformed> {
        let [high, middle] = body.get(At::<6>);
        let low = body.byte::<11>();
        Ok(Self {
            request_id: body.word::<0>(),
            status: body.byte::<4>(),
            ece: Ece { vendor: u32::from_be_bytes([0, high, middle, low]), options },
            qp_number: body.word24::<8>(),
            service: body.long::<12>(),
            qkey: body.word::<20>(),
            information: Information::new(body.byte::<5>(), body.get(At::<24>))?,
            private: body.get(At::<96>),
        })
    }

    pub(super) fn body(&self) -> Body {
        let mut body = Body::ZERO;
        let [_, high, middle, low] = self.ece.vendor.to_be_bytes();
        body.put_word::<0>(self.request_id);
        body.put(At::<4>, [self.status, self.information.length(), high, middle]);
        body.put_word24::<8>(self.qp_number);
        body.put(At::<11>, [low]);
        body.put_long::<12>(self.service);
        body.put_word::<20>(self.qkey);
        body.put(At::<24>, self.information.bytes());
        body.put(At::<96>, self.private);
        body
    }
}
