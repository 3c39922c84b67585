//! The example `mckey` as a program, with itself and with rdma-core's.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::LazyLock;

use sideway_test_names::Port;
use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::connections::address;
use sideway_tests::device;
use sideway_tests::programs::{LIMIT, fails, refuses, succeeds};

const NAME: &str = "mckey";

/// A group that only this test uses.
fn group(last: u8) -> Ipv4Addr {
    static PORT: LazyLock<Port> = LazyLock::new(Port::reserve);
    PORT.group(last)
}

#[track_caller]
fn member(mut command: Command, group: Ipv4Addr, options: &str) -> Command {
    command.args(["-m", &group.to_string(), "-b", &address().to_string()]).args(options.split_whitespace());
    command
}

#[track_caller]
fn ours(group: Ipv4Addr, options: &str) -> Command {
    member(example(NAME), group, options)
}

fn theirs(group: Ipv4Addr, options: &str) -> Command {
    member(Command::new(NAME), group, options)
}

/// Whether this machine is in the group.
fn is_joined(group: Ipv4Addr) -> bool {
    let address = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    let table = fs::read_to_string("/proc/net/igmp").unwrap_or_default();
    table.lines().any(|line| line.split_whitespace().next() == Some(address.as_str()))
}

/// A receiver of ours that is a member of the group.
#[track_caller]
fn receiver(group: Ipv4Addr, options: &str) -> Program {
    let mut receiver = Program::start(ours(group, options), LIMIT);
    receiver.wait_until("receive", |receiver| receiver.said().contains("receiving"));
    receiver
}

#[track_caller]
fn end(mut program: Program) -> Ended {
    program.wait().unwrap_or_else(|| panic!("the program does not exit:\n{}", program.said()))
}

#[test]
fn all_receivers_get_what_a_sender_sends() {
    let joined = format!("joined ::ffff:{} over ", group(1));
    let mut rounds = 0;
    for (options, sender, count, size) in
        [("", "", 10, 100), ("-C 1000 -S 1k", "-o", 1000, 1024), ("-C 1 -S 1 -c 3", "-p 0x111", 1, 1)]
    {
        let receivers = [receiver(group(1), options), receiver(group(1), options)];
        let sender = format!("-s {sender} -C {count} -S {size} --delay 0");
        let sent = child::run(ours(group(1), &sender), LIMIT);
        succeeds(&sent, &[&joined, &format!("{count} messages of {size} bytes sent")]);
        for receiver in receivers {
            let ended = end(receiver);
            succeeds(&ended, &[&joined, &format!("{count} of {count} messages: {count} from 0x")]);
            let members = if options.contains("-c 3") { 3 } else { 1 };
            assert_eq!(ended.output.matches("joined").count(), members, "{}", ended.output);
            assert_eq!(ended.output.matches(" of ").count(), members, "{}", ended.output);
        }
        rounds += 1;
    }
    assert_eq!(rounds, 3);
}

