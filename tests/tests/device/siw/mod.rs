//! softrnic's iWARP device and the kernel's siw as peers, in two network namespaces: one has siw, the other only TCP.

mod connects;
mod errors;
mod messages;
mod peer;

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
const RUN: &str = "SIDEWAY_SOFTRNIC_RUN";
const STRIDE: &str = "SIDEWAY_STRIDE_PERF";
/// The port of stride-perf.
const CONTROL_PORT: u16 = 18515;
/// What perftest's client prints if nothing listens.
const REFUSED: &str = "Connection refused";
/// The deadline of a program.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
enum Peer {
    Soft,
    Kernel,
}

#[derive(Debug)]
struct Peers(Hosts);

impl Peers {
    /// Returns `None`, and reports that the test did not run, if the kernel has no siw.
    fn new() -> Option<Self> {
        if !Path::new("/sys/module/siw").exists() || env::var_os(CHANGE_NETWORK).is_none() {
            may_not_run("the kernel lacks siw, or tests may not change its network");
            return None;
        }
        let hosts = Hosts::new()?;
        let mut command = hosts.command(Peer::Kernel as usize, "rdma");
        command.args(["link", "add", "siw_0", "type", "siw", "netdev", "v0"]);
        succeeds(&child::run(command, LIMIT), &[]);
        Some(Self(hosts))
    }

    /// A program on the device of the peer.
    fn command(&self, peer: Peer, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.0.command(peer as usize, program);
        let (library, devices) = match peer {
            Peer::Soft => ("softrnic", "softiw0"),
            Peer::Kernel => ("system", "0"),
        };
        command.envs([("RDMA_MUMMY_RDMACM", library), (softrnic::DEVICES_VARIABLE, devices), ("NO_COLOR", "1")]);
        command
    }

    /// An example, if the words begin with `our`, or one of rdma-core's programs and perftest's.
    fn program(&self, peer: Peer, words: &str, port: u16) -> Command {
        let (is_ours, words) = words.strip_prefix("our ").map_or((false, words), |words| (true, words));
        let (name, options) = words.split_once(' ').unwrap_or((words, ""));
        let mut command = match peer {
            _ if is_ours => self.command(peer, example(name).get_program()),
            Peer::Soft => {
                let mut command = self.command(peer, named(RUN));
                command.arg(name);
                command
            }
            Peer::Kernel => self.command(peer, name),
        };
        command.args(["-p", &port.to_string()]);
        if name.starts_with("ib_") {
            // perftest chooses its flow control by the device, so the device is named.
            command.args(["-d", if matches!(peer, Peer::Soft) { "softiw0" } else { "siw_0" }]);
        }
        command.args(options.split_whitespace());
        command
    }

    /// Runs a server and a client in both roles; the server's address follows the words of the client.
    #[track_caller]
    fn play(&self, [server, client]: [&str; 2]) {
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
        server.wait_for_port(port);
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
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = Command::new("rdma").args(["link", "delete", "siw_0"]).output();
    }
}

#[track_caller]
fn named(variable: &str) -> PathBuf {
    env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")).into()
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn programs_connect_in_both_roles() {
    let Some(peers) = Peers::new() else { return };
    for programs in [
        ["rping -s -C 20 -v", "our rping -c -C 20 -v -a"],
        ["our rping -s -C 5 -S 65000", "rping -c -C 5 -S 65000 -a"],
        ["ib_send_bw -R -F -n 100 -s 65536", "ib_send_bw -R -F -n 100 -s 65536"],
        ["ib_write_bw -R -F -n 100 -s 65536", "ib_write_bw -R -F -n 100 -s 65536"],
        ["ib_read_lat -R -F -n 100 -s 64", "ib_read_lat -R -F -n 100 -s 64"],
    ] {
        peers.play(programs);
    }
}

/// stride-perf checks the data. Its servers keep running; each serves all runs of the other peer.
#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn messages_of_every_kind_and_size_arrive() {
    let Some(peers) = Peers::new() else { return };
    let stride = named(STRIDE);
    // The guest emulates its processors, so a server may not run for long while its client polls.
    let patience = ["--timeout", "100"];
    let serve = |peer| {
        let mut command = peers.command(peer, &stride);
        command.args(patience);
        Program::start(command, LIMIT * 6)
    };
    let mut servers = [serve(Peer::Soft), serve(Peer::Kernel)];
    servers.iter_mut().for_each(|server| server.wait_for_port(CONTROL_PORT));
    for words in
        ["write bw -s 1,1443,64K", "read bw -s 1,1443,64K -q 4", "send bw -s 1,1443,64K", "send lat -s 64,4K -e"]
    {
        for (client, server) in [(Peer::Soft, Peer::Kernel), (Peer::Kernel, Peer::Soft)] {
            let mut command = peers.command(client, &stride);
            command.args(words.split_whitespace()).args(["-R", "-n", "100", "--validate"]).args(patience);
            command.arg(Hosts::ADDRESSES[server as usize]);
            let ended = child::run(command, LIMIT * 2);
            assert!(ended.status.success(), "{client:?}: {words}: {}\n{}", ended.status, ended.output);
            assert!(ended.output.contains("over iWARP"), "{client:?}: {words}:\n{}", ended.output);
        }
    }
}
