//! softrnic's iWARP device: over TCP within this host, and between two network namespaces as two hosts.

mod attacks;
mod cable;
mod dissected;
mod documented;
mod programs;

use std::env;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::device;
use sideway_tests::hosts::Hosts;
use sideway_tests::programs::{LIMIT, port, succeeds, wait_for_game};
use sideway_tests::requirements::may_not_run;

/// An example on one of the hosts.
fn on(hosts: &Hosts, host: usize, program: &str, options: &str) -> Command {
    let mut command = hosts.command(host, example(program).get_program());
    command.args(options.split_whitespace());
    command
}

/// Runs a server, and a client that connects again until the server listens.
pub(crate) fn play(server: Command, client: impl Fn() -> Command) -> [Ended; 2] {
    let mut server = Program::start(server, LIMIT);
    let mut tries = 0;
    let client = loop {
        let ended = child::run(client(), LIMIT);
        tries += 1;
        if !ended.output.to_lowercase().contains("refused") || tries == 100 {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let server_ended = server.wait().unwrap_or_else(|| panic!("the server does not end:\n{}", server.said()));
    [server_ended, client]
}

fn over_tcp(mut command: Command) -> Command {
    command.env("SOFTRNIC_DEVICES", "softiw0");
    command
}

/// Whether these tests apply to the device: softrnic is the device of the tests.
fn is_soft() -> bool {
    device::name() == device::SOFT_DEVICE
}

#[test]
fn programs_connect_over_tcp_within_the_host() {
    if !is_soft() {
        return;
    }
    for (program, server, client) in [
        ("rping", "-s -C 20 -v", "-c -a 127.0.0.1 -C 20 -v"),
        ("rping", "-s -C 5 -S 5000", "-c -a 127.0.0.1 -C 5 -S 5000"),
        ("cm_pingpong", "-c -n 200 -s 64", "127.0.0.1 -c -n 200 -s 64"),
        ("cm_pingpong", "-c -n 50 -s 300000 -e", "127.0.0.1 -c -n 50 -s 300000 -e"),
    ] {
        let port = port();
        let start = |options: &str| {
            let mut command = over_tcp(example(program));
            command.args(["-p", &port.to_string()]).args(options.split_whitespace());
            command
        };
        for ended in play(start(server), || start(client)) {
            succeeds(&ended, &[]);
        }
    }
}

#[test]
fn two_hosts_connect_given_only_the_address() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let host = Hosts::ADDRESSES[1];
    for (program, server, client) in [
        ("rping", "-s -C 20 -v".to_owned(), format!("-c -a {host} -C 20 -v")),
        ("cm_pingpong", "-c -n 100 -s 5000".to_owned(), format!("{host} -c -n 100 -s 5000")),
        ("cm_pingpong", "-c -n 20 -s 1000000 -e".to_owned(), format!("{host} -c -n 20 -s 1000000 -e")),
    ] {
        for ended in play(on(&hosts, 1, program, &server), || on(&hosts, 0, program, &client)) {
            succeeds(&ended, &[]);
        }
    }
    // The client fails without a listener, and without a host.
    let refused = child::run(on(&hosts, 0, "rping", &format!("-c -a {host} -C 1")), LIMIT);
    assert!(refused.output.contains("ECONNREFUSED"), "{}", refused.output);
}

/// A program of this build, or an example of any crate; `None`, after a report, if it was not built.
pub(crate) fn built(name: &str) -> Option<PathBuf> {
    let given = (name == "stride-perf").then(|| env::var_os("SIDEWAY_STRIDE_PERF")).flatten().map(PathBuf::from);
    let test = env::current_exe().ok()?;
    let folder = test.ancestors().nth(2)?;
    let mut places = given.into_iter().chain([folder.join(name), folder.join("examples").join(name)]);
    let found = places.find(|program| program.is_file());
    if found.is_none() {
        may_not_run(&format!("{name} was not built"));
    }
    found
}

/// A server of stride-perf on host 1.
struct Measuring<'h> {
    hosts: &'h Hosts,
    stride: PathBuf,
    _server: Program,
}

impl<'h> Measuring<'h> {
    fn start(hosts: &'h Hosts, stride: PathBuf) -> Self {
        let server = Program::start(Self::command(hosts, 1, &stride, ""), LIMIT * 3);
        Self { hosts, stride, _server: server }
    }

    fn command(hosts: &Hosts, host: usize, stride: &Path, words: &str) -> Command {
        let mut command = hosts.command(host, stride);
        command.args(words.split_whitespace());
        command.env("NO_COLOR", "1").env_remove(softrnic::DEVICES_VARIABLE);
        command
    }