#[test]
fn messages_of_several_senders_are_distinguished() {
    let receiver = receiver(group(2), "-C 12");
    // Two queue pairs of three messages each, and one of six.
    for options in ["-c 2 -C 3", "-C 6"] {
        let sent = child::run(ours(group(2), &format!("-s --delay 0 {options}")), LIMIT);
        succeeds(&sent, &["messages of 100 bytes sent"]);
    }
    let ended = end(receiver);
    succeeds(&ended, &["12 of 12 messages: "]);
    for (words, times) in [("3 from 0x", 2), ("6 from 0x", 1)] {
        assert_eq!(ended.output.matches(words).count(), times, "{}", ended.output);
    }
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn example_interoperates_with_the_c_program() {
    // rdma-core's program sends three seconds after it has joined.
    for (ours, options) in [("", ""), ("-c 2", "-o -C 3 -S 64")] {
        let count = if options.is_empty() { 10 } else { 3 };
        let receiver = receiver(group(3), &format!("{ours} {}", options.replace("-o", "")));
        let sent = child::run(theirs(group(3), &format!("-s {options}")), LIMIT);
        succeeds(&sent, &["return status 0"]);
        let ended = end(receiver);
        succeeds(&ended, &[&format!("{count} of {count} messages: {count} from 0x")]);
    }
    for (options, sender) in [("", ""), ("-c 2 -C 3 -S 64", "-o -C 3 -S 64")] {
        let mut receiver = Program::start(theirs(group(4), options), LIMIT);
        receiver.wait_until("join", |_| is_joined(group(4)));
        // The program joins a moment later.
        let sent = child::run(ours(group(4), &format!("-s --delay 2 {sender}")), LIMIT);
        succeeds(&sent, &["bytes sent"]);
        succeeds(&end(receiver), &["return status 0"]);
    }
}

#[test]
fn missing_messages_are_reported() {
    // The sender uses another group.
    let waits = receiver(group(5), "--timeout 4");
    succeeds(&child::run(ours(group(6), "-s --delay 0"), LIMIT), &["10 messages of 100 bytes sent"]);
    fails(&end(waits), &["no message arrived within 4 s"]);
    // The sender sends fewer messages than requested.
    let waits = receiver(group(5), "-c 2 -C 10 --silence 5");
    succeeds(&child::run(ours(group(5), "-s -C 7 --delay 0"), LIMIT), &["7 messages of 100 bytes sent"]);
    let ended = end(waits);
    fails(&ended, &["6 of 20 messages are missing 5 s after the last"]);
    assert_eq!(ended.output.matches("7 of 10 messages: 7 from 0x").count(), 2, "{}", ended.output);
    // The sender uses another size.
    let waits = receiver(group(5), "-S 200");
    succeeds(&child::run(ours(group(5), "-s --delay 0"), LIMIT), &["10 messages"]);
    fails(&end(waits), &["a message of 100 bytes arrived, expected 200", "-S"]);
}

#[test]
fn killed_peer_does_not_harm_others() {
    // The sender is killed before its first message, so the receiver receives nothing.
    let waits = receiver(group(7), "--timeout 3");
    let mut sender = Program::start(ours(group(7), "-s --delay 100"), LIMIT);
    sender.wait_until("join", |sender| sender.said().contains("sending in 100 s"));
    sender.kill();
    fails(&end(waits), &["no message arrived within 3 s"]);
    // One of two receivers is killed.
    let [stays, mut goes] = [receiver(group(7), "--timeout 60"), receiver(group(7), "--timeout 60")];
    goes.kill();
    succeeds(&child::run(ours(group(7), "-s --delay 0"), LIMIT), &["10 messages"]);
    succeeds(&end(stays), &["10 of 10 messages"]);
}

#[test]
fn failed_join_is_an_error_in_a_sentence() {
    let run = |arguments: &str| {
        let mut command = example(NAME);
        command.args(arguments.split_whitespace());
        child::run(command, LIMIT)
    };
    let source = address();
    fails(&run(&format!("-m 192.0.2.1 -b {source}")), &["192.0.2.1 is not a multicast address"]);
    // The soft device has every address, and so a route to any group.
    if !device::is_soft() {
        fails(&run("-m 239.1.1.1"), &["give the local address with -b", "no route there"]);
        fails(&run("-m 239.1.1.1 -b 127.0.0.1"), &["no device has a route to the group"]);
    }
    fails(&run(&format!("-m 239.1.1.1 -b {source} -s -l")), &["does not support --no-loopback"]);
    fails(&run("-m 239.1.1.1 -b 192.0.2.99"), &["EADDRNOTAVAIL", "192.0.2.99"]);
    fails(&run(&format!("-m 239.1.1.1 -b {source} -S 9000")), &["a datagram is one packet", "--size"]);
    fails(&run(&format!("-m ff0e::1 -b {source}")), &["ff0e::1"]);
    fails(&run(&format!("-m 239.1.1.1 -b {source} -p ipoib")), &["rdma_bind_addr", "EINVAL"]);
    fails(&run("-m no.such.host.invalid"), &["--multicast: cannot resolve no.such.host.invalid"]);
    for arguments in ["", "-m 239.1.1.1 -o", "-m 239.1.1.1 -c 0", "-m 239.1.1.1 -C 0", "-m 239.1.1.1 -M ff0e::1", "x"] {
        refuses(NAME, arguments);
    }
}
