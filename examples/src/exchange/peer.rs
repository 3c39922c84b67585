//! The connection over which the addresses travel.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::Address;
use crate::Timeout;

/// What the client says last.
const DONE: &[u8; 5] = b"done\0";

/// The program at the other end.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    name: String,
    timeout: Timeout,
}

impl Peer {
    /// Waits for the client on a TCP port, IPv6 or IPv4.
    ///
    /// # Errors
    ///
    /// The port is taken, or nobody came in time.
    pub fn accept(port: u16, timeout: Timeout) -> Result<Self> {
        let listener = listen(port).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                anyhow!(
                    "TCP port {port} is in use, perhaps by another server that still waits: choose another with --port"
                )
            }
            _ => anyhow!("cannot listen on TCP port {port}: {error}"),
        })?;
        let (stream, address) = accept(&listener, timeout).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => anyhow!("no client came to TCP port {port} within {}", seconds(timeout)),
            _ => anyhow!("cannot accept a client on TCP port {port}: {error}"),
        })?;
        // A socket of both families shows IPv4 addresses as IPv6 ones.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self::new(stream, format!("the client at {address}"), timeout)
    }

    /// Goes to the server: a name or an address, IPv6 or IPv4.
    ///
    /// # Errors
    ///
    /// There is no such host, or nobody listens there.
    pub fn connect(host: &str, port: u16, timeout: Timeout) -> Result<Self> {
        let addresses =
            (host, port).to_socket_addrs().map_err(|error| anyhow!("the host `{host}` is not found: {error}"))?;
        let mut failure = None;
        for address in addresses {
            match connect(&address, timeout) {
                Ok(stream) => return Self::new(stream, format!("the server at {address}"), timeout),
                Err(error) => failure = Some((address, error)),
            }
        }
        match failure {
            None => bail!("the host `{host}` has no address"),
            Some((address, error)) if error.kind() == ErrorKind::ConnectionRefused => bail!(
                "nobody listens at {address}: start the server first, there and with the same --port (it is the same command \
                 without SERVER)"
            ),
            Some((address, error)) if error.kind() == ErrorKind::TimedOut => {
                bail!(
                    "{address} did not answer within {}: is it the right host, and no firewall between?",
                    seconds(timeout)
                )
            }
            Some((address, error)) => bail!("cannot connect to {address}: {error}"),
        }
    }

    fn new(stream: TcpStream, name: String, timeout: Timeout) -> Result<Self> {
        let set = || {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(timeout.0)
        };
        set().map_err(|error| anyhow!("cannot set up the connection to {name}: {error}"))?;
        Ok(Self { stream, name, timeout })
    }

    /// Who it is, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tells where this side's queue pair is.
    ///
    /// # Errors
    ///
    /// The peer has gone.
    pub fn send_address(&mut self, address: &Address) -> Result<()> {
        self.send(&address.encode())
    }

    /// Learns where the peer's queue pair is.
    ///
    /// # Errors
    ///
    /// The peer has gone, is silent, or talks of something else.
    pub fn receive_address(&mut self) -> Result<Address> {
        let mut message = [0; Address::LEN];
        self.receive(&mut message, "the address of its queue pair")?;
        Address::decode(&message).with_context(|| format!("{} sent something else", self.name))
    }

    /// Tells the server that it may begin.
    ///
    /// # Errors
    ///
    /// The peer has gone.
    pub fn send_done(&mut self) -> Result<()> {
        self.send(DONE)
    }

    /// Waits until the client's queue pair is up.
    ///
    /// # Errors
    ///
    /// The peer has gone, is silent, or talks of something else.
    pub fn receive_done(&mut self) -> Result<()> {
        let mut message = [0; DONE.len()];
        self.receive(&mut message, "that its queue pair is up")?;
        if &message != DONE {
            bail!("{} said `{}` where it should have said `done`", self.name, message.escape_ascii());
        }
        Ok(())
    }

    /// Waits until the peer has closed the connection, has gone, or the time is over, whichever comes first.
    pub fn wait_for_end(&mut self) {
        let deadline = Deadline::new(self.timeout);
        let mut rest = [0; 64];
        loop {
            let read = deadline.left().and_then(|left| {
                self.stream.set_read_timeout(left)?;
                self.stream.read(&mut rest)
            });
            match read {
                Ok(0) => return,
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    }

    /// Says something else, of a length that the peer knows.
    ///
    /// # Errors
    ///
    /// The peer has gone.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.stream.write_all(message).map_err(|error| anyhow!("{} has gone: {error}", self.name))
    }

    /// Fills `message`, within the time for all of it; `what` the peer is to tell is named where it does not.
    ///
    /// # Errors
    ///
    /// The peer has gone, or is silent.
    pub fn receive(&mut self, message: &mut [u8], what: &str) -> Result<()> {
        let deadline = Deadline::new(self.timeout);
        let mut filled = 0;
        while filled < message.len() {
            let rest = message.get_mut(filled..).unwrap_or_default();
            let read = deadline.left().and_then(|left| {
                self.stream.set_read_timeout(left)?;
                self.stream.read(rest)
            });
            match read {
                Ok(0) => bail!(
                    "{} closed the connection before it had told {what} ({filled} of {} bytes came): see what it says about it",
                    self.name,
                    message.len()
                ),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => bail!(
                    "{} did not tell {what} within {} ({filled} of {} bytes came)",
                    self.name,
                    seconds(self.timeout),
                    message.len()
                ),
                Err(error) => bail!("{} has gone before it had told {what}: {error}", self.name),
            }
        }
        Ok(())
    }
}

