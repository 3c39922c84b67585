//! Calls with trespass-rpc and with other libraries, in turn. A call has no arguments and an attachment of N bytes; the
//! reply has 13 bytes.
//!
//! Each run has a server process and a client process with one thread each (coro_rpc: two threads each). The CPU time
//! is the sum of both processes.
//!
//! With 1 MiB, glibc returns free memory to the system, and page faults take most of the time of tonic. To exclude them, set
//! `MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TOP_PAD_=67108864`.

mod measure;
mod messages;
mod ours;
mod tarpc_peer;
mod tonic_peer;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use nix::sys::resource::{UsageWho, getrusage};

use measure::{Job, Row};

/// Compares calls with several libraries, in turn
#[derive(Debug, Parser)]
struct Arguments {
    /// Bytes of the attachment
    #[arg(long, default_value_t = 128)]
    size: usize,
    /// Callers
    #[arg(long, default_value_t = 16)]
    callers: usize,
    /// Rounds; the results are their medians
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Duration of each run in whole seconds
    #[arg(long, default_value_t = 1)]
    seconds: u32,
    /// Run only programs whose name contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// coro_rpc's benchmark, built without ibverbs
    #[arg(long)]
    coro_tcp: Option<PathBuf>,
    /// coro_rpc's benchmark, built with ibverbs
    #[arg(long)]
    coro_ibv: Option<PathBuf>,
    /// stride-perf, for the rate of reads
    #[arg(long)]
    stride: Option<PathBuf>,
    /// The script that runs a C program on softrnic (`cargo xtask preload`)
    #[arg(long, default_value = "target/preload/softrnic-run")]
    softrnic_run: PathBuf,
    /// Run as the server of a program
    #[arg(long, hide = true)]
    server: Option<String>,
    /// Run as the client of a program
    #[arg(long, hide = true, requires = "address")]
    client: Option<String>,
    #[arg(long, hide = true)]
    address: Option<String>,
}

/// The programs: name and number of connections.
const PROGRAMS: [(&str, &str); 14] = [
    ("trespass-rpc tcp", "one"),
    ("tonic tcp", "one"),
    ("tarpc tcp", "one"),
    ("coro_rpc tcp", "one"),
    ("coro_rpc tcp pool", "one per caller"),
    ("messages tcp", "one"),
    ("trespass-rpc softrnic", "one"),
    ("trespass-rpc softrnic polling", "one"),
    ("messages softrnic", "one"),
    ("messages softrnic polling", "one"),
    ("stride read bw softrnic", "one"),
    ("tonic on trespass softrnic", "one"),
    ("tarpc on trespass softrnic", "one"),
    ("coro_rpc softrnic", "one per caller"),
];

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let job =
        Job { size: arguments.size, callers: arguments.callers, time: Duration::from_secs(arguments.seconds.into()) };
    if let Some(name) = &arguments.server {
        return runtime()?.block_on(serve(name));
    }
    if let (Some(name), Some(address)) = (&arguments.client, &arguments.address) {
        let row = runtime()?.block_on(call(name, address, &job))?;
        println!("{row}");
        return Ok(());
    }
    compare(&arguments)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

async fn serve(name: &str) -> Result<()> {
    if name.starts_with("messages") {
        messages::serve(name)
    } else if name.starts_with("tonic") {
        tonic_peer::serve(name.contains("softrnic")).await
    } else if name.starts_with("tarpc") {
        tarpc_peer::serve(name.contains("softrnic")).await
    } else {
        ours::serve(name).await
    }
}

async fn call(name: &str, address: &str, job: &Job) -> Result<Row> {
    if name.starts_with("messages") {
        messages::call(name, address, job)
    } else if name.starts_with("tonic") {
        tonic_peer::call(address, name.contains("softrnic"), job).await
    } else if name.starts_with("tarpc") {
        tarpc_peer::call(address, name.contains("softrnic"), job).await
    } else {
        ours::call(name, address, job).await
    }
}

fn compare(arguments: &Arguments) -> Result<()> {
    let programs: Vec<_> = PROGRAMS.into_iter().filter(|(name, _)| name.contains(&arguments.only)).collect();
    let mut rows: Vec<Vec<Row>> = programs.iter().map(|_| Vec::new()).collect();
    for round in 0..arguments.rounds {
        for (at, (name, _)) in programs.iter().enumerate() {
            match run(arguments, name) {
                Ok(Some(row)) => rows[at].push(row),
                Ok(None) => {}
                Err(error) => eprintln!("round {round}: {name}: {error:#}"),
            }
        }
    }
    println!("{} B, {} callers, medians of {} rounds", arguments.size, arguments.callers, arguments.rounds);
    println!("program                        connections     calls/s    Gb/s   p50 us   p99 us  cpu us/call  peak MB");
    for ((name, connections), rows) in programs.iter().zip(&mut rows).filter(|(_, rows)| !rows.is_empty()) {
        let row = Row::median(rows);
        let gbps = row.rate * arguments.size as f64 * 8.0 / 1e9;
        println!(
            "{name:30} {connections:12} {:10.0} {gbps:7.2} {:8.1} {:8.1} {:12.2} {:8.0}",
            row.rate, row.p50, row.p99, row.cpu, row.memory
        );
    }
    Ok(())
}

