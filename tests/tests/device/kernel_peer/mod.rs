//! A device of softrnic and one of the kernel as peers, on two hosts.
//!
//! Programs of others run on both, and copies of this test program: `end` starts these, and has what the parts share.

mod connects;
pub(crate) mod end;
pub(crate) mod errors;
mod messages;

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::hosts::Hosts;
use sideway_tests::interface::CHANGE_NETWORK;
use sideway_tests::programs::{port, succeeds};
use sideway_tests::requirements::may_not_run;

/// The environment variables that name the programs softrnic-run and stride-perf.
pub(crate) const RUN: &str = "SIDEWAY_SOFTRNIC_RUN";
pub(crate) const STRIDE: &str = "SIDEWAY_STRIDE_PERF";
/// The port of stride-perf.
pub(crate) const CONTROL_PORT: u16 = 18515;
/// What perftest's client prints if nothing listens.
const REFUSED: &str = "Connection refused";
/// The deadline of a program.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Soft,
    Kernel,
}

#[derive(Debug)]
pub(crate) struct Peers {
    hosts: Hosts,
    /// The names of the devices.
    soft: &'static str,
    kernel: &'static str,
}

/// Whether the kernel has a driver, and tests may change its network. If not, reports that the test did not run.
pub(crate) fn has(driver: &str) -> bool {
    let has_all = Path::new("/sys/module").join(driver).exists() && env::var_os(CHANGE_NETWORK).is_some();
    if !has_all {
        may_not_run(&format!("the kernel lacks {driver}, or tests may not change its network"));
    }
    has_all
}

