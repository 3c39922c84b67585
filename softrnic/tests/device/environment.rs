//! Tests of the environment variable that lists the devices. They run in child processes.

use std::env;
use std::ffi::CStr;
use std::process::Command;

use rdma_mummy_sys::*;

/// Name of the environment variable that is set in a child process.
const ROLE: &str = "SOFTRNIC_TEST_LISTS";
/// Name of the environment variable that makes the child first register a device by its name.
const NAMED: &str = "SOFTRNIC_TEST_NAMED";
const LISTED: &str = "LISTED:";

/// This is not a test. It registers and lists devices in a child process.
#[test]
fn lists() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let named = match env::var_os(NAMED) {
        Some(_) => softrnic::Builder::new().device("named").register(),
        None => Ok(()),
    };
    let registered = named.and_then(|()| softrnic::register());
    let mut count = 0;
    // SAFETY: the list has `count` devices, and is freed after its last use.
    let names: Vec<String> = unsafe {
        let list = ibv_get_device_list(&raw mut count);
        let names = (0..count as usize).map(|place| CStr::from_ptr(ibv_get_device_name(*list.add(place))));
        let names = names.map(|name| name.to_string_lossy().into_owned()).collect();
        if !list.is_null() {
            ibv_free_device_list(list);
        }
        names
    };
    let result = registered.map_or_else(|error| error.to_string(), |()| names.join(" "));
    println!("\n{LISTED}{result}");
}

/// Returns the devices that a child lists if the variable has this value. The child does not load the library of the
/// system.
fn listed(devices: Option<&str>) -> String {
    listed_with(devices, |_| {})
}

fn listed_with(devices: Option<&str>, change: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(env::current_exe().expect("this program has a path"));
    command
        .args(["--exact", "environment::lists", "--nocapture"])
        .env(ROLE, "1")
        .env("RDMA_MUMMY_LIBIBVERBS", "/nonexistent");
    match devices {
        Some(devices) => command.env(softrnic::DEVICES_VARIABLE, devices),
        None => command.env_remove(softrnic::DEVICES_VARIABLE),
    };
    change(&mut command);
    let output = command.output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(LISTED));
    line.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

#[test]
fn variable_selects_the_devices() {
    for (devices, expected) in [
        (None, "soft0 softiw0"),
        (Some("1"), "soft0"),
        (Some("3"), "soft0 soft1 soft2"),
        (Some("left, right"), "left right"),
        (Some("0"), ""),
        (Some(""), "soft0 softiw0"),
        (Some("softiw5,soft0"), "softiw5 soft0"),
    ] {
        assert_eq!(listed(devices), expected, "{devices:?}");
    }
    for (devices, expected) in [
        ("a/b", "cannot register device \"a/b\": a name has 1 to 63 printable"),
        ("a,a", "cannot register device \"a\": another device has this name"),
        ("-1", "invalid SOFTRNIC_DEVICES -1: the number of devices is out of range; choose 0 to 1024, or names"),
    ] {
        let result = listed(Some(devices));
        assert!(result.starts_with(expected), "{devices}: {result}");
    }
}

#[test]
fn builder_with_names_ignores_the_variable() {
    for devices in ["0", "3", "a/b", "99999"] {
        let result = listed_with(Some(devices), |command| {
            command.env(NAMED, "1");
        });
        assert_eq!(result, "named", "{devices}");
    }
}
