//! The devices that the environment says, each time in a process of its own.

use std::env;
use std::ffi::CStr;
use std::process::Command;

use rdma_mummy_sys::*;

/// Tells the test below that it is the process that is looked at.
const ROLE: &str = "SOFTRNIC_TEST_LISTS";
/// Tells it to name a device itself before.
const NAMED: &str = "SOFTRNIC_TEST_NAMED";
const LISTED: &str = "LISTED:";

/// Registers and lists, where the test below starts it.
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
    // SAFETY: the list holds so many devices, and is freed after its last use.
    let names: Vec<String> = unsafe {
        let list = ibv_get_device_list(&raw mut count);
        let names = (0..count as usize).map(|place| CStr::from_ptr(ibv_get_device_name(*list.add(place))));
        let names = names.map(|name| name.to_string_lossy().into_owned()).collect();
        if !list.is_null() {
            ibv_free_device_list(list);
        }
        names
    };
    let answer = registered.map_or_else(|error| error.to_string(), |()| names.join(" "));
    println!("\n{LISTED}{answer}");
}

/// What a process lists with this in its environment. The system's library is not there.
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
fn the_environment_says_which_devices_there_are() {
    for (devices, expected) in [
        (None, "soft0"),
        (Some("1"), "soft0"),
        (Some("3"), "soft0 soft1 soft2"),
        (Some("left, right"), "left right"),
        (Some("0"), ""),
        (Some(""), "soft0"),
    ] {
        assert_eq!(listed(devices), expected, "{devices:?}");
    }
    for (devices, expected) in [
        ("a/b", "no device can be named \"a/b\": choose"),
        ("a,a", "two devices are named \"a\""),
        ("-1", "SOFTRNIC_DEVICES is -1, which is no number of devices: choose 0 to 1024, or names"),
    ] {
        let told = listed(Some(devices));
        assert!(told.starts_with(expected), "{devices}: {told}");
    }
}

#[test]
fn a_program_that_names_its_devices_is_not_told_of_the_environment() {
    for devices in ["0", "3", "a/b", "99999"] {
        let told = listed_with(Some(devices), |command| {
            command.env(NAMED, "1");
        });
        assert_eq!(told, "named", "{devices}");
    }
}
