//! The network interface of a soft-RoCE device. Tests take it down and up only in the guest, not on machines with other
//! work. The interface of soft devices is never changed, because all programs share it.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, PortState};

use crate::device;

/// With the value `1`, this environment variable allows tests to change this machine's network: `cargo xtask softroce`
/// sets it in its guest.
pub const CHANGE_NETWORK: &str = "SIDEWAY_CHANGE_NETWORK";

const PATIENCE: Duration = Duration::from_secs(60);

/// The network interface under the port; dropping this brings it up again.
#[derive(Debug)]
pub struct Interface<'c> {
    name: String,
    context: &'c DeviceContext,
}

impl<'c> Interface<'c> {
    /// The interface of the tests' GID.
    ///
    /// # Panics
    ///
    /// If there is no interface, or if the test must not change it: [`CHANGE_NETWORK`] is not set, the device is not
    /// the kernel's, or every program of the machine uses the interface.
    #[track_caller]
    pub fn of(context: &'c DeviceContext) -> Self {
        let entry = device::gid(context).unwrap_or_else(|| panic!("the port has no GID"));
        let name = entry.netdev_name().unwrap_or_else(|error| panic!("{error}"));
        let is_allowed = env::var_os(CHANGE_NETWORK).is_some_and(|value| value == "1");
        if let Err(why) = may_change(is_allowed, context.sysfs_path().is_some(), &name) {
            panic!("{name} is not changed: {why}");
        }
        Self { name, context }
    }

    /// Runs `ip` with these arguments, in which `{}` is the name of the interface.
    ///
    /// # Panics
    ///
    /// If `ip` fails.
    #[track_caller]
    pub fn ip(&self, arguments: &str) {
        let arguments = arguments.replace("{}", &self.name);
        let status = Command::new("ip").args(arguments.split_whitespace()).status();
        assert!(matches!(status, Ok(status) if status.success()), "ip {arguments}: {status:?}");
    }

    /// Waits until the port is active and can send; returns whether it did.
    pub fn comes_up(&self) -> bool {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let port = self.context.query_port(device::PORT);
            let is_active = matches!(port, Ok(port) if port.port_state() == PortState::Active);
            let found = self.context.query_gid_table().ok().and_then(device::best_gid);
            if is_active && found.is_some_and(|entry| entry.gid().is_ipv4_mapped()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

/// Whether an interface may be changed, or why not.
fn may_change(is_allowed: bool, is_of_the_kernel: bool, name: &str) -> Result<(), String> {
    match name {
        _ if !is_allowed => Err(format!("{CHANGE_NETWORK} is not 1, as it is under `cargo xtask softroce`")),
        _ if !is_of_the_kernel => Err("the device is not one of the kernel's".to_owned()),
        "lo" => Err("every program of the machine uses it".to_owned()),
        _ => Ok(()),
    }
}

impl Drop for Interface<'_> {
    fn drop(&mut self) {
        let up = Command::new("ip").args(["link", "set", &self.name, "up"]).status();
        let is_up = self.comes_up();
        assert!(is_up || std::thread::panicking(), "{} does not come up again: {up:?}", self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_test_interface_may_be_changed() {
        assert_eq!(may_change(true, true, "eth_a"), Ok(()));
        for (is_allowed, is_of_the_kernel, name) in [(false, true, "eth_a"), (true, false, "eth_a"), (true, true, "lo")]
        {
            assert!(may_change(is_allowed, is_of_the_kernel, name).is_err(), "{is_allowed} {is_of_the_kernel} {name}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    #[should_panic(expected = "is not changed")]
    fn interface_of_a_soft_device_is_refused() {
        softrnic::Builder::new().device(device::SOFT_DEVICE).register().unwrap();
        let list = sideway::ibverbs::device::DeviceList::new().unwrap();
        let context = list.find(device::SOFT_DEVICE).unwrap().open().unwrap();
        // The interface may be the machine's only one, so this test runs no command on it.
        std::mem::forget(Interface::of(&context));
    }
}
