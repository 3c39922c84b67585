//! Connects to a peer, with retries until it is listening.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use trespass::{Connection, Handle, Transport};

use super::accept::WRONG_KEY;
use super::ends::Link;
use super::options::{Options, resolve};
use crate::channel::{Handshake, Message, Role};
use crate::error::{Error, Kind, Result};
use crate::proto::{Frame, Peer, Purpose};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Time limit for the peer's messages of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit for an attempt at one address.
const ATTEMPT: Duration = Duration::from_secs(5);

/// For how long, and in which cases, to retry a connection.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// The peer may not listen yet, so a refused connection is retried.
    Coming(Duration),
    /// The peer listens until its process exits, so a refused connection is final.
    Listening(Duration),
}

/// Connects to the first address of the peer that accepts, and authenticates both sides. If none accepts, retries until
/// `patience` has expired, unless another attempt would fail too. Errors of the connection name the peer.
///
/// # Errors
///
/// No address accepts ([`Kind::Unreachable`]), the peer has a different key ([`Kind::WrongKey`]), or the peer is
/// another program.
pub fn connect(peer: &Peer, purpose: Purpose, patience: Patience, options: &Options) -> Result<Link> {
    let handle = options.worker()?;
    let (patience, listens) = match patience {
        Patience::Coming(patience) => (patience, false),
        Patience::Listening(patience) => (patience, true),
    };
    let until = Instant::now() + patience;
    loop {
        let (error, is_final) = match attempt(&handle, &peer.addresses) {
            Ok(connection) => match authenticate(connection, &peer.key, purpose, options) {
                Ok(link) => {
                    link.name_peer(&peer.name);
                    return Ok(link);
                }
                // If a peer disconnects, it may be a process that is exiting while its successor starts.
                Err(error) => {
                    let is_final = !matches!(error.kind(), Kind::Broken | Kind::Unreachable);
                    (error.on(&peer.name), is_final)
                }
            },
            Err(attempt) => {
                let is_final = attempt.is_final || (listens && attempt.is_refused);
                (unreachable(&peer.addresses, &attempt, listens, options), is_final)
            }
        };
        if is_final || Instant::now() >= until {
            return Err(error);
        }
        thread::sleep(PAUSE);
    }
}

/// Connects again to a peer whose connection broke, until the deadline.
///
/// # Errors
///
/// See [`connect`]. A refused connection is final: the peer's process has ended.
pub fn reconnect(peer: &Peer, purpose: Purpose, until: Instant, options: &Options) -> Result<Link> {
    connect(peer, purpose, Patience::Listening(until.saturating_duration_since(Instant::now())), options)
}

fn authenticate(connection: Connection, key: &[u8], purpose: Purpose, options: &Options) -> Result<Link> {
    let (handshake, hello) = Handshake::start(Role::Client, key);
    connection.send(&hello)?;
    let deadline = Some(Instant::now() + HANDSHAKE);
    let receive = || match connection.recv_until(deadline) {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(refused(&connection)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {
            Err(Error::new(Kind::Unreachable, "the peer accepts connections and sends nothing; check host and port"))
        }
        Err(error) => Err(error.into()),
    };
    let (mut sealer, mut opener) = handshake.finish(&receive()?)?;
    let wrong = || Error::new(Kind::WrongKey, "the receiver has a different key; start both sides with the same KEY");
    connection.send(&sealer.control(&Frame::Open(purpose).emit()))?;
    let answer = receive().map_err(|error| match connection.peer_close() {
        Some((WRONG_KEY, _)) => wrong(),
        _ => error,
    })?;
    match opener.open(answer).map_err(|_| wrong())? {
        Message::Control(frame) if Frame::parse(&frame)? == Frame::Opened => {}
        _ => return Err(Error::protocol("the peer did not complete the handshake")),
    }
    Link::new(connection, (sealer, opener), options)
}

/// An attempt that failed at all addresses.
#[derive(Debug)]
struct Attempt {
    error: io::Error,
    /// Whether one of the addresses is reachable although no process listens there.
    is_refused: bool,
    /// Whether another attempt would fail too.
    is_final: bool,
    /// Whether a name has an address.
    has_address: bool,
}

fn attempt(handle: &Handle, addresses: &[String]) -> std::result::Result<Connection, Attempt> {
    let mut error = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    let (mut is_refused, mut has_address, mut may_resolve) = (false, false, false);
    for address in addresses {
        match resolve(address) {
            Ok(found) => {
                for address in found {
                    has_address = true;
                    match Connection::connect_on(handle, address, Some(ATTEMPT)) {
                        Ok(connection) => return Ok(connection),
                        Err(last) => error = last,
                    }
                    is_refused |= error.kind() == io::ErrorKind::ConnectionRefused;
                }
            }
            // The starter's own name for a host may not resolve here. Another address has a better reason.
            Err(_) if has_address => {}
            Err(last) => {
                // The text of EAI_AGAIN: the name servers cannot be reached at the moment.
                let text = last.to_string();
                may_resolve |= text.contains("Temporary failure") || text.contains("Try again");
                error = io::Error::new(io::ErrorKind::InvalidInput, format!("cannot resolve the name: {last}"))
            }
        }
    }
    // No address is left, or, without TCP, no device.
    let is_final = if has_address { error.kind() == io::ErrorKind::NotFound } else { !may_resolve };
    Err(Attempt { error, is_refused, is_final, has_address })
}

fn refused(connection: &Connection) -> Error {
    match connection.peer_close() {
        Some((_, reason)) if !reason.is_empty() => {
            Error::protocol(format!("the receiver rejected the connection: {reason}"))
        }
        _ => Error::new(Kind::Broken, "the peer ended the connection during the handshake"),
    }
}

fn unreachable(addresses: &[String], attempt: &Attempt, listens: bool, options: &Options) -> Error {
    let error = &attempt.error;
    let at = addresses.join(" or ");
    if options.transport == Transport::Rdma && error.kind() == io::ErrorKind::NotFound {
        return Error::new(Kind::NoRdma, format!("RDMA is unavailable: {error}; leave out --rdma to use TCP"));
    }
    let remedy = match (attempt.has_address, listens) {
        (false, false) => "check the name",
        // The remote shell may have another way to the host.
        (false, true) => "the data does not pass through the remote shell: add the name to /etc/hosts",
        (true, true) if !attempt.is_refused => {
            "check the network; if a firewall blocks the port, choose another with --port"
        }
        (true, _) => "check that the receiver runs there",
    };
    Error::new(Kind::Unreachable, format!("cannot connect to {at}: {error}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_end_if_another_one_would_fail_too() {
        let options = Options { transport: Transport::Tcp, ..Options::default() };
        let handle = options.worker().unwrap();
        let is_final = |addresses: &[&str]| {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            attempt(&handle, &addresses).unwrap_err().is_final
        };
        assert!(is_final(&["a..b:1"]) && is_final(&["a..b:1", ":1"]));
        // A process may listen there later.
        assert!(!is_final(&["127.0.0.1:1"]) && !is_final(&["127.0.0.1:1", "a..b:1"]));
    }
}
