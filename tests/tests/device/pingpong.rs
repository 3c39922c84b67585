//! The examples `rc_pingpong` and `rc_pingpong_split` as programs: with each other, and with rdma-core's `ibv_rc_pingpong` in
//! both roles.

use std::process::Command;
use std::time::Duration;

use sideway_tests::child::{self, example};
use sideway_tests::device;
use sideway_tests::programs::{
    self, LIMIT, fails, kill_client, ours, play, play_in_every_kind, play_within, port, refuses, say_to_server,
};
use sideway_tests::requirements::has_ipv6;

/// The sizes, with the number of messages of each. An emulated machine takes a tenth of a second to copy a mebibyte.
const SIZES: [(u32, u32); 3] = [(1, 1000), (4096, 300), (1 << 20, 8)];

/// rdma-core's program, with the GID as an option.
fn theirs(port: u16, options: &str) -> Command {
    programs::theirs("ibv_rc_pingpong", port, options)
}

#[test]
fn example_runs_with_itself_in_every_kind() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let mut games = play_in_every_kind("rc_pingpong", 4096, 1000);
    // The cases: few receives at a time, mixed kinds of queues and queue pairs, another MTU, and IPv4 and IPv6.
    for (options, host) in [
        ("-c -r 1 -m 256 --cq basic --new-send", "127.0.0.1"),
        ("-c -r 2 -m 512 --cq extended --qp basic", if has_ipv6() { "::1" } else { "127.0.0.1" }),
        ("-c -r 3 -l 3", "localhost"),
    ] {
        let port = port();
        play(ours("rc_pingpong", port, options), ours("rc_pingpong", port, options), port, host, 3000, 1000);
        games += 1;
    }
    assert_eq!(games, 11);
}

