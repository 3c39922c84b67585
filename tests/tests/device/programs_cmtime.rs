//! The example `cmtime` as a program: with itself, and with rdma-core's of that name.

use std::process::Command;

use sideway_tests::child::{self, Ended, Program, example, run_both_by_cm};
use sideway_tests::connections::address;
use sideway_tests::device;
use sideway_tests::programs::{LIMIT, by_address, fails, on_this_host, port, refuses, succeeds};

const HEADER: &str = "step              total ms     max ms     min us  us / conn";

/// The steps of a run without `-b`.
const STEPS: [&str; 7] =
    ["create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"];

#[track_caller]
fn ours(port: u16, options: &str) -> Command {
    by_address(example("cmtime"), port, options)
}

fn theirs(port: u16, options: &str) -> Command {
    by_address(Command::new("cmtime"), port, options)
}

/// Options of a client.
fn to_server(options: &str) -> String {
    format!("-s {} {options}", address())
}

/// The table: names and numbers.
#[track_caller]
fn rows(ended: &Ended) -> Vec<(String, [f64; 4])> {
    let table = ended.output.split_once(HEADER).unwrap_or_else(|| panic!("no table in:\n{}", ended.output)).1;
    let lines = table.lines().filter(|line| !line.starts_with("error: "));
    let rows = lines.filter_map(|line| line.split_once(':')).map(|(name, numbers)| {
        let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let numbers = <[f64; 4]>::try_from(numbers).unwrap_or_else(|_| panic!("{name}:\n{}", ended.output));
        (name.trim_end().to_owned(), numbers)
    });
    rows.collect()
}

/// Asserts that all connections were established and all steps timed.
#[track_caller]
fn timed(client: &Ended, steps: &[&str], connections: f64) {
    succeeds(client, &["creating id\n", "connecting\n", "disconnecting\n", "destroying id\n"]);
    let rows = rows(client);
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, steps, "{}", client.output);
    for (name, [total_ms, max_ms, min_us, each_us]) in rows {
        assert!(min_us > 0.0 && min_us / 1e3 <= max_ms + 0.01, "{name}: {}", client.output);
        assert!(max_ms <= total_ms + 0.01, "{name}: {}", client.output);
        // Each time is rounded to hundredths.
        let total_us = each_us * connections;
        assert!((total_us - total_ms * 1e3).abs() <= 10.0 + connections / 100.0, "{name}: {}", client.output);
    }
}

#[test]
fn program_connects_to_itself_and_disconnects() {
    let mut runs = 0;
    for (connections, threads) in [(1, ""), (100, ""), (100, "-n 4"), (3, "-n 8"), (1000, ""), (1000, "-n 4")] {
        let port = port();
        let options = format!("-c {connections} {threads}");
        let [server, client] = run_both_by_cm(ours(port, &options), ours(port, &to_server(&options)), port, LIMIT);
        timed(&client, &STEPS, f64::from(connections));
        succeeds(&server, &["listening on ", &format!("{connections} connections were made and ended\n")]);
        assert!(!server.output.contains("left"), "{}", server.output);
        runs += 1;
    }
    assert_eq!(runs, 6);
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn example_interoperates_with_rdma_cores_program() {
    let port = port();
    // rdma-core's server runs until it is killed.
    let mut server = Program::start(theirs(port, ""), LIMIT);
    server.wait_for_cm_port(port);
    timed(&child::run(ours(port, &to_server("-c 50 -n 2")), LIMIT), &STEPS, 50.0);
    drop(server);

    let port = sideway_tests::programs::port();
    let client = to_server("-c 50");
    let [server, client] = run_both_by_cm(ours(port, "-c 50"), theirs(port, &client), port, LIMIT);
    succeeds(&server, &["50 connections were made and ended\n"]);
    // rdma-core's client prints the same table as ours.
    timed(&client, &STEPS, 50.0);
}

#[test]
fn both_sides_can_be_bound_to_an_address() {
    let port = port();
    let bind = format!("-b {} -c 10", address());
    let client = ours(port, &to_server(&bind));
    let [server, client] = run_both_by_cm(ours(port, &bind), client, port, LIMIT);
    succeeds(&server, &[&format!("listening on {}:{port}\n", address()), "10 connections"]);
    let mut steps = STEPS.to_vec();
    steps.insert(1, "bind addr");
    timed(&client, &steps, 10.0);
    assert!(client.output.contains("binding source address\n"), "{}", client.output);
}

#[test]
fn endless_server_serves_until_a_signal() {
    let port = port();
    let mut server = Program::start(ours(port, ""), LIMIT);
    server.wait_for_cm_port(port);
    for _ in 0..2 {
        timed(&child::run(ours(port, &to_server("-c 5")), LIMIT), &STEPS, 5.0);
    }
    server.terminate();
    let ended = server.wait().unwrap_or_else(|| panic!("the server does not exit:\n{}", server.said()));
    succeeds(&ended, &["10 connections were made and ended\n"]);
}

#[test]
fn failures_are_counted_and_reported_in_a_sentence() {
    let run = |options: &str| child::run(ours(port(), options), LIMIT);
    let absent = run(&to_server("-c 20 -n 3"));
    fails(&absent, &["20 of 20 connections failed: connect: ", "no listener on that port (20)"]);
    // The completed steps have their times.
    let rows = rows(&absent);
    let connect = rows.iter().find(|(name, _)| name == "connect").unwrap_or_else(|| panic!("{}", absent.output));
    assert_eq!(connect.1[1..3], [0.0, 0.0], "none has connected: {}", absent.output);
    assert!(rows.iter().any(|(name, numbers)| name == "create qp" && numbers[2] > 0.0), "{}", absent.output);

    let here = |options: &str| child::run(on_this_host(ours(port(), options)), LIMIT);
    fails(&here("-s 203.0.113.5 -c 3"), &["3 of 3", "resolve addr", "ENETUNREACH", "(3)"]);
    // No host has the address, so resolving it is tried twice.
    fails(&here("-s 10.71.0.77 -c 2 -t 200 -r 1"), &["2 of 2", "resolve addr", "(2)"]);
    if !device::is_soft() {
        fails(&run("-s 127.0.0.1 -c 2"), &["2 of 2", "resolve route", "leads to no RDMA device", "(2)"]);
    }
    fails(&run("-s no-such-host.invalid"), &["cannot resolve no-such-host.invalid"]);
    fails(&run(&to_server("-b ::1")), &["no address of the same family as ::1"]);
    fails(&run("-b 203.0.113.5"), &["binding to 203.0.113.5:", "this machine does not have the address"]);

    let taken = port();
    let mut server = Program::start(ours(taken, ""), LIMIT);
    server.wait_for_cm_port(taken);
    fails(&child::run(ours(taken, ""), LIMIT), &["the port is in use"]);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let wrong = ["-c 0", "-c -1", "-c 2000000", "-n 0", "-n 300", "-p 0", "-p 70000", "-t 0", "-r 256", "-b nonsense"];
    let more = ["--patience 5", "-s a --patience -1", "server", "-x"];
    let refused = wrong.iter().chain(&more).inspect(|arguments| refuses("cmtime", arguments)).count();
    assert_eq!(refused, 14);
    let help = child::run(by_address(example("cmtime"), 7471, "--help"), LIMIT);
    succeeds(&help, &["--threads", "--patience", "rdma-core"]);
}
