//! How the client and the server establish the control connection.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use super::connection::Connection;
use super::failure::Failure;
use super::path::Near;
use super::wire::Wire;
use crate::endpoint::Role;
use crate::plan::time;
use crate::thread::start;

/// The default TCP port.
pub const PORT: u16 = 18515;

/// How long a client pauses between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a client retries a busy server if the user did not give `--wait-server`.
const BUSY_RETRY: Duration = Duration::from_secs(2);

/// The remedy in an error text if the user did not give `--wait-server`.
const WAIT: &str = "give --wait-server";

/// The remedy in an error text if the user gave `--wait-server`.
const LONGER: &str = "give a longer --wait-server";

/// The shortest time-out that a user can give. Within this time, both sides send progress several times.
pub const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// How the control channel is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// TCP.
    #[default]
    // Files of earlier versions may name a channel over rdma_cm, which those versions also had. Such files can still be
    // read.
    #[serde(alias = "rdma_cm")]
    Tcp,
    /// There is no network connection, because both sides are in one process.
    Process,
}

/// Options of the control channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlOptions {
    /// The server's port.
    pub port: u16,
    /// The only address family that the connection may use, if there is such a limit.
    pub family: Option<Family>,
    /// How long the peer may be silent.
    pub timeout: Duration,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The connection to a server, after the handshake.
#[derive(Debug)]
pub struct Met {
    /// The connection, after the handshake.
    pub connection: Connection,
    /// The IP addresses of both ends of this connection.
    pub near: Near,
    /// Version of the server's program.
    pub version: String,
}

/// Connects to a server by name or address. With `wait`, retries for that time if the server is unreachable or busy.
/// Without `wait`, retries a busy server for two seconds, because its last test may be about to end.
///
/// # Errors
///
/// `Unreachable`, `Busy`, `Incompatible` or `Broken`, as the variants of [`Failure`] explain.
pub fn connect(host: &str, contact: &ControlOptions, wait: Option<Duration>) -> Result<Met, Failure> {
    connect_reporting(host, contact, wait, |_| {})
}

/// Connects like [`connect`]. If the client has to wait for the server, calls `report` once with the cause.
///
/// # Errors
///
/// The same errors as [`connect`].
pub fn connect_reporting(
    host: &str,
    contact: &ControlOptions,
    wait: Option<Duration>,
    report: impl FnOnce(&str),
) -> Result<Met, Failure> {
    let begin = Instant::now();
    let (mut busy, mut report) = (None, Some(report));
    loop {
        match connect_once(host, contact) {
            Err(failure @ Failure::Busy(_)) if wait.is_none() && begin.elapsed() < BUSY_RETRY => {
                busy.get_or_insert(failure);
                thread::sleep(PAUSE);
            }
            // If the server was busy before, returns that failure, because it explains more than the current one.
            Err(failure) if wait.is_none() => return Err(advised(busy.unwrap_or(failure), wait)),
            Err(failure @ (Failure::Unreachable(_) | Failure::Busy(_))) => {
                let left = wait.unwrap_or_default().saturating_sub(begin.elapsed());
                if left.is_zero() {
                    return Err(advised(failure, wait));
                }
                if let Some(report) = report.take() {
                    report(cause(&failure.to_string()));
                }
                thread::sleep(left.min(PAUSE));
            }
            other => return other,
        }
    }
}

/// Adds the remedy to a failure if the server was unreachable or busy. `wait` is how long the client has waited.
fn advised(failure: Failure, wait: Option<Duration>) -> Failure {
    // Inserts the waiting time after the cause.
    let late = |text: &str, time: Duration| {
        let cause = cause(text);
        text.replacen(cause, &format!("{cause}, still after {}", time::show(time)), 1)
    };
    match (failure, wait) {
        // The text of a busy server does not contain how long the client has waited, so the client adds this time.
        (Failure::Busy(text), None) => Failure::Busy(format!("{text}; try later, or {WAIT}")),
        (Failure::Busy(text), Some(time)) => Failure::Busy(format!("{}; try later, or {LONGER}", late(&text, time))),
        (Failure::Unreachable(text), Some(time)) => Failure::Unreachable(late(&text, time).replacen(WAIT, LONGER, 1)),
        (other, _) => other,
    }
}

/// Returns the part of a text that names the cause, without the remedy.
fn cause(text: &str) -> &str {
    text.split_once("; ").map_or(text, |(cause, _)| cause)
}

