//! Accepts a peer that has the key.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use trespass::{Acceptor, Connection, Interest, Transport};

use super::ends::Link;
use super::options::Options;
use crate::channel::{Handshake, Message, Opener, Role, Sealer};
use crate::error::{Error, Kind, Result, reason};
use crate::proto::{Frame, Purpose};

/// Time limit for the peer's messages of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// The pause after a wrong key before the next key from the same host is checked. It limits guessing to three keys per
/// second and host, and delays no other host.
const PENALTY: Duration = Duration::from_millis(333);
/// The interval at which a thread checks for a peer that another thread has accepted for it.
const PARKED: Duration = Duration::from_millis(10);
/// Maximum number of concurrent handshakes. Beyond it, the oldest one of the host with the most of them ends.
const MOST: usize = 64;
/// The close code for a peer that has a different key.
pub(super) const WRONG_KEY: u32 = 1;

/// Waits for peers.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    /// Handshakes in progress, in the order of arrival.
    entering: Mutex<Vec<Entering>>,
    /// Peers that [`Listener::accept_for`] accepted while it waited for peers of the other purpose.
    parked: Mutex<Vec<(Link, Purpose)>>,
    options: Options,
}

impl Listener {
    /// Listens at a port of all addresses, or of the given one; port 0 selects any free port.
    ///
    /// # Errors
    ///
    /// The port is in use.
    pub fn bind(address: Option<SocketAddr>, port: u16, options: &Options) -> Result<Listener> {
        let handle = options.worker()?;
        let bind = |address| Acceptor::bind_on(&handle, address);
        let bound = match address {
            Some(address) => bind(address),
            // If the host has no IPv6, listens on IPv4.
            None => bind(any_address(port)).or_else(|_| bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))),
        };
        let acceptor = bound.map_err(|error| {
            if options.transport == Transport::Rdma && error.kind() == std::io::ErrorKind::NotFound {
                return Error::new(Kind::NoRdma, format!("RDMA is unavailable: {error}; leave out --rdma to use TCP"));
            }
            let text = format!("cannot listen at port {port}: {}; choose another port", reason(&error));
            Error::new(Kind::Usage, text)
        })?;
        Ok(Listener { acceptor, entering: Mutex::default(), parked: Mutex::default(), options: options.clone() })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.acceptor.local_addr().port()
    }

    /// Waits for a peer that has the key, until the deadline if one is given. Peers with a different key, and other
    /// programs, are rejected and logged. The handshakes of several peers run concurrently.
    ///
    /// # Errors
    ///
    /// [`Kind::TimedOut`] after the deadline.
    pub fn accept(&self, key: &[u8], deadline: Option<Instant>) -> Result<(Link, Purpose)> {
        self.accept_with(&mut self.entering.lock().unwrap_or_else(PoisonError::into_inner), key, deadline)
    }

    /// Waits until the deadline for a peer of one purpose, while another thread may wait for peers of the other
    /// purpose.
    ///
    /// # Errors
    ///
    /// See [`Listener::accept`].
    pub fn accept_for(&self, key: &[u8], wanted: Purpose, deadline: Instant) -> Result<Link> {
        loop {
            let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(at) = parked.iter().position(|(_, purpose)| *purpose == wanted) {
                return Ok(parked.remove(at).0);
            }
            drop(parked);
            match self.entering.try_lock() {
                Ok(mut entering) => match self.accept_with(&mut entering, key, Some(deadline))? {
                    (link, purpose) if purpose == wanted => return Ok(link),
                    other => self.parked.lock().unwrap_or_else(PoisonError::into_inner).push(other),
                },
                // The other thread is accepting peers.
                Err(_) if Instant::now() < deadline => std::thread::sleep(PARKED),
                Err(_) => return Err(Error::new(Kind::TimedOut, "no peer connected in time")),
            }
        }
    }

    fn accept_with(
        &self,
        entering: &mut Vec<Entering>,
        key: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(Link, Purpose)> {
        let mut paused: HashMap<IpAddr, Instant> = HashMap::new();
        loop {
            let now = Instant::now();
            while let Some(late) = entering.iter().position(|peer| peer.until <= now) {
                entering.remove(late).refuse(&Error::protocol("the peer did not complete the handshake"));
            }
            paused.retain(|_, until| now < *until);
            let is_paused = |peer: &Entering| peer.state.is_some() && paused.contains_key(&peer.host);
            let watched: Vec<usize> = (0..entering.len()).filter(|&at| !is_paused(&entering[at])).collect();
            let messages = watched.iter().map(|&at| Interest::Message(&entering[at].connection));
            let interests: Vec<_> = std::iter::once(Interest::Incoming(&self.acceptor)).chain(messages).collect();
            let next = entering.iter().map(|peer| peer.until).chain(paused.values().copied()).chain(deadline).min();
            let ready = trespass::poll(&interests, next)?;
            let ready_peer = ready.iter().skip(1).position(|&ready| ready).map(|at| watched[at]);
            if let Some(at) = ready_peer {
                let mut peer = entering.remove(at);
                match peer.step(key) {
                    Ok(None) => entering.insert(at, peer),
                    Ok(Some((ends, purpose))) => {
                        return Ok((Link::new(peer.connection, ends, &self.options)?, purpose));
                    }
                    Err(error) => {
                        if error.kind() == Kind::WrongKey {
                            paused.insert(peer.host, Instant::now() + PENALTY);
                        }
                        peer.refuse(&error);
                    }
                }
            }
            if ready.first() == Some(&true)
                && let Ok(connection) = self.acceptor.try_accept()
            {
                if entering.len() == MOST {
                    let of = |host| entering.iter().filter(|peer| peer.host == host).count();
                    // Of several that compare equal, `min_by_key` returns the first.
                    let oldest = (0..MOST).min_by_key(|&at| MOST - of(entering[at].host)).unwrap_or_default();
                    entering.remove(oldest).refuse(&Error::protocol("too many handshakes are in progress"));
                }
                let host = connection.addresses().map_or(Ipv4Addr::UNSPECIFIED.into(), |(_, peer)| host_of(peer.ip()));
                entering.push(Entering { connection, host, state: None, until: Instant::now() + HANDSHAKE });
            } else if ready_peer.is_none() && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::new(Kind::TimedOut, "no peer connected in time"));
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for peer in self.entering.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            peer.connection.abandon(0, "the receiver is already connected to a peer");
        }
    }
}

