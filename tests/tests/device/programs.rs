//! The examples `ibv_devinfo` and `show_gids` as programs: compared with rdma-core's `ibv_devinfo`, and with the
//! kernel's files.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv6Addr;
use std::process::{Command, Output};

use sideway_tests::child::example;
use sideway_tests::device;

/// Runs a program to its end, with separate standard output and standard error.
#[track_caller]
fn run(mut command: Command, options: &str) -> Output {
    // A missing backtrace must not hide a panic.
    command.args(options.split_whitespace()).env("RUST_BACKTRACE", "1");
    command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
}

/// The output of a program that must succeed.
#[track_caller]
fn printed(command: Command, options: &str) -> String {
    let description = format!("{command:?} {options}");
    let Output { status, stdout, stderr } = run(command, options);
    assert!(status.success(), "{description}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap_or_else(|error| panic!("{description}: {error}"))
}

/// The devices of the kernel, or the soft one.
#[track_caller]
fn present() -> Vec<String> {
    if device::is_soft() {
        return vec![device::name()];
    }
    let entries = fs::read_dir("/sys/class/infiniband").expect("the kernel's devices");
    let names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    assert!(names.contains(&device::name()), "{names:?}");
    names
}

/// The GIDs of port 1 in the kernel's files that are not zero, by index.
#[track_caller]
fn gids_of_the_kernel() -> BTreeMap<u32, Ipv6Addr> {
    let folder = device::sysfs(&device::open()).join("ports/1/gids");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut gids = BTreeMap::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        let index = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        let index = index.unwrap_or_else(|| panic!("{} is no index", path.display()));
        // Some kernels do not allow reading an unused entry.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let gid: Ipv6Addr = text.trim().parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if !gid.is_unspecified() {
            gids.insert(index, gid);
        }
    }
    assert!(!gids.is_empty(), "{} has no GID in use", folder.display());
    gids
}

/// The GIDs of port 1 that our program lists, by index.
#[track_caller]
fn gids_listed(options: &str) -> BTreeMap<u32, Ipv6Addr> {
    let text = printed(example("show_gids"), options);
    let mut gids = BTreeMap::new();
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [name, port, index, gid, ..] = columns[..] else { panic!("`{line}` in:\n{text}") };
        if name == device::name() && port == "1" {
            let index = index.parse().unwrap_or_else(|error| panic!("{error} in `{line}`"));
            let gid = gid.parse().unwrap_or_else(|error| panic!("{error} in `{line}`"));
            assert_eq!(gids.insert(index, gid), None, "index {index} is listed twice:\n{text}");
        }
    }
    gids
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn devinfo_prints_what_the_c_program_prints() {
    let name = device::name();
    let mut longest = 0;
    for options in ["", "-v", "-l", &format!("-d {name} -i 1")] {
        let ours = printed(example("ibv_devinfo"), options);
        let theirs = printed(Command::new("ibv_devinfo"), options);
        assert!(theirs.contains(&name), "ibv_devinfo {options} does not mention {name}:\n{theirs}");
        assert_eq!(ours, theirs, "ibv_devinfo {options}: ours and rdma-core's");
        longest = longest.max(ours.lines().count());
    }
    // With -v there is a line for every attribute, so the comparison was not empty.
    assert!(longest > 50, "{longest} lines");
}

#[test]
#[ignore = "requires the kernel's device: cargo xtask softroce"]
fn show_gids_lists_what_the_kernel_has() {
    let name = device::name();
    let expected = gids_of_the_kernel();
    for options in ["", &name, &format!("{name} 1")] {
        assert_eq!(gids_listed(options), expected, "show_gids {options}");
    }
}

#[test]
fn missing_device_is_an_error_that_lists_the_devices() {
    for (name, options) in [("show_gids", "nosuch"), ("ibv_devinfo", "-d nosuch")] {
        let Output { status, stdout, stderr } = run(example(name), options);
        let said = String::from_utf8(stderr).expect("text");
        assert_eq!(status.code(), Some(1), "{name} {options}: {said}");
        assert!(stdout.is_empty(), "{name} {options}: {}", String::from_utf8_lossy(&stdout));
        assert_eq!(said.lines().count(), 1, "{name} {options}: {said}");
        assert!(said.starts_with("error: ") && said.contains("`nosuch`"), "{name} {options}: {said}");
        for present in present() {
            assert!(said.contains(&present), "{name} {options} does not name {present}: {said}");
        }
    }
}