fn connect_once(host: &str, contact: &ControlOptions) -> Result<Met, Failure> {
    let mut last = None;
    for address in resolve(host, contact)? {
        match reach(host, address, contact) {
            Err(failure @ Failure::Unreachable(_)) => last = Some(failure),
            other => return other,
        }
    }
    Err(last.unwrap_or_else(|| Failure::Unreachable(format!("{host} has no address; check the name"))))
}

fn reach(host: &str, address: SocketAddr, contact: &ControlOptions) -> Result<Met, Failure> {
    match TcpStream::connect_timeout(&address, contact.timeout) {
        Ok(stream) => meet(stream, contact),
        Err(error) => Err(Failure::Unreachable(unreachable(host, address, &error))),
    }
}

fn meet(stream: TcpStream, contact: &ControlOptions) -> Result<Met, Failure> {
    tune(&stream, contact.timeout);
    let ip = |address: io::Result<SocketAddr>| address.ok().map(|address| address.ip().to_canonical());
    let near = Near { client: ip(stream.local_addr()), server: ip(stream.peer_addr()) };
    handshake(stream, near, contact)
}

fn handshake(wire: impl Wire + 'static, near: Near, contact: &ControlOptions) -> Result<Met, Failure> {
    let (connection, hello) = Connection::handshake(wire, Role::Client, contact.timeout)?;
    Ok(Met { connection, near, version: hello.version })
}

fn resolve(host: &str, contact: &ControlOptions) -> Result<Vec<SocketAddr>, Failure> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let (name, port) = (bare.to_owned(), contact.port);
    let found = within(contact.timeout, move || (name.as_str(), port).to_socket_addrs())?;
    let found = found.map_err(|error| {
        Failure::Unreachable(match error.kind() {
            io::ErrorKind::TimedOut => format!(
                "cannot resolve {host}: no answer within {}; give the address, check /etc/resolv.conf, or raise --timeout",
                time::show(contact.timeout)
            ),
            _ => format!("cannot resolve {host}: {error}; check the name, or give the address"),
        })
    })?;
    let (all, missing) = match contact.family {
        None => (found.collect::<Vec<_>>(), "address"),
        Some(Family::V4) => (found.filter(SocketAddr::is_ipv4).collect(), "IPv4 address; leave out -4"),
        Some(Family::V6) => (found.filter(SocketAddr::is_ipv6).collect(), "IPv6 address; leave out -6"),
    };
    if all.is_empty() { Err(Failure::Unreachable(format!("{host} has no {missing}"))) } else { Ok(all) }
}

/// Calls `ask` on another thread. Returns `TimedOut` if the call takes longer than `time`. The call cannot be
/// cancelled, so the thread ends only when the call returns.
fn within<T: Send + 'static>(
    time: Duration,
    ask: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> anyhow::Result<io::Result<T>> {
    let (sender, receiver) = channel();
    start(move || {
        // Sending fails if the caller no longer waits, which is expected.
        let _ = sender.send(ask());
    })?;
    Ok(receiver.recv_timeout(time).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())))
}

fn unreachable(host: &str, address: SocketAddr, error: &io::Error) -> String {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "cannot connect to {host}, TCP port {port}: connection refused; start `stride-perf` there, or {WAIT}, or give \
             the server's --port"
        ),
        // The last router on the path, or a firewall, reports that the host is unreachable.
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock | io::ErrorKind::HostUnreachable => format!(
            "cannot connect to {host}, TCP port {port}: no answer; check that the host is up and that no firewall drops \
              the port (RoCE v2 also requires UDP port 4791)"
        ),
        _ => format!("cannot connect to {host}, TCP port {port}: {error}; check the route to it"),
    }
}

/// Listens for clients. If the port is 0, the system chooses a port.
///
/// # Errors
///
/// Returns `Unreachable` if the port is in use.
pub fn listen(contact: &ControlOptions) -> Result<TcpListener, Failure> {
    let port = contact.port;
    let four = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let six = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    let listener = match contact.family {
        Some(Family::V4) => listen_at(four, false),
        Some(Family::V6) => listen_at(six, true),
        // If the host does not support IPv6, listens on IPv4.
        None => listen_at(six, false).or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied => Err(error),
            _ => listen_at(four, false),
        }),
    };
    listener.map_err(|error| {
        Failure::Unreachable(match error.kind() {
            io::ErrorKind::AddrInUse => {
                format!("cannot bind TCP port {port}: address in use; stop the other server, or choose another port with --port")
            }
            io::ErrorKind::PermissionDenied => {
                format!("cannot bind TCP port {port}: permission denied; give a --port above 1023")
            }
            _ => format!("cannot bind TCP port {port}: {error}"),
        })
    })
}

