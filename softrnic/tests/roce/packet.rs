//! The packets of the peer, written and read independently of softrnic.

#![allow(dead_code, reason = "each test program uses a part")]

use std::net::Ipv4Addr;

/// Operations of reliable connections.
pub(crate) const SEND_FIRST: u8 = 0x00;
pub(crate) const SEND_MIDDLE: u8 = 0x01;
pub(crate) const SEND_LAST: u8 = 0x02;
pub(crate) const SEND_ONLY: u8 = 0x04;
pub(crate) const WRITE_FIRST: u8 = 0x06;
pub(crate) const WRITE_MIDDLE: u8 = 0x07;
pub(crate) const WRITE_LAST: u8 = 0x08;
pub(crate) const WRITE_LAST_IMMEDIATE: u8 = 0x09;
pub(crate) const WRITE_ONLY: u8 = 0x0a;
pub(crate) const READ: u8 = 0x0c;
pub(crate) const READ_FIRST: u8 = 0x0d;
pub(crate) const READ_MIDDLE: u8 = 0x0e;
pub(crate) const READ_LAST: u8 = 0x0f;
pub(crate) const READ_ONLY: u8 = 0x10;
pub(crate) const ACKNOWLEDGE: u8 = 0x11;
pub(crate) const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
pub(crate) const COMPARE_SWAP: u8 = 0x13;
pub(crate) const FETCH_ADD: u8 = 0x14;
pub(crate) const ATOMIC_WRITE: u8 = 0x1d;
/// A message of an unreliable datagram.
pub(crate) const DATAGRAM: u8 = 0x64;
pub(crate) const CONGESTION: u8 = 0x81;

/// Syndromes of the AETH.
pub(crate) const ACK: u8 = 0x1f;
pub(crate) const NOT_READY: u8 = 0x20;
pub(crate) const SEQUENCE: u8 = 0x60;
pub(crate) const INVALID_REQUEST: u8 = 0x61;
pub(crate) const REMOTE_ACCESS: u8 = 0x62;
pub(crate) const REMOTE_OPERATION: u8 = 0x63;

/// A packet as the test sends it, or has received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) opcode: u8,
    pub(crate) psn: u32,
    /// The AckReq bit.
    pub(crate) asks: bool,
    /// The headers after the BTH.
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Returns a packet without further headers or payload.
pub(crate) fn packet(opcode: u8, psn: u32) -> Packet {
    Packet { opcode, psn, asks: false, headers: Vec::new(), payload: Vec::new() }
}

/// Returns an acknowledgement.
pub(crate) fn acknowledgement(psn: u32, syndrome: u8, messages: u32) -> Packet {
    packet(ACKNOWLEDGE, psn).aeth(syndrome, messages)
}

impl Packet {
    pub(crate) fn is_request(&self) -> bool {
        !(READ_FIRST..=ATOMIC_ACKNOWLEDGE).contains(&self.opcode)
    }

    pub(crate) fn asks(self) -> Self {
        Self { asks: true, ..self }
    }

    pub(crate) fn payload(self, payload: impl Into<Vec<u8>>) -> Self {
        Self { payload: payload.into(), ..self }
    }

    fn header(mut self, bytes: &[u8]) -> Self {
        self.headers.extend_from_slice(bytes);
        self
    }

    pub(crate) fn aeth(self, syndrome: u8, messages: u32) -> Self {
        self.header(&(u32::from(syndrome) << 24 | messages).to_be_bytes())
    }

    /// Adds the header of a datagram: its Q_Key, and the number of the QP that sends it.
    pub(crate) fn deth(self, key: u32, source: u32) -> Self {
        self.header(&key.to_be_bytes()).header(&source.to_be_bytes())
    }

    pub(crate) fn immediate(self, data: u32) -> Self {
        self.header(&data.to_be_bytes())
    }

