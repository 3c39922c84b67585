//! The example `cm_pingpong` as a program: over connections and as datagrams, by IPv4 and IPv6, and with peers that are
//! missing, disconnect, or use another protocol.

use std::fs;
use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::connections::address;
use sideway_tests::device;
use sideway_tests::programs::{LIMIT, by_address, fails, on_this_host, port, refuses, succeeds, wait_for_game};
use sideway_tests::requirements::has_ipv6;

const NAME: &str = "cm_pingpong";

fn ours(port: u16, options: &str) -> Command {
    by_address(example(NAME), port, options)
}

/// A link-local address of the device's network interface, with the interface as its suffix.
#[track_caller]
fn link_local() -> String {
    let folder = device::sysfs(&device::open());
    let interface = fs::read_to_string(folder.join("parent")).expect("the device names its network interface");
    let interface = interface.trim();
    let table = fs::read_to_string("/proc/net/if_inet6").expect("there is IPv6");
    let address = table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[address, _, _, scope, _, name] = words.as_slice() else { return None };
        let address = u128::from_str_radix(address, 16).ok()?;
        // 20 is link scope.
        (name == interface && scope == "20").then_some(IpAddr::from(address.to_be_bytes()))
    });
    format!("{}%{interface}", address.unwrap_or_else(|| panic!("{interface} has no link-local address:\n{table}")))
}

/// Both sides with these options; they must exchange `iterations` messages of `size` bytes.
#[track_caller]
fn play(server: &str, client: &str, host: &str, size: u32, iterations: u32) -> [Ended; 2] {
    let port = port();
    let sizes = format!("-s {size} -n {iterations} --timeout 60");
    let server = ours(port, &format!("{sizes} {server}"));
    let client = ours(port, &format!("{sizes} {client} {host}"));
    let ended = child::run_both_by_cm(server, client, port, LIMIT);
    let bytes = u64::from(size) * u64::from(iterations) * 2;
    for side in &ended {
        let lines = [format!("{bytes} bytes in "), format!("{iterations} iters in ")];
        succeeds(side, &["local address:", "remote address:", &lines[0], &lines[1]]);
    }
    ended
}

/// Server and client, of which each may fail.
#[track_caller]
fn run_both(server: &str, client: &str) -> [Ended; 2] {
    let port = port();
    child::run_both_by_cm(ours(port, server), ours(port, &format!("{client} {}", address())), port, LIMIT)
}

#[test]
fn connected_pingpongs_run_with_every_kind() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let host = address().to_string();
    let mut games = 0;
    for (server, client) in
        [("basic", "basic"), ("extended", "extended"), ("generic", "generic"), ("basic", "extended")]
    {
        for events in ["", "-e"] {
            let options = |kind| format!("-c {events} --cq {kind} --qp {kind}");
            play(&options(server), &options(client), &host, 5000, 200);
            games += 1;
        }
    }
    assert_eq!(games, 8);
    // One message, of several packets, with the fewest receives.
    play("-r 1 -c", "-r 1 -c", &host, 1 << 20, 1);
    play("-r 1 -c -e", "-r 3 -c", &host, 1, 10);
}

#[test]
fn datagram_pingpongs_run_with_every_kind() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let host = address().to_string();
    let mut games = 0;
    for kind in ["basic", "extended", "generic"] {
        for events in ["", "-e"] {
            let options = format!("--ud -c {events} --cq {kind} --qp {kind}");
            play(&options, &options, &host, 1000, 100);
            games += 1;
        }
    }
    assert_eq!(games, 6);
    play("-u -r 1", "--datagram -r 1", &host, 1, 3);
}

#[test]
fn addresses_of_both_families_are_understood() {
    let host = address().to_string();
    // The server listens at one address or at all; the client connects from one address or from the route's.
    let [server, client] = play(&format!("-b {host}"), &format!("-I {host}"), &host, 64, 3);
    assert!(server.output.contains(&format!("local address:  {host}:")), "{}", server.output);
    assert!(client.output.contains(&format!("remote address: {host}:")), "{}", client.output);

    if device::is_soft() {
        if !has_ipv6() {
            return;
        }
        let [server, client] = play("-b ::1", "-b ::1", "::1", 64, 3);
        assert!(server.output.contains("local address:  [::1]:"), "{}", server.output);
        assert!(client.output.contains("remote address: [::1]:"), "{}", client.output);
        return;
    }
    let scoped = link_local();
    let mut games = 0;
    for ud in ["", "-u"] {
        for (server, client) in [(String::new(), String::new()), (format!("-b {scoped}"), format!("-b {scoped}"))] {
            let [server, client] = play(&format!("{ud} {server}"), &format!("{ud} {client}"), &scoped, 64, 3);
            assert!(server.output.contains("local address:  [fe80:"), "{}", server.output);
            assert!(client.output.contains("remote address: [fe80:"), "{}", client.output);
            games += 1;
        }
    }
    assert_eq!(games, 4);
}

