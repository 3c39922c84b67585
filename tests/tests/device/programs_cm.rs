//! The examples `ucmatose`, `cm_many` and `cm_tokio` as programs: with themselves, and the first with rdma-core's.

use std::process::Command;
use std::time::Duration;

use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::connections::address;
use sideway_tests::device;
use sideway_tests::programs::port;
use sideway_tests::resources::wait_for_listener;

const LIMIT: Duration = Duration::from_secs(120);

/// A program, with these options and a port.
fn with(mut command: Command, port: u16, options: &str) -> Command {
    command.args(["-p", &port.to_string()]).args(options.split_whitespace());
    command
}

fn ours(name: &str, port: u16, options: &str) -> Command {
    with(example(name), port, options)
}

fn theirs(port: u16, options: &str) -> Command {
    with(Command::new("ucmatose"), port, options)
}

/// Runs a server and a client, which both succeed.
#[track_caller]
fn play(server: Command, client: Command, port: u16) -> [String; 2] {
    let description = format!("{server:?} with {client:?}");
    let [server, client] = both(server, client, port);
    for Ended { status, output } in [&server, &client] {
        assert!(status.success(), "{description}: {status}\n{output}");
        assert!(!output.contains("error") && !output.contains("panicked"), "{description}: {output}");
    }
    [server.output, client.output]
}

#[track_caller]
fn both(server: Command, client: Command, port: u16) -> [Ended; 2] {
    let mut server = Program::start(server, LIMIT);
    wait_for_listener(port);
    let mut client = Program::start(client, LIMIT);
    let client = client.wait().unwrap_or_else(|| panic!("the client does not exit:\n{}", client.said()));
    let server = server.wait().unwrap_or_else(|| panic!("the server does not exit:\n{}", server.said()));
    [server, client]
}

const COUNTS: &str = "-c 10 -C 5 -S 200";

#[test]
fn ucmatose_runs_with_itself_and_checks_every_byte() {
    let host = address();
    let mut games = 0;
    for (of_server, of_client) in [
        ("", ""),
        ("-m", "-m"),
        ("--srq", ""),
        ("-m", "--srq -t 0x68 -a 14"),
        ("-C 0", "-C 0"),
        ("-S 64k", "-S 64k --srq"),
    ] {
        let port = port();
        let server = ours("ucmatose", port, &format!("{} {of_server}", without(of_server)));
        let client = ours("ucmatose", port, &format!("-s {host} -b {host} {} {of_client}", without(of_client)));
        for output in play(server, client, port) {
            assert!(output.contains("10 connected; the messages are checked\n"), "{output}");
            assert!(output.ends_with("disconnected\n"), "{output}");
            games += 1;
        }
    }
    assert_eq!(games, 12);
}

/// The counts that the options do not set.
fn without(options: &str) -> &'static str {
    match options.get(..2) {
        Some("-C") => "-c 10 -S 200",
        Some("-S") => "-c 10 -C 5",
        _ => COUNTS,
    }
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn ucmatose_runs_with_the_c_program_on_either_side() {
    let host = address();
    let mut games = 0;
    for (of_server, of_client) in [("", ""), ("-m", "-m"), ("", "-m -t 16 -a 14")] {
        let client = format!("-s {host} {COUNTS} {of_client}");
        let server = format!("{COUNTS} {of_server}");
        let at = port();
        let [mine, c] = play(ours("ucmatose", at, &server), theirs(at, &client), at);
        assert!(mine.contains("50 messages of 200 bytes sent, and as many received\n"), "{mine}");
        assert!(mine.contains("not checked: the peer is another program"), "{mine}");
        assert!(c.contains("data transfers complete\n") && c.contains("return status 0\n"), "{c}");

        let at = port();
        let srq = if of_server.is_empty() { "--srq" } else { "" };
        let [c, mine] = play(theirs(at, &server), ours("ucmatose", at, &format!("{client} {srq}")), at);
        assert!(mine.contains("50 messages of 200 bytes sent, and as many received\n"), "{mine}");
        assert!(c.contains("data transfers complete\n") && c.contains("return status 0\n"), "{c}");
        games += 2;
    }
    assert_eq!(games, 6);
}

#[test]
fn ucmatose_reports_differing_options_of_the_sides() {
    let host = address();
    let at = port();
    let [server, client] = both(ours("ucmatose", at, "-C 4"), ours("ucmatose", at, &format!("-s {host} -C 5")), at);
    assert_eq!((server.status.code(), client.status.code()), (Some(1), Some(1)));
    assert!(client.output.contains("the server was started with -C 4 -S 100\n"), "{}", client.output);
    assert!(server.output.contains("other -C or -S"), "{}", server.output);

    let at = port();
    let [server, client] = both(ours("ucmatose", at, "-c 2"), ours("ucmatose", at, &format!("-s {host} -c 3")), at);
    assert_eq!((server.status.code(), client.status.code()), (Some(1), Some(1)), "{}", server.output);
    // The server exits after the client reports the first rejection, and rejects the third connection. The client may
    // receive either error first.
    let causes =
        ["the server was started with -c 2\n", "connection 2: rejected: the program there declined the request\n"];
    assert!(causes.iter().any(|cause| client.output.contains(cause)), "{}", client.output);
}

