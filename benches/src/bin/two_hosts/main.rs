//! Compares softrnic's iWARP device with plain TCP, or its RoCEv2 device with plain UDP, between two network namespaces and
//! within this host. Compares the iWARP device also with the kernel's, `siw`, between two namespaces.
//!
//! Each round runs every row once, softrnic last, so that other work of the machine affects both. The output is
//! the median of the rounds. The measured programs are `iperf3`, and `stride-perf` and `cmtime` of this build.
//!
//! For latencies, each side has a processor of its own. Otherwise, the kernel places both sides on one processor in some
//! runs and on two in others, and a wake-up is several times faster on one processor.

mod sockets;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use sideway_benches::measure::middle;
use sideway_tests::hosts::Hosts;

/// Compare softrnic's devices for other hosts with plain sockets
#[derive(Debug, Parser)]
#[command(name = "two_hosts", version, max_term_width = 110)]
struct Arguments {
    /// Rounds of all rows
    #[arg(short = 'n', long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Links between the hosts: the MTU of a veth pair, `lo` for this host, or `bad` for a cable that delays each frame by
    /// 5 ms and drops 1 %
    #[arg(short, long, value_name = "LINKS", value_delimiter = ',', default_value = "1500,9000,lo")]
    links: Vec<String>,
    /// The device of softrnic: `softiw0` is compared with TCP, `softroce0` with UDP
    #[arg(short, long, value_name = "DEVICE", default_value = "softiw0")]
    device: String,
    /// Compare with the kernel's siw instead of TCP
    #[arg(long)]
    siw: bool,
    /// Only the rows whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Duration of each measurement of bandwidth
    #[arg(short = 'D', long, value_name = "SECONDS", default_value_t = 1)]
    seconds: u32,
    /// Run as one side of a row on plain sockets
    #[arg(long, value_name = "SIDE", hide = true)]
    peer: Option<String>,
}

