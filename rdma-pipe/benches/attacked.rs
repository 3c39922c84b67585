//! Measures how long an honest sender takes while others keep a receiver busy:
//! `cargo bench -p rdma-pipe --bench attacked -- [ROUNDS]`.
//!
//! The receiver runs in this process, each sender is an `rdsend`, and the others are another process. The sender has
//! another address (`::1`) than the others (`127.0.0.1`), as a sender on another host has.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints its table")]

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rdma_pipe::link::{Link, Listener, Options, Patience, connect};
use rdma_pipe::proto::{Peer, Purpose};
use rdma_pipe::stream::{Output, receive};
use rustix::io::Errno;
use sideway_test_names::Folder;

type Done<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The length of the file, in bytes.
const LENGTH: usize = 4096;
/// The rows: the name, and what the other process does with as many connections.
const ROWS: [(&str, &str, usize); 3] = [
    ("nothing else", "wrong-keys", 0),
    ("100 peers with a wrong key", "wrong-keys", 100),
    ("3,000 idle connections", "idle", 3_000),
];
/// How long the others run before the first measurement.
const BEFORE: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [role, count, port] => others(role, count, port),
        [rounds] => rounds.parse().map_err(Into::into).and_then(table),
        _ => table(50),
    };
    done.map_or_else(
        |error| {
            eprintln!("attacked: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn options() -> Options {
    Options { transport: trespass::Transport::Tcp, ..Options::default() }
}

fn table(rounds: usize) -> Done {
    let folder = Folder::new();
    let file = folder.join("file");
    std::fs::write(&file, [7; LENGTH])?;
    println!("| a sender of {LENGTH} bytes, beside | median ms | worst ms of {rounds} |\n|---|---:|---:|");
    for (name, role, count) in ROWS {
        let listener = Listener::bind(None, 0, &options())?;
        let port = listener.port().to_string();
        let mut times = Vec::new();
        let mut crowd = Command::new(std::env::current_exe()?);
        let mut crowd = crowd.args([role, &count.to_string(), &port]).stdin(Stdio::piped()).spawn()?;
        for round in 0..=rounds {
            // In the first round, the receiver refuses the others for a while before the sender comes.
            let before = if round == 0 { BEFORE } else { Duration::ZERO };
            let (sender, started, link) = std::thread::scope(|scope| -> Done<(Child, Instant, Link)> {
                let accepted = scope.spawn(|| listener.accept(b"key", None));
                std::thread::sleep(before);
                let started = Instant::now();
                let sender = send(&port, &file)?;
                Ok((sender, started, accepted.join().map_err(|_| "the receiver panicked")??.0))
            })?;
            let again = |until| listener.accept_for(b"key", Purpose::Send, until);
            let summary = receive(link, again, Output::create(Path::new("/dev/null"))?)?;
            let status = sender.wait_with_output()?.status;
            if !status.success() || summary.bytes != LENGTH as u64 {
                return Err(format!("{name}: {status}, {} bytes", summary.bytes).into());
            }
            if round > 0 {
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
        }
        drop(crowd.stdin.take());
        let status = crowd.wait()?;
        if !status.success() {
            return Err(format!("{name}: the other peers ended with {status}").into());
        }
        times.sort_by(f64::total_cmp);
        println!("| {name} | {:.0} | {:.0} |", times[rounds / 2], times[rounds - 1]);
    }
    Ok(())
}

/// Starts the honest sender.
fn send(port: &str, file: &Path) -> Done<Child> {
    let mut sender = Command::new(env!("CARGO_BIN_EXE_rdsend"));
    Ok(sender.args(["--tcp", "::1", port, "key"]).arg(file).stdin(Stdio::null()).spawn()?)
}

/// Runs the other peers until the standard input ends, as it does when the process that measures ends.
fn others(role: &str, count: &str, port: &str) -> Done {
    std::thread::spawn(|| {
        _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let (count, address): (usize, String) = (count.parse()?, format!("127.0.0.1:{port}"));
    let socket: SocketAddr = address.parse()?;
    let (peer, options) = (Peer::unnamed(address, b"guess"), options());
    std::thread::scope(|scope| {
        match role {
            "idle" => (0..count).step_by(SHARE).for_each(|_| _ = scope.spawn(|| stay(socket))),
            _ => (0..count).for_each(|_| {
                scope.spawn(|| {
                    loop {
                        // Ignores the refusal, which is what the peer is here for.
                        _ = connect(&peer, Purpose::Send, Patience::Coming(Duration::ZERO), &options);
                    }
                });
            }),
        }
    });
    // Without other peers.
    std::thread::park();
    Ok(())
}

/// Number of idle connections of a thread.
const SHARE: usize = 375;

/// Keeps idle connections open, and replaces those that the receiver ends.
fn stay(address: SocketAddr) {
    let mut open: Vec<TcpStream> = Vec::new();
    loop {
        open.retain_mut(
            |stream| matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock),
        );
        while open.len() < SHARE {
            let stream = match TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
                Ok(stream) => stream,
                Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                    eprintln!("attacked: the idle peers have too few descriptors: ulimit -n 4096");
                    std::process::exit(1);
                }
                Err(_) => break,
            };
            if stream.set_nonblocking(true).is_err() {
                break;
            }
            open.push(stream);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
