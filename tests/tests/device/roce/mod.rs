//! softrnic's RoCEv2 device: within one host, between two network namespaces as two hosts, and with the kernel's soft-RoCE
//! as its peer.

mod kernel;

use std::env;
use std::process::Command;
use std::time::Duration;

use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::completion_log::FILE;
use sideway_tests::device;
use sideway_tests::hosts::Hosts;
use sideway_tests::programs::{LIMIT, port, succeeds};

use crate::hosts::{built, play};

const DEVICE: &str = "softroce0";

/// Whether these tests apply to the device: softrnic is the device of the tests.
fn is_soft() -> bool {
    device::name() == device::SOFT_DEVICE
}

/// A program on the RoCEv2 device of a host.
fn on(hosts: &Hosts, host: usize, program: &Command, words: &str) -> Command {
    let mut command = hosts.command(host, program.get_program());
    command.args(words.split_whitespace()).env(softrnic::DEVICES_VARIABLE, DEVICE).env("NO_COLOR", "1");
    command
}

/// Runs the tests of verbs and of connections, which compare softrnic with the kernel's soft-RoCE, on this device.
#[test]
fn verbs_and_connections_behave_as_on_other_devices() {
    if !is_soft() {
        return;
    }
    // The port of RoCEv2 is free in a namespace of its own.
    let Some(hosts) = Hosts::new() else { return };
    let mut command = hosts.command(0, env::current_exe().expect("this program has a path"));
    let modules = "errors:: events:: operations:: srq:: windows:: xrc:: transitions:: atomics:: datagrams:: multicast:: \
                   cm_blocking:: cm_multicast:: cm_own_queue_pair:: teardown:: trespass_connections:: trespass_nonblocking::";
    command.args(modules.split_whitespace());
    for skipped in [
        // The module errors of the programs: these run on any device.
        "programs_errors",
        // They need a link-local address, or expect what only `soft0` does: no route, no device for IPv4.
        "address_of_the_link",
        "network_without_a_route",
        // If only this device exists, "any transport" means TCP, which has already bound the port.
        "any_transport_uses_rdma",
    ] {
        command.args(["--skip", skipped]);
    }
    command.env(device::TEST_DEVICE, DEVICE).env(softrnic::DEVICES_VARIABLE, DEVICE).env_remove(FILE);
    let ended = child::run(command, LIMIT);
    assert!(ended.status.success(), "{}\n{}", ended.status, ended.output);
    let passed = ended.output.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(passed >= 100, "{passed} tests have passed\n{}", ended.output);
}

#[test]
fn two_hosts_connect_with_and_without_the_connection_manager() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let host = Hosts::ADDRESSES[1];
    for (program, server, client) in [
        ("rping", "-s -C 20 -v".to_owned(), format!("-c -a {host} -C 20 -v")),
        ("cm_pingpong", "-c -n 100 -s 5000".to_owned(), format!("{host} -c -n 100 -s 5000")),
        ("cm_pingpong", "-c -n 20 -s 1000000 -e".to_owned(), format!("{host} -c -n 20 -s 1000000 -e")),
        ("rc_pingpong", "-c -n 100".to_owned(), format!("-c -n 100 {host}")),
        ("ud_pingpong", "-c -n 100".to_owned(), format!("-c -n 100 {host}")),
    ] {
        let program = example(program);
        for ended in play(on(&hosts, 1, &program, &server), || on(&hosts, 0, &program, &client)) {
            succeeds(&ended, &[]);
        }
    }
}

/// Starts a client, again if its server does not listen yet.
fn start_client(hosts: &Hosts, program: &Command, words: &str) -> Program {
    loop {
        let mut client = Program::start(on(hosts, 0, program, words), LIMIT);
        client.wait_until("begin", |client| !client.said().is_empty());
        if !["refused", "no listener"].iter().any(|word| client.said().to_lowercase().contains(word)) {
            return client;
        }
    }
}

/// A process that has the port of RoCEv2, and does not use the connection manager.
fn waiting(hosts: &Hosts, host: usize) -> Program {
    let port = port();
    let mut waiting = Program::start(on(hosts, host, &example("rc_pingpong"), &format!("-p {port} -g 0")), LIMIT);
    waiting.wait_for_port(port);
    waiting
}

