//! The examples `uc_pingpong` and `ud_pingpong` as programs: with themselves, and with rdma-core's `ibv_uc_pingpong` and
//! `ibv_ud_pingpong` in both roles.

use sideway_tests::child::{self, Ended};
use sideway_tests::device;
use sideway_tests::programs::{
    LIMIT, fails, kill_client, ours, play, play_in_every_kind, port, refuses, say_to_server, theirs,
};

/// The two examples, and the corresponding C programs.
const PROGRAMS: [(&str, &str); 2] = [("uc_pingpong", "ibv_uc_pingpong"), ("ud_pingpong", "ibv_ud_pingpong")];
/// The message of either program for a lost datagram.
const LOST: &str = "the peer's next message is missing, and ";

/// The largest datagram of the test port.
#[track_caller]
fn largest_datagram() -> u32 {
    let port = device::open().query_port(device::PORT).expect("the port");
    port.active_mtu().bytes().expect("a known MTU")
}

/// The sizes for a program, and how many messages of each.
#[track_caller]
fn sizes(program: &str) -> [(u32, u32); 3] {
    match program {
        // Over UC, too, a message of many packets is one message.
        "uc_pingpong" => [(1, 100), (4096, 100), (64 << 10, 20)],
        _ => [(1, 100), (1000, 100), (largest_datagram(), 100)],
    }
}

#[test]
fn pingpongs_run_with_themselves_in_every_kind() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let mut games = 0;
    for (program, _) in PROGRAMS {
        games += play_in_every_kind(program, 1000, 100);
        // The cases: few receives at a time, mixed kinds of queues and queue pairs, and IPv4 and IPv6.
        for (options, host) in [
            ("-c -r 1 --cq basic --new-send", "127.0.0.1"),
            ("-c -r 2 --cq extended --qp basic", "::1"),
            ("-r 3 -l 3", "localhost"),
        ] {
            let port = port();
            play(ours(program, port, options), ours(program, port, options), port, host, 1000, 100);
            games += 1;
        }
    }
    // Another packet size, with a message of twelve packets.
    let port = port();
    let options = "-c -m 256";
    play(ours("uc_pingpong", port, options), ours("uc_pingpong", port, options), port, "localhost", 3000, 100);
    assert_eq!(games, 22);
}

#[test]
fn every_size_arrives_whole() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let mut games = 0;
    for (program, _) in PROGRAMS {
        for (size, iterations) in sizes(program) {
            for kind in ["basic", "extended"] {
                let port = port();
                let options = format!("-c --cq {kind} --qp {kind}");
                let (server, client) = (ours(program, port, &options), ours(program, port, &options));
                play(server, client, port, "localhost", size, iterations);
                games += 1;
            }
        }
    }
    assert_eq!(games, 12);
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn pingpongs_run_with_the_c_programs_in_both_roles() {
    let mut games = 0;
    for (program, in_c) in PROGRAMS {
        for (size, iterations) in sizes(program) {
            for (kind, events) in [("basic", "-e"), ("extended", "")] {
                let options = format!("-c {events} --cq {kind} --qp {kind}");
                let port_of = port();
                let server = theirs(in_c, port_of, &format!("-c {events}"));
                play(server, ours(program, port_of, &options), port_of, "localhost", size, iterations);
                let port_of = port();
                let client = theirs(in_c, port_of, &format!("-c {events}"));
                play(ours(program, port_of, &options), client, port_of, "localhost", size, iterations);
                games += 2;
            }
        }
    }
    assert_eq!(games, 24);
}

#[test]
fn impossible_options_are_errors_in_a_sentence() {
    for (program, _) in PROGRAMS {
        let run = |options: &str| child::run(ours(program, port(), options), LIMIT);
        fails(&run("-s 64 -g 200"), &["GID index 200", "is not in use", "give -g with one of"]);
        fails(&run("-s 64 -i 77"), &["there is no port 77"]);
        fails(&run("-s 64 -r 100000000"), &["the device supports at most"]);
        fails(&run("-s 64 --ts --cq basic"), &["--ts requires an extended completion queue"]);
        fails(&run("-s 64 --new-send --qp basic"), &["--new-send requires an extended queue pair"]);
        fails(&run("-s 64 --timeout 0.2"), &["no client connected to TCP port", "within 0.2 s"]);
        fails(&run("-s 64 localhost"), &["connection refused", "start the server there first"]);
        for arguments in ["-s 0", "-n 0", "-s 1x", "-l 16", "-p 0", "--timeout -1", "a b", "--mtu 1500"] {
            refuses(program, arguments);
        }
    }
    let most = largest_datagram();
    let ended = child::run(ours("ud_pingpong", port(), &format!("-s {}", most + 1)), LIMIT);
    fails(&ended, &["a datagram is one packet", &format!("a --size of at most {most}")]);
}

