//! The headers of a packet: the base transport header (BTH) and its extensions.
//!
//! `read` accepts any bytes without a panic. It ignores reserved bits, MigReq, FECN, and the credits of acknowledgements.

mod opcode;
mod read;
#[cfg(test)]
mod tests;
mod write;

/// The UDP port of RoCEv2.
pub(crate) const PORT: u16 = 4791;

/// The P_Key of the default partition, with full membership.
pub(crate) const DEFAULT_PARTITION: u16 = 0xffff;

/// A packet without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) transport: Transport,
    pub(crate) body: Body,
    /// The solicited event bit.
    pub(crate) is_solicited: bool,
    /// The AckReq bit.
    pub(crate) asks: bool,
    /// The BECN bit.
    pub(crate) has_becn: bool,
    pub(crate) partition: u16,
    /// The number of the destination QP.
    pub(crate) destination: u32,
    pub(crate) psn: u32,
}

/// The transport service of a packet, with the header that only this service has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Reliable,
    Unreliable,
    /// The datagram header (DETH).
    Datagram {
        key: u32,
        source: u32,
    },
    /// A request of XRC, with the number of the shared receive queue (XRCETH). Responses have none.
    Extended {
        queue: u32,
    },
    ExtendedResponse,
    /// A congestion notification packet.
    Congestion,
}

/// The operation of a packet, with the headers that only this operation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Send {
        place: Place,
        /// Only the last packet of a message has one.
        end: SendEnd,
    },
    Write {
        place: Place,
        /// Only the first packet of a message has a range.
        range: Option<Range>,
        /// In the byte order of the packet. Only the last packet of a message has one.
        immediate: Option<u32>,
    },
    Read(Range),
    CompareSwap {
        address: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        address: u64,
        rkey: u32,
        add: u64,
    },
    AtomicWrite(Range),
    Flush {
        range: Range,
        placement: u8,
        level: u8,
    },
    ReadResponse {
        place: Place,
        /// All packets but those in the middle have one.
        acknowledgement: Option<Acknowledgement>,
    },
    Acknowledge(Acknowledgement),
    AtomicAcknowledge {
        acknowledgement: Acknowledgement,
        original: u64,
    },
    Congestion,
}

/// What the last packet of a send carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    Nothing,
    /// In the byte order of the packet: `u32::from_ne_bytes` of the four bytes.
    Immediate(u32),
    Invalidate(u32),
}

/// The place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Only,
    First,
    Middle,
    Last,
}

impl Place {
    pub(crate) fn new(is_first: bool, is_last: bool) -> Self {
        match (is_first, is_last) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    pub(crate) fn is_first(self) -> bool {
        matches!(self, Self::Only | Self::First)
    }

    pub(crate) fn is_last(self) -> bool {
        matches!(self, Self::Only | Self::Last)
    }
}

/// The memory that a request accesses (RETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) length: u32,
}

/// The acknowledgement header (AETH).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    pub(crate) syndrome: Syndrome,
    /// The message sequence number (MSN).
    pub(crate) messages: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syndrome {
    Ack,
    /// RNR NAK, with the code of the time.
    NotReady(u8),
    Nak(Nak),
}

/// The codes of negative acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nak {
    Sequence,
    InvalidRequest,
    RemoteAccess,
    RemoteOperation,
    InvalidDatagram,
}

impl Packet {
    /// Returns a congestion notification (CNP) for a QP.
    pub(crate) fn congestion(destination: u32) -> Self {
        Self {
            transport: Transport::Congestion,
            body: Body::Congestion,
            is_solicited: false,
            asks: false,
            has_becn: true,
            partition: DEFAULT_PARTITION,
            destination,
            psn: 0,
        }
    }

    /// The number of the shared receive queue that a request of XRC addresses.
    pub(crate) fn queue(&self) -> Option<u32> {
        match self.transport {
            Transport::Extended { queue } => Some(queue),
            _ => None,
        }
    }
}

/// Why a packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

impl Malformed {
    const SHORT: Self = Self("the packet is shorter than its headers");
    const VERSION: Self = Self("the version of the BTH is not 0");
    const OPCODE: Self = Self("unknown opcode");
    const ALIGNMENT: Self = Self("the length is no multiple of four bytes");
    const PADDING: Self = Self("the padding is longer than the payload");
    const SYNDROME: Self = Self("reserved syndrome of an acknowledgement");
    const PAYLOAD: Self = Self("the payload has a length that the operation does not allow");
}

// The first byte after the opcode.
const SOLICITED: u8 = 0x80;
/// The path of the QP does not migrate, because it has no alternate path (MigReq).
const MIGRATED: u8 = 0x40;
const PADDING: u8 = 0x30;
const VERSION: u8 = 0x0f;

/// The bit of the byte after the P_Key.
const BECN: u8 = 0x40;

/// The bit of the byte after the destination QP (AckReq).
const ASKS: u8 = 0x80;

/// The length of the reserved bytes of a congestion notification.
const NOTIFICATION: usize = 16;

// Three bits of a syndrome are its kind.
const KIND: u8 = 0xe0;
const ACK: u8 = 0x00;
const NOT_READY: u8 = 0x20;
const NAK: u8 = 0x60;
/// The credits of a responder that limits its requester only by RNR NAKs.
const NO_CREDITS: u8 = 0x1f;
