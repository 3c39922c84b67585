//! What all packets of a connection have in common.

use super::packet::{Body, DEFAULT_PARTITION, Packet, Transport};
use crate::wire::operation::Service;

/// Passes a packet and its payload to the socket. Returns `false` if there is no space.
pub(super) type Emit<'e> = dyn FnMut(&Packet, &[u8]) -> bool + 'e;

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// The path MTU in bytes: the length of each payload of a message but that of the last one.
    pub(super) mtu: u32,
    /// The service of the QP that sends.
    pub(super) service: Service,
    /// The number of the peer's QP.
    pub(super) destination: u32,
}

impl Line {
    /// Returns a packet. `queue` is the number of the shared receive queue that a request of XRC addresses.
    pub(super) fn packet(&self, body: Body, queue: u32, psn: u32) -> Packet {
        let transport = match self.service {
            Service::UnreliableConnection => Transport::Unreliable,
            Service::XrcSend => Transport::Extended { queue },
            Service::XrcReceive => Transport::ExtendedResponse,
            _ => Transport::Reliable,
        };
        Packet {
            transport,
            body,
            is_solicited: false,
            asks: false,
            has_becn: false,
            partition: DEFAULT_PARTITION,
            destination: self.destination,
            psn,
        }
    }
}
