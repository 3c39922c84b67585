//! Compares trespass with plain sockets on this host, between two processes: bytes, round trips, connecting, idle connections.
//!
//! Each round runs every row once, so that other work of the machine affects all rows. The output is the median of the rounds.

use std::collections::HashMap;
use std::hint::black_box;
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Parser;
use sideway_benches::measure::middle;
use trespass::net::{Listener, Reader, Stream};
use trespass::{Handle, Options, Transport};

/// Compare trespass with plain sockets on this host
#[derive(Debug, Parser)]
#[command(name = "message_sockets", version, max_term_width = 110)]
struct Arguments {
    /// Rounds of all rows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Idle connections, measured once
    #[arg(short, long, value_name = "N", default_value_t = 1000)]
    idle: usize,
    /// Measure only the rows of this quantity: stream, echo or connect
    #[arg(long, value_name = "WHAT")]
    only: Option<String>,
    /// Run as the peer of a row
    #[arg(long, num_args = 2, value_names = ["ROW", "ADDRESS"], hide = true)]
    peer: Option<Vec<String>>,
}

/// A carrier, the quantity measured on it, and its unit.
const ROWS: [(&str, &str, &str); 12] = [
    ("softrnic", "stream", "Gb/s, 1 MiB writes"),
    ("softrnic-reader", "stream", "Gb/s, 1 MiB writes, read without a copy"),
    ("trespass-tcp", "stream", "Gb/s, 1 MiB writes"),
    ("sockets", "stream", "Gb/s, 1 MiB writes"),
    ("memcpy", "stream", "Gb/s, the two copies that each side of softrnic makes"),
    ("softrnic", "echo", "us, 64 B round trip"),
    ("softrnic-sleep", "echo", "us, 64 B round trip, without spinning"),
    ("trespass-tcp", "echo", "us, 64 B round trip"),
    ("sockets", "echo", "us, 64 B round trip"),
    ("softrnic", "connect", "us, connect and close"),
    ("trespass-tcp", "connect", "us, connect and close"),
    ("sockets", "connect", "us, connect and close"),
];

const PIECE: usize = 1 << 20;
const PIECES: usize = 400;
/// The length of the messages into which a stream divides its writes.
const MESSAGE: usize = 512 << 10;
const ROUND_TRIPS: usize = 5_000;
const CONNECTS: usize = 50;