#[test]
fn ucmatose_reports_a_killed_peer() {
    let host = address();
    let at = port();
    // The server never receives a third connection, so both wait.
    let mut server = Program::start(ours("ucmatose", at, "-c 3"), LIMIT);
    wait_for_listener(at);
    let mut client = Program::start(ours("ucmatose", at, &format!("-s {host} -c 2")), LIMIT);
    let started = std::time::Instant::now();
    while !client.said().contains("2 connected") {
        assert!(started.elapsed() < LIMIT, "{}", client.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    client.kill();
    let server = server.wait().unwrap_or_else(|| panic!("the server does not exit:\n{}", server.said()));
    assert_eq!(server.status.code(), Some(1), "{}", server.output);
    assert!(server.output.contains("disconnected\n"), "{}", server.output);
}

/// The numbers that `cm_many` prints for a state on a line.
#[track_caller]
fn counts(output: &str, side: &str, state: &str) -> u32 {
    let line = output.lines().find_map(|line| line.strip_prefix(&format!("{side} side: ")));
    let line = line.unwrap_or_else(|| panic!("no {side} side:\n{output}"));
    let word = line.split(", ").find_map(|part| part.strip_suffix(state)?.trim().parse().ok());
    word.unwrap_or_else(|| panic!("no `{state}`:\n{output}"))
}

#[test]
fn one_thread_drives_hundreds_of_connections() {
    let ended = child::run(with(example("cm_many"), port(), "-n 300"), LIMIT);
    let output = &ended.output;
    assert!(ended.status.success(), "{}\n{output}", ended.status);
    for state in ["resolving the address", "resolving the route", "requesting", "exchanging", "disconnecting", "done"] {
        assert_eq!(counts(output, "connecting", state), 300, "{state}");
    }
    for state in ["accepting", "done"] {
        assert_eq!(counts(output, "listening", state), 300, "{state}");
    }
    assert!(output.contains("600 ends of connections in "), "{output}");
}

#[test]
fn two_programs_have_many_connections() {
    let host = address();
    let mut pairs = 0;
    for (server, client) in
        [("cm_many", "cm_many"), ("cm_tokio", "cm_tokio"), ("cm_many", "cm_tokio"), ("cm_tokio", "cm_many")]
    {
        let at = port();
        let few = if client == "cm_many" { "--at-once 7" } else { "" };
        play(
            ours(server, at, &format!("--listen -n 40 -s 4k -b {host}")),
            ours(client, at, &format!("-n 40 -s 4k {few} {host}")),
            at,
        );
        pairs += 1;
    }
    assert_eq!(pairs, 4);
}

#[test]
fn runtime_runs_hundreds_of_connections_without_leaks() {
    // Runs both sides and closes the channel at the end; the program fails if an object still uses the channel.
    let ended = child::run(with(example("cm_tokio"), port(), "-n 200"), LIMIT);
    let output = &ended.output;
    assert!(ended.status.success(), "{}\n{output}", ended.status);
    for line in ["200 connections made\n", "200 connections served\n"] {
        assert!(output.contains(line), "{output}");
    }
}

#[test]
fn connect_without_a_listener_is_reported() {
    let host = address();
    let mut programs = 0;
    for (name, options) in [
        ("ucmatose", format!("-s {host} -c 3")),
        ("cm_many", format!("{host} -n 3")),
        ("cm_tokio", format!("{host} -n 3")),
    ] {
        let ended = child::run(ours(name, port(), &options), LIMIT);
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", ended.output);
        let said = ended.output.lines().last().unwrap_or_default();
        assert!(said.starts_with("error: "), "{name}: {}", ended.output);
        assert!(said.contains("rejected: no listener on that port"), "{name}: {}", ended.output);
        programs += 1;
    }
    assert_eq!(programs, 3);
}

#[test]
fn unfinished_wait_times_out() {
    let mut programs = 0;
    for (name, options, said) in [
        ("ucmatose", "--timeout 0.3", "not all connections were made within 0.3 s"),
        ("cm_many", "--listen --timeout 0.3", "not all connections ended within 0.3 s"),
        ("cm_tokio", "--listen --timeout 0.3", "not all connections ended within 0.3 s"),
    ] {
        let ended = child::run(ours(name, port(), options), LIMIT);
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", ended.output);
        assert!(ended.output.contains(said), "{name}: {}", ended.output);
        programs += 1;
    }
    assert_eq!(programs, 3);
}

#[test]
fn invalid_arguments_give_one_sentence() {
    let host = address();
    let mut programs = 0;
    for (name, options, said) in [
        ("ucmatose", "-b 192.0.2.1".to_owned(), "192.0.2.1"),
        ("ucmatose", "-s no.such.host.invalid".to_owned(), "cannot resolve no.such.host.invalid"),
        ("cm_many", format!("{host} -b 192.0.2.1"), "192.0.2.1"),
        ("cm_many", "-b 127.0.0.1 -n 1".to_owned(), "127.0.0.1"),
        ("cm_tokio", "--listen -b 192.0.2.1".to_owned(), "192.0.2.1"),
    ] {
        programs += 1;
        // That address belongs to the soft device.
        if said == "127.0.0.1" && device::is_soft() {
            continue;
        }
        let ended = child::run(ours(name, port(), &options), LIMIT);
        let output = &ended.output;
        assert_eq!(ended.status.code(), Some(1), "{name} {options}: {output}");
        let last = output.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: ") && last.contains(said), "{name} {options}: {output}");
    }
    for (name, options) in [
        ("ucmatose", "-c 0"),
        ("ucmatose", "-S 0"),
        ("ucmatose", "-x"),
        ("cm_many", "-n 0"),
        ("cm_many", "--listen somewhere"),
        ("cm_many", "--at-once 0"),
        ("cm_tokio", "--timeout -1"),
    ] {
        assert_eq!(child::run(with(example(name), port(), options), LIMIT).status.code(), Some(2), "{name} {options}");
        programs += 1;
    }
    for name in ["ucmatose", "cm_many", "cm_tokio"] {
        let help = child::run(with(example(name), port(), "--help"), LIMIT).output;
        assert!(help.contains("Usage: ") && help.contains("Examples:") && help.contains("Exit status: 0"), "{help}");
        programs += 1;
    }
    assert_eq!(programs, 15);
}