    /// Adds the original value of an atomic.
    pub(crate) fn original(self, value: u64) -> Self {
        self.header(&value.to_be_bytes())
    }

    pub(crate) fn reth(self, address: u64, rkey: u32, length: u32) -> Self {
        self.header(&address.to_be_bytes()).header(&rkey.to_be_bytes()).header(&length.to_be_bytes())
    }

    /// Adds the header of an atomic.
    pub(crate) fn atomic(self, address: u64, rkey: u32, [swap_or_add, compare]: [u64; 2]) -> Self {
        let words = self.header(&address.to_be_bytes()).header(&rkey.to_be_bytes());
        words.header(&swap_or_add.to_be_bytes()).header(&compare.to_be_bytes())
    }

    /// Returns the bytes from the BTH to the padding.
    pub(crate) fn bytes(&self, destination: u32) -> Vec<u8> {
        let padding = self.payload.len().wrapping_neg() % 4;
        let [_, a, b, c] = destination.to_be_bytes();
        let [_, d, e, f] = self.psn.to_be_bytes();
        let mut bytes = vec![self.opcode, 0x40 | (padding as u8) << 4, 0xff, 0xff, 0, a, b, c];
        bytes.extend([u8::from(self.asks) << 7, d, e, f]);
        bytes.extend(&self.headers);
        bytes.extend(&self.payload);
        bytes.resize(bytes.len() + padding, 0);
        bytes
    }

    /// Reads a packet of the device.
    pub(crate) fn read(bytes: &[u8], destination: u32) -> Self {
        let (bth, rest) = bytes.split_at(12);
        let padding = usize::from(bth[1] >> 4 & 3);
        let [_, a, b, c] = destination.to_be_bytes();
        assert_eq!((bth[1] & 0xf, &bth[2..4], &bth[5..8]), (0, &[0xff, 0xff][..], &[a, b, c][..]), "{bytes:x?}");
        let (body, pad) = rest.split_at(rest.len() - padding);
        assert!(pad.iter().all(|&byte| byte == 0), "{bytes:x?}");
        let (headers, payload) = body.split_at(headers_of(bth[0]));
        Self {
            opcode: bth[0],
            psn: u32::from_be_bytes([0, bth[9], bth[10], bth[11]]),
            asks: bth[8] & 0x80 != 0,
            headers: headers.to_vec(),
            payload: payload.to_vec(),
        }
    }
}

/// The length of the headers after the BTH.
fn headers_of(opcode: u8) -> usize {
    match opcode {
        WRITE_FIRST | WRITE_ONLY | READ | ATOMIC_WRITE => 16,
        READ_FIRST | READ_LAST | READ_ONLY | ACKNOWLEDGE => 4,
        DATAGRAM => 8,
        ATOMIC_ACKNOWLEDGE => 12,
        COMPARE_SWAP | FETCH_ADD => 28,
        _ => 0,
    }
}

/// Returns the ICRC of a packet from one address to another one, both with the port 4791. DF is set.
pub(crate) fn icrc(source: Ipv4Addr, destination: Ipv4Addr, identification: u16, bytes: &[u8]) -> [u8; 4] {
    let length = bytes.len() as u16 + 12;
    let mut covered = vec![0xff; 8];
    covered.extend([0x45, 0xff]);
    covered.extend((length + 20).to_be_bytes());
    covered.extend(identification.to_be_bytes());
    covered.extend([0x40, 0, 0xff, 17, 0xff, 0xff]);
    covered.extend(source.octets());
    covered.extend(destination.octets());
    covered.extend([0x12, 0xb7, 0x12, 0xb7]);
    covered.extend(length.to_be_bytes());
    covered.extend([0xff, 0xff]);
    covered.extend(bytes);
    // The byte of the BTH with FECN and BECN.
    if let Some(byte) = covered.get_mut(8 + 20 + 8 + 4) {
        *byte = 0xff;
    }
    crc32fast::hash(&covered).to_le_bytes()
}
