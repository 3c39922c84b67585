//! Two network namespaces, which stand for two hosts without RDMA hardware.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::requirements::may_not_run;

/// Two hosts with a cable between them, until this is dropped.
#[derive(Debug)]
pub struct Hosts([String; 2]);

impl Hosts {
    /// The hosts' addresses.
    pub const ADDRESSES: [&str; 2] = ["10.71.9.1", "10.71.9.2"];

    /// Returns `None`, and reports that the test did not run, if this user cannot create network namespaces.
    #[must_use]
    pub fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let hosts = Self(["a", "b"].map(|end| format!("softiw-{process}-{number}-{end}")));
        let [a, b] = &hosts.0;
        let mut is_made = ip(&format!("netns add {a}")) && ip(&format!("netns add {b}"));
        is_made = is_made && ip(&format!("link add v0 netns {a} type veth peer name v0 netns {b}"));
        for (host, address) in hosts.0.iter().zip(Self::ADDRESSES) {
            is_made = is_made
                && ip(&format!("-n {host} addr add {address}/24 dev v0"))
                && ip(&format!("-n {host} link set lo up"))
                && ip(&format!("-n {host} link set v0 up"));
        }
        if !is_made {
            may_not_run("this user cannot create network namespaces");
        }
        is_made.then_some(hosts)
    }

    /// A command on one of the hosts; append its arguments.
    #[must_use]
    pub fn command(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[host]]).arg(program);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in &self.0 {
            ip(&format!("netns del {host}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).output().is_ok_and(|output| output.status.success())
}
