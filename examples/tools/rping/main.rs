//! Pings with RDMA read and write over a connection by IP address. Interoperates with rdma-core's program of this name.
//!
//! A message has 16 bytes. The client sends the address, key and size of a buffer, big-endian; a message of the server
//! has no content.
//!
//! ```text
//! client                                          server
//!   the buffer with the text            ───────►
//!                                       ◄═══════    reads the text
//!                                       ◄───────    "go ahead"
//!   the buffer for the reply            ───────►
//!                                       ═══════►    writes the text
//!                                       ◄───────    "go ahead"
//! ```

mod link;
mod text;

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device::{DeviceInfo, TransportType};
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::rdmacm::{ConnectError, ConnectStep, Listener, Request};
use sideway_examples::Timeout;
use sideway_examples::options::parse_timeout;

use self::link::{LENGTH, Link};
use self::text::{LARGEST, SMALLEST, check, printable, text};

const ABOUT: &str = "\
Pings between two machines with RDMA: the client offers a text in its memory; the server reads it, and writes it back to other memory \
of the client. Neither processor copies the text. The two connect by IP address (RDMA CM).

Each side may be this program or rdma-core's rping: options, messages and the output of -v are the same. The server's -S limits the \
length of a text.";

const EXAMPLES: &str = "\
Examples:
  rping -s -v                                   on the first machine, 192.0.2.1: serves one client
  rping -c -a 192.0.2.1 -v -V -C 10             on the second: 10 pings, printed and compared
  rping -s -P                                   serves clients, several at once, until it is killed
  rping -c -a server.example.org -I 192.0.2.2   from this address, until it is killed

Exit status: 0 if all pings came back correctly (the server: were served), 1 on failure, 2 for invalid arguments.";

/// Ping with RDMA read and write, over a connection by IP address
#[derive(Clone, Debug, Parser)]
#[command(name = "rping", disable_version_flag = true, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
#[command(group = clap::ArgGroup::new("role").args(["server", "client"]).required(true))]
struct Arguments {
    /// Wait for a client, and serve it
    #[arg(short, long)]
    server: bool,

    /// Ping the server at -a
    #[arg(short, long, requires = "address")]
    client: bool,

    /// Address of the server, as a name or an address [default: server: every IPv4 address]
    #[arg(short, long, value_name = "HOST")]
    address: Option<String>,

    /// Client: own address, as a name or an address [default: by the route]
    #[arg(short = 'I', long, value_name = "HOST", conflicts_with = "server")]
    source: Option<String>,

    /// Port in the RDMA CM's port space for TCP
    #[arg(short, long, default_value_t = 7174, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Client: number of pings; 0 = no limit
    #[arg(short = 'C', long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=0x7fff_ffff))]
    count: u32,

    /// Bytes in the text of a ping; for the server, the maximum
    #[arg(short = 'S', long, value_name = "BYTES", default_value_t = 64,
          value_parser = clap::value_parser!(u32).range(i64::from(SMALLEST)..=i64::from(LARGEST)))]
    size: u32,

    /// Print the text of each ping
    #[arg(short, long)]
    verbose: bool,

    /// Compare each byte of a text with the expected one
    #[arg(short = 'V', long)]
    validate: bool,

    /// Server: serve several clients at once, until killed
    #[arg(short = 'P', long, conflicts_with = "client")]
    persistent: bool,

    /// Modify the queue pair in this program, not in the library
    #[arg(short = 'q', long)]
    own_qp: bool,

    /// Print each step
    #[arg(short, long)]
    debug: bool,

    /// Limit of connecting and of each wait for the peer; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_timeout)]
    timeout: Timeout,

    /// Server: limit of the wait for a client; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_timeout, conflicts_with = "client")]
    wait: Timeout,
}

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let mut print = |line: String| {
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    };
    if arguments.server && arguments.persistent {
        return serve_all(arguments, &mut print);
    }
    let log = &mut Log::new(&arguments, &mut print);
    if arguments.server {
        let listener = listen(&arguments, log)?;
        serve(listener.accept(arguments.wait.0)?, &arguments, log)
    } else {
        ping_all(&arguments, log)
    }
}

/// The output that -v and -d select.
struct Log<'a> {
    print: &'a mut dyn FnMut(String) -> Result<()>,
    /// The title, printed before the text of a ping.
    title: &'static str,
    is_verbose: bool,
    is_debug: bool,
}

impl<'a> Log<'a> {
    fn new(arguments: &Arguments, print: &'a mut dyn FnMut(String) -> Result<()>) -> Self {
        let title = if arguments.server { "server ping data" } else { "ping data" };
        Self { print, title, is_verbose: arguments.verbose, is_debug: arguments.debug }
    }

    /// Prints the text of a ping (-v).
    fn ping(&mut self, text: &[u8]) -> Result<()> {
        if self.is_verbose { (self.print)(format!("{}: {}", self.title, printable(text))) } else { Ok(()) }
    }