/// The programs of a measurement.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The bandwidth of iperf3 with messages of this size, in Gb/s.
    Iperf(&'static str),
    /// A column of stride-perf's results, times a factor.
    Stride(&'static str, &'static str, f64),
    /// A figure of plain sockets: half of a round trip of 64 bytes over TCP (`echo`) or UDP (`datagram`), in microseconds;
    /// the time until 1,000 sockets are connected (`connect`), in milliseconds; the Gb/s of datagrams in batches (`flood`).
    Sockets(&'static str),
    /// A step of cmtime with 1,000 connections, in milliseconds.
    Cmtime(&'static str),
    /// Seconds of both sides' processors for one GiB.
    Processors(&'static Way),
}

/// A row: its name, the measurement over sockets and over softrnic, and the aim for the ratio of the second to the first. An
/// aim below 1 is a minimum, any other a maximum; without one, the aim is a million messages per second.
type Row = (&'static str, Way, Way, f64);

const GBPS: &str = "average_gigabits_per_second";
const RATE: &str = "average_messages_per_second";
const P50: &str = "p50_nanoseconds";

const ROWS: [Row; 11] = [
    ("write 64 KiB, Gb/s", Way::Iperf("-l 64K"), Way::Stride("write bw -s 64K", GBPS, 1.0), 0.85),
    ("write 1 MiB, Gb/s", Way::Iperf("-l 1M"), Way::Stride("write bw -s 1M", GBPS, 1.0), 0.85),
    ("send 64 KiB, Gb/s", Way::Iperf("-l 64K"), Way::Stride("send bw -s 64K", GBPS, 1.0), 0.85),
    ("send 1 MiB, Gb/s", Way::Iperf("-l 1M"), Way::Stride("send bw -s 1M -t 16", GBPS, 1.0), 0.85),
    ("read 1 MiB, Gb/s", Way::Iperf("-l 1M"), Way::Stride("read bw -s 1M -t 16", GBPS, 1.0), 0.85),
    ("64 B one way, polling, us", Way::Sockets("echo"), Way::Stride("send lat -s 64 -n 10000", P50, 1e-3), 1.5),
    ("64 B one way, events, us", Way::Sockets("echo"), Way::Stride("send lat -s 64 -n 10000 -e", P50, 1e-3), 1.2),
    ("64 B sends in lists, M/s", Way::Iperf("-l 64"), Way::Stride("send bw -s 64 -l 32", RATE, 1e-6), f64::NAN),
    ("64 B writes in lists, M/s", Way::Iperf("-l 64"), Way::Stride("write bw -s 64 -l 32", RATE, 1e-6), f64::NAN),
    (
        "processors, s per GiB",
        Way::Processors(&Way::Iperf("-l 64K -n 1G")),
        Way::Processors(&Way::Stride("write bw -s 64K -n 16384 -e", GBPS, 1.0)),
        1.3,
    ),
    ("1,000 connections, ms", Way::Sockets("connect"), Way::Cmtime("connect"), 1.5),
];

const ROCE_ROWS: [Row; 6] = [
    ("write 64 KiB, Gb/s", Way::Sockets("flood"), Way::Stride("write bw -s 64K", GBPS, 1.0), 0.7),
    ("send 64 KiB, Gb/s", Way::Sockets("flood"), Way::Stride("send bw -s 64K", GBPS, 1.0), 0.7),
    ("read 1 MiB, Gb/s", Way::Sockets("flood"), Way::Stride("read bw -s 1M -t 16", GBPS, 1.0), 0.7),
    ("64 B one way, polling, us", Way::Sockets("datagram"), Way::Stride("send lat -s 64 -n 10000", P50, 1e-3), 1.5),
    ("64 B one way, events, us", Way::Sockets("datagram"), Way::Stride("send lat -s 64 -n 10000 -e", P50, 1e-3), 1.5),
    ("1,000 connections (TCP), ms", Way::Sockets("connect"), Way::Cmtime("connect"), 1.5),
];

/// The rows of a bad cable.
const BAD_ROWS: [Row; 2] = [
    ("write 64 KiB, Gb/s", Way::Iperf("-l 64K -C cubic"), Way::Stride("write bw -s 64K", GBPS, 1.0), 0.5),
    ("read 1 MiB, Gb/s", Way::Iperf("-l 1M -C cubic"), Way::Stride("read bw -s 1M -t 16", GBPS, 1.0), 0.5),
];

/// The aims for a comparison with siw, by the end of the row's name; other rows have none.
const SIW_AIMS: [(&str, f64); 2] = [("Gb/s", 2.0), ("us", 1.0)];

/// The delay of a bad cable in each direction, and how many of 1,000 frames it drops.
const BAD_DELAY: Duration = Duration::from_millis(5);
const BAD_LOST: u64 = 10;
const CONNECTIONS: usize = 1000;
/// The time limit of a program.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    sideway_benches::ended(match &arguments.peer {
        Some(side) => sockets::play(side, arguments.seconds),
        None => arguments.links.iter().try_for_each(|link| measure(&arguments, link)),
    })
}

fn measure(arguments: &Arguments, link: &str) -> Result<()> {
    let is_roce = arguments.device.starts_with("softroce");
    ensure!(!(is_roce && arguments.siw), "siw is compared with softiw0 only");
    let place = Place::new(link, &arguments.device, arguments.siw)?;
    let rows = match link {
        "bad" => &BAD_ROWS[..],
        _ if is_roce => &ROCE_ROWS,
        _ => &ROWS,
    };
    let rows: Vec<&Row> = rows.iter().filter(|row| row.0.contains(&arguments.only)).collect();
    let mut figures = vec![[const { Vec::new() }; 2]; rows.len()];
    for _ in 0..arguments.rounds {
        for ((name, tcp, softiw, _), figures) in rows.iter().zip(&mut figures) {
            let ways = if arguments.siw { [(softiw, true), (softiw, false)] } else { [(tcp, false), (softiw, false)] };
            for ((way, is_siw), figures) in ways.into_iter().zip(figures) {
                let figure = place.run(*way, arguments.seconds, is_siw);
                figures.push(figure.with_context(|| format!("{link}: {name}: {way:?} failed"))?);
            }
        }
    }
    let mut out = io::stdout();
    let other = if arguments.siw {
        "siw"
    } else if is_roce && link != "bad" {
        "UDP"
    } else {
        "TCP"
    };
    writeln!(out, "| {link} | {other} | {} | ratio | aim |\n|---|---:|---:|---:|---|", arguments.device)?;
    for ((name, _, _, aim), [other, softiw]) in rows.into_iter().zip(figures) {
        let (other, softiw) = (middle(other), middle(softiw));
        let ratio = softiw / other;
        let verdict = |is_met| if is_met { "met" } else { "missed" };
        let siw_aim = SIW_AIMS.iter().find(|(unit, _)| name.ends_with(unit));
        let verdict = match *aim {
            _ if arguments.siw => match siw_aim {
                Some(("us", aim)) => format!("≤ {aim}, {}", verdict(ratio <= *aim)),
                Some((_, aim)) => format!("≥ {aim}, {}", verdict(ratio >= *aim)),
                None => String::new(),
            },
            aim if aim.is_nan() => format!("≥ 1 M/s, {}", verdict(softiw >= 1.0)),
            aim if aim < 1.0 => format!("≥ {aim}, {}", verdict(ratio >= aim)),
            aim => format!("≤ {aim}, {}", verdict(ratio <= aim)),
        };
        writeln!(out, "| {name} | {other:.2} | {softiw:.2} | {ratio:.2} | {verdict} |")?;
    }
    Ok(writeln!(out)?)
}

/// The two hosts, or this host.
struct Place {
    hosts: Option<Hosts>,
    programs: PathBuf,
    /// The device of softrnic.
    device: String,
    /// Whether [`Place::new`] has created devices of siw, which remain after the namespaces are gone.
    has_siw: bool,
}

impl Place {
    fn new(link: &str, device: &str, has_siw: bool) -> Result<Self> {
        let device = device.to_owned();
        let programs = env::current_exe()?.parent().context("this program has no folder")?.to_owned();
        if link == "lo" {
            ensure!(!has_siw, "siw needs a network interface: pass an MTU to --links");
            return Ok(Self { hosts: None, programs, device, has_siw });
        }
        let hosts = if link == "bad" { Hosts::with_bad_cable(BAD_DELAY, BAD_LOST) } else { Hosts::new() };
        let hosts = hosts.context("cannot create network namespaces: not permitted; run this as root")?;
        let link = if link == "bad" { "1500" } else { link };
        for host in [0, 1] {
            let status = hosts.command(host, "ip").args(["link", "set", "v0", "mtu", link]).status()?;
            ensure!(status.success(), "cannot set the MTU {link}");
            if has_siw {
                let words = format!("link add siw_{host} type siw netdev v0");
                let status = hosts.command(host, "rdma").args(words.split(' ')).status()?;
                ensure!(status.success(), "cannot create siw_{host}: load the module siw");
            }
        }
        Ok(Self { hosts: Some(hosts), programs, device, has_siw })
    }

    fn server(&self) -> &str {
        if self.hosts.is_some() { Hosts::ADDRESSES[1] } else { "127.0.0.1" }
    }

    fn command(&self, host: usize, program: &[&OsStr], words: &str, is_siw: bool) -> Command {
        let (program, options) = (program[0], &program[1..]);
        let mut command = match &self.hosts {
            Some(hosts) => hosts.command(host, program),
            None => Command::new(program),
        };
        let (library, devices) = if is_siw { ("system", "0") } else { ("softrnic", &*self.device) };
        command
            .envs([("RDMA_MUMMY_RDMACM", library), ("SOFTRNIC_DEVICES", devices)])
            .args(options)
            .args(words.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// Runs a server and its client; returns the client's output.
    fn pair(&self, program: &Path, port: u16, [server, client]: [&str; 2], is_siw: bool) -> Result<String> {
        // Round trips on plain sockets and the latency of stride-perf.
        let is_latency = ["echo@", "datagram@", " lat "].iter().any(|part| client.contains(part));
        let run = |host: usize, limit: &[&str], words| {
            let processor = host.to_string();
            let pinned = ["taskset", "-c", &processor];
            let before = limit.iter().chain(if is_latency { &pinned[..] } else { &[] });
            let all: Vec<&OsStr> = before.map(OsStr::new).chain([program.as_os_str()]).collect();
            self.command(host, &all, words, is_siw)
        };
        let mut server = Server(run(1, &[], server).stdout(Stdio::null()).spawn()?);
        server.await_listener(port)?;
        let output = run(0, &["timeout", &LIMIT.as_secs().to_string()], client).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{} {client}: {}\n{text}", program.display(), output.status);
        server.end()?;
        Ok(text)
    }

    fn run(&self, way: Way, seconds: u32, is_siw: bool) -> Result<f64> {
        let host = self.server();
        match way {
            Way::Iperf(words) => {
                let amount = if words.contains("-n") { String::new() } else { format!("-t {seconds}") };
                let client = format!("-c {host} -f k -i 0 {words} {amount}");
                let text = self.pair(Path::new("iperf3"), 5201, ["-s -1", client.trim()], false)?;
                let line = text.lines().find(|line| line.ends_with("receiver")).context("no result of iperf3")?;
                let words: Vec<&str> = line.split_whitespace().collect();
                let at = words.iter().position(|word| *word == "Kbits/sec").context("no rate of iperf3")?;
                let gbps = words[at - 1].parse::<f64>()? * 1e-6;
                // For small messages, the result is their number.
                Ok(if client.contains("-l 64 ") { gbps * 1e3 / (64.0 * 8.0) } else { gbps })
            }
            Way::Stride(words, column, factor) => {
                let amount = if words.contains("-n") { String::new() } else { format!(" -D {seconds}") };
                let client = format!("{words} -R{amount} --csv /dev/stdout {host}");
                let text =
                    self.pair(&self.programs.join("stride-perf"), 18_515, ["server --one-off", &client], is_siw)?;
                let mut lines = text.lines().skip_while(|line| !line.starts_with("size_bytes,"));
                let (names, values) = (lines.next().context("no result")?, lines.next().context("no result")?);
                let at = names.split(',').position(|name| name == column).context("no such column")?;
                Ok(values.split(',').nth(at).context("no value")?.parse::<f64>()? * factor)
            }
            Way::Sockets(what) => {
                let (server, client) = (format!("--peer {what}@"), format!("--peer {what}@{host} -D {seconds}"));
                Ok(self.pair(&env::current_exe()?, sockets::PORT, [&server, &client], false)?.trim().parse()?)
            }
            Way::Cmtime(step) => {
                let client = format!("-s {host} -c {CONNECTIONS}");
                let server = format!("-c {CONNECTIONS}");
                let text = self.pair(&self.programs.join("examples/cmtime"), 7471, [&server, &client], is_siw)?;
                let row = text.lines().find_map(|line| line.strip_prefix(step)?.split_once(':'));
                Ok(row.context("no such step")?.1.split_whitespace().next().context("no time")?.parse()?)
            }
            Way::Processors(way) => {
                let before = processors()?;
                self.run(*way, seconds, is_siw)?;
                Ok(processors()? - before)
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for host in if self.has_siw { 0..2 } else { 0..0 } {
            let words = format!("link delete siw_{host}");
            let _ = Command::new("rdma").args(words.split(' ')).stderr(Stdio::null()).status();
        }
    }
}

/// A server, killed when this is dropped.
struct Server(Child);

impl Server {
    /// Waits until the network namespace of the server has a listener on the port of TCP, UDP or the connection manager.
    fn await_listener(&mut self, port: u16) -> Result<()> {
        let started = Instant::now();
        let suffix = format!(":{port:04X}");
        while started.elapsed() < LIMIT {
            ensure!(self.0.try_wait()?.is_none(), "the server ended before its client started");
            let table = |name| fs::read_to_string(format!("/proc/{}/net/{name}", self.0.id())).unwrap_or_default();
            let is_of_cm = |line: &str| line.contains("@softrnic/1/cm/") && line.contains(&format!("/{port}/"));
            let has_listener = table("unix").lines().any(is_of_cm)
                || ["tcp", "tcp6", "udp"].into_iter().any(|name| {
                    table(name).lines().any(|line| {
                        let words: Vec<&str> = line.split_whitespace().take(4).collect();
                        // The state 0A is LISTEN; 07 is that of a UDP socket.
                        matches!(words[..], [_, local, _, "0A" | "07"] if local.ends_with(&suffix))
                    })
                });
            if has_listener {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("the server does not listen on port {port}")
    }

    fn end(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < LIMIT {
            if let Some(status) = self.0.try_wait()? {
                ensure!(status.success(), "the server failed: {status}");
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("the server does not exit")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process has usually ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Processor time of all processes that this program has waited for, in seconds.
fn processors() -> Result<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit_once(')').context("no name in /proc/self/stat")?.1;
    // Fields 16 and 17 of proc(5); the text begins at field 3.
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS_PER_SECOND)
}