    /// Runs a client on host 0, again until the server listens.
    fn run(&self, words: &str) -> Ended {
        let mut tries = 0;
        loop {
            let words = format!("{words} {}", Hosts::ADDRESSES[1]);
            let ended = child::run(Self::command(self.hosts, 0, &self.stride, &words), LIMIT);
            tries += 1;
            if !ended.output.contains("refused") || tries == 100 {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn stride_measures_between_two_hosts() {
    if !is_soft() {
        return;
    }
    let Some(stride) = built("stride-perf") else { return };
    let Some(hosts) = Hosts::new() else { return };
    let measuring = Measuring::start(&hosts, stride);
    let run = |words: &str| measuring.run(words);
    for words in [
        "write bw -s 1,4K,1M",
        "write lat -s 2,64K",
        "write bw --imm -s 64K",
        "read bw -s 64K,1M",
        "read lat -s 64",
        "send bw -s 64,64K -b",
        "send lat -s 64,4K -e",
        "send bw --imm -s 4K -q 4",
        "atomic bw",
        "atomic lat",
    ] {
        let ended = run(&format!("{words} -R -n 300 --validate"));
        assert!(ended.status.success(), "{words}: {}\n{}", ended.status, ended.output);
        assert!(ended.output.contains("over iWARP") && ended.output.contains("softiw0"), "{words}:\n{}", ended.output);
    }
    for (words, error) in [("write bw", "add -R"), ("write bw -d softiw0", "add -R"), ("send bw -c ud -R", "iWARP")] {
        let ended = run(&format!("{words} -n 10"));
        assert!(!ended.status.success() && ended.output.contains(error), "{words}:\n{}", ended.output);
    }
}

/// Runs trespass's tests on the iWARP device: shared receives, reads, windows, revoked keys.
#[test]
fn connections_work_on_the_iwarp_device() {
    if !is_soft() {
        return;
    }
    let command = Command::new(env::current_exe().expect("it runs"));
    let mut command = over_tcp(command);
    // If only this device exists, "any transport" means TCP, which has already bound the port.
    command.env_remove(device::TEST_DEVICE).args([
        "trespass_connections::",
        "trespass_nonblocking::",
        "--skip",
        "any_transport_uses_rdma",
    ]);
    let ended = child::run(command, LIMIT);
    assert!(ended.status.success(), "{}\n{}", ended.status, ended.output);
    let passed = ended.output.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(passed >= 15, "{}", ended.output);
}

#[test]
fn killed_peer_ends_the_connection() {
    if !is_soft() {
        return;
    }
    let port = port();
    let start = |options: &str| {
        let mut command = over_tcp(example("cm_pingpong"));
        command.args(["-p", &port.to_string(), "-n", "100000000"]).args(options.split_whitespace());
        command
    };
    let mut server = Program::start(start(""), LIMIT);
    server.wait_for_port(port);
    let mut client = Program::start(start("127.0.0.1"), LIMIT);
    wait_for_game(&server, &client);
    server.kill();
    let ended = client.wait().unwrap_or_else(|| panic!("the client does not end:\n{}", client.said()));
    assert!(!ended.status.success(), "{}", ended.output);
}

#[test]
fn closed_set_up_is_repeated_before_an_older_revision() {
    if !is_soft() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("it is open");
    let port = listener.local_addr().expect("it is bound").port();
    let mut command = over_tcp(example("rping"));
    command.args(["-c", "-a", "127.0.0.1", "-C", "1", "-p", &port.to_string()]);
    let mut client = Program::start(command, LIMIT);
    let revisions = [(); 3].map(|()| {
        let mut accepted = None;
        client.wait_until("a connection", |_| {
            accepted = listener.accept().ok();
            accepted.is_some()
        });
        let (mut socket, _) = accepted.expect("the client connects");
        socket.set_nonblocking(false).expect("it is open");
        socket.set_read_timeout(Some(LIMIT)).expect("the time is not zero");
        // The revision follows the key and the flags.
        let mut request = [0; 18];
        socket.read_exact(&mut request).expect("the client sends its request");
        request[17]
    });
    assert_eq!(revisions, [2, 2, 1]);
    let ended = client.wait().unwrap_or_else(|| panic!("the client does not end:\n{}", client.said()));
    assert!(!ended.status.success(), "{}", ended.output);
}

#[test]
fn tcp_port_of_a_local_listener_stays_free() {
    if !is_soft() {
        return;
    }
    for (options, devices) in [("-s -a 127.0.0.1", "soft0,softiw0"), ("-s", "soft0")] {
        let port = port();
        let mut command = example("rping");
        command.env("SOFTRNIC_DEVICES", devices).args(options.split_whitespace()).args(["-p", &port.to_string()]);
        let mut server = Program::start(command, LIMIT);
        server.wait_for_cm_port(port);
        assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "{options}: {}", server.said());
        server.kill();
    }
}