fn main() -> ExitCode {
    sideway_benches::ended(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some([row, address]) = arguments.peer.as_deref() {
        let (carrier, what) = row.split_once('/').context("a row is CARRIER/WHAT")?;
        return peer(carrier, what, address);
    }
    let mut out = io::stdout();
    let mut figures: HashMap<usize, Vec<f64>> = HashMap::new();
    let rows = || {
        let is_wanted = |what: &str| arguments.only.as_deref().is_none_or(|only| only == what);
        ROWS.iter().enumerate().filter(move |(_, (_, what, _))| is_wanted(what))
    };
    for _ in 0..arguments.rounds {
        for (index, (carrier, what, _)) in rows() {
            figures.entry(index).or_default().push(measure(carrier, what)?);
        }
    }
    for (index, (carrier, _, unit)) in rows() {
        let median = middle(figures.remove(&index).unwrap_or_default());
        writeln!(out, "{carrier:15} {median:10.2} {unit}")?;
    }
    if arguments.only.is_some() {
        return Ok(());
    }
    let before = resident()?;
    let (listener, mut child) = start("softrnic", &format!("idle-{}", arguments.idle))?;
    let mut held = Vec::new();
    for _ in 0..arguments.idle {
        held.push(listener.accept()?);
    }
    let each = resident()?.saturating_sub(before) as f64 / arguments.idle as f64 / 1024.0;
    writeln!(out, "softrnic        {each:10.2} KiB resident for each of {} idle connections", arguments.idle)?;
    for stream in &mut held {
        stream.write_all(b".")?;
    }
    drop(held);
    ensure!(child.wait()?.success(), "the peer failed");
    Ok(())
}

/// Bytes of this process in memory.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// Listens on a carrier, and starts the peer.
fn start(carrier: &str, what: &str) -> Result<(Server, Child)> {
    let server = Server::bind(carrier)?;
    let address = server.address()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--peer", &format!("{carrier}/{what}"), &address]);
    Ok((server, command.spawn().context("cannot start the peer")?))
}

/// Measures the copies that one side of softrnic makes, in Gb/s: from the program's memory to a buffer, and from the buffer
/// to the ring. The peer makes as many copies, on another processor.
fn copies() -> f64 {
    let (bytes, mut ring) = (vec![7_u8; PIECE], vec![0; MESSAGE]);
    let mut buffers = [(); 3].map(|()| vec![0; MESSAGE]);
    let begun = Instant::now();
    for index in 0..PIECES {
        for (at, part) in bytes.chunks(MESSAGE).enumerate() {
            let buffer = &mut buffers[(index * PIECE / MESSAGE + at) % 3];
            buffer.copy_from_slice(black_box(part));
            ring.copy_from_slice(black_box(buffer));
            black_box(&ring);
        }
    }
    (PIECE * PIECES * 8) as f64 / begun.elapsed().as_nanos() as f64
}

fn measure(carrier: &str, what: &str) -> Result<f64> {
    if carrier == "memcpy" {
        return Ok(copies());
    }
    let (server, mut child) = start(carrier, what)?;
    let mut stream = server.accept()?;
    let mut bytes = vec![0; PIECE];
    stream.read_exact(&mut bytes[..1])?;
    let begun = Instant::now();
    let figure = match what {
        "stream" => {
            for _ in 0..PIECES {
                stream.pass(&mut bytes)?;
            }
            stream.write_all(&bytes[..1])?;
            (PIECE * PIECES * 8) as f64 / begun.elapsed().as_nanos() as f64
        }
        "echo" => {
            for _ in 0..ROUND_TRIPS {
                stream.write_all(&bytes[..64])?;
                stream.read_exact(&mut bytes[..64])?;
            }
            begun.elapsed().as_nanos() as f64 / 1e3 / ROUND_TRIPS as f64
        }
        _ => {
            for _ in 0..CONNECTS {
                let mut next = server.accept()?;
                next.read_exact(&mut bytes[..1])?;
            }
            begun.elapsed().as_nanos() as f64 / 1e3 / CONNECTS as f64
        }
    };
    drop(stream);
    ensure!(child.wait()?.success(), "the peer failed");
    Ok(figure)
}

fn peer(carrier: &str, what: &str, address: &str) -> Result<()> {
    let client = Client::new(carrier)?;
    if let Some(count) = what.strip_prefix("idle-") {
        let mut held: Vec<_> = (0..count.parse()?).map(|_| client.connect(address)).collect::<Result<_>>()?;
        // The server writes when it has finished the measurement.
        return held.iter_mut().try_for_each(|stream| Ok(stream.read_exact(&mut [0])?));
    }
    let mut stream = client.connect(address)?;
    let mut bytes = vec![7; PIECE];
    stream.write_all(&bytes[..1])?;
    match what {
        "stream" => {
            for _ in 0..PIECES {
                stream.write_all(&bytes)?;
            }
            stream.read_exact(&mut bytes[..1])?;
        }
        "echo" => {
            for _ in 0..ROUND_TRIPS {
                stream.read_exact(&mut bytes[..64])?;
                stream.write_all(&bytes[..64])?;
            }
        }
        _ => {
            for _ in 0..CONNECTS {
                client.connect(address)?.write_all(&[1])?;
            }
        }
    }
    Ok(())
}

trait Socket: Read + Write {
    /// Reads as many bytes as fit into `bytes`, which may stay unchanged.
    fn pass(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact(bytes)
    }
}

impl Socket for TcpStream {}
impl Socket for Stream {}

/// A stream whose bytes are read without a copy.
struct Passed(Reader);

impl Read for Passed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Passed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_ref().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for Passed {
    fn pass(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut left = bytes.len();
        while left != 0 {
            let some = self.0.fill_buf()?;
            if some.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let count = some.len().min(left);
            // Each cache line is read, as a program does that uses the bytes.
            black_box(some[..count].iter().step_by(64).fold(0, |sum, byte| sum ^ byte));
            self.0.consume(count);
            left -= count;
        }
        Ok(())
    }
}

fn worker(carrier: &str) -> Result<Handle> {
    softrnic::register().map_err(|error| anyhow!("{error}"))?;
    let mut options = Options::default();
    options.transport = if carrier == "trespass-tcp" { Transport::Tcp } else { Transport::Rdma };
    if carrier == "softrnic-sleep" {
        options.spin = Duration::ZERO;
    }
    options.backlog = 1024;
    Ok(Handle::new(&options)?)
}

enum Server {
    Sockets(TcpListener),
    Messages(Listener),
    Passed(Listener),
}

impl Server {
    fn bind(carrier: &str) -> Result<Server> {
        Ok(match carrier {
            "sockets" => Server::Sockets(TcpListener::bind("127.0.0.1:0")?),
            "softrnic-reader" => Server::Passed(Listener::bind_on(&worker(carrier)?, "127.0.0.1:0")?),
            _ => Server::Messages(Listener::bind_on(&worker(carrier)?, "127.0.0.1:0")?),
        })
    }

    fn address(&self) -> Result<String> {
        let address = match self {
            Server::Sockets(listener) => listener.local_addr(),
            Server::Messages(listener) | Server::Passed(listener) => listener.local_addr(),
        };
        Ok(address?.to_string())
    }

    fn accept(&self) -> Result<Box<dyn Socket>> {
        Ok(match self {
            Server::Sockets(listener) => Box::new(no_delay(listener.accept()?.0)?),
            Server::Messages(listener) => Box::new(listener.accept()?.0),
            Server::Passed(listener) => Box::new(Passed(Reader::new(listener.accept()?.0))),
        })
    }
}

enum Client {
    Sockets,
    Messages(Handle),
}

impl Client {
    fn new(carrier: &str) -> Result<Client> {
        Ok(if carrier == "sockets" { Client::Sockets } else { Client::Messages(worker(carrier)?) })
    }

    fn connect(&self, address: &str) -> Result<Box<dyn Socket>> {
        Ok(match self {
            Client::Sockets => Box::new(no_delay(TcpStream::connect(address)?)?),
            Client::Messages(handle) => Box::new(Stream::connect_on(handle, address)?),
        })
    }
}

fn no_delay(socket: TcpStream) -> Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}
