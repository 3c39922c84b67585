//! The TLS session of a connection. While TLS is active, messages contain TLS records instead of frames.
//!
//! The first messages are the TLS handshake; then each side sends its hello. Over TCP, all later frames are encrypted
//! too. Over RDMA, each side ends TLS after its hello (`close_notify`), and its later messages are frames. Each hello
//! contains the numbers of both queue pairs; over iWARP, it contains hashes of both addresses instead. If a peer relays
//! the handshake of another connection, its queue pairs usually have other numbers, so this side detects the relay. An
//! attacker on the network path can choose the numbers and remain undetected.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use crate::core::{Side, Violation};
use crate::error::{Certainty, RpcError, Status};
use crate::wire::WireError;

use super::super::Options;

/// The TLS configuration of an endpoint. A connection uses TLS if the configuration for its side is set; this endpoint
/// then refuses a peer that does not use TLS.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// The configuration for connections that this side initiates. The server's certificate must be valid for the host
    /// in the address.
    pub client: Option<Arc<ClientConfig>>,
    /// The configuration for connections that this side accepts. For mutual TLS, build it with a verifier for client
    /// certificates.
    pub server: Option<Arc<ServerConfig>>,
}

/// The TLS session of one connection.
pub(super) struct Session {
    tls: rustls::Connection,
    /// TLS records that have not been sent yet.
    records: Vec<u8>,
    /// Whether the connection uses RDMA, so that each side ends TLS after its hello.
    is_rdma: bool,
    /// Whether TLS has ended in the direction in which this side sends, and whether it has ended in the other
    /// direction.
    sends_frames: bool,
    receives_frames: bool,
}

impl Session {
    /// Creates the session of a new connection; returns `None` if TLS is not configured for this side.
    pub(super) fn new(options: &Options, side: Side, host: &str, is_rdma: bool) -> Result<Option<Self>, RpcError> {
        let made = match (side, &options.tls) {
            (Side::Client, Tls { client: Some(config), .. }) => {
                let name = ServerName::try_from(host.to_owned());
                let name = name.map_err(|_| refused(format!("{host:?} is not a name that a certificate can have")))?;
                ClientConnection::new(Arc::clone(config), name).map(rustls::Connection::from)
            }
            (Side::Server, Tls { server: Some(config), .. }) => {
                ServerConnection::new(Arc::clone(config)).map(rustls::Connection::from)
            }
            _ => return Ok(None),
        };
        let mut tls = made.map_err(failed)?;
        // The buffer needs no limit, because the driver takes the records out of it after each message.
        tls.set_buffer_limit(None);
        Ok(Some(Self { tls, records: Vec::new(), is_rdma, sends_frames: false, receives_frames: false }))
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether messages are encrypted before they are sent.
    pub(super) fn seals(&self) -> bool {
        !self.sends_frames
    }

    /// Whether messages that arrive must be decrypted.
    pub(super) fn opens(&self) -> bool {
        !self.receives_frames
    }

    /// Whether no records wait to be sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.records.is_empty() && !self.tls.wants_write()
    }

    /// Passes all records that wait to be sent to `send`, as one message.
    pub(super) fn flush(&mut self, send: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.records)?;
        }
        if !self.records.is_empty() {
            send(&self.records)?;
            self.records.clear();
        }
        Ok(())
    }

    /// Encrypts a message that consists of frames. Over RDMA, only the first message, which contains the hello, is
    /// encrypted.
    pub(super) fn seal(&mut self, frames: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(frames)?;
        if self.is_rdma {
            self.tls.send_close_notify();
            self.sends_frames = true;
        }
        Ok(())
    }

    /// Decrypts a message, and returns the frames in it. During the handshake a message contains no frames, so the
    /// result is empty.
    pub(super) fn open(&mut self, mut message: &[u8]) -> Result<Vec<u8>, RpcError> {
        const FRAME: u8 = 0xb0;
        if self.is_handshaking() && message.first().is_some_and(|first| first & 0xf0 == FRAME) {
            return Err(refused(Violation::Wire(WireError::Tls).to_string()));
        }
        let mut frames = Vec::new();
        while !message.is_empty() {
            if self.tls.read_tls(&mut message).map_err(|error| refused(format!("TLS failed: {error}")))? == 0 {
                return Err(refused("the peer sent bytes after the end of TLS".to_owned()));
            }
            let state = self.tls.process_new_packets().map_err(failed)?;
            let (from, more) = (frames.len(), state.plaintext_bytes_to_read());
            frames.resize(from + more, 0);
            self.tls
                .reader()
                .read_exact(&mut frames[from..])
                .map_err(|error| refused(format!("TLS failed: {error}")))?;
            if state.peer_has_closed() {
                if !self.is_rdma {
                    return Err(refused("the peer ended TLS".to_owned()));
                }
                self.receives_frames = true;
            }
        }
        Ok(frames)
    }

    pub(super) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        self.tls.peer_certificates().unwrap_or_default().to_vec()
    }
}

fn failed(error: rustls::Error) -> RpcError {
    refused(format!("TLS handshake failed: {error}"))
}

fn refused(detail: String) -> RpcError {
    RpcError::new(Status::UNAUTHENTICATED, Certainty::NotSent, detail)
}
