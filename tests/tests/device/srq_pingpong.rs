//! The example `srq_pingpong` as a program: with itself, and with rdma-core's `ibv_srq_pingpong` in both roles.

use std::process::Command;

use sideway_tests::child;
use sideway_tests::programs::{self, LIMIT, fails, ours, play, port, refuses};

fn theirs(port: u16, options: &str) -> Command {
    programs::theirs("ibv_srq_pingpong", port, options)
}

fn srq(port: u16, options: &str) -> Command {
    ours("srq_pingpong", port, options)
}

#[test]
fn example_runs_with_itself() {
    let mut games = 0;
    for (server, client) in
        [("", ""), ("-e", ""), ("", "-e"), ("-q 1", "-q 1"), ("-c", "-c -e"), ("-q 40 -r 40 -c", "-q 40 -r 50 -e -c")]
    {
        for size in [1, 4096, 60_000] {
            let port = port();
            play(srq(port, server), srq(port, client), port, "localhost", size, 500);
            games += 1;
        }
    }
    assert_eq!(games, 18);
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn example_runs_with_the_c_program_in_both_roles() {
    let mut games = 0;
    for (mine, its) in [("", ""), ("-e", "-e"), ("-q 5 -r 5", "-q 5 -r 7")] {
        for size in [1, 4096] {
            let port_of = port();
            play(theirs(port_of, its), srq(port_of, mine), port_of, "localhost", size, 500);
            let port_of = port();
            play(srq(port_of, mine), theirs(port_of, its), port_of, "localhost", size, 500);
            games += 2;
        }
    }
    assert_eq!(games, 12);
}

#[test]
fn impossible_options_are_errors_in_a_sentence() {
    let run = |options: &str| child::run(srq(port(), options), LIMIT);
    fails(&run("-q 20 -r 19"), &["--rx-depth 19 is below --num-qp 20"]);
    // Which queue is too long depends on the device.
    fails(&run("-r 1000000"), &["EINVAL", "10000", "device"]);
    fails(&run("--timeout 0.2"), &["no client connected to TCP port"]);
    for arguments in ["-q 0", "-q 257", "-n 0", "-s 0", "a b"] {
        refuses("srq_pingpong", arguments);
    }
    let both = |server: &str, client: &str| {
        let port = port();
        child::run_both(srq(port, server), srq(port, &format!("{client} localhost")), port, LIMIT)
    };
    let [server, client] = both("-q 3 --timeout 60", "-q 4 --timeout 60");
    fails(&server, &["the peer has 4 queue pairs and this side 3", "--num-qp"]);
    fails(&client, &["disconnected before sending"]);
    let [server, client] = both("-s 64 --timeout 60", "-s 4k --timeout 60");
    fails(&server, &["receiving message 1 of 1000 failed", "--size"]);
    fails(&client, &["failed", "--size"]);
}