/// The kernel gives the requests of a host to one of the servers, whichever address they are for.
#[test]
fn servers_listen_at_several_addresses_of_a_port() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let (rping, addresses) = (example("rping"), ["10.71.9.3", "10.71.9.4", "10.71.9.5", "10.71.9.6"]);
    for address in addresses {
        let mut ip = hosts.command(1, "ip");
        ip.args(["addr", "add", &format!("{address}/24"), "dev", hosts.interface(1)]);
        assert!(ip.status().is_ok_and(|status| status.success()));
    }
    let start = |address: &str| Program::start(on(&hosts, 1, &rping, &format!("-s -C 2 -a {address}")), LIMIT);
    let servers = addresses.map(start);
    for (address, mut server) in addresses.iter().zip(servers) {
        let words = format!("-c -C 2 -v -a {address}");
        let mut client = start_client(&hosts, &rping, &words);
        for program in [&mut client, &mut server] {
            let ended = program.wait().unwrap_or_else(|| panic!("{words}: no end:\n{}", program.said()));
            succeeds(&ended, &[]);
        }
    }
}

/// Its packets would be lost, the longest ones first.
#[test]
fn request_with_a_larger_mtu_than_that_of_the_listener_is_rejected() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let mut ip = hosts.command(0, "ip");
    ip.args(["link", "set", hosts.interface(0), "mtu", "9000"]);
    assert!(ip.status().is_ok_and(|status| status.success()));
    let rping = example("rping");
    let mut server = Program::start(on(&hosts, 1, &rping, "-s -C 2"), LIMIT);
    let mut client = start_client(&hosts, &rping, &format!("-c -C 2 -v -a {}", Hosts::ADDRESSES[1]));
    let ended = client.wait().unwrap_or_else(|| panic!("the client does not end:\n{}", client.said()));
    assert!(!ended.status.success() && ended.output.contains("does not support that path MTU"), "{}", ended.output);
    server.kill();
}

/// The kernel gives all packets of a host to the socket of one process, which may not use the connection manager itself.
#[test]
fn programs_that_use_only_verbs_pass_connect_requests_on() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let others: Vec<Program> = (0..6).map(|_| waiting(&hosts, 1)).collect();
    let (rping, client) = (example("rping"), format!("-c -a {} -C 2", Hosts::ADDRESSES[1]));
    for ended in play(on(&hosts, 1, &rping, "-s -C 2"), || on(&hosts, 0, &rping, &client)) {
        succeeds(&ended, &[]);
    }
    others.into_iter().for_each(|mut other| other.kill());
}

#[test]
fn larger_path_mtu_than_that_of_the_interface_is_refused() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let (program, client) = (example("rc_pingpong"), format!("-m 4096 {}", Hosts::ADDRESSES[1]));
    let [server, client] = play(on(&hosts, 1, &program, "-m 4096"), || on(&hosts, 0, &program, &client));
    assert!(!client.status.success() && server.output.contains("EINVAL"), "{}\n{}", server.output, client.output);
}

/// Runs stride-perf's server on host 1, and clients on host 0 until it listens.
fn measure(hosts: &Hosts, all_words: &[&str]) {
    let Some(stride) = built("stride-perf").map(Command::new) else { return };
    let _server = Program::start(on(hosts, 1, &stride, ""), LIMIT * 3);
    for words in all_words {
        let words = format!("{words} --validate {}", Hosts::ADDRESSES[1]);
        let run = || -> Ended { child::run(on(hosts, 0, &stride, &words), LIMIT) };
        let mut ended = run();
        for _ in 0..100 {
            if !ended.output.contains("refused") {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            ended = run();
        }
        assert!(ended.status.success(), "{words}: {}\n{}", ended.status, ended.output);
        assert!(ended.output.contains(DEVICE), "{words}:\n{}", ended.output);
    }
}

#[test]
fn messages_of_every_kind_arrive() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::new() else { return };
    let all = [
        "write bw -s 1,1443,1M -n 300",
        "write bw --imm -R -s 64K -n 300",
        "read bw -s 1,64K,1M -q 4 -n 300",
        "send bw -s 64,64K -b -n 300",
        "send lat -s 64,4K -e -n 300",
        "send lat -c ud -s 64,1024 -n 300",
        "atomic bw -n 300",
    ];
    measure(&hosts, &all);
}

#[test]
fn lost_packets_are_sent_again() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::with_bad_cable(Duration::from_millis(2), 20) else { return };
    measure(&hosts, &["write bw -s 64K -n 20", "read bw -s 64K -n 20", "send bw -s 1,5000 -n 50", "atomic lat -n 20"]);
}

/// Other processes receive the messages of some connections, and pass them on.
#[test]
fn connections_are_made_and_end_if_messages_are_lost() {
    if !is_soft() {
        return;
    }
    let Some(hosts) = Hosts::with_bad_cable(Duration::from_millis(2), 150) else { return };
    let (mut others, cmtime) = ([0, 1].map(|host| waiting(&hosts, host)), example("cmtime"));
    let client = format!("-c 50 -s {}", Hosts::ADDRESSES[1]);
    for ended in play(on(&hosts, 1, &cmtime, "-c 50"), || on(&hosts, 0, &cmtime, &client)) {
        succeeds(&ended, &[]);
    }
    others.iter_mut().for_each(Program::kill);
}
