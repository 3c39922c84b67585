//! A peer without a NIC: a UDP socket that is connected to a QP of the RoCEv2 device.

#![allow(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::env;
use std::ffi::CString;
use std::fs::File;
use std::iter;
use std::mem::zeroed;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rdma_mummy_sys::*;
use rustix::net::sockopt;

use crate::common::{ACCESS, LONG, Setup, Side, opened};
use crate::packet::{Packet, icrc};
use crate::port::{PORT, bound, own_address};

/// The QP number of the peer.
pub(crate) const NUMBER: u32 = 0x4242;
/// The first PSN that the device expects, and the first one that it sends.
pub(crate) const PSN: u32 = 100;
pub(crate) const DEVICE_PSN: u32 = 200;
/// The code of the time after which the peer may repeat a message without a receive.
pub(crate) const MIN_RNR_TIMER: u8 = 13;

/// The variable that names another device and its address, and an address in a network namespace and its name, separated by
/// spaces: the tests then run with this device, and with the peer in the namespace.
const DEVICE_AND_PEER: &str = "SOFTRNIC_TEST_ROCE";

/// A reliable connection between a QP of the device and a socket of the test.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) side: Side,
    socket: UdpSocket,
    place: Place,
    address: Ipv4Addr,
}

/// Where the device and the peer are.
#[derive(Debug)]
struct Place {
    /// The address of the device.
    device: Ipv4Addr,
    /// The first address of the peer, and its network namespace. The next address is that of other peers.
    namespace: Option<(Ipv4Addr, String)>,
}

impl Place {
    /// Opens the device.
    fn open() -> (*mut ibv_context, Self) {
        let Ok(named) = env::var(DEVICE_AND_PEER) else {
            assert_eq!(softrnic::Builder::new().device("softroce0").register(), Ok(()));
            return (opened(c"softroce0"), Self { device: Ipv4Addr::LOCALHOST, namespace: None });
        };
        let words: Vec<_> = named.split(' ').collect();
        let &[name, device, peer, namespace] = &words[..] else { panic!("{DEVICE_AND_PEER}: {named}") };
        let (device, peer) = (device.parse().unwrap(), peer.parse().unwrap());
        let context = opened(&CString::new(name).unwrap());
        (context, Self { device, namespace: Some((peer, namespace.to_owned())) })
    }

    /// Returns a socket of a peer, and its address, which no other running test has, because the thread has no other one.
    fn bound(&self, is_other: bool) -> (UdpSocket, Ipv4Addr) {
        let Some((address, namespace)) = &self.namespace else {
            let address = own_address(if is_other { 0x80 } else { 0x40 });
            return (bound(address), address);
        };
        let address = Ipv4Addr::from(address.to_bits() + u32::from(is_other));
        let enter = || {
            let namespace = File::open(Path::new("/run/netns").join(namespace)).unwrap();
            // SAFETY: the descriptor is open.
            assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            bound(address)
        };
        // A socket stays in the namespace of the thread that has created it.
        (thread::scope(|scope| scope.spawn(enter).join()).unwrap(), address)
    }
}

/// The parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// The number of reads and atomics that the peer may have in flight.
    pub(crate) depth: u8,
    /// The access flags of the QP and of its memory.
    pub(crate) qp_access: u32,
    pub(crate) access: u32,
    pub(crate) bytes: usize,
    pub(crate) psn: u32,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
}

