//! The connection manager of another host: a socket of the test that sends management datagrams to QP 1, and receives
//! those of the device. The layouts are those of the InfiniBand Architecture Specification, volume 1, section 12.6.

#![allow(clippy::unwrap_used, reason = "a panic in a helper fails the test")]
#![allow(dead_code, reason = "each test program uses a part")]

use std::mem::zeroed;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ptr;

use rdma_mummy_sys::load::provider::ProviderId;
use rdma_mummy_sys::load::rdmacm::{Choice, choose};
use rdma_mummy_sys::rdma_cm_event_type as event_type;
use rdma_mummy_sys::*;

use crate::common::LONG;
use crate::packet::{DATAGRAM, Packet, icrc, packet};
use crate::port::{PORT, bound};

/// The kinds of messages.
pub(crate) const REQ: u16 = 0x10;
pub(crate) const REJ: u16 = 0x12;
pub(crate) const REP: u16 = 0x13;
pub(crate) const RTU: u16 = 0x14;
pub(crate) const DREQ: u16 = 0x15;
pub(crate) const DREP: u16 = 0x16;
/// The reason for the withdrawal of a request.
pub(crate) const TIMEOUT: u8 = 4;

/// The number and the Q_Key of the QP.
const NUMBER: u32 = 1;
const KEY: u32 = 0x8001_0000;

/// A message after the header of its datagram.
pub(crate) type Body = [u8; 232];

/// A message that has arrived.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) kind: u16,
    pub(crate) transaction: u64,
    pub(crate) body: Body,
}

impl Message {
    /// The number of four bytes at an offset.
    pub(crate) fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.body[at..at + 4].try_into().unwrap())
    }
}

#[derive(Debug)]
pub(crate) struct Manager {
    socket: UdpSocket,
    pub(crate) address: Ipv4Addr,
}

impl Manager {
    pub(crate) fn at(address: Ipv4Addr) -> Self {
        Self { socket: bound(address), address }
    }

    pub(crate) fn send(&self, kind: u16, transaction: u64, body: &Body) {
        let mut bytes = vec![1, 7, 2, 3, 0, 0, 0, 0];
        bytes.extend(transaction.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend([0; 6]);
        bytes.extend(body);
        let bytes = packet(DATAGRAM, 0).deth(KEY, NUMBER).payload(bytes).bytes(NUMBER);
        let sum = icrc(self.address, Ipv4Addr::LOCALHOST, 0, &bytes);
        self.socket.send_to(&[&bytes[..], &sum].concat(), (Ipv4Addr::LOCALHOST, PORT)).unwrap();
    }

    /// Waits for the next message.
    #[track_caller]
    pub(crate) fn next(&self) -> Message {
        let mut bytes = [0; 1024];
        loop {
            let (length, source) = self.socket.recv_from(&mut bytes).expect("the device sends a message");
            // Others are probes of the port.
            if source != SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)) {
                continue;
            }
            let Packet { opcode, payload, .. } = Packet::read(&bytes[..length - 4], NUMBER);
            assert_eq!((opcode, payload.len(), &payload[..4]), (DATAGRAM, 256, &[1, 7, 2, 3][..]));
            let transaction = u64::from_be_bytes(payload[8..16].try_into().unwrap());
            let kind = u16::from_be_bytes(payload[16..18].try_into().unwrap());
            return Message { kind, transaction, body: payload[24..].try_into().unwrap() };
        }
    }

    /// Waits until a process has handled all messages so far, and returns the messages until then. It is the process with
    /// the block of QP numbers in `id`, or if no process has it, the one to which the kernel gives all messages.
    pub(crate) fn settle(&self, transaction: u64, id: u32) -> Vec<Message> {
        // The end of an unknown connection is confirmed.
        let mut body = [0; 232];
        body[4..8].copy_from_slice(&id.to_be_bytes());
        self.send(DREQ, transaction, &body);
        let is_last = |message: &Message| (message.kind, message.transaction) == (DREP, transaction);
        let mut messages = Vec::new();
        loop {
            let next = self.next();
            if is_last(&next) {
                return messages;
            }
            messages.push(next);
        }
    }

    /// The request for a reliable connection to a port.
    pub(crate) fn request(&self, id: u32, port: u16) -> Body {
        let [local, remote] = [self.address, Ipv4Addr::LOCALHOST].map(|address| address.to_ipv6_mapped().octets());
        let mut body = [0; 232];
        let mut put = |at: usize, bytes: &[u8]| body[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &id.to_be_bytes());
        // The port space for connections, and the port.
        put(8, &(0x0106_u64 << 16 | u64::from(port)).to_be_bytes());
        put(32, &id.to_be_bytes()[1..]);
        put(43, &[20 << 3]);
        // The retry count, the P_Key, a path MTU of 1024 bytes, and the maximum number of retries.
        put(47, &[20 << 3 | 7, 0xff, 0xff, 3 << 4 | 7, 15 << 4, 0xff, 0xff, 0xff, 0xff]);
        put(56, &local);
        put(72, &remote);
        put(93, &[64]);
        put(95, &[14 << 3]);
        // The version of IP and both addresses precede the private data of the program.
        put(141, &[4 << 4]);
        put(156, &local[12..]);
        put(172, &remote[12..]);
        body
    }

    /// The rejection with which the sender of a request withdraws it. It does not know the id of the device.
    pub(crate) fn withdrawal(id: u32) -> Body {
        let mut body = [0; 232];
        body[..4].copy_from_slice(&id.to_be_bytes());
        body[11] = TIMEOUT;
        body
    }
}

