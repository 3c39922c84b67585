//! The network interface under a soft-RoCE device, which tests take down and up.

use std::process::Command;
use std::time::{Duration, Instant};

use sideway::ibverbs::device_context::{DeviceContext, PortState};

use crate::device;

const PATIENCE: Duration = Duration::from_secs(20);

/// The network interface under the port; it is up again when this goes.
#[derive(Debug)]
pub struct Interface<'c> {
    name: String,
    context: &'c DeviceContext,
}

impl<'c> Interface<'c> {
    /// The interface of the GID that the tests use.
    ///
    /// # Panics
    ///
    /// There is none.
    #[track_caller]
    pub fn of(context: &'c DeviceContext) -> Self {
        let entry = device::gid(context).unwrap_or_else(|| panic!("the port has no GID"));
        Self { name: entry.netdev_name().unwrap_or_else(|error| panic!("{error}")), context }
    }

    /// Runs `ip` with these arguments, in which `{}` is the name of the interface.
    ///
    /// # Panics
    ///
    /// It does not do it.
    #[track_caller]
    pub fn ip(&self, arguments: &str) {
        let arguments = arguments.replace("{}", &self.name);
        let status = Command::new("ip").args(arguments.split_whitespace()).status();
        assert!(matches!(status, Ok(status) if status.success()), "ip {arguments}: {status:?}");
    }

    /// Waits until the port is active and can be sent from; whether it becomes so.
    pub fn comes_up(&self) -> bool {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let port = self.context.query_port(device::PORT);
            let is_active = matches!(port, Ok(port) if port.port_state() == PortState::Active);
            let found = sideway_examples::gid::choose(self.context, device::PORT, None);
            if is_active && matches!(found, Ok(Some(entry)) if entry.gid().is_ipv4_mapped()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Interface<'_> {
    fn drop(&mut self) {
        let up = Command::new("ip").args(["link", "set", &self.name, "up"]).status();
        let is_up = self.comes_up();
        assert!(is_up || std::thread::panicking(), "{} does not come up again: {up:?}", self.name);
    }
}
