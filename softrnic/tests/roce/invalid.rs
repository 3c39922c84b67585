//! Requests that contradict the ones before them or themselves: NAK invalid request, and the QP fails (section 9.9.3).

use rdma_mummy_sys::*;

use crate::packet::*;
use crate::peer::Peer;

/// Sends packets of which the last one is invalid, and checks that the device refuses it.
#[track_caller]
fn refused(case: &str, make: impl FnOnce(&Write) -> Vec<Packet>) {
    let peer = Peer::new();
    (0..4).for_each(|wr_id| peer.side.receive(wr_id, &mut [peer.side.piece(0, 16384)]));
    let mut packets = make(&Write { address: peer.side.address(), rkey: peer.side.rkey() });
    let mut messages = 0;
    for (psn, packet) in (100..).zip(&mut packets) {
        packet.psn = psn;
        peer.send(packet);
        messages += u32::from(packet.opcode == SEND_ONLY);
    }
    let last = packets.last().expect(case);
    messages -= u32::from(last.opcode == SEND_ONLY);
    let answer = peer.next();
    assert_eq!(answer, acknowledgement(last.psn, INVALID_REQUEST, messages), "{case}");
    peer.fails();
}

struct Write {
    address: u64,
    rkey: u32,
}

impl Write {
    fn first(&self, length: u32) -> Packet {
        packet(WRITE_FIRST, 0).reth(self.address, self.rkey, length).payload([1; 1024])
    }

    fn only(&self, length: u32, payload: usize) -> Packet {
        packet(WRITE_ONLY, 0).reth(self.address, self.rkey, length).payload(vec![1; payload])
    }
}

fn of(opcode: u8, length: usize) -> Packet {
    packet(opcode, 0).payload(vec![1; length])
}

#[test]
fn packet_out_of_its_message_is_invalid() {
    refused("middle of a send without its first", |_| vec![of(SEND_MIDDLE, 1024)]);
    refused("last of a send without its first", |_| vec![of(SEND_LAST, 4)]);
    refused("middle of a write without its first", |_| vec![of(WRITE_MIDDLE, 1024)]);
    refused("last of a write without its first", |_| vec![of(WRITE_LAST, 4)]);
    refused("middle after a message", |_| vec![of(SEND_ONLY, 4), of(SEND_MIDDLE, 1024)]);
    refused("first after first", |_| vec![of(SEND_FIRST, 1024), of(SEND_FIRST, 1024)]);
    refused("only in a message", |_| vec![of(SEND_FIRST, 1024), of(SEND_ONLY, 4)]);
    refused("middle of a write in a send", |_| vec![of(SEND_FIRST, 1024), of(WRITE_MIDDLE, 1024)]);
    refused("last of a send in a write", |write| vec![write.first(1028), of(SEND_LAST, 4)]);
    refused("write in a write", |write| vec![write.first(2048), write.only(4, 4)]);
    refused("read in a send", |write| vec![of(SEND_FIRST, 1024), packet(READ, 0).reth(write.address, write.rkey, 4)]);
    refused("atomic in a write", |write| {
        vec![write.first(2048), packet(FETCH_ADD, 0).atomic(write.address & !7, write.rkey, [1, 0])]
    });
}

#[test]
fn packet_with_a_length_that_its_place_forbids_is_invalid() {
    refused("short first", |_| vec![of(SEND_FIRST, 1020)]);
    refused("long first", |_| vec![of(SEND_FIRST, 1028)]);
    refused("empty first", |_| vec![of(SEND_FIRST, 0)]);
    refused("short middle", |_| vec![of(SEND_FIRST, 1024), of(SEND_MIDDLE, 512)]);
    refused("long middle", |_| vec![of(SEND_FIRST, 1024), of(SEND_MIDDLE, 2048)]);
    refused("empty last", |_| vec![of(SEND_FIRST, 1024), of(SEND_LAST, 0)]);
    refused("long last", |_| vec![of(SEND_FIRST, 1024), of(SEND_LAST, 1025)]);
    refused("long only", |_| vec![of(SEND_ONLY, 1025)]);
    refused("empty last of a write", |write| vec![write.first(2048), of(WRITE_LAST, 0)]);
}

#[test]
fn write_of_another_length_than_announced_is_invalid() {
    refused("only longer", |write| vec![write.only(100, 200)]);
    refused("only shorter", |write| vec![write.only(200, 100)]);
    refused("only with an announced length of 0", |write| vec![write.only(0, 4)]);
    refused("first longer", |write| vec![write.first(100)]);
    refused("first with an announced length of 0", |write| vec![write.first(0)]);
    refused("first with all announced data", |write| vec![write.first(1024)]);
    refused("middle with all announced data", |write| vec![write.first(2048), of(WRITE_MIDDLE, 1024)]);
    refused("middle longer", |write| vec![write.first(1500), of(WRITE_MIDDLE, 1024)]);
    refused("last shorter", |write| vec![write.first(1500), of(WRITE_LAST, 475)]);
    refused("last longer", |write| vec![write.first(1500), of(WRITE_LAST, 477)]);
    refused("last before the announced end", |write| vec![write.first(4096), of(WRITE_LAST, 1024)]);
    refused("write above the maximum", |write| vec![write.first(0x8000_0001)]);
    refused("read above the maximum", |write| vec![packet(READ, 0).reth(write.address, write.rkey, 0x8000_0001)]);
}

#[test]
fn send_that_exceeds_its_receive_is_invalid() {
    let peer = Peer::new();
    peer.side.receive(1, &mut [peer.side.piece(0, 1028)]);
    let parts = [packet(SEND_FIRST, 100).payload([1; 1024]), packet(SEND_LAST, 101).payload([1; 8])];
    peer.exchange(&parts, &[acknowledgement(101, INVALID_REQUEST, 0)]);
    assert_eq!(peer.side.wait().status, ibv_wc_status::IBV_WC_LOC_LEN_ERR);
    peer.fails();
}
