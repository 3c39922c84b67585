//! Fuzz targets for the packets of another host: RoCEv2 packets, and the messages of the connection manager in them.

#[cfg(test)]
pub(crate) mod seeds;

use super::cm_message::{AddressHeader, Message};
use super::icrc::{self, Flow, icrc, identification_of};
use super::packet::{PORT, Packet};
use crate::wire::address::Gid;

/// The addresses of the packets.
const FLOW: Flow = Flow {
    source: Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]),
    destination: Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]),
    source_port: 0xc000,
    destination_port: PORT,
};

/// Reads a packet with its ICRC, as a UDP socket receives it. Returns whether both are valid.
///
/// # Panics
///
/// Panics if a packet that was read differs after it was written.
pub fn roce_packets(datagram: &[u8]) -> bool {
    let Some((bytes, sum)) = datagram.split_last_chunk::<{ icrc::LENGTH }>() else { return false };
    let identification = identification_of(&FLOW, bytes, *sum);
    if let Some(identification) = identification {
        assert_eq!(icrc(&FLOW, identification, bytes), *sum, "the ICRC has another identification");
    }
    let Ok((packet, payload)) = Packet::read(bytes) else { return false };
    let mut written = Vec::new();
    packet.write(payload, &mut written);
    assert_eq!(written.len(), bytes.len(), "{packet:?}");
    assert_eq!(Packet::read(&written), Ok((packet, payload)));
    identification.is_some()
}

/// Reads a message of the connection manager. Returns whether it is valid, and so are the addresses of a request.
///
/// # Panics
///
/// Panics if a message that was read differs after it was written.
pub fn roce_messages(mad: &[u8]) -> bool {
    let Ok((transaction, message)) = Message::read(mad) else { return false };
    assert_eq!(Message::read(&message.bytes(transaction)), Ok((transaction, message)));
    let private = match &message {
        Message::Req(req) => &req.private[..],
        Message::SidrReq(req) => &req.private,
        _ => return true,
    };
    let Ok((header, data)) = AddressHeader::read(private) else { return false };
    let again: Option<[u8; 256]> = header.before(data);
    let again = again.as_ref().map(|again| AddressHeader::read(again).map(|(header, _)| header));
    assert_eq!(again, Some(Ok(header)));
    true
}
