//! Rejections.

use super::body::{Body, bits};
use super::{Ids, Malformed, Subject};
use crate::net::roce::mad::At;

/// The rejection of a message (REJ).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rej {
    pub(crate) ids: Ids,
    /// The rejected message.
    pub(crate) subject: Subject,
    pub(crate) reason: u16,
    pub(crate) information: Information,
    pub(crate) private: [u8; Self::PRIVATE],
}

/// The additional information about a rejection, such as the GID to use instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Information {
    /// At most the length of `bytes`.
    length: u8,
    bytes: [u8; Self::LENGTH],
}

impl Information {
    pub(super) const LENGTH: usize = 72;

    pub(crate) const NONE: Self = Self { length: 0, bytes: [0; Self::LENGTH] };

    /// Returns the GUID of the sender's device, by which the peer finds a request whose id is not its own.
    pub(crate) fn guid(guid: u64) -> Self {
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&guid.to_be_bytes());
        Self { length: 8, bytes }
    }

    pub(super) fn new(length: u8, bytes: [u8; Self::LENGTH]) -> Result<Self, Malformed> {
        if usize::from(length) > Self::LENGTH {
            return Err(Malformed("the additional information is longer than its field"));
        }
        Ok(Self { length, bytes })
    }

    pub(super) fn length(&self) -> u8 {
        self.length
    }

    pub(super) fn bytes(&self) -> [u8; Self::LENGTH] {
        self.bytes
    }
}

impl Rej {
    /// The length of the private data.
    pub(crate) const PRIVATE: usize = 148;

    pub(super) fn read(body: &Body) -> Result<Self, Malformed> {
        Ok(Self {
            ids: Ids::read(body),
            subject: Subject::of_byte(body.byte::<8>()),
            reason: u16::from_be_bytes(body.get(At::<10>)),
            information: Information::new(bits(body.byte::<9>(), 1, 0x7f), body.get(At::<12>))?,
            private: body.get(At::<84>),
        })
    }

    pub(super) fn body(&self) -> Body {
        let mut body = self.ids.body();
        body.put(At::<8>, [self.subject.byte(), self.information.length() << 1]);
        body.put(At::<10>, self.reason.to_be_bytes());
        body.put(At::<12>, self.information.bytes());
        body.put(At::<84>, self.private);
        body
    }
}