    /// Prints a step (-d).
    fn step(&mut self, step: fmt::Arguments<'_>) -> Result<()> {
        if self.is_debug { (self.print)(step.to_string()) } else { Ok(()) }
    }
}

/// A buffer of the client, as sent in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RemoteBuffer {
    addr: u64,
    rkey: RemoteKey,
    /// The length in bytes.
    size: u32,
}

impl RemoteBuffer {
    fn new(memory: &OwnedMemoryRegion) -> Result<Self> {
        Ok(Self { addr: memory.addr(), rkey: memory.rkey(), size: u32::try_from(memory.len())? })
    }

    fn encode(&self) -> [u8; LENGTH] {
        let number = u128::from(self.addr) << 64 | u128::from(self.rkey.raw()) << 32 | u128::from(self.size);
        number.to_be_bytes()
    }

    fn decode(message: [u8; LENGTH]) -> Self {
        let number = u128::from_be_bytes(message);
        Self { addr: (number >> 64) as u64, rkey: RemoteKey::from_raw((number >> 32) as u32), size: number as u32 }
    }
}

impl fmt::Display for RemoteBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}, key {:#010x}", self.size, self.addr, self.rkey.raw())
    }
}

/// Pings a server.
fn ping_all(arguments: &Arguments, log: &mut Log<'_>) -> Result<()> {
    let size = arguments.size as usize;
    let (link, pd) = Link::to_server(arguments, log)?;
    // The buffers that the server reads from and writes to.
    let mut source = pd.reg_owned_mr(size, AccessFlags::RemoteRead)?;
    let mut sink = pd.reg_owned_mr(size, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?;
    // Declared after the memory, and therefore dropped before it.
    let mut link = link;
    let count = if arguments.count == 0 { u64::MAX } else { arguments.count.into() };
    for number in 0..count {
        source.write_at(0, &text(number, size))?;
        // Clears the reply of the last ping, so that it is not mistaken for the reply to this one.
        sink.write_at(0, &vec![0; size])?;

        let buffer = RemoteBuffer::new(&source)?;
        log.step(format_args!("ping {number}: offering {buffer}"))?;
        offer(&mut link, &buffer, format_args!("read ping {number}"))?;
        let buffer = RemoteBuffer::new(&sink)?;
        log.step(format_args!("ping {number}: was read; offering {buffer} for the reply"))?;
        offer(&mut link, &buffer, format_args!("write ping {number} back"))?;
        log.step(format_args!("ping {number}: came back"))?;

        let mut found = vec![0; size];
        sink.read_at(0, &mut found)?;
        if arguments.validate {
            check(&found, number).context("the server wrote wrong data")?;
        }
        log.ping(&found)?;
    }
    link.close()?;
    log.step(format_args!("the connection has ended"))
}

/// Sends the server a buffer, and waits until the server did `what` with it.
fn offer(link: &mut Link, buffer: &RemoteBuffer, what: fmt::Arguments<'_>) -> Result<()> {
    link.send(&buffer.encode())?;
    match link.receive(what)? {
        // The server's reply contains no data.
        Some(_) => Ok(()),
        None => bail!("the server disconnected and did not {what}; see its error message, and give it the same -S"),
    }
}

/// The server's "go ahead".
const GO_AHEAD: [u8; LENGTH] = [0; LENGTH];

/// Serves one client until it disconnects.
fn serve(request: Request, arguments: &Arguments, log: &mut Log<'_>) -> Result<()> {
    let (mut link, pd) = Link::to_client(request, arguments, log)?;
    let access = match pd.device_context().transport_type() {
        // On iWARP the response to a read is a write.
        TransportType::IWarp => AccessFlags::LocalWrite | AccessFlags::RemoteWrite,
        _ => AccessFlags::LocalWrite,
    };
    // Texts are read into this memory, and written back from it.
    let mut memory = pd.reg_owned_mr(arguments.size as usize, access)?;
    let mut number = 0;
    while let Some(message) = link.receive(format_args!("offer ping {number}"))? {
        let source = RemoteBuffer::decode(message);
        log.step(format_args!("ping {number}: the client offers {source}"))?;
        let (size, max) = (source.size, arguments.size);
        if size > max {
            bail!(
                "the client's texts have {size} bytes, above the server's limit of {max}; give both sides the same -S"
            );
        }
        if size < SMALLEST {
            bail!("the client offers {size} bytes, below the minimum of {SMALLEST}; run rping on both sides");
        }
        memory = link.read(&source, size, memory)?;
        let mut text = vec![0; size as usize];
        memory.read_at(0, &mut text)?;
        if arguments.validate {
            check(&text, number)?;
        }
        log.ping(&text)?;
        link.send(&GO_AHEAD)?;

        let Some(message) = link.receive(format_args!("offer a buffer for the reply to ping {number}"))? else {
            bail!("the client disconnected during ping {number}; see its error message");
        };
        let sink = RemoteBuffer::decode(message);
        log.step(format_args!("ping {number}: was read; the reply goes to {sink}"))?;
        let length = u32::try_from(text::length(&text))?;
        if sink.size < length {
            bail!(
                "ping {number} has {length} bytes, and the client's buffer for the reply {} bytes; run rping on both sides",
                sink.size
            );
        }
        memory = link.write(&sink, length, memory)?;
        link.send(&GO_AHEAD)?;
        log.step(format_args!("ping {number}: came back"))?;
        number += 1;
    }
    if number == 0 {
        bail!("the client disconnected before its first ping; see its error message");
    }
    link.close()?;
    log.step(format_args!("the client disconnected; pings served: {number}"))
}

fn listen(arguments: &Arguments, log: &mut Log<'_>) -> Result<Listener> {
    let host = arguments.address.as_deref().unwrap_or("0.0.0.0");
    let mut builder = Listener::builder();
    builder.setup_timeout(arguments.timeout.0.unwrap_or(Duration::MAX));
    let listener = builder.bind((host, arguments.port))?;
    log.step(format_args!("listening at {}", listener.local_address()))?;
    Ok(listener)
}

/// Maximum number of concurrent clients with -P; others are rejected.
const MAX_CLIENTS: usize = 64;

/// Maximum number of lines that wait for output; when it is reached, the threads of the clients block.
const MAX_LINES: usize = 64;

/// A report of a thread.
#[derive(Debug)]
enum Report {
    /// A line of output.
    Line(String),
    /// One client failed.
    Failed(anyhow::Error),
    /// The server serves no further clients.
    Over(anyhow::Error),
}

/// Serves clients, each in its own thread, until the program is killed, and reports their failures.
fn serve_all(arguments: Arguments, print: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
    let listener = listen(&arguments, &mut Log::new(&arguments, print))?;
    let (sender, reports) = mpsc::sync_channel(MAX_LINES);
    let arguments = Arc::new(arguments);
    thread::spawn(move || {
        let error = loop {
            let request = listener.accept(arguments.wait.0).map_err(Into::into);
            match request.and_then(|request| start(request, &arguments, &sender)) {
                Ok(()) => {}
                Err(error) if concerns_one_client(&error) => drop(sender.send(Report::Failed(error))),
                Err(error) => break error,
            }
        };
        // The receiver is dropped only when the program ends.
        let _ = sender.send(Report::Over(error));
    });
    for report in reports {
        match report {
            Report::Line(line) => print(line)?,
            // If printing fails, there is no remedy.
            Report::Failed(error) => drop(writeln!(io::stderr(), "{error:#}")),
            Report::Over(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the failure concerns one client only.
fn concerns_one_client(error: &anyhow::Error) -> bool {
    let step = error.downcast_ref::<ConnectError>().map(ConnectError::step);
    matches!(step, Some(ConnectStep::Accept | ConnectStep::Reject))
}

/// Serves a client in its own thread.
fn start(request: Request, arguments: &Arc<Arguments>, reports: &SyncSender<Report>) -> Result<()> {
    let client = request.peer_address().map_or_else(|| "a client".into(), |address| address.to_string());
    // Each thread and the caller hold one reference to the arguments.
    if Arc::strong_count(arguments) > MAX_CLIENTS {
        request.reject(b"busy")?;
        let error = anyhow!("{client} was rejected: {MAX_CLIENTS} clients are being served; retry after one has ended");
        return Ok(reports.send(Report::Failed(error))?);
    }
    let (arguments, reports) = (Arc::clone(arguments), reports.clone());
    let work = move || {
        let mut print = |line| Ok(reports.send(Report::Line(line))?);
        if let Err(error) = serve(request, &arguments, &mut Log::new(&arguments, &mut print)) {
            // The receiver is dropped only when the program ends.
            let _ = reports.send(Report::Failed(error.context(format!("serving {client} failed"))));
        }
    };
    thread::Builder::new().spawn(work).context("cannot start a thread for a client")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_encoded_in_big_endian_order() {
        let buffer = RemoteBuffer { addr: 0x5582_28fc_a520, rkey: RemoteKey::from_raw(0xfedc_1300), size: 64 };
        assert_eq!(buffer.encode(), *b"\0\0\x55\x82\x28\xfc\xa5\x20\xfe\xdc\x13\0\0\0\0\x40");
        assert_eq!(RemoteBuffer::decode(buffer.encode()), buffer);
        assert_eq!(buffer.to_string(), "64 bytes at 0x558228fca520, key 0xfedc1300");
        assert_eq!(RemoteBuffer::decode([0xff; LENGTH]).encode(), [0xff; LENGTH]);
    }
}
