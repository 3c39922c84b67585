//! The example `rdma_atomic` as a program: in one process, and as server and client.

use sideway_tests::child::{self, Ended, example};
use sideway_tests::programs::{LIMIT, fails, ours, port, refuses, say_to_server, succeeds};
use sideway_tests::requirements::has_ipv6;

/// The lines of the two tables, as words.
fn rows(output: &str) -> Vec<Vec<&str>> {
    let rows = output.lines().filter(|line| line.trim_start().starts_with("0x"));
    rows.map(|row| row.split_whitespace().collect()).collect()
}

/// Runs the example in one process.
fn run_loopback(options: &str) -> Ended {
    let mut command = example("rdma_atomic");
    command.args(["--loopback", "-d", &sideway_tests::device::name()]).args(options.split_whitespace());
    child::run(command, LIMIT)
}

#[test]
fn atomic_steps_are_not_lost_in_one_process() {
    let mut runs = 0;
    for (count, iterations, add) in [(1_u64, 50_u64, 1_u64), (2, 50, 7), (4, 100, 1), (3, 20, u32::MAX.into())] {
        let ended = run_loopback(&format!("-q {count} -n {iterations} -a {add}"));
        let half = count * iterations * add;
        let sum = half * 2;
        succeeds(
            &ended,
            &[
                "its value is 0",
                &format!("  each of the {} steps found a different value; the counter is {half}", count * iterations),
                &format!("this process added {sum} in total, and the counter has this value"),
            ],
        );
        let rows = rows(&ended.output);
        assert_eq!(rows.len() as u64, 2 * count, "a row for each queue pair and operation:\n{}", ended.output);
        for row in rows {
            assert_eq!(row.get(1).copied(), Some(iterations.to_string().as_str()), "{}", ended.output);
        }
        runs += 1;
    }
    assert_eq!(runs, 4);
}

#[test]
fn lone_queue_pair_fails_only_its_first_guess() {
    let ended = run_loopback("-q 1 -n 30");
    succeeds(&ended, &[]);
    let rows = rows(&ended.output);
    let last: Vec<_> = rows.iter().map(|row| row.get(1..).unwrap_or_default()).collect();
    // The first guess is 0, and the counter is 30 by then.
    assert_eq!(last, [["30", "0", "29"].as_slice(), ["30", "30", "59", "1"].as_slice()], "{}", ended.output);
}

#[test]
fn server_and_client_agree() {
    let mut games = 0;
    let last = if has_ipv6() { "::1" } else { "127.0.0.1" };
    for (count, iterations, host) in [(1, 100, "127.0.0.1"), (4, 100, "localhost"), (16, 10, last)] {
        let port = port();
        let client = format!("-q {count} -n {iterations} -a 3 {host}");
        // The server does not check the client's own numbers.
        let (server, client) = (ours("rdma_atomic", port, "-q 2 -n 1"), ours("rdma_atomic", port, &client));
        let [server, client] = child::run_both(server, client, port, LIMIT);
        let sum = count * iterations * 2 * 3;
        succeeds(&client, &[&format!("the counter is {}\n", sum / 2), &format!("the counter is {sum}\n")]);
        succeeds(
            &server,
            &[
                &format!("accesses the counter with {count} queue pair"),
                // The value may differ from 0, because the client may begin before the server reads it.
                "; its value is ",
                &format!("added {sum} in total, and the counter has this value"),
            ],
        );
        games += 1;
    }
    assert_eq!(games, 3);
}

#[test]
fn impossible_options_are_errors_in_a_sentence() {
    let run = |options: &str| child::run(ours("rdma_atomic", port(), options), LIMIT);
    fails(&run("-g 200"), &["GID index 200", "is not in use"]);
    fails(&run("-i 77"), &["there is no port 77"]);
    fails(&run("--timeout 0.2"), &["no client connected to TCP port", "within 0.2 s"]);
    fails(&run("localhost"), &["connection refused", "start the server there first"]);
    for arguments in [
        "-q 0",
        "-q 257",
        "-n 0",
        "-a 0",
        "-a -1",
        "-a 4294967296",
        "-p 0",
        "--loopback localhost",
        "--loopback -p 9",
        "a b",
        "-s 8",
    ] {
        refuses("rdma_atomic", arguments);
    }
}

#[test]
fn misbehaving_peer_is_an_error_in_a_sentence() {
    let within = |seconds, bytes: &[u8]| say_to_server("rdma_atomic", &format!("--timeout {seconds}"), bytes, true);
    let say_to_server = |bytes: &[u8]| within(60, bytes);
    fails(&say_to_server(b"GET / HTTP/1.1\r\n\r\n"), &["sent `GET /`, expected its number of queue pairs"]);
    fails(&say_to_server(b"ffff\0"), &["65535 queue pairs", "1 to 256"]);
    fails(&within(5, b"00"), &["did not send its number of queue pairs within 5 s (2 of 5 bytes arrived)"]);
    fails(&within(5, b"0001\0nonsense"), &["did not send the address of its queue pair", "8 of 52 bytes arrived"]);
    // A peer that receives the counter's address and adds nothing, but reports a sum.
    let server = format!("0000:{:06x}:000001:{:032x}\0", 0x11, u128::from_be_bytes(gid()));
    let lie = format!("0001\0{server}done\0{:016x}\0", 7);
    fails(&say_to_server(lie.as_bytes()), &["added 7 in total, but the counter is 0"]);
    let port = port();
    let server = ours("rc_pingpong", port, "--timeout 60");
    let client = ours("rdma_atomic", port, "--timeout 60 localhost");
    let [server, client] = child::run_both(server, client, port, LIMIT);
    fails(&server, &["is not a queue pair address"]);
    fails(&client, &["the server at "]);
    // The client's error depends on unread data at the server's exit, and on timing.
    let ends = ["disconnected before sending the address of its queue pair", "disconnected: "];
    assert!(ends.iter().any(|end| client.output.contains(end)), "{}", client.output);
}

/// The GID of this machine: a queue pair can be connected to a missing one.
#[track_caller]
fn gid() -> [u8; 16] {
    let context = sideway_tests::device::open();
    sideway_tests::device::gid(&context).map_or([0; 16], |entry| entry.gid().raw)
}
