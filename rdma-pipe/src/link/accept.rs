//! Accepting a peer that has the key.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use trespass::{Acceptor, Connection, Transport};

use super::connect::any_address;
use super::ends::{Link, Received};
use super::options::Options;
use crate::channel::{Handshake, Role};
use crate::error::{Error, Kind, Result, reason};
use crate::proto::{Frame, Purpose};

/// For a peer's side of the handshake: the next peer waits meanwhile.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// After a wrong key: three guesses a second.
const PENALTY: Duration = Duration::from_millis(333);

/// Waits for peers.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    options: Options,
}

impl Listener {
    /// Listens at a port of all addresses, or of the given one; port 0 is any free one.
    ///
    /// # Errors
    ///
    /// The port is in use.
    pub fn bind(address: Option<SocketAddr>, port: u16, options: &Options) -> Result<Listener> {
        let handle = options.worker()?;
        let bind = |address| Acceptor::bind_on(&handle, address);
        let bound = match address {
            Some(address) => bind(address),
            // A host without IPv6 has the other.
            None => bind(any_address(port)).or_else(|_| bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))),
        };
        let acceptor = bound.map_err(|error| {
            if options.transport == Transport::Rdma && error.kind() == std::io::ErrorKind::NotFound {
                return Error::new(Kind::NoRdma, format!("no RDMA: {error}; leave out --rdma to use TCP"));
            }
            let text = format!("cannot listen at port {port}: {}; choose another port", reason(&error));
            Error::new(Kind::Usage, text)
        })?;
        Ok(Listener { acceptor, options: options.clone() })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.acceptor.local_addr().port()
    }

    /// Waits for a peer with the key, until the deadline if there is one. Peers with another key, and other programs, are logged and refused.
    ///
    /// # Errors
    ///
    /// [`Kind::TimedOut`] after the deadline.
    pub fn accept(&self, key: &[u8], deadline: Option<Instant>) -> Result<(Link, Purpose)> {
        loop {
            let connection = self.acceptor.accept_until(deadline).map_err(|error| match error.kind() {
                std::io::ErrorKind::TimedOut => Error::new(Kind::TimedOut, "no peer connected in time"),
                _ => error.into(),
            })?;
            let peer = connection.addresses().map(|(_, peer)| peer.to_string()).unwrap_or_default();
            match self.handshake(connection, key) {
                Ok(link) => return Ok(link),
                Err(error) => {
                    log::warn!("refused a connection from {peer}: {error}");
                    if error.kind() == Kind::WrongKey {
                        thread::sleep(PENALTY);
                    }
                }
            }
        }
    }

    fn handshake(&self, connection: Connection, key: &[u8]) -> Result<(Link, Purpose)> {
        let deadline = Some(Instant::now() + HANDSHAKE);
        let receive = || {
            let message = connection.recv_until(deadline)?;
            message.ok_or_else(|| Error::new(Kind::WrongKey, "the peer ended the handshake; it may have another key"))
        };
        let (handshake, hello) = Handshake::start(Role::Server, key);
        let (mut sealer, mut opener) = handshake.finish(&receive()?)?;
        connection.send(&hello)?;
        connection.send(&sealer.control(&Frame::Opened.emit()))?;
        let wrong = || Error::new(Kind::WrongKey, "the peer has another key");
        let Ok(crate::channel::Message::Control(frame)) = opener.open(receive()?) else { return Err(wrong()) };
        let Frame::Open(purpose) = Frame::parse(&frame)? else {
            return Err(Error::protocol("the peer did not complete the handshake"));
        };
        Ok((Link::new(connection, (sealer, opener), &self.options)?, purpose))
    }
}

impl Link {
    /// Receives until the peer closes; for the side that has sent its last frame.
    pub fn wait_for_close(&mut self) {
        while let Ok(Received::Frame(_)) = self.receiver.receive() {}
    }
}