/// Runs two incompatible programs, and returns both outcomes.
#[track_caller]
fn both(server: (&str, &str), client: (&str, &str)) -> [Ended; 2] {
    let port = port();
    let server = ours(server.0, port, server.1);
    let client = ours(client.0, port, &format!("{} localhost", client.1));
    child::run_both(server, client, port, LIMIT)
}

#[test]
fn differing_options_of_the_sides_are_errors() {
    for (program, _) in PROGRAMS {
        let both = |server, client| both((program, server), (program, client));
        // A side that fails by its time-out sleeps until then.
        // The data is checked, and the peer does not write the expected data.
        let [server, _] = both("-s 500 -c --timeout 60", "-s 500 -e --timeout 10");
        fails(&server, &["message 0 has wrong data from byte 0 on", "give -c on both sides"]);
        // The receiver expects shorter messages than the peer sends.
        let [server, _] = both("-s 1000 --timeout 60", "-s 64 -e --timeout 10");
        fails(&server, &["the peer sent a message of 64 bytes, expected 1000", "--size"]);
        // Messages are longer than the peer accepts; the sender receives no error.
        let [server, client] = both("-s 64 -e --timeout 10", "-s 1000 -e --timeout 10");
        fails(&server, &["--size"]);
        fails(&client, &["nothing completed for 10 s", LOST, "--size"]);
        // More iterations than the peer's.
        let [server, client] = both("-s 64 -n 60 -e --timeout 10", "-s 64 -n 50 --timeout 60");
        assert!(client.status.success(), "{}", client.output);
        fails(&server, &["50 of 60 messages were received", LOST, "--iters"]);
    }
}

#[test]
fn peer_of_another_kind_ends_the_test() {
    let mut games = 0;
    let of = |name: &'static str| (name, "-e -s 64 --timeout 10");
    for (server, client) in [("uc_pingpong", "ud_pingpong"), ("ud_pingpong", "uc_pingpong")] {
        for ended in both(of(server), of(client)) {
            fails(&ended, &["0 of 1000 messages were received", LOST]);
        }
        games += 1;
    }
    // A reliable sender detects the missing response: the device reports it eventually, or the program earlier.
    let [server, client] = both(of("uc_pingpong"), of("rc_pingpong"));
    fails(&server, &["0 of 1000 messages were received", LOST]);
    fails(&client, &[]);
    let is_known = ["transport retry counter exceeded", "the peer does not acknowledge the last send"];
    assert!(is_known.iter().any(|words| client.output.contains(words)), "{}", client.output);
    // A peer with another protocol.
    let [server, client] = both(("uc_pingpong", "-s 64 --timeout 60"), ("rdma_atomic", "--timeout 60"));
    fails(&server, &["is not a queue pair address"]);
    fails(&client, &["the server at "]);
    // The server closes with unread bytes: the client fails in a receive or, if that is faster, in a send.
    let ends = ["disconnected before sending the address of its queue pair", "disconnected: "];
    assert!(ends.iter().any(|end| client.output.contains(end)), "{}", client.output);
    games += 2;
    assert_eq!(games, 4);
}

#[test]
fn peer_death_ends_the_test() {
    let mut games = 0;
    for (program, _) in PROGRAMS {
        for options in ["", "-e"] {
            let ended = kill_client(program, &format!("-s 64 --timeout 10 {options}"));
            fails(&ended, &["nothing completed for 10 s", LOST, "check that the peer is reachable"]);
            games += 1;
        }
    }
    assert_eq!(games, 4);
}

#[test]
fn peer_that_exits_before_its_address_is_an_error() {
    for (program, _) in PROGRAMS {
        let ended = say_to_server(program, "-s 64 --timeout 60", b"", false);
        fails(&ended, &["disconnected before sending", "0 of 52 bytes arrived"]);
    }
}