/// Both families where the machine has IPv6, else IPv4.
fn listen(port: u16) -> io::Result<TcpListener> {
    let any = |address: IpAddr| TcpListener::bind(SocketAddr::new(address, port));
    match any(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => any(Ipv4Addr::UNSPECIFIED.into()),
        result => result,
    }
}

/// The standard library's `accept` knows no limit of time.
fn accept(listener: &TcpListener, timeout: Timeout) -> io::Result<(TcpStream, SocketAddr)> {
    const PAUSE: Duration = Duration::from_millis(5);
    let deadline = Deadline::new(timeout);
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                deadline.left()?;
                std::thread::sleep(PAUSE);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(error) => return Err(error),
            Ok((stream, address)) => {
                stream.set_nonblocking(false)?;
                return Ok((stream, address));
            }
        }
    }
}

fn connect(address: &SocketAddr, timeout: Timeout) -> io::Result<TcpStream> {
    match timeout.0 {
        Some(timeout) => TcpStream::connect_timeout(address, timeout),
        None => TcpStream::connect(address),
    }
}

/// The end of a wait.
struct Deadline(Option<Instant>);

impl Deadline {
    fn new(timeout: Timeout) -> Self {
        Self(timeout.0.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// The time left, never zero; an error when there is none.
    fn left(&self) -> io::Result<Option<Duration>> {
        match self.0.map(|end| end.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

fn seconds(timeout: Timeout) -> String {
    timeout.0.map_or_else(|| "the time of the system".to_owned(), |timeout| format!("{} s", timeout.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn limit(milliseconds: u64) -> Timeout {
        Timeout(Some(Duration::from_millis(milliseconds)))
    }

    /// A client that says `bytes` and then stays or goes; what the server makes of it.
    fn heard(bytes: &'static [u8], stays: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(bytes).unwrap();
            stays.then_some(stream)
        });
        let (stream, address) = accept(&listener, limit(5000)).unwrap();
        let client = client.join().unwrap();
        let mut peer = Peer::new(stream, format!("the client at {address}"), limit(100)).unwrap();
        let text = match peer.receive_address() {
            Ok(address) => address.to_string(),
            Err(error) => format!("{error:#}"),
        };
        drop(client);
        text
    }

    #[test]
    fn an_address_arrives() {
        let text = heard(b"0000:000012:29c2b6:00000000000000000000ffff0a470001\0", true);
        assert_eq!(text, "LID 0x0000, QPN 0x000012, PSN 0x29c2b6, GID ::ffff:10.71.0.1");
    }

    #[test]
    fn garbage_silence_and_going_are_told_apart() {
        let garbage = heard(b"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: curl/8\r\n\r\n", true);
        assert!(garbage.contains("`GET / HTTP/1.1\\r\\nHost"), "{garbage}");
        assert!(garbage.contains("is not the address of a queue pair"), "{garbage}");
        let silent = heard(b"0000:", true);
        assert!(
            silent.ends_with("did not tell the address of its queue pair within 0.1 s (5 of 52 bytes came)"),
            "{silent}"
        );
        let gone = heard(b"0000:0", false);
        assert!(gone.contains("closed the connection") && gone.contains("(6 of 52 bytes came)"), "{gone}");
    }

    #[test]
    fn the_end_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"what nobody asked for").unwrap();
            stream
        });
        let (stream, address) = accept(&listener, limit(5000)).unwrap();
        let mut peer = Peer::new(stream, format!("the client at {address}"), limit(30)).unwrap();
        // One that stays does not hold it for ever, and one that goes does not hold it at all.
        let client = client.join().unwrap();
        peer.wait_for_end();
        drop(client);
        peer.timeout = Timeout(None);
        peer.wait_for_end();
    }

    #[test]
    fn waiting_for_a_client_ends() {
        // Port 0 is any free one.
        let error = Peer::accept(0, limit(30)).unwrap_err().to_string();
        assert_eq!(error, "no client came to TCP port 0 within 0.03 s");
    }

    #[test]
    fn a_server_that_is_not_there_is_told() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error = Peer::connect("127.0.0.1", port, limit(1000)).unwrap_err().to_string();
        assert!(error.contains("nobody listens at 127.0.0.1") && error.contains("start the server first"), "{error}");
    }

    #[test]
    fn both_families_are_served() {
        for host in ["127.0.0.1", "::1"] {
            let Ok(listener) = listen(0) else { panic!("no port is free") };
            let port = listener.local_addr().unwrap().port();
            let client = thread::spawn(move || Peer::connect(host, port, limit(1000)).map(drop));
            let served = accept(&listener, limit(2000)).map(drop);
            match client.join().unwrap() {
                Ok(()) => served.unwrap(),
                // A machine without IPv6.
                Err(error) => assert!(host == "::1", "{error}"),
            }
        }
    }
}
