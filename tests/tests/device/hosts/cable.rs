//! Cables that lose frames or are pulled out, peers that vanish, and many connections.

use std::process::Command;
use std::time::{Duration, Instant};

use sideway_tests::child::{Ended, Program};
use sideway_tests::hosts::Hosts;
use sideway_tests::programs::{LIMIT, succeeds, wait_for_game};

use super::{is_soft, on, play};

/// A server on the second host, and a client on the first, of an example.
fn pair(hosts: &Hosts, program: &str, server: &str, client: &str) -> [Ended; 2] {
    play(on(hosts, 1, program, server), || on(hosts, 0, program, client))
}

fn messages_arrive(delay: Duration, options: &str) {
    let Some(hosts) = Hosts::with_bad_cable(delay, 10) else { return };
    let client = format!("{} {options}", Hosts::ADDRESSES[1]);
    for ended in pair(&hosts, "cm_pingpong", options, &client) {
        succeeds(&ended, &[]);
    }
}

#[test]
fn loss_and_delay_lose_no_message() {
    if is_soft() {
        messages_arrive(Duration::from_millis(2), "-c -n 20 -s 100000 -e");
    }
}

#[test]
#[ignore = "takes a minute: cargo xtask ci --full seeds"]
fn loss_and_delay_of_a_long_path_lose_no_message() {
    if is_soft() {
        messages_arrive(Duration::from_millis(50), "-c -n 10 -s 300000 -e");
        messages_arrive(Duration::from_millis(50), "-c -n 100 -s 64");
    }
}

/// Two hosts with a server and a client that run until their connection is lost.
fn endless(limit: Duration) -> Option<(Hosts, Program, Program)> {
    let hosts = Hosts::new()?;
    let options = "-n 100000000 -s 20000";
    let start = |command: Command| Program::start(command, limit);
    let mut server = start(on(&hosts, 1, "cm_pingpong", options));
    server.wait_until("listen", |_| is_listening(&hosts));
    let client = start(on(&hosts, 0, "cm_pingpong", &format!("{options} {}", Hosts::ADDRESSES[1])));
    wait_for_game(&server, &client);
    Some((hosts, server, client))
}

/// Whether a server of the second host listens on TCP.
fn is_listening(hosts: &Hosts) -> bool {
    let listed = hosts.command(1, "cat").args(["/proc/net/tcp", "/proc/net/tcp6"]).output();
    // The state 0A is LISTEN.
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(" 0A "))
}

/// Waits for the end of a program, which must report its lost connection.
fn fails(mut program: Program) {
    let ended = program.wait().unwrap_or_else(|| panic!("the program does not exit:\n{}", program.said()));
    assert!(!ended.status.success() && !ended.output.contains("panicked"), "{}", ended.output);
    let has_reason = ["flush", "error"].iter().any(|word| ended.output.to_lowercase().contains(word));
    assert!(has_reason, "{}", ended.output);
}

#[test]
fn killed_peer_of_another_host_ends_the_connection() {
    if !is_soft() {
        return;
    }
    let Some((_hosts, mut server, client)) = endless(LIMIT) else { return };
    server.kill();
    fails(client);
}

#[test]
fn half_open_connection_ends_when_the_peer_is_back() {
    if !is_soft() {
        return;
    }
    let Some((hosts, mut server, client)) = endless(LIMIT) else { return };
    hosts.plug(1, false);
    // The client is not notified of the server's end.
    server.kill();
    hosts.plug(1, true);
    fails(client);
}

#[test]
#[ignore = "waits for the time-out of 30 s: cargo xtask ci --full seeds"]
fn pulled_cable_ends_both_sides_within_the_time_out() {
    if !is_soft() {
        return;
    }
    // TCP ends the connection at most a few retransmissions after the time-out.
    let Some((hosts, server, client)) = endless(Duration::from_secs(120)) else { return };
    let pulled = Instant::now();
    hosts.plug(1, false);
    fails(client);
    fails(server);
    assert!(pulled.elapsed() >= Duration::from_secs(15), "a short break must not end a connection");
}

#[test]
fn short_break_of_the_cable_ends_no_connection() {
    if !is_soft() {
        return;
    }
    let Some((hosts, mut server, mut client)) = endless(LIMIT) else { return };
    hosts.plug(1, false);
    std::thread::sleep(Duration::from_millis(300));
    hosts.plug(1, true);
    let until = Instant::now() + Duration::from_secs(1);
    for program in [&mut server, &mut client] {
        program.wait_until("play on", |_| Instant::now() >= until);
    }
}

#[test]
fn thousand_connections_carry_64_kib_each_way() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let options = "-n 1000 -s 64k --at-once 1000";
    for ended in pair(&hosts, "cm_many", &format!("-l {options}"), &format!("{options} {}", Hosts::ADDRESSES[1])) {
        succeeds(&ended, &[]);
    }
}
