//! How the sides find each other.

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

/// The default TCP port.
pub const PORT: u16 = 18515;

/// How long a client waits before it tries again.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a server that is busy is tried again where nobody asks to wait.
const MOMENT: Duration = Duration::from_secs(2);

/// What is advised where a server is not there or busy and nobody has waited for it.
const WAIT: &str = "give --wait-server";

/// The same, where somebody has.
const LONGER: &str = "give a longer --wait-server";

/// The shortest time-out that both sides can keep: each says several times within it that it is at work.
pub const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// What the messages of the sides go over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// A connection of TCP.
    #[default]
    // Documents of earlier versions, which had a channel over rdma_cm too, are still read.
    #[serde(alias = "rdma_cm")]
    Tcp,
    /// Nothing: both sides are in one process.
    Process,
}

/// How the sides meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlOptions {
    /// The server's port.
    pub port: u16,
    /// The one family that is used.
    pub family: Option<Family>,
    /// The other side may be silent for so long.
    pub timeout: Duration,
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A server that was reached.
#[derive(Debug)]
pub struct Met {
    /// The conversation, after the greeting.
    pub connection: Connection,
    /// The addresses of it.
    pub near: Near,
    /// Version of the server's program.
    pub version: String,
}

/// Reaches a server by its name or address. With `wait` a server that is not there, or busy, is tried again for so long; without, one that is
/// busy for a moment: it may be about to end its last test.
///
/// # Errors
///
/// `Unreachable`, `Busy`, `Stranger`, `Broken`.
pub fn connect(host: &str, contact: &ControlOptions, wait: Option<Duration>) -> Result<Met, Failure> {
    connect_telling(host, contact, wait, |_| {})
}

/// The same, which tells once why the server has to be waited for.
///
/// # Errors
///
/// The same.
pub fn connect_telling(
    host: &str,
    contact: &ControlOptions,
    wait: Option<Duration>,
    tell: impl FnOnce(&str),
) -> Result<Met, Failure> {
    let begin = Instant::now();
    let (mut busy, mut tell) = (None, Some(tell));
    loop {
        match connect_once(host, contact) {
            Err(failure @ Failure::Busy(_)) if wait.is_none() && begin.elapsed() < MOMENT => {
                busy.get_or_insert(failure);
                thread::sleep(PAUSE);
            }
            // That it was there, and busy, says more.
            Err(failure) if wait.is_none() => return Err(advised(busy.unwrap_or(failure), wait)),
            Err(failure @ (Failure::Unreachable(_) | Failure::Busy(_))) => {
                let left = wait.unwrap_or_default().saturating_sub(begin.elapsed());
                if left.is_zero() {
                    return Err(advised(failure, wait));
                }
                if let Some(tell) = tell.take() {
                    tell(cause(&failure.to_string()));
                }
                thread::sleep(left.min(PAUSE));
            }
            other => return other,
        }
    }
}

/// A failure with what can be done where the server is not there or busy, after so long a wait; none is none.
fn advised(failure: Failure, wait: Option<Duration>) -> Failure {
    // What is wrong, and that it has not changed.
    let late = |text: &str, time: Duration| {
        let cause = cause(text);
        text.replacen(cause, &format!("{cause}, still after {}", time::show(time)), 1)
    };
    match (failure, wait) {
        // A busy server does not know for how long it was waited for.
        (Failure::Busy(text), None) => Failure::Busy(format!("{text}; try later, or {WAIT}")),
        (Failure::Busy(text), Some(time)) => Failure::Busy(format!("{}; try later, or {LONGER}", late(&text, time))),
        (Failure::Unreachable(text), Some(time)) => Failure::Unreachable(late(&text, time).replacen(WAIT, LONGER, 1)),
        (other, _) => other,
    }
}

/// What is wrong, without what can be done.
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
    Err(last.unwrap_or_else(|| Failure::Unreachable(format!("{host} has no address"))))
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
    greet(stream, near, contact)
}

fn greet(wire: impl Wire + 'static, near: Near, contact: &ControlOptions) -> Result<Met, Failure> {
    let (connection, hello) = Connection::greet(wire, Role::Client, contact.timeout)?;
    Ok(Met { connection, near, version: hello.version })
}

fn resolve(host: &str, contact: &ControlOptions) -> Result<Vec<SocketAddr>, Failure> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let (name, port) = (bare.to_owned(), contact.port);
    let found = within(contact.timeout, move || (name.as_str(), port).to_socket_addrs());
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