impl Default for Options {
    fn default() -> Self {
        let qp_access = ACCESS & !ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        // The device does not repeat requests by this timeout during a test.
        let (timeout, retry_cnt, rnr_retry) = (31, 7, 7);
        Self { depth: 4, qp_access, access: ACCESS, bytes: 65536, psn: PSN, timeout, retry_cnt, rnr_retry }
    }
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let (context, place) = Place::open();
        let setup = Setup { bytes: options.bytes, access: options.access, ..Setup::default() };
        let side = Side::new(context, setup);
        let (socket, address) = place.bound(false);
        let peer = Self { side, socket, place, address };
        peer.connect(options);
        peer
    }

    fn connect(&self, options: Options) {
        use ibv_qp_attr_mask as mask;
        // SAFETY: zero is valid for numbers and unions of numbers.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = ibv_qp_state::IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = options.qp_access;
        let init = mask::IBV_QP_STATE.0 | mask::IBV_QP_PKEY_INDEX.0 | mask::IBV_QP_PORT.0;
        assert_eq!(self.side.modify(&mut attr, init | mask::IBV_QP_ACCESS_FLAGS.0), 0);
        attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
        attr.path_mtu = ibv_mtu::IBV_MTU_1024;
        (attr.dest_qp_num, attr.rq_psn) = (NUMBER, options.psn);
        (attr.max_dest_rd_atomic, attr.min_rnr_timer) = (options.depth, MIN_RNR_TIMER);
        attr.ah_attr = self.path();
        let ready = mask::IBV_QP_STATE.0
            | mask::IBV_QP_AV.0
            | mask::IBV_QP_PATH_MTU.0
            | mask::IBV_QP_DEST_QPN.0
            | mask::IBV_QP_RQ_PSN.0
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
            | mask::IBV_QP_MIN_RNR_TIMER.0;
        assert_eq!(self.side.modify(&mut attr, ready), 0);
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        (attr.sq_psn, attr.max_rd_atomic) = (DEVICE_PSN, 4);
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (options.timeout, options.retry_cnt, options.rnr_retry);
        let send = mask::IBV_QP_STATE.0
            | mask::IBV_QP_SQ_PSN.0
            | mask::IBV_QP_MAX_QP_RD_ATOMIC.0
            | mask::IBV_QP_RETRY_CNT.0
            | mask::IBV_QP_RNR_RETRY.0
            | mask::IBV_QP_TIMEOUT.0;
        assert_eq!(self.side.modify(&mut attr, send), 0);
    }

    /// The path from the device to this peer.
    pub(crate) fn path(&self) -> ibv_ah_attr {
        // SAFETY: zero is valid for numbers and unions of numbers.
        let mut path: ibv_ah_attr = unsafe { zeroed() };
        (path.is_global, path.port_num) = (1, 1);
        path.grh.dgid = ibv_gid { raw: self.address.to_ipv6_mapped().octets() };
        (path.grh.sgid_index, path.grh.hop_limit) = (self.gid_index(), 64);
        path
    }

    /// Changes attributes of the QP while its send queue is drained. Returns the error number.
    pub(crate) fn change_drained(&self, mask: ibv_qp_attr_mask, change: impl FnOnce(&mut ibv_qp_attr)) -> i32 {
        // SAFETY: zero is valid for numbers and unions of numbers.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = ibv_qp_state::IBV_QPS_SQD;
        assert_eq!(self.side.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0), 0);
        change(&mut attr);
        let result = self.side.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0 | mask.0);
        attr.qp_state = ibv_qp_state::IBV_QPS_RTS;
        assert_eq!(self.side.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0), 0);
        result
    }

    /// The index of the GID of the device's address.
    fn gid_index(&self) -> u8 {
        let is_own = |index: &u8| {
            // SAFETY: the context is open, and all bytes of a GID are valid.
            unsafe {
                let mut found: ibv_gid = zeroed();
                ibv_query_gid(self.side.context, 1, (*index).into(), &raw mut found) == 0
                    && found.raw == self.place.device.to_ipv6_mapped().octets()
            }
        };
        (0..=255).find(is_own).expect("the device has its address")
    }

    pub(crate) fn send(&self, packet: &Packet) {
        self.send_bytes(&packet.bytes(self.side.number()));
    }

    /// Sends bytes from the BTH to the padding, with their ICRC.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        let sum = icrc(self.address, self.place.device, 0, bytes);
        self.send_datagram(&[bytes, &sum].concat());
    }

    /// Sends a datagram, which contains the ICRC.
    pub(crate) fn send_datagram(&self, bytes: &[u8]) {
        assert_eq!(self.socket.send_to(bytes, (self.place.device, PORT)).unwrap(), bytes.len());
    }

    /// Sends a packet that a router has marked because of congestion.
    pub(crate) fn send_marked(&self, packet: &Packet) {
        sockopt::set_ip_tos(&self.socket, 3).unwrap();
        self.send(packet);
        sockopt::set_ip_tos(&self.socket, 0).unwrap();
    }

    /// Sends a packet from another address.
    pub(crate) fn send_elsewhere(&self, packet: &Packet) {
        let ((socket, address), bytes) = (self.place.bound(true), packet.bytes(self.side.number()));
        let sum = icrc(address, self.place.device, 0, &bytes);
        socket.send_to(&[&bytes[..], &sum].concat(), (self.place.device, PORT)).unwrap();
    }

    /// Waits for the next packet of the device.
    #[track_caller]
    pub(crate) fn next(&self) -> Packet {
        self.receive(true).expect("the device sends a packet")
    }

    /// Waits for the next packet of the device, and returns the byte of its IP header with the DSCP and ECN.
    pub(crate) fn next_type_of_service(&self) -> u8 {
        sockopt::set_ip_recvtos(&self.socket, true).unwrap();
        let (mut bytes, mut control) = ([0_u8; 64], [0_u64; 8]);
        // SAFETY: zero is valid for numbers and null pointers; the buffers outlive the call, and the control messages that
        // the kernel has written are in the second one, which is aligned for them.
        unsafe {
            let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let mut message: libc::msghdr = zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            assert!(libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) > 0);
            let first = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!first.is_null() && (*first).cmsg_type == libc::IP_TOS);
            *libc::CMSG_DATA(first)
        }
    }

    /// Returns the next packet of the device. Returns `None` if there is none, but only after a time if `waits` is set.
    fn receive(&self, waits: bool) -> Option<Packet> {
        let mut bytes = [0; 8192];
        self.socket.set_nonblocking(!waits).unwrap();
        let (length, source) = self.socket.recv_from(&mut bytes).ok()?;
        assert_eq!(source.ip(), self.place.device);
        let (bytes, sum) = bytes[..length].split_last_chunk().unwrap();
        // The kernel numbers the segments of a batch.
        let is_right = |number: u16| icrc(self.place.device, self.address, number, bytes) == *sum;
        // The kernel's device uses any number.
        assert!(self.place.namespace.is_some() || (0..128).any(is_right), "wrong ICRC: {bytes:x?}");
        Some(Packet::read(bytes, NUMBER))
    }

    /// Sends packets, and compares the packets with which the device answers: no other answers arrive before them. The
    /// device may repeat its own requests at any time.
    #[track_caller]
    pub(crate) fn exchange(&self, packets: &[Packet], answers: &[Packet]) {
        packets.iter().for_each(|packet| self.send(packet));
        for answer in answers {
            let found = iter::repeat_with(|| self.next()).find(|packet| !packet.is_request());
            assert_eq!(found.as_ref(), Some(answer));
        }
    }

    /// Returns the requests that the device sends within half a second, which is longer than its first timeout.
    pub(crate) fn late_requests(&self) -> Vec<Packet> {
        let end = Instant::now() + Duration::from_millis(500);
        let mut requests = Vec::new();
        while Instant::now() < end {
            requests.extend(self.receive(false).filter(Packet::is_request));
            thread::yield_now();
        }
        requests
    }

    /// Waits for the request of the device with this PSN.
    #[track_caller]
    pub(crate) fn request(&self, psn: u32) -> Packet {
        let mut requests = iter::repeat_with(|| self.next());
        requests.find(|packet| packet.is_request() && packet.psn == psn).expect("there are always more packets")
    }

    /// Sends the same answer to all packets of the device until it has a completion. Returns the number of packets.
    #[track_caller]
    pub(crate) fn answer_until_done(&self, answer: &Packet) -> (ibv_wc, u32) {
        let (start, mut packets) = (Instant::now(), 0);
        loop {
            if self.receive(false).is_some() {
                packets += 1;
                self.send(answer);
            }
            if let Some(done) = self.side.poll() {
                return (done, packets);
            }
            assert!(start.elapsed() < LONG, "timed out waiting for a completion");
            thread::yield_now();
        }
    }

    /// Waits for the next completions, which must be successful and have these IDs.
    #[track_caller]
    pub(crate) fn done(&self, ids: impl IntoIterator<Item = u64>) {
        ids.into_iter().for_each(|wr_id| _ = self.side.done(wr_id));
    }

    /// Waits until the QP has failed, and closes it.
    #[track_caller]
    pub(crate) fn fails(self) {
        let start = Instant::now();
        while self.side.state() != ibv_qp_state::IBV_QPS_ERR {
            assert!(start.elapsed() < LONG, "the QP has not failed");
        }
        self.close();
    }

    pub(crate) fn close(self) {
        let context = self.side.context;
        self.side.close();
        // SAFETY: the device has no objects left.
        assert_eq!(unsafe { ibv_close_device(context) }, 0);
    }
}
