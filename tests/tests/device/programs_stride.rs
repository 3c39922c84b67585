//! `stride-perf` as a program on a device of the kernel: its data arrives, byte for byte.

use std::env;
use std::process::Command;

use sideway_tests::child::{self, Ended, Program};
use sideway_tests::programs::{LIMIT, port};
use sideway_tests::{connections, device};

/// The environment variable that names the program.
const STRIDE_PERF: &str = "SIDEWAY_STRIDE_PERF";

/// The program, on the device under test and no other.
#[track_caller]
fn stride(words: &str) -> Command {
    let program = env::var_os(STRIDE_PERF).unwrap_or_else(|| panic!("{STRIDE_PERF} names the program stride-perf"));
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).args(["-d", &device::name()]);
    command.envs([("SOFTRNIC_DEVICES", "0"), ("NO_COLOR", "1")]);
    command
}

/// Asserts success, with a row for each of N sizes.
#[track_caller]
fn has_rows(ended: &Ended, words: &str, sizes: usize) {
    assert!(ended.status.success(), "{words}: {}\n{}", ended.status, ended.output);
    let is_row = |line: &&str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| word.parse::<u64>().is_ok()) && words.count() > 5
    };
    assert_eq!(ended.output.lines().filter(is_row).count(), sizes, "{words}:\n{}", ended.output);
}

#[test]
#[ignore = "stride-perf has its own tests on softrnic's device: cargo xtask softroce"]
fn every_byte_arrives() {
    for (verb, transports) in
        [("write", &["rc", "uc"][..]), ("read", &["rc"]), ("send", &["rc", "uc", "ud"]), ("write --imm", &["rc", "uc"])]
    {
        for transport in transports {
            for measure in ["bw", "lat"] {
                let (verb, option) = verb.split_once(' ').unwrap_or((verb, ""));
                // A datagram is limited to one packet.
                let sizes = if *transport == "ud" { "64,1K" } else { "64,4K,64K" };
                let words = format!("{verb} {measure} {option} -c {transport} -s {sizes} -n 200 --validate --loopback");
                let ended = child::run(stride(&words), LIMIT);
                has_rows(&ended, &words, sizes.split(',').count());
            }
        }
    }
}

#[test]
#[ignore = "stride-perf has its own tests on softrnic's device: cargo xtask softroce"]
fn device_without_a_service_is_an_error() {
    let words = "send bw -c xrc -n 200 --validate --loopback";
    let ended = child::run(stride(words), LIMIT);
    if ended.status.success() {
        return has_rows(&ended, words, 1);
    }
    for part in ["--transport xrc: the device does not support XRC", "ibv_open_xrcd", "give --transport rc"] {
        assert!(ended.output.contains(part), "{part}:\n{}", ended.output);
    }
}

#[test]
#[ignore = "stride-perf has its own tests on softrnic's device: cargo xtask softroce"]
fn server_serves_one_client_after_another() {
    let port = port();
    let mut server = Program::start(stride(&format!("-p {port}")), LIMIT * 3);
    server.wait_for_port(port);
    for words in ["write bw -q 4 --threads 2", "read bw", "send lat", "atomic bw", "atomic lat", "write bw -b"] {
        let words = format!("{words} -n 200 --validate -p {port} 127.0.0.1");
        has_rows(&child::run(stride(&words), LIMIT), &words, 1);
    }
    server.terminate();
    let ended = server.wait().expect("the server exits on request");
    assert!(ended.status.success(), "{}\n{}", ended.status, ended.output);
}

#[test]
#[ignore = "stride-perf has its own tests on softrnic's device: cargo xtask softroce"]
fn stride_runs_with_events_and_over_the_connection_manager() {
    let (port, address) = (port(), connections::address());
    let mut server = Program::start(stride(&format!("-p {port}")), LIMIT * 3);
    server.wait_for_port(port);
    for words in [
        "read bw -e",
        "send lat -e -c ud",
        "write bw -R -q 4 -b --validate",
        "send bw -R -c uc",
        "send lat -R -c ud",
        "write lat -R -e --latency ack",
    ] {
        let words = format!("{words} -n 100 -s 64 -p {port} {address}");
        has_rows(&child::run(stride(&words), LIMIT), &words, 1);
    }
    // The address belongs to the device, or to no device.
    let words = format!("write bw -R -p {port} 127.0.0.1");
    let ended = child::run(stride(&words), LIMIT);
    assert!(!ended.status.success() && ended.output.contains("127.0.0.1"), "{words}:\n{}", ended.output);
    server.terminate();
    let ended = server.wait().expect("the server exits on request");
    assert!(ended.status.success(), "{}\n{}", ended.status, ended.output);
}