impl Peers {
    /// Creates the kernel's device, of a driver, on its host. The device of softrnic is on the other host.
    #[track_caller]
    pub(crate) fn new(hosts: Hosts, soft: &'static str, (kernel, driver): (&'static str, &str)) -> Self {
        let interface = hosts.interface(Peer::Kernel as usize);
        let mut command = hosts.command(Peer::Kernel as usize, "rdma");
        command.args(["link", "add", kernel, "type", driver, "netdev", interface]);
        succeeds(&child::run(command, LIMIT), &[]);
        Self { hosts, soft, kernel }
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(crate) fn device(&self, peer: Peer) -> &'static str {
        if matches!(peer, Peer::Soft) { self.soft } else { self.kernel }
    }

    /// A program on the device of the peer.
    pub(crate) fn command(&self, peer: Peer, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.hosts.command(peer as usize, program);
        let (library, devices) = match peer {
            Peer::Soft => ("softrnic", self.soft),
            Peer::Kernel => ("system", "0"),
        };
        command.envs([("RDMA_MUMMY_RDMACM", library), (softrnic::DEVICES_VARIABLE, devices), ("NO_COLOR", "1")]);
        command
    }

    /// An example, if the words begin with `our`, or a program of others. The words `{port}`, `{device}` and `{gid}` stand
    /// for its arguments; without any of them, these are those of rdma-core's programs and perftest's.
    fn program(&self, peer: Peer, words: &str, port: u16) -> Command {
        // The GIDs of the IPv4 address. The kernel's first one is that of the link-local address.
        let (port, gid) = (port.to_string(), if matches!(peer, Peer::Soft) { "0" } else { "1" });
        let (is_ours, template) = words.strip_prefix("our ").map_or((false, words), |words| (true, words));
        let words = template.replace("{port}", &port).replace("{device}", self.device(peer)).replace("{gid}", gid);
        let (name, options) = words.split_once(' ').unwrap_or((&words, ""));
        let mut command = match peer {
            _ if is_ours => self.command(peer, example(name).get_program()),
            Peer::Soft => {
                let mut command = self.command(peer, named(RUN));
                command.arg(name);
                command
            }
            Peer::Kernel => self.command(peer, name),
        };
        if words == template {
            command.args(["-p", &port]);
        }
        if name.starts_with("ib_") {
            // perftest chooses its flow control by the device, so the device is named.
            command.args(["-d", self.device(peer)]);
            if !options.contains("-R") {
                command.args(["-x", gid]);
            }
        }
        command.args(options.split_whitespace());
        command
    }

    /// Runs a server and a client in both roles; the server's address follows the words of the client.
    #[track_caller]
    pub(crate) fn play(&self, [server, client]: [&str; 2]) {
        // The kernel connects last. Its neighbor table then contains the peer, whose reply it may otherwise miss.
        for [serving, connecting] in [[Peer::Kernel, Peer::Soft], [Peer::Soft, Peer::Kernel]] {
            let ended = (0..5).find_map(|_| self.attempt((serving, server), (connecting, client)));
            let [served, connected] = ended.unwrap_or_else(|| panic!("{serving:?} refuses: {client}"));
            // The output of both is needed to find the cause of a failure.
            assert!(
                served.status.success() && connected.status.success(),
                "{serving:?} serves: {}\n{}\n{connecting:?} connects: {}\n{}",
                served.status,
                served.output,
                connected.status,
                connected.output
            );
        }
    }

    /// Runs a server and a client once. Returns `None` if a connection was refused: perftest's server reopens its listener
    /// between two connections, and its client does not recover if it connects during this time (perftest 4.5).
    #[track_caller]
    fn attempt(&self, (serving, server): (Peer, &str), (connecting, client): (Peer, &str)) -> Option<[Ended; 2]> {
        let port = port();
        let (server, mut client) = (self.program(serving, server, port), self.program(connecting, client, port));
        client.arg(Hosts::ADDRESSES[serving as usize]);
        let (mut server, is_refused) =
            (Program::start(server, LIMIT), |client: &Program| client.said().contains(REFUSED));
        server.wait_for_any_port(port);
        let mut client = Program::start(client, LIMIT);
        let connected = client.wait_unless(is_refused);
        if is_refused(&client) {
            return None;
        }
        match (connected, server.wait()) {
            (Some(connected), Some(served)) => Some([served, connected]),
            _ => panic!("not ended within {LIMIT:?}\n{}\n{}", server.said(), client.said()),
        }
    }

    /// Runs stride-perf with each of the words, in both roles. It checks the data. Its servers keep running; each serves
    /// all runs of the other peer. `over` is in the output of each client.
    #[track_caller]
    pub(crate) fn measure(&self, all_words: &[&str], over: &str) {
        let stride = named(STRIDE);
        // The guest emulates its processors, so a server may not run for long while its client polls.
        let patience = ["--timeout", "100"];
        let serve = |peer| {
            let mut command = self.command(peer, &stride);
            command.args(patience);
            Program::start(command, LIMIT * 6)
        };
        let mut servers = [serve(Peer::Soft), serve(Peer::Kernel)];
        servers.iter_mut().for_each(|server| server.wait_for_port(CONTROL_PORT));
        for words in all_words {
            for (client, server) in [(Peer::Soft, Peer::Kernel), (Peer::Kernel, Peer::Soft)] {
                let mut command = self.command(client, &stride);
                command.args(words.split_whitespace()).args(["-n", "100", "--validate"]).args(patience);
                if !words.contains("-R") {
                    let [device, remote] = [client, server].map(|peer| self.device(peer));
                    command.args(["-d", device, "--remote-device", remote]);
                }
                command.arg(Hosts::ADDRESSES[server as usize]);
                let ended = child::run(command, LIMIT * 2);
                assert!(ended.status.success(), "{client:?}: {words}: {}\n{}", ended.status, ended.output);
                assert!(ended.output.contains(over), "{client:?}: {words}:\n{}", ended.output);
            }
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = Command::new("rdma").args(["link", "delete", self.kernel]).output();
    }
}

#[track_caller]
pub(crate) fn named(variable: &str) -> PathBuf {
    env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")).into()
}