/// What the system gives, which may take long, or `TimedOut`. It cannot be broken off: its thread ends when the system answers.
fn within<T: Send + 'static>(time: Duration, ask: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = channel();
    thread::Builder::new().name("names".to_owned()).spawn(move || {
        // Nobody waits any more where this fails.
        let _ = sender.send(ask());
    })?;
    receiver.recv_timeout(time).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn unreachable(host: &str, address: SocketAddr, error: &io::Error) -> String {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "cannot connect to {host}, TCP port {port}: connection refused; start `stride-perf` there, or {WAIT}, or give \
             the server's --port"
        ),
        // The last router says that the host is not there, or a firewall does.
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock | io::ErrorKind::HostUnreachable => format!(
            "cannot connect to {host}, TCP port {port}: no answer; check that the host is up and that no firewall drops \
              the port (RoCE v2 also requires UDP port 4791)"
        ),
        _ => format!("cannot connect to {host}, TCP port {port}: {error}"),
    }
}

/// Listens for clients. With port 0 the system chooses one.
///
/// # Errors
///
/// `Unreachable`, if the port is taken.
pub fn listen(contact: &ControlOptions) -> Result<TcpListener, Failure> {
    let port = contact.port;
    let four = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let six = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port);
    let listener = match contact.family {
        Some(Family::V4) => listen_at(four, false),
        Some(Family::V6) => listen_at(six, true),
        // Where there is no IPv6 the other is enough.
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

/// Messages go at once, and a host that is gone is found out. What the system does not take is left as it is.
pub(super) fn tune(stream: &TcpStream, timeout: Duration) {
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
    use super::*;

    fn contact(port: u16, family: Option<Family>) -> ControlOptions {
        ControlOptions { port, family, timeout: Duration::from_secs(10) }
    }

    #[test]
    fn addresses_and_names_are_resolved() {
        let found = |host: &str, family| resolve(host, &contact(7, family)).map_err(|failure| failure.to_string());
        assert_eq!(found("127.0.0.1", None), Ok(vec!["127.0.0.1:7".parse().unwrap()]));
        assert_eq!(found("[::1]", None), Ok(vec!["[::1]:7".parse().unwrap()]));
        assert_eq!(found("::1", Some(Family::V4)), Err("::1 has no IPv4 address; leave out -4".to_owned()));
        assert!(found("localhost", Some(Family::V4)).is_ok());
    }

    #[test]
    fn a_name_is_not_waited_for_without_end() {
        let (answer, question) = channel::<()>();
        let ask = move || Ok(question.recv().is_ok());
        assert_eq!(within(Duration::from_millis(5), ask).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(answer);
        assert_eq!(within(Duration::from_secs(30), || Ok(7)).unwrap(), 7);
        // What names.invalid comes to the system decides, but not after the time-out.
        let Err(Failure::Unreachable(text)) = resolve("names.invalid", &contact(7, None)) else { panic!() };
        assert!(text.starts_with("cannot resolve names.invalid: "), "{text}");
    }

    #[test]
    fn nobody_is_named() {
        let listener = listen(&contact(0, Some(Family::V4))).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let Err(Failure::Unreachable(text)) = connect("127.0.0.1", &contact(port, None), None) else { panic!() };
        assert!(text.contains(&format!("cannot connect to 127.0.0.1, TCP port {port}")), "{text}");
    }

    #[test]
    fn a_host_that_is_not_there_is_told_as_one_that_is_silent() {
        let address = "192.0.2.77:7".parse().unwrap();
        let said = |code| unreachable("h", address, &io::Error::from_raw_os_error(code));
        for code in [libc::EHOSTUNREACH, libc::ETIMEDOUT] {
            assert!(said(code).starts_with("cannot connect to h, TCP port 7: no answer; check"), "{}", said(code));
        }
        assert!(said(libc::ENETUNREACH).starts_with("cannot connect to h, TCP port 7: "));
    }

    #[test]
    fn who_waits_is_told_why_and_not_to_wait_in_the_end() {
        let listener = listen(&contact(0, Some(Family::V4))).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut told = Vec::new();
        let wait = Some(Duration::from_millis(450));
        let end = connect_telling("127.0.0.1", &contact(port, None), wait, |why| told.push(why.to_owned()));
        assert_eq!(told, [format!("cannot connect to 127.0.0.1, TCP port {port}: connection refused")]);
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
    fn a_port_is_taken_once() {
        let listener = listen(&contact(0, Some(Family::V4))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let Err(failure) = listen(&contact(port, Some(Family::V4))) else { panic!() };
        assert!(failure.to_string().contains("choose another port with --port"), "{failure}");
    }
}
