//! A network namespace for the thread of one test, with a veth pair in it.

use std::env;
use std::fs;
use std::io::Write;
use std::process::Command;

use xsk::Interface;

/// The environment variable that turns "did not run" into a failure when it is `1`.
const REQUIRE: &str = "XSK_REQUIRE_NETNS";

/// A veth pair, `v0` and `v1`, in a namespace of this thread.
pub(crate) struct Net {
    pub(crate) a: Interface,
    pub(crate) b: Interface,
}

/// Reports a test that cannot run here. Bypasses the test harness, which hides the output of tests that pass.
pub(crate) fn did_not_run(why: &str) {
    assert!(env::var_os(REQUIRE).is_none_or(|value| value != "1"), "{REQUIRE}=1, but {why}");
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "DID NOT RUN: {name}: {why} ({REQUIRE}=1 makes this a failure)");
}

impl Net {
    /// A pair with one queue.
    pub(crate) fn new() -> Option<Self> {
        Self::with("numrxqueues 1 numtxqueues 1", 1500)
    }

    /// A pair whose ends both have these options of `ip link add`, and an MTU.
    pub(crate) fn with(options: &str, mtu: u32) -> Option<Self> {
        // SAFETY: the call takes no pointers; it affects only the namespace of this thread.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            did_not_run(&format!("no network namespace: {}; run as root", std::io::Error::last_os_error()));
            return None;
        }
        // IPv6 is disabled, because the kernel must send no packets of its own.
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        if !run(&format!("ip link add name v0 mtu {mtu} {options} type veth peer name v1 mtu {mtu} {options}")) {
            did_not_run("cannot create a veth pair; install iproute2 and load the module veth");
            return None;
        }
        assert!(run("ip link set v0 up") && run("ip link set v1 up") && run("ip link set lo up"));
        Some(Self { a: Interface::by_name("v0").unwrap(), b: Interface::by_name("v1").unwrap() })
    }
}

/// Runs a command in the namespace of this thread.
pub(crate) fn run(command: &str) -> bool {
    let mut words = command.split_whitespace();
    Command::new(words.next().unwrap()).args(words).status().is_ok_and(|status| status.success())
}
