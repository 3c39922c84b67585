//! Wireshark reads what softrnic's iWARP device sends.

use std::collections::BTreeSet;
use std::process::Command;

use sideway_test_names::Folder;
use sideway_tests::child::{self, Program};
use sideway_tests::hosts::Hosts;
use sideway_tests::programs::{LIMIT, succeeds};
use sideway_tests::requirements::may_not_run;

use super::{Measuring, built, is_soft};

/// The operations of the test: writes, read requests and responses, sends (RFC 5040, section 4.3), immediate data, atomic
/// requests and responses (RFC 7306, section 3).
const OPERATIONS: [&str; 7] = ["(0x0)", "(0x1)", "(0x2)", "(0x3)", "(0x8)", "(0xa)", "(0xb)"];

#[test]
#[ignore = "needs tshark: cargo xtask ci --full seeds"]
fn wireshark_reads_all_frames_between_two_hosts() {
    let Some(stride) = is_soft().then(|| built("stride-perf")).flatten() else { return };
    if !Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return may_not_run("tshark is not installed");
    }
    let Some(hosts) = Hosts::new() else { return };
    let folder = Folder::new();
    let capture = folder.join("frames.pcapng");
    let mut command = hosts.command(1, "tshark");
    command.args(["-i", "v0", "-f", "tcp", "-w"]).arg(&capture);
    let mut capturing = Program::start(command, LIMIT);
    capturing.wait_until("capture", |program| program.said().contains("Capture started"));
    let measuring = Measuring::start(&hosts, stride);
    for words in ["send lat -s 1,5000", "send bw --imm -s 64", "write bw -s 5000", "read bw -s 5000", "atomic lat"] {
        succeeds(&measuring.run(&format!("{words} -R -n 20")), &[]);
    }
    capturing.terminate();
    assert!(capturing.wait().is_some(), "{}", capturing.said());

    let mut command = Command::new("tshark");
    // The bytes of the messages are random, so they may look like a message of another protocol.
    command
        .args([
            "-O",
            "iwarp_mpa,iwarp_ddp_rdmap",
            "--disable-protocol",
            "rpcordma",
            "--disable-protocol",
            "smb_direct",
            "-r",
        ])
        .arg(&capture);
    let ended = child::run(command, LIMIT);
    succeeds(&ended, &["Request frame header", "Reply frame header"]);
    let lines = || ended.output.lines().map(str::trim);
    let found: BTreeSet<&str> = lines().filter_map(|line| Some(line.split_once("OpCode: ")?.1)).collect();
    for operation in OPERATIONS {
        assert!(found.iter().any(|found| found.ends_with(operation)), "{operation}: {found:?}");
    }
    assert!(lines().filter(|line| line.contains("Good CRC32")).count() >= 200);
    for word in ["Bad CRC32", "Malformed"] {
        assert_eq!(lines().find(|line| line.contains(word)), None);
    }
}