/// A peer whose handshake is in progress.
#[derive(Debug)]
struct Entering {
    connection: Connection,
    host: IpAddr,
    /// The derived keys; `None` before the peer's hello.
    state: Option<(Sealer, Opener)>,
    until: Instant,
}

impl Entering {
    /// Processes a message of the handshake. After the last message, returns the two ends of the connection. The peer
    /// must be the first to prove that it has the key, so each guess requires a handshake with this side.
    fn step(&mut self, key: &[u8]) -> Result<Option<((Sealer, Opener), Purpose)>> {
        let message = match self.connection.try_recv() {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            message => message?.ok_or_else(|| Error::protocol("the peer ended the handshake"))?,
        };
        let Some((mut sealer, mut opener)) = self.state.take() else {
            let (handshake, hello) = Handshake::start(Role::Server, key);
            self.state = Some(handshake.finish(&message)?);
            self.connection.send(&hello)?;
            return Ok(None);
        };
        let Ok(Message::Control(frame)) = opener.open(message) else {
            return Err(Error::new(Kind::WrongKey, "the peer has a different key"));
        };
        let Frame::Open(purpose) = Frame::parse(&frame)? else {
            return Err(Error::protocol("the peer did not complete the handshake"));
        };
        self.connection.send(&sealer.control(&Frame::Opened.emit()))?;
        Ok(Some(((sealer, opener), purpose)))
    }

    fn refuse(self, error: &Error) {
        let peer = self.connection.addresses().map(|(_, peer)| peer.to_string()).unwrap_or_default();
        log::warn!("rejected a connection from {peer}: {error}");
        let code = if error.kind() == Kind::WrongKey { WRONG_KEY } else { 0 };
        self.connection.abandon(code, "");
    }
}

/// Returns the wildcard address, which accepts connections to all local addresses.
fn any_address(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], port))
}

/// What stands for a host: its IPv4 address, or the network of its IPv6 address, of which one host may have all addresses.
fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

impl Link {
    /// Receives until the peer closes the connection. Call it after sending the last frame.
    ///
    /// # Errors
    ///
    /// The connection broke: the peer may not have received the last frame.
    pub fn wait_for_close(&mut self) -> Result<()> {
        self.receiver.wait_for_close()
    }
}