#[test]
fn missing_peer_is_an_error() {
    let host = address().to_string();
    let run = |options: &str| child::run(ours(port(), options), LIMIT);
    fails(&run(&host), &[&format!("connecting to {host}:"), "no listener on that port"]);
    fails(&run(&format!("--ud {host}")), &[&host, "unreachable"]);
    let here = |host: &str| child::run(on_this_host(ours(port(), host)), LIMIT);
    fails(&here("203.0.113.5"), &["203.0.113.5", "no route there"]);
    if !device::is_soft() {
        // A name of this machine, but not of an RDMA device.
        fails(&run("localhost"), &["ENODEV", "the address leads to no RDMA device"]);
    }
    fails(&run("no.such.host.invalid"), &["no.such.host.invalid"]);
    fails(&run("-b 192.0.2.99"), &["EADDRNOTAVAIL", "192.0.2.99"]);
    fails(&run(&format!("-b 192.0.2.99 {host}")), &["192.0.2.99"]);
    fails(&run("--timeout 0.3"), &["no request within 300ms"]);
    fails(&run("--ud --timeout 0.3"), &["no request within 300ms"]);

    let port = port();
    let mut server = Program::start(ours(port, ""), LIMIT);
    server.wait_for_cm_port(port);
    fails(&child::run(ours(port, "--timeout 1"), LIMIT), &["in use"]);
    // The other port space.
    fails(&child::run(ours(port, &format!("--ud {host}")), LIMIT), &["unreachable"]);
    server.kill();
}

#[test]
fn peer_with_other_options_is_an_error() {
    let [server, client] = run_both("-s 1000 -n 20", "-s 64 -n 20");
    fails(&server, &["the peer sent a message of 64 bytes, expected 1000", "--size"]);
    fails(&client, &[]);
    let [server, client] = run_both("-n 10", "-n 20");
    succeeds(&server, &["10 iters in "]);
    // The error names messages that the side waits for, or a message to a process that has exited.
    fails(&client, &["of 20", "--iters"]);
    let [server, client] = run_both("-n 20 -e --timeout 10", "-n 10");
    fails(&server, &["nothing completed for 10 s: 10 of 20 messages were received", "--iters"]);
    succeeds(&client, &["10 iters in "]);
    let [server, client] = run_both("-c -n 10", "-n 10");
    fails(&server, &["wrong data", "-c"]);
    fails(&client, &[]);
    let [server, client] = run_both("-u -n 10", "-u -n 20 -e --timeout 10");
    succeeds(&server, &["10 iters in "]);
    fails(
        &client,
        &["nothing completed for 10 s: 10 of 20 messages", "datagrams (UD) may be lost", "this address (-b)"],
    );
    // A size too long for a packet is reported before a connection attempt, and by a server to such a client.
    let [server, client] = run_both("-u -s 1M", "-u --timeout 60");
    fails(&server, &["a datagram is one packet"]);
    fails(&client, &["unreachable"]);
}

#[test]
fn killed_peer_is_an_error() {
    let mut games = 0;
    for (options, killed_is_server) in [("", true), ("", false), ("-e", true), ("-e", false)] {
        let port = port();
        let options = format!("-n 100000000 {options}");
        let mut server = Program::start(ours(port, &options), LIMIT);
        server.wait_for_cm_port(port);
        let client = Program::start(ours(port, &format!("{options} {}", address())), LIMIT);
        wait_for_game(&server, &client);
        // Kills the peer in the middle of the run.
        thread::sleep(Duration::from_millis(300));
        let (mut killed, mut stays) = if killed_is_server { (server, client) } else { (client, server) };
        killed.kill();
        let ended = stays.wait().unwrap_or_else(|| panic!("the program does not exit:\n{}", stays.said()));
        fails(&ended, &["100000000"]);
        let is_told = ["the peer disconnected", "message"].iter().any(|word| ended.output.contains(word));
        assert!(is_told, "{}", ended.output);
        games += 1;
    }
    assert_eq!(games, 4);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for arguments in ["-p 0", "-s 0", "-n 0", "-r 0", "-d rxe_0", "-i 1", "-g 1", "a b", "--timeout x", "-b"] {
        refuses(NAME, arguments);
    }
    fails(&child::run(ours(port(), "-t --cq basic"), LIMIT), &["--ts requires an extended completion queue"]);
}