fn listen_at(address: SocketAddr, only: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(only)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

/// Sets socket options so that small messages are sent without delay, and that dead hosts are detected. An option that
/// the system does not support keeps its default.
pub(crate) fn tune(stream: &TcpStream, timeout: Duration) {
    let socket = SockRef::from(stream);
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new()
        .with_time((timeout / 2).max(second))
        .with_interval((timeout / 8).max(second))
        .with_retries(4);
    let _ = stream.set_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(timeout));
}

#[cfg(test)]
mod tests {
    use sideway_test_names::Port;

    use super::*;

    fn contact(port: u16, family: Option<Family>) -> ControlOptions {
        ControlOptions { port, family, timeout: Duration::from_secs(60) }
    }

    #[test]
    fn names_and_addresses_are_resolved() {
        let found = |host: &str, family| resolve(host, &contact(7, family)).map_err(|failure| failure.to_string());
        assert_eq!(found("127.0.0.1", None), Ok(vec!["127.0.0.1:7".parse().unwrap()]));
        assert_eq!(found("[::1]", None), Ok(vec!["[::1]:7".parse().unwrap()]));
        assert_eq!(found("::1", Some(Family::V4)), Err("::1 has no IPv4 address; leave out -4".to_owned()));
        assert!(found("localhost", Some(Family::V4)).is_ok());
    }

    #[test]
    fn name_resolution_has_a_timeout() {
        let (answer, question) = channel::<()>();
        let ask = move || Ok(question.recv().is_ok());
        assert_eq!(within(Duration::from_millis(5), ask).unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(answer);
        assert_eq!(within(Duration::from_secs(60), || Ok(7)).unwrap().unwrap(), 7);
        // A part of a name has 63 characters at most, so no name server is asked.
        let name = "x".repeat(64);
        let Err(Failure::Unreachable(text)) = resolve(&name, &contact(7, None)) else { panic!() };
        assert!(text.starts_with(&format!("cannot resolve {name}: ")), "{text}");
    }

    #[test]
    fn unreachable_error_names_host_and_port() {
        // No server listens on the port.
        let reserved = Port::reserve();
        let port = reserved.number();
        let Err(Failure::Unreachable(text)) = connect("127.0.0.1", &contact(port, None), None) else { panic!() };
        assert!(text.contains(&format!("cannot connect to 127.0.0.1, TCP port {port}")), "{text}");
    }

    #[test]
    fn unreachable_host_is_reported_as_silent() {
        let address = "192.0.2.77:7".parse().unwrap();
        let text = |code| unreachable("h", address, &io::Error::from_raw_os_error(code));
        for code in [libc::EHOSTUNREACH, libc::ETIMEDOUT] {
            assert!(text(code).starts_with("cannot connect to h, TCP port 7: no answer; check"), "{}", text(code));
        }
        assert!(text(libc::ENETUNREACH).starts_with("cannot connect to h, TCP port 7: "));
    }

    #[test]
    fn waiting_client_gets_the_cause_and_the_final_error() {
        let reserved = Port::reserve();
        let port = reserved.number();
        let mut reported = Vec::new();
        let wait = Some(Duration::from_millis(450));
        let end = connect_reporting("127.0.0.1", &contact(port, None), wait, |why| reported.push(why.to_owned()));
        assert_eq!(reported, [format!("cannot connect to 127.0.0.1, TCP port {port}: connection refused")]);
        let text = end.unwrap_err().to_string();
        assert!(text.contains(&format!("TCP port {port}: connection refused, still after 450ms; start ")), "{text}");
        assert!(text.contains("or give a longer --wait-server, or"), "{text}");
        let busy = |wait| advised(Failure::Busy("the server is busy".to_owned()), wait).to_string();
        assert_eq!(busy(None), "the server is busy; try later, or give --wait-server");
        assert_eq!(busy(wait), "the server is busy, still after 450ms; try later, or give a longer --wait-server");
        let far = "h is not reached; give another, or give --wait-server";
        let far = advised(Failure::Unreachable(far.to_owned()), wait).to_string();
        assert_eq!(far, "h is not reached, still after 450ms; give another, or give a longer --wait-server");
    }

    #[test]
    fn port_in_use_error_names_the_option() {
        let listener = listen(&contact(0, Some(Family::V4))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let Err(failure) = listen(&contact(port, Some(Family::V4))) else { panic!() };
        assert!(failure.to_string().contains("choose another port with --port"), "{failure}");
    }
}
