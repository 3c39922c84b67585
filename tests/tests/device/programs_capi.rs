//! C and C++ programs that link `librdma_mummy` and nothing of rdma-core, on a device of the kernel.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use sideway_tests::child::{self, Ended};
use sideway_tests::programs::LIMIT;
use sideway_tests::{connections, device};

/// The environment variable that names the folder of the programs.
const PROGRAMS: &str = "SIDEWAY_CAPI_EXAMPLES";

/// Runs a program, with or without softrnic, and asserts success.
#[track_caller]
fn run(name: &str, word: Option<&str>) -> Ended {
    let folder = env::var_os(PROGRAMS).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| panic!("{PROGRAMS} is not set; run cargo xtask softroce"));
    let mut command = Command::new(folder.join(name));
    command.args(word).env_remove("RDMA_MUMMY_SOFTRNIC");
    let ended = child::run(command, LIMIT);
    assert!(ended.status.success(), "{name}: {}\n{}", ended.status, ended.output);
    ended
}

/// The lines about a device.
fn about<'a>(output: &'a str, device: &str) -> Vec<&'a str> {
    let first = format!("{device}: ");
    let mut lines = output.lines().skip_while(|line| !line.starts_with(&first));
    lines.next().into_iter().chain(lines.take_while(|line| line.starts_with(' '))).collect()
}

#[test]
#[ignore = "the programs ring runs these programs on softrnic's device: cargo xtask softroce"]
fn devices_are_listed_with_their_addresses() {
    let (name, address) = (device::name(), connections::address().to_string());
    let alone = run("devices", None).output;
    let lines = about(&alone, &name);
    assert!(lines.iter().any(|line| line.contains("port 1: active")), "{alone}");
    assert!(lines.iter().any(|line| line.contains(&format!(":{address}, RoCE v2"))), "{address}:\n{alone}");
    assert!(about(&alone, "soft0").is_empty(), "{alone}");
    // The soft device is listed in addition to the kernel's device, which is unchanged.
    let both = run("devices", Some("--soft")).output;
    assert_eq!(about(&both, &name), lines, "{both}");
    assert!(about(&both, "soft0").iter().any(|line| line.contains("port 1: active")), "{both}");
}

#[test]
#[ignore = "the programs ring runs these programs on softrnic's device: cargo xtask softroce"]
fn every_byte_arrives() {
    let name = device::name();
    let output = run("loopback", Some(&name)).output;
    assert!(output.starts_with(&format!("{name}: ")) && output.contains("all of them arrived"), "{output}");
}

#[test]
#[ignore = "softrnic has no rsockets: cargo xtask softroce"]
fn rsockets_forward_to_librdmacm() {
    let address = connections::address().to_string();
    let output = run("stream", Some(&address)).output;
    assert!(output.contains(&format!("went to {address} and came back")), "{output}");
}
