//! The exchange of queue pair addresses between two programs: over TCP, in the format of rdma-core's ping-pongs, which
//! can be the peer.
//!
//! ```text
//! client                                  server
//!   connects                    ───────►    accepts
//!   its 52-byte address         ───────►    brings its queue pair up
//!   brings its queue pair up    ◄───────    its 52-byte address
//!   "done\0"                    ───────►
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use sideway::ibverbs::address::Gid;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::QueuePairEndpoint;

use crate::{Deadline, Timeout};

/// The default TCP port.
pub const DEFAULT_PORT: u16 = 18515;

/// The last message of the client.
const DONE: &[u8; 5] = b"done\0";

/// Bytes of an address, including the closing zero.
const LEN: usize = 52;

/// `LLLL:QQQQQQ:PPPPPP:` and the GID as 32 hexadecimal digits, closed by a zero byte: LID, queue pair number, and first
/// packet sequence number.
fn encode(QueuePairEndpoint { lid, qp_num, psn, gid, .. }: &QueuePairEndpoint) -> Vec<u8> {
    let gid = u128::from_be_bytes(gid.raw);
    format!("{lid:04x}:{qp_num:06x}:{psn:06x}:{gid:032x}\0").into_bytes()
}

/// Decodes a message of this format. The result has no MTU, and allows one outstanding read or atomic operation.
fn decode(message: &[u8; LEN]) -> Option<QueuePairEndpoint> {
    let text = std::str::from_utf8(message).ok()?.strip_suffix('\0')?;
    let mut fields = text.split(':');
    let mut field = |digits: usize| {
        let field = fields.next()?;
        // `from_str_radix` would accept a sign as well.
        let is_hex = field.len() == digits && field.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(field, 16).ok()).flatten()
    };
    let lid = u16::try_from(field(4)?).ok()?;
    let qp_num = u32::try_from(field(6)?).ok()?;
    let psn = u32::try_from(field(6)?).ok()?;
    let gid = Gid { raw: field(32)?.to_be_bytes() };
    let endpoint = QueuePairEndpoint { lid, qp_num, psn, gid, mtu: Mtu::Mtu4096, max_dest_read_atomic: 1 };
    fields.next().is_none().then_some(endpoint)
}

/// An address in the format of the C programs.
pub fn describe(QueuePairEndpoint { lid, qp_num, psn, gid, .. }: &QueuePairEndpoint) -> String {
    format!("LID {lid:#06x}, QPN {qp_num:#08x}, PSN {psn:#08x}, GID {}", Ipv6Addr::from(*gid))
}

/// The TCP connection to the peer.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    name: String,
    timeout: Timeout,
}