/// A channel, and an identifier that listens.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) channel: *mut rdma_event_channel,
    id: *mut rdma_cm_id,
    pub(crate) port: u16,
}

impl Listener {
    pub(crate) fn new(backlog: i32) -> Self {
        assert_eq!(softrnic::Builder::new().device("softroce0").register(), Ok(()));
        choose(Choice::Provider(ProviderId::by_name("softrnic").unwrap()));
        // SAFETY: the channel and the identifier are alive.
        unsafe {
            let channel = rdma_create_event_channel();
            assert!(!channel.is_null(), "{}", std::io::Error::last_os_error());
            let mut id = ptr::null_mut();
            assert_eq!(rdma_create_id(channel, &raw mut id, ptr::null_mut(), rdma_port_space::RDMA_PS_TCP), 0);
            assert_eq!(rdma_listen(id, backlog), 0, "{}", std::io::Error::last_os_error());
            Self { channel, id, port: u16::from_be(rdma_get_src_port(id)) }
        }
    }

    /// Waits for the next event. Returns its type, its status and its identifier.
    #[track_caller]
    pub(crate) fn next(&self) -> (event_type, i32, *mut rdma_cm_id) {
        // SAFETY: the channel is alive, and the event is acknowledged once.
        unsafe {
            let mut poll = libc::pollfd { fd: (*self.channel).fd, events: libc::POLLIN, revents: 0 };
            assert_eq!(libc::poll(&raw mut poll, 1, LONG.as_millis() as i32), 1, "there is no event");
            let mut event = ptr::null_mut();
            assert_eq!(rdma_get_cm_event(self.channel, &raw mut event), 0);
            let taken = ((*event).event, (*event).status, (*event).id);
            assert_eq!(rdma_ack_cm_event(event), 0);
            taken
        }
    }

    /// Accepts the next request.
    pub(crate) fn accept(&self) -> *mut rdma_cm_id {
        let (kind, _, id) = self.next();
        assert_eq!(kind, event_type::RDMA_CM_EVENT_CONNECT_REQUEST);
        // SAFETY: the identifier is alive, and zero is valid for all fields of the parameters.
        assert_eq!(unsafe { rdma_accept(id, &mut rdma_conn_param { qp_num: 7, ..zeroed() }) }, 0);
        id
    }

    pub(crate) fn has_event(&self) -> bool {
        // SAFETY: the channel is alive.
        unsafe { libc::poll(&mut libc::pollfd { fd: (*self.channel).fd, events: libc::POLLIN, revents: 0 }, 1, 0) == 1 }
    }

    /// Stops to listen. The channel stays.
    pub(crate) fn close(self) {
        destroy(self.id);
    }
}

pub(crate) fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the identifier is alive, and no longer used.
    assert_eq!(unsafe { rdma_destroy_id(id) }, 0);
}
