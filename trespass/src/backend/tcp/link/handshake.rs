//! The handshake of a link: its kind (one byte), its length (one byte) and its bytes, a hello or a refusal.

use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr};

use super::super::is_again;
use super::{State, TcpLink};

/// The kinds of a handshake.
pub(super) const HELLO: u8 = 1;
pub(super) const REFUSAL: u8 = 2;
/// The first bytes of an iWARP connection's request (RFC 5044, section 7.1).
const IWARP: &[u8] = b"MP";
/// The length of the kind and the length.
pub(super) const HANDSHAKE: usize = 2;

impl TcpLink {
    /// Whether the client has not sent its hello.
    pub(in crate::backend::tcp) fn awaits_hello(&self) -> bool {
        self.state == State::Handshake
    }

    /// Whether an RDMA device has begun an iWARP connection.
    pub(in crate::backend::tcp) fn is_iwarp(&self) -> bool {
        self.head.starts_with(IWARP)
    }

    /// Returns the hello of a client, once it is complete.
    pub(in crate::backend::tcp) fn read_hello(&mut self) -> io::Result<Option<(SocketAddr, Vec<u8>)>> {
        if self.state != State::Handshake || !self.read_handshake()? {
            return Ok(None);
        }
        if self.head[0] != HELLO {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.state = State::Answering;
        Ok(Some((self.socket.peer_addr()?, mem::take(&mut self.head).split_off(HANDSHAKE))))
    }

    /// Accepts the connection on behalf of the worker.
    pub(in crate::backend::tcp) fn answer(&mut self, hello: &[u8]) {
        self.handshake = handshake(HELLO, hello);
        self.state = State::Answered;
    }

    pub(in crate::backend::tcp) fn refuse(mut self, refusal: &[u8]) {
        // The refusal fits into the socket's empty buffer. If the write fails, the peer receives no reason.
        _ = self.socket.write(&handshake(REFUSAL, refusal));
        _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Whether `head` contains the peer's whole handshake.
    pub(super) fn read_handshake(&mut self) -> io::Result<bool> {
        loop {
            let whole = HANDSHAKE + self.head.get(1).map_or(0, |&length| usize::from(length));
            if self.head.len() >= HANDSHAKE && self.head.len() == whole {
                return Ok(true);
            }
            let mut bytes = [0; 256];
            match self.socket.read(&mut bytes[..whole - self.head.len()]) {
                Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(count) => self.head.extend_from_slice(&bytes[..count]),
                Err(error) if is_again(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
            if !matches!(self.head[0], HELLO | REFUSAL) {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the peer does not speak trespass on this port",
                ));
            }
        }
    }
}

pub(super) fn handshake(what: u8, bytes: &[u8]) -> Vec<u8> {
    let mut handshake = vec![what, u8::try_from(bytes.len()).unwrap_or(u8::MAX)];
    handshake.extend_from_slice(bytes);
    handshake
}