impl Peer {
    /// Waits for the client on a TCP port, over IPv6 or IPv4.
    ///
    /// # Errors
    ///
    /// The port is in use, or no client connected in time.
    pub fn accept(port: u16, timeout: Timeout) -> Result<Self> {
        let listener = listen(port).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => {
                anyhow!(
                    "cannot bind TCP port {port}: address in use; stop the other server, or choose another port with --port"
                )
            }
            _ => anyhow!("cannot bind TCP port {port}: {error}; choose another with --port"),
        })?;
        let (stream, address) = accept(&listener, timeout).map_err(|error| match error.kind() {
            ErrorKind::TimedOut => anyhow!(
                "no client connected to TCP port {port} within {}; start the client, or raise --timeout",
                seconds(timeout)
            ),
            _ => anyhow!("cannot accept a client on TCP port {port}: {error}"),
        })?;
        // A socket for both families reports IPv4 addresses in IPv6 form.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        Self::new(stream, format!("the client at {address}"), timeout)
    }

    /// Connects to the server, a name or an address, IPv6 or IPv4.
    ///
    /// # Errors
    ///
    /// The host cannot be resolved, or no server listens there.
    pub fn connect(host: &str, port: u16, timeout: Timeout) -> Result<Self> {
        let addresses = (host, port)
            .to_socket_addrs()
            .map_err(|error| anyhow!("cannot resolve `{host}`: {error}; check the name"))?;
        let mut failure = None;
        for address in addresses {
            let connected = match timeout.0 {
                Some(timeout) => TcpStream::connect_timeout(&address, timeout),
                None => TcpStream::connect(address),
            };
            match connected {
                Ok(stream) => return Self::new(stream, format!("the server at {address}"), timeout),
                Err(error) => failure = Some((address, error)),
            }
        }
        let Some((address, error)) = failure else { bail!("`{host}` has no address; check the name") };
        match error.kind() {
            ErrorKind::ConnectionRefused => bail!(
                "cannot connect to {address}: connection refused; start the server there first, with the same --port and without \
                 SERVER"
            ),
            ErrorKind::TimedOut => bail!(
                "cannot connect to {address}: no answer within {}; check the host name and the firewall",
                seconds(timeout)
            ),
            _ => bail!("cannot connect to {address}: {error}; check the address and the route to it"),
        }
    }

    fn new(stream: TcpStream, name: String, timeout: Timeout) -> Result<Self> {
        let set_up = stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(timeout.0));
        set_up.with_context(|| format!("cannot configure the connection to {name}"))?;
        Ok(Self { stream, name, timeout })
    }

    /// The name of the peer in messages: `the client at 192.0.2.1:4711`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends the address of this side's queue pair.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub fn send_address(&mut self, address: &QueuePairEndpoint) -> Result<()> {
        self.send(&encode(address))
    }

    /// Receives the address of the peer's queue pair.
    ///
    /// # Errors
    ///
    /// The peer disconnected, sent nothing in time, or sent no address.
    pub fn receive_address(&mut self) -> Result<QueuePairEndpoint> {
        let mut message = [0; LEN];
        self.receive(&mut message, "the address of its queue pair")?;
        decode(&message).with_context(|| {
            let text = message.escape_ascii();
            format!(
                "{} sent `{text}`, which is not a queue pair address; run the same program on both sides",
                self.name
            )
        })
    }

    /// Client: reports to the server that the client's queue pair can receive.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub fn send_done(&mut self) -> Result<()> {
        self.send(DONE)
    }

    /// Server: waits until the client's queue pair can receive.
    ///
    /// # Errors
    ///
    /// The peer disconnected, sent nothing in time, or sent another message.
    pub fn receive_done(&mut self) -> Result<()> {
        let mut message = [0; DONE.len()];
        self.receive(&mut message, "`done`")?;
        if &message != DONE {
            bail!(
                "{} sent `{}`, expected `done`; run the same example on both sides",
                self.name,
                message.escape_ascii()
            );
        }
        Ok(())
    }

    /// Waits until the peer has closed the connection, or until the time limit.
    pub fn wait_for_end(&mut self) {
        let deadline = Deadline::after(self.timeout);
        let mut rest = [0; 64];
        loop {
            match self.read(&deadline, &mut rest) {
                Ok(0) => return,
                Err(error) if error.kind() != ErrorKind::Interrupted => return,
                _ => {}
            }
        }
    }

    /// Sends a message of fixed length.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        self.stream
            .write_all(message)
            .map_err(|error| anyhow!("{} disconnected: {error}; see its error message", self.name))
    }

    /// Fills `message` within the time limit; `what` is the name of the message in errors.
    ///
    /// # Errors
    ///
    /// The peer disconnected, or sent too little in time.
    pub fn receive(&mut self, message: &mut [u8], what: &str) -> Result<()> {
        let deadline = Deadline::after(self.timeout);
        let mut filled = 0;
        while filled < message.len() {
            let all = message.len();
            match self.read(&deadline, message.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => bail!(
                    "{} disconnected before sending {what} ({filled} of {all} bytes arrived); see its error message",
                    self.name
                ),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => bail!(
                    "{} did not send {what} within {} ({filled} of {all} bytes arrived); see its output, or raise --timeout",
                    self.name,
                    seconds(self.timeout)
                ),
                Err(error) => bail!("{} disconnected before sending {what}: {error}; see its error message", self.name),
            }
        }
        Ok(())
    }

    fn read(&mut self, deadline: &Deadline, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(deadline.rest()?)?;
        self.stream.read(bytes)
    }
}

/// Listens on both families if the machine has IPv6, else on IPv4.
fn listen(port: u16) -> io::Result<TcpListener> {
    let any = |address: IpAddr| TcpListener::bind(SocketAddr::new(address, port));
    match any(Ipv6Addr::UNSPECIFIED.into()) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => any(Ipv4Addr::UNSPECIFIED.into()),
        result => result,
    }
}

/// Accepts within the time limit; `accept` of the standard library has none.
fn accept(listener: &TcpListener, timeout: Timeout) -> io::Result<(TcpStream, SocketAddr)> {
    const PAUSE: Duration = Duration::from_millis(5);
    let deadline = Deadline::after(timeout);
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                deadline.rest()?;
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

fn seconds(timeout: Timeout) -> String {
    timeout.0.map_or_else(|| "the system's time-out".to_owned(), |timeout| format!("{} s", timeout.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8; LEN] = b"00a1:00fe01:c0ffee:00000000000000000000ffff0a470001\0";

    #[test]
    fn an_address_has_the_format_of_the_c_programs() {
        let address = decode(MESSAGE).unwrap();
        assert_eq!(encode(&address), MESSAGE);
        assert_eq!(decode(&MESSAGE.to_ascii_uppercase().try_into().unwrap()), Some(address));
        assert_eq!(describe(&address), "LID 0x00a1, QPN 0x00fe01, PSN 0xc0ffee, GID ::ffff:10.71.0.1");
    }

    #[test]
    fn a_malformed_address_is_rejected() {
        for (at, byte) in [(0, b'g'), (0, b'+'), (3, b':'), (4, b'0'), (11, b' '), (20, 0xff), (50, b':'), (51, b'0')] {
            let mut message = *MESSAGE;
            message[at] = byte;
            assert_eq!(decode(&message), None, "{at}");
        }
        for byte in [b'0', 0, 0xff] {
            assert_eq!(decode(&[byte; 52]), None);
        }
    }
}