#[test]
fn every_size_arrives_whole() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let mut games = 0;
    for (size, iterations) in SIZES {
        for kind in ["basic", "extended"] {
            let port = port();
            let options = format!("-c --cq {kind} --qp {kind}");
            let (server, client) = (ours("rc_pingpong", port, &options), ours("rc_pingpong", port, &options));
            play(server, client, port, "localhost", size, iterations);
            games += 1;
        }
    }
    assert_eq!(games, 6);
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn example_runs_with_the_c_program_in_both_roles() {
    let mut games = 0;
    for (size, iterations) in SIZES {
        for kind in ["basic", "extended"] {
            for events in ["", "-e"] {
                let options = format!("-c {events} --cq {kind} --qp {kind}");
                let port_of = port();
                play(
                    theirs(port_of, "-c"),
                    ours("rc_pingpong", port_of, &options),
                    port_of,
                    "localhost",
                    size,
                    iterations,
                );
                let port_of = port();
                let client = theirs(port_of, &format!("-c {events}"));
                play(ours("rc_pingpong", port_of, &options), client, port_of, "localhost", size, iterations);
                games += 2;
            }
        }
    }
    assert_eq!(games, 24);
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn a_mebibyte_a_thousand_times_with_the_c_program() {
    let limit = Duration::from_secs(400);
    let options = "-c --cq extended --qp extended";
    let port_of = port();
    let (server, client) = (theirs(port_of, "-c"), ours("rc_pingpong", port_of, options));
    play_within(limit, server, client, port_of, "localhost", 1 << 20, 1000);
    let options = "-c -e --cq basic --qp basic";
    let port_of = port();
    let (server, client) = (ours("rc_pingpong", port_of, options), theirs(port_of, "-c -e"));
    play_within(limit, server, client, port_of, "localhost", 1 << 20, 1000);
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn split_pingpong_runs_with_all_others() {
    let mut games = 0;
    for (size, iterations) in SIZES {
        let port_of = port();
        let split = |port| ours("rc_pingpong_split", port, "");
        play(split(port_of), split(port_of), port_of, "localhost", size, iterations);
        let port_of = port();
        play(split(port_of), ours("rc_pingpong", port_of, ""), port_of, "localhost", size, iterations);
        let port_of = port();
        play(ours("rc_pingpong", port_of, ""), split(port_of), port_of, "localhost", size, iterations);
        let port_of = port();
        play(theirs(port_of, ""), split(port_of), port_of, "localhost", size, iterations);
        let port_of = port();
        play(split(port_of), theirs(port_of, ""), port_of, "localhost", size, iterations);
        games += 5;
    }
    assert_eq!(games, 15);
}

#[test]
fn impossible_options_are_errors_in_a_sentence() {
    let run = |options: &str| child::run(ours("rc_pingpong", port(), options), LIMIT);
    fails(&run("-g 200"), &["GID index 200", "is not in use", "give -g with one of"]);
    fails(&run("-i 77"), &["there is no port 77"]);
    fails(&run("-r 100000000"), &["the device supports at most"]);
    fails(&run("--ts --cq basic"), &["--ts requires an extended completion queue"]);
    fails(&run("--new-send --qp basic"), &["--new-send requires an extended queue pair"]);
    fails(&run("--timeout 0.2"), &["no client connected to TCP port", "within 0.2 s"]);
    fails(&run("localhost"), &["connection refused", "start the server there first"]);
    fails(&run("no-such-host.invalid"), &["cannot resolve `no-such-host.invalid`"]);
    if device::is_soft_roce(&device::open()) {
        fails(&run("--ts"), &["CompletionTimestamp"]);
    }
    let ended = child::run(
        {
            let mut command = example("rc_pingpong");
            command.args(["-d", "no_such_device"]);
            command
        },
        LIMIT,
    );
    fails(&ended, &["no RDMA device is named `no_such_device`", &device::name()]);
    let largest = device::open().query_port(device::PORT).expect("the port").max_msg_sz();
    if largest < 1 << 30 {
        for name in ["rc_pingpong", "rc_pingpong_split"] {
            let ended = child::run(ours(name, port(), "-s 1G"), LIMIT);
            fails(&ended, &["--size is 1073741824", &format!("maximum of {largest} bytes")]);
        }
    }
    for arguments in
        ["-s 0", "-m 1500", "-n 0", "-s 1x", "-l 16", "-p 0", "--timeout -1", "--timeout=-1", "--timeout 1e-10", "a b"]
    {
        refuses("rc_pingpong", arguments);
    }
}

#[test]
fn misbehaving_peer_is_an_error_in_a_sentence() {
    let within =
        |seconds, bytes: &[u8], stays| say_to_server("rc_pingpong", &format!("--timeout {seconds}"), bytes, stays);
    let say_to_server = |bytes: &[u8], stays| within(60, bytes, stays);
    let http = b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: something else\r\n\r\n";
    fails(&say_to_server(http, true), &["`GET / HTTP/1.1", "is not a queue pair address"]);
    fails(
        &within(5, b"0000:", true),
        &["did not send the address of its queue pair within 5 s (5 of 52 bytes arrived)"],
    );
    fails(&say_to_server(b"", false), &["disconnected before sending", "0 of 52 bytes arrived"]);
    let no_gid = b"0000:000011:000001:00000000000000000000000000000000\0";
    if device::gid(&device::open()).is_some() {
        fails(&say_to_server(no_gid, true), &["the peer sent no GID", "-g INDEX"]);
    }
}

#[test]
fn peer_death_ends_the_test() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let mut games = 0;
    for options in ["", "-e", "--cq extended --qp extended"] {
        let ended = kill_client("rc_pingpong", &format!("--timeout 10 {options}"));
        // Either its message is not acknowledged, or no response arrives.
        let is_known = ["transport retry counter exceeded", "nothing completed for 10 s"]
            .iter()
            .any(|text| ended.output.contains(text));
        assert!(is_known, "{}", ended.output);
        fails(&ended, &[]);
        games += 1;
    }
    assert_eq!(games, 3);
}

#[test]
fn differing_options_of_the_sides_are_errors() {
    let both = |server: &str, client: &str| {
        let port = port();
        let (server, client) =
            (ours("rc_pingpong", port, server), ours("rc_pingpong", port, &format!("{client} localhost")));
        child::run_both(server, client, port, LIMIT)
    };
    // A side that fails by its time-out has a short one, and sleeps until then.
    // The data is checked, and the peer does not write the expected data.
    let [server, _] = both("-c --timeout 60", "-e --timeout 10");
    fails(&server, &["message 0 has wrong data from byte 0 on", "give -c on both sides"]);
    let [_, client] = both("-e --timeout 10", "-c --timeout 60");
    fails(&client, &["message 0 has wrong data", "give -c on both sides"]);
    // Messages are longer or shorter than the peer expects.
    let [server, client] = both("-s 64 --timeout 60", "-s 4k --timeout 60");
    fails(&server, &["receiving message 1 of 1000 failed", "--size"]);
    fails(&client, &["sending message 1 of 1000 failed", "--size"]);
    let [server, _] = both("-s 4k --timeout 60", "-s 64 -e --timeout 10");
    fails(&server, &["the peer sent a message of 64 bytes, expected 4096"]);
    // More iterations than the peer's.
    let [server, client] = both("-n 60 -e --timeout 10", "-n 50 --timeout 60");
    assert!(client.status.success(), "{}", client.output);
    fails(&server, &["--iters"]);
}
