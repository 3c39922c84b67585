//! `lens run` with rdma-core's programs, on a device of the kernel.

use std::env;
use std::path::Path;
use std::process::Command;

use sideway_tests::child;
use sideway_tests::connections;
use sideway_tests::programs::{LIMIT, by_address, play, port, succeeds, theirs};

/// The environment variable that names softrnic-run, which is beside lens.
const RUN: &str = "SIDEWAY_SOFTRNIC_RUN";

/// The command, under a lens with these options.
fn seen(options: &[&str], command: &Command) -> Command {
    let run = env::var_os(RUN).unwrap_or_else(|| panic!("{RUN} is not set; run cargo xtask softroce"));
    let mut seen = Command::new(Path::new(&run).with_file_name("lens"));
    seen.arg("run").args(options).arg(command.get_program()).args(command.get_args());
    seen
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
#[ignore = "the programs ring does the same on softrnic's device: cargo xtask softroce"]
fn requests_of_a_pingpong_are_counted() {
    let folder = sideway_test_names::Folder::new();
    let (port, file) = (port(), folder.join("counts.txt"));
    let host = connections::address().to_string();
    let server = theirs("ibv_rc_pingpong", port, "");
    let options = ["-c", "-o", file.to_str().expect("the path is text")];
    let mut client = seen(&options, &theirs("ibv_rc_pingpong", port, ""));
    client.env_remove("RDMA_MUMMY_RDMACM");
    play(server, client, port, &host, 1024, 300);
    let counts = text(&file);
    // Name, requests, bytes and errors of a row.
    for row in [["send", "300", "307200", "0"], ["receive", "300", "307200", "0"]] {
        let is_row = |line: &str| line.split_whitespace().skip(1).take(4).eq(row);
        assert!(counts.lines().any(is_row), "no row {row:?}\n{counts}");
    }
}

#[test]
#[ignore = "the programs ring does the same on softrnic's device: cargo xtask softroce"]
fn connections_of_rping_are_traced() {
    let folder = sideway_test_names::Folder::new();
    let (port, file) = (port(), folder.join("trace.txt"));
    let host = connections::address().to_string();
    let server = by_address(Command::new("rping"), port, &format!("-s -C 5 -a {host}"));
    let client = by_address(Command::new("rping"), port, &format!("-c -C 5 -a {host}"));
    let client = seen(&["-o", file.to_str().expect("the path is text")], &client);
    for ended in child::run_both_by_cm(server, client, port, LIMIT) {
        succeeds(&ended, &[]);
    }
    let trace = text(&file);
    for part in
        ["event ESTABLISHED, status 0", "rdma_create_qp(id 0x", "SEND wr_id 0 16 bytes = SUCCESS", " RECV wr_id 0 "]
    {
        assert!(trace.contains(part), "no `{part}`\n{trace}");
    }
}