/// Runs a server and a client. `None` if the program does not exist.
fn run(arguments: &Arguments, name: &str) -> Result<Option<Row>> {
    let before = cpu()?;
    let Some((mut server, row)) = start(arguments, name)? else { return Ok(None) };
    let memory = peak(server.id());
    server.kill()?;
    server.wait()?;
    let mut row = row?;
    row.cpu = (cpu()? - before) / (row.rate * f64::from(arguments.seconds)).max(1.0);
    row.memory = memory;
    Ok(Some(row))
}

type Started = (Child, Result<Row>);

fn start(arguments: &Arguments, name: &str) -> Result<Option<Started>> {
    if name.starts_with("coro_rpc") {
        return coro(arguments, name);
    }
    if name.starts_with("stride") {
        return stride(arguments);
    }
    let itself = std::env::current_exe()?;
    let mut server = Command::new(&itself).args(["--server", name]).stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    BufReader::new(server.stdout.take().context("no output")?).read_line(&mut address)?;
    let (size, callers, seconds) =
        (arguments.size.to_string(), arguments.callers.to_string(), arguments.seconds.to_string());
    let mut client = Command::new(&itself);
    client.args(["--client", name, "--address", address.trim(), "--size", &size]);
    client.args(["--callers", &callers, "--seconds", &seconds]);
    let row = output(client).and_then(|text| text.trim().parse());
    Ok(Some((server, row)))
}

/// The rate of stride-perf's reads, with one in flight per caller.
fn stride(arguments: &Arguments) -> Result<Option<Started>> {
    let Some(program) = &arguments.stride else { return Ok(None) };
    let port = "19128";
    let server = Command::new(program).args(["-p", port]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    let mut client = Command::new(program);
    client.args(["read", "bw", "-p", port, "--csv", "/dev/stdout", "-D", &format!("{}s", arguments.seconds)]);
    client.args(["-s", &arguments.size.to_string(), "-t", &arguments.callers.to_string(), "127.0.0.1"]);
    // The tenth column of the last line has the messages per second.
    let rate = |text: String| -> Result<f64> {
        let column = text.lines().last().and_then(|line| line.split(',').nth(9));
        Ok(column.with_context(|| format!("no rate in {text}"))?.parse()?)
    };
    Ok(Some((server, output(client).and_then(rate).map(|rate| Row { rate, ..Row::default() }))))
}

/// The rate and the quantiles of coro_rpc's own benchmark.
fn coro(arguments: &Arguments, name: &str) -> Result<Option<Started>> {
    let is_rdma = name.ends_with("softrnic");
    let Some(program) = (if is_rdma { &arguments.coro_ibv } else { &arguments.coro_tcp }) else { return Ok(None) };
    let command = |rest: &[&str]| {
        let mut command = if is_rdma {
            let mut command = Command::new(&arguments.softrnic_run);
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        // Log level 5, because lower levels fill the output; two send buffers, as in the published table.
        command.args(["-o", "5", "-j", "2"]).args(rest);
        command
    };
    let port = "19127";
    let server = command(&["-p", port]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    // Over TCP without `pool`, all callers share one connection; otherwise each caller has its own.
    let shares = if is_rdma || name.ends_with("pool") { "0" } else { "1" };
    let (url, size) = (format!("127.0.0.1:{port}"), arguments.size.to_string());
    let (callers, seconds) = (arguments.callers.to_string(), arguments.seconds.to_string());
    let row = output(command(&["-u", &url, "-s", &size, "-c", &callers, "-d", &seconds, "-h", shares]))
        .and_then(|text| coro_row(&text, arguments.seconds));
    Ok(Some((server, row)))
}

fn coro_row(text: &str, seconds: u32) -> Result<Row> {
    let number = |after: &str| -> Result<f64> {
        let at = text.find(after).with_context(|| format!("no {after} in {text}"))? + after.len();
        let end = text[at..].find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len() - at);
        Ok(text[at..at + end].parse()?)
    };
    let quantile = |of: &str| number(&format!("quantile=\"{of}\"}} "));
    ensure!(seconds > 0, "whole seconds");
    Ok(Row { rate: number("avg qps: ")?, p50: quantile("0.500000")?, p99: quantile("0.990000")?, ..Row::default() })
}

/// Returns a client's output, with a time limit of one minute.
fn output(mut command: Command) -> Result<String> {
    let mut client = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut out = client.stdout.take().context("no output")?;
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        _ = sender.send(out.read_to_string(&mut text).map(|_| text));
    });
    let text = receiver.recv_timeout(Duration::from_secs(60));
    client.kill()?;
    client.wait()?;
    match text {
        Ok(text) => Ok(text?),
        Err(_) => bail!("the client does not exit"),
    }
}

/// Microseconds of CPU time of all children that have ended.
fn cpu() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

/// The largest memory use of a process, in megabytes.
fn peak(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or_default() / 1e3
}
