//! The sides of the rows on plain sockets.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sideway_benches::measure::middle;

use super::CONNECTIONS;

const ROUND_TRIPS: u32 = 10_000;
/// The port of the servers.
pub(super) const PORT: u16 = 18_700;
/// The header of a datagram: IPv4 and UDP.
const HEADERS: u16 = 28;
/// The maximum number of datagrams that the kernel sends at once, and the maximum number of their bytes.
const SEGMENTS: usize = 64;
const BYTES: usize = 65_507;

/// One side of a row: a server if the text after `@` is empty, else its client. The client prints the figure.
pub(super) fn play(side: &str, seconds: u32) -> Result<()> {
    let (what, host) = side.split_once('@').context("a side is WHAT@HOST")?;
    match (what, host) {
        ("echo" | "connect", "") => serve(what),
        ("connect", host) => connect(host),
        ("echo", host) => {
            let mut socket = TcpStream::connect((host, PORT))?;
            socket.set_nodelay(true)?;
            time(|bytes| {
                socket.write_all(bytes)?;
                socket.read_exact(bytes)
            })
        }
        ("datagram", "") => serve_datagrams(),
        ("datagram", host) => {
            let socket = client(host)?;
            time(|bytes| {
                socket.send(bytes)?;
                socket.recv(bytes).map(drop)
            })
        }
        ("flood", "") => count_datagrams(),
        ("flood", host) => flood(host, Duration::from_secs(seconds.into())),
        _ => bail!("no such side: {side}"),
    }
}

fn serve(what: &str) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT))?;
    // The standard library's backlog of 128 loses connections of a burst.
    rustix::net::listen(&listener, 1024)?;
    let count = if what == "echo" { 1 } else { CONNECTIONS };
    let mut sockets = (0..count).map(|_| Ok(listener.accept()?.0)).collect::<Result<Vec<_>>>()?;
    let socket = &mut sockets[count - 1];
    socket.set_nodelay(true)?;
    let mut bytes = [0; 64];
    loop {
        match socket.read_exact(&mut bytes) {
            Ok(()) => socket.write_all(&bytes)?,
            Err(_) => return Ok(()),
        }
    }
}

fn connect(host: &str) -> Result<()> {
    let begun = Instant::now();
    let sockets = (0..CONNECTIONS).map(|_| Ok(TcpStream::connect((host, PORT))?)).collect::<Result<Vec<_>>>()?;
    writeln!(io::stdout(), "{}", begun.elapsed().as_secs_f64() * 1e3)?;
    drop(sockets);
    Ok(())
}

/// Prints half of the median time of a round trip, in microseconds.
fn time(mut round_trip: impl FnMut(&mut [u8; 64]) -> io::Result<()>) -> Result<()> {
    let (mut bytes, mut times) = ([0; 64], Vec::new());
    for _ in 0..ROUND_TRIPS {
        let begun = Instant::now();
        round_trip(&mut bytes)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    Ok(writeln!(io::stdout(), "{}", middle(times))?)
}

/// A socket for datagrams to a server.
fn client(host: &str) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect((host, PORT))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(socket)
}

/// Sends each datagram back, until none arrives for some time.
fn serve_datagrams() -> Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
    let mut bytes = [0; 64];
    loop {
        let Ok((_, from)) = socket.recv_from(&mut bytes) else { return Ok(()) };
        socket.send_to(&bytes, from)?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    }
}

/// Sets an option of UDP.
fn set(socket: &UdpSocket, option: i32, value: i32) -> Result<()> {
    let length = size_of::<i32>() as u32;
    // SAFETY: the value has this length.
    let code =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, option, (&raw const value).cast(), length) };
    ensure!(code == 0, "setsockopt: {}", io::Error::last_os_error());
    Ok(())
}

/// Counts the bytes that arrive, and sends the count for an empty datagram.
fn count_datagrams() -> Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
    set(&socket, libc::UDP_GRO, 1)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20)?;
    let (mut bytes, mut sum) = (vec![0; 1 << 16], 0_u64);
    loop {
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { return Ok(()) };
        sum += length as u64;
        if length == 0 {
            socket.send_to(&sum.to_be_bytes(), from)?;
            // The answer may be lost.
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        }
    }
}

/// Sends datagrams of the MTU as fast as the kernel takes them, and prints the Gb/s that have arrived.
fn flood(host: &str, duration: Duration) -> Result<()> {
    let socket = client(host)?;
    let interface = std::fs::read_to_string("/sys/class/net/v0/mtu")
        .or_else(|_| std::fs::read_to_string("/sys/class/net/lo/mtu"))?;
    let length = (interface.trim().parse::<usize>()?).min(BYTES) - usize::from(HEADERS);
    let count = (BYTES / length).clamp(1, SEGMENTS);
    if count > 1 {
        set(&socket, libc::UDP_SEGMENT, length as i32)?;
    }
    let bytes = vec![7; length * count];
    let begun = Instant::now();
    while begun.elapsed() < duration {
        match socket.send(&bytes) {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let elapsed = begun.elapsed();
    let mut sum = [0; 8];
    socket.set_read_timeout(Some(Duration::from_millis(200)))?;
    for _ in 0..10 {
        socket.send(&[])?;
        if socket.recv(&mut sum).is_ok() {
            return Ok(writeln!(io::stdout(), "{}", u64::from_be_bytes(sum) as f64 * 8e-9 / elapsed.as_secs_f64())?);
        }
    }
    bail!("the server does not answer")
}
