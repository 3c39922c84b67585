//! Ping-pongs, and programs that find each other in the same way: a server and a client, ours or rdma-core's.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sideway_test_names::Port;

use crate::child::{self, Ended, Program, example};
use crate::{device, errors};

/// The deadline of a program.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Texts that no program prints on success.
const BAD: [&str; 4] = ["invalid data", "panicked", "wrong data", "error"];

/// A TCP and connection manager port that is reserved until this program ends.
///
/// # Panics
///
/// If all ports are in use.
#[track_caller]
pub fn port() -> u16 {
    Port::reserve().keep()
}

/// One of the examples, with the device and the TCP port.
///
/// # Panics
///
/// If the example has not been built.
#[track_caller]
pub fn ours(name: &str, port: u16, options: &str) -> Command {
    let mut command = example(name);
    command.args(["-d", &device::name(), "-p", &port.to_string()]).args(options.split_whitespace());
    command
}

/// One of rdma-core's programs, with the GID as an option.
///
/// # Panics
///
/// If there is no device.
#[track_caller]
pub fn theirs(name: &str, port: u16, options: &str) -> Command {
    let mut command = Command::new(name);
    command.args(["-d", &device::name(), "-p", &port.to_string()]).args(options.split_whitespace());
    if let Some(entry) = device::gid(&device::open()) {
        command.args(["-g", &entry.gid_index().to_string()]);
    }
    command
}

/// A program that finds its peer by IP address, on the port of the connection manager.
pub fn by_address(mut command: Command, port: u16, options: &str) -> Command {
    command.args(["-p", &port.to_string()]).args(options.split_whitespace());
    command
}

/// Restricts a program to the soft device that reaches only this host. Other hosts have no route then.
pub fn on_this_host(mut command: Command) -> Command {
    command.env("SOFTRNIC_DEVICES", device::SOFT_DEVICE);
    command
}

/// Runs the server and the client of a ping-pong, and asserts that both have sent and received everything.
///
/// # Panics
///
/// If a message is missing, or a program failed.
#[track_caller]
pub fn play(server: Command, client: Command, port: u16, host: &str, size: u32, iterations: u32) {
    play_within(LIMIT, server, client, port, host, size, iterations);
}

/// Like [`play`], with a limit of its own.
///
/// # Panics
///
/// As [`play`].
#[track_caller]
pub fn play_within(
    limit: Duration,
    mut server: Command,
    mut client: Command,
    port: u16,
    host: &str,
    size: u32,
    iterations: u32,
) {
    for command in [&mut server, &mut client] {
        command.args(["-s", &size.to_string(), "-n", &iterations.to_string()]);
    }
    client.arg(host);
    let description = format!("{server:?} with {client:?}");
    for Ended { status, output } in child::run_both(server, client, port, limit) {
        assert!(status.success(), "{description}: {status}\n{output}");
        let bytes = u64::from(size) * u64::from(iterations) * 2;
        for line in [
            format!("{bytes} bytes in "),
            format!("{iterations} iters in "),
            "local address:".into(),
            "remote address:".into(),
        ] {
            assert!(output.contains(&line), "{description}: no `{line}`\n{output}");
        }
        for word in BAD {
            assert!(!output.contains(word), "{description}: {word}\n{output}");
        }
    }
}

/// Runs one of our ping-pongs with itself, for each combination of posting and polling verbs; returns the number of
/// runs.
///
/// # Panics
///
/// As [`play`].
#[track_caller]
pub fn play_in_every_kind(name: &str, size: u32, iterations: u32) -> usize {
    let mut games = 0;
    for (server, client) in
        [("basic", "basic"), ("extended", "extended"), ("generic", "generic"), ("basic", "extended")]
    {
        for events in ["", "-e"] {
            let port = port();
            let options = |kind| format!("-c {events} --cq {kind} --qp {kind}");
            let (server, client) = (options(server), options(client));
            play(ours(name, port, &server), ours(name, port, &client), port, "localhost", size, iterations);
            games += 1;
        }
    }
    games
}

/// Starts one of our servers and connects to it in place of a client; sends `bytes`, and then stays or disconnects.
///
/// # Panics
///
/// If the server does not listen, or does not end.
#[track_caller]
pub fn say_to_server(name: &str, options: &str, bytes: &[u8], stays: bool) -> Ended {
    let port = port();
    let mut server = Program::start(ours(name, port, options), LIMIT);
    server.wait_for_port(port);
    let mut stream = TcpStream::connect(("localhost", port)).expect("the server listens");
    stream.write_all(bytes).expect("the server reads");
    let stream = stays.then_some(stream);
    let ended = server.wait().unwrap_or_else(|| panic!("the server does not exit:\n{}", server.said()));
    drop(stream);
    ended
}

/// Runs one of our ping-pongs with itself without end, kills the client, and returns the server's outcome.
///
/// # Panics
///
/// If the two do not connect, or if the server does not end.
#[track_caller]
pub fn kill_client(name: &str, options: &str) -> Ended {
    let port = port();
    let options = format!("-n 100000000 {options}");
    let mut server = Program::start(ours(name, port, &options), LIMIT);
    server.wait_for_port(port);
    let mut client = Program::start(ours(name, port, &format!("{options} localhost")), LIMIT);
    wait_for_game(&server, &client);
    // In the middle of the run.
    thread::sleep(Duration::from_millis(300));
    client.kill();
    server.wait().unwrap_or_else(|| panic!("the server does not exit:\n{}", server.said()))
}

/// Waits until a server and a client have exchanged their queue pairs.
///
/// # Panics
///
/// If the two do not connect.
#[track_caller]
pub fn wait_for_game(server: &Program, client: &Program) {
    let started = Instant::now();
    let has_peer = |program: &Program| program.said().contains("remote address");
    while !(has_peer(server) && has_peer(client)) {
        let said = || format!("{}\n{}", server.said(), client.said());
        assert!(started.elapsed() < LIMIT, "the programs do not connect:\n{}", said());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Asserts that a program has succeeded and printed these lines.
///
/// # Panics
///
/// If the program failed, or a line is missing.
#[track_caller]
pub fn succeeds(ended: &Ended, lines: &[&str]) {
    let Ended { status, output } = ended;
    assert!(status.success(), "{status}\n{output}");
    for line in lines {
        assert!(output.contains(line), "no `{line}` in:\n{output}");
    }
    assert!(!output.contains("panicked") && !output.contains("error: "), "{output}");
}

/// Asserts that an example rejects these arguments, before it looks for a device.
///
/// # Panics
///
/// If the example accepts the arguments.
#[track_caller]
pub fn refuses(name: &str, arguments: &str) {
    // Does not add the device and port of `ours`, because a repeated option would be rejected too.
    let mut command = example(name);
    command.args(arguments.split_whitespace());
    let Ended { status, output } = child::run(command, LIMIT);
    assert_eq!(status.code(), Some(2), "{name} {arguments}: {output}");
}

/// Asserts that a program fails with one sentence that contains `words`.
///
/// # Panics
///
/// If the program succeeds, or if its sentence lacks one of the words.
#[track_caller]
pub fn fails(ended: &Ended, words: &[&str]) {
    let Ended { status, output } = ended;
    assert_eq!(status.code(), Some(1), "{output}");
    let error = errors::text(output, "error: ");
    assert!(output.lines().last().is_some_and(|line| line.ends_with(error)), "nothing follows the error: {output}");
    for word in words {
        assert!(error.contains(word), "no `{word}` in: {output}");
    }
}
