//! Failures, each reported in a sentence.

use std::process::Command;
use std::thread;
use std::time::Duration;

use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::connections::address;
use sideway_tests::device;
use sideway_tests::programs::{LIMIT, by_address, fails, on_this_host, port, refuses};

use super::peers::Whose::{self, Ours, Theirs};
use super::peers::{client, server};

/// Runs one of our clients that pings `host`.
#[track_caller]
fn ping(host: &str, options: &str) -> Ended {
    child::run(by_address(example("rping"), port(), &format!("-c -a {host} -C 1 {options}")), LIMIT)
}

#[test]
fn missing_server_is_an_error() {
    let address = address();
    for options in ["", "-q"] {
        fails(
            &ping(&address.to_string(), options),
            &["connecting to", &address.to_string(), "no listener on that port"],
        );
    }
    // No route leads there.
    let here = on_this_host(by_address(example("rping"), port(), "-c -a 203.0.113.1 -C 1"));
    fails(&child::run(here, LIMIT), &["203.0.113.1", "ENETUNREACH"]);
    if !device::is_soft() {
        // No RDMA device has a route there.
        fails(&ping("127.0.0.1", ""), &["127.0.0.1", "ENODEV"]);
        // There is a route, but no host at its end.
        fails(&ping("10.71.0.77", "--timeout 0.5"), &["10.71.0.77", "no reply within 500ms"]);
    }
    fails(&ping("no-such-host.invalid", ""), &["no-such-host.invalid"]);
    fails(&ping(&address.to_string(), "-I no-such-host.invalid"), &["--source: cannot resolve no-such-host.invalid"]);
    fails(&ping(&address.to_string(), "-I 192.0.2.1"), &[&address.to_string()]);
}

#[test]
fn server_without_a_port_or_a_client_is_an_error() {
    let run = |options: &str, port| child::run(server(Ours, port, options), LIMIT);
    fails(&run("-a 192.0.2.1", port()), &["binding to 192.0.2.1"]);
    for options in ["", "-P"] {
        fails(&run(&format!("--wait 0.3 {options}"), port()), &["no request within 300ms"]);
    }
    for whose in [Ours, Theirs].into_iter().filter(|whose| whose.is_here()) {
        let port = port();
        let mut first = Program::start(server(whose, port, "-P"), LIMIT);
        first.wait_for_cm_port(port);
        fails(&run("", port), &["the port is in use"]);
    }
}

#[test]
fn text_longer_than_the_servers_is_reported_by_both() {
    let run = |whose: [Whose; 2]| {
        let port = port();
        let (server, client) = (server(whose[0], port, "-S 64"), client(whose[1], port, "-C 3 -S 65"));
        child::run_both_by_cm(server, client, port, LIMIT)
    };
    let too_long = ["the client's texts have 65 bytes, above the server's limit of 64; give both sides the same -S"];
    let not_read = ["the server disconnected and did not read ping 0", "give it the same -S"];
    let [server, client] = run([Ours, Ours]);
    fails(&server, &too_long);
    fails(&client, &not_read);
    if Theirs.is_here() {
        let [server, _] = run([Ours, Theirs]);
        fails(&server, &too_long);
        let [_, client] = run([Theirs, Ours]);
        fails(&client, &not_read);
    }
}

/// The programs of both sides, which have a device.
fn are_here(whose: &[Whose; 2]) -> bool {
    whose.iter().all(|whose| whose.is_here())
}

/// A server and a client in the middle of their pings.
#[track_caller]
fn in_the_midst(whose: [Whose; 2], server_options: &str, client_options: &str) -> [Program; 2] {
    let port = port();
    let mut server = Program::start(server(whose[0], port, server_options), LIMIT);
    server.wait_for_cm_port(port);
    let mut client = Program::start(client(whose[1], port, client_options), LIMIT);
    // rdma-core's program prints into a buffer.
    if whose[1] == Ours {
        client.wait_until("ping", |client| client.said().contains("rdma-ping-10: "));
    } else {
        server.wait_until("ping", |server| server.said().contains("rdma-ping-10: "));
    }
    [server, client]
}

#[track_caller]
fn end_of(program: &mut Program) -> Ended {
    program.wait().unwrap_or_else(|| panic!("the program does not exit:\n{}", program.said()))
}

#[test]
fn peer_killed_during_the_test_is_reported() {
    for (whose, options) in [([Ours, Ours], ""), ([Theirs, Ours], ""), ([Ours, Ours], "-q")] {
        if !are_here(&whose) {
            continue;
        }
        let [mut server, mut client] = in_the_midst(whose, "-v", &format!("-v {options}"));
        server.kill();
        fails(&end_of(&mut client), &["the server disconnected and did not"]);
    }
    for whose in [[Ours, Ours], [Ours, Theirs]].into_iter().filter(are_here) {
        let [mut server, mut client] = in_the_midst(whose, "-v", "-v");
        client.kill();
        let ended = end_of(&mut server);
        // Every client that exits between two pings causes this error.
        if !ended.status.success() {
            fails(&ended, &["the client disconnected"]);
        }
    }
}

#[test]
fn stopped_peer_times_out() {
    for whose in [[Ours, Ours], [Theirs, Ours]].into_iter().filter(are_here) {
        let [mut server, mut client] = in_the_midst(whose, "-v", "-v --timeout 5");
        server.stop();
        fails(&end_of(&mut client), &["the server did not", "within 5 s (--timeout); check that it still runs"]);
    }
    for whose in [[Ours, Ours], [Ours, Theirs]].into_iter().filter(are_here) {
        let [mut server, mut client] = in_the_midst(whose, "-v --timeout 5", "-v");
        client.stop();
        fails(&end_of(&mut server), &["the client did not", "within 5 s (--timeout); check that it still runs"]);
    }
}

#[test]
fn persistent_server_outlives_clients_that_fail() {
    let port = port();
    let mut server = Program::start(server(Ours, port, "-P -S 64 --timeout 5"), LIMIT);
    server.wait_for_cm_port(port);
    let longer = child::run(client(Ours, port, "-C 1 -S 65"), LIMIT);
    fails(&longer, &["did not read ping 0"]);
    server.wait_until("report the client", |server| server.said().contains("texts have 65 bytes"));
    let mut stopped = Program::start(client(Ours, port, "-v"), LIMIT);
    stopped.wait_until("ping", |client| client.said().contains("rdma-ping-10: "));
    stopped.stop();
    server.wait_until("report the client", |server| server.said().contains("within 5 s (--timeout)"));
    let mut killed = Program::start(client(Ours, port, "-v"), LIMIT);
    killed.wait_until("ping", |client| client.said().contains("rdma-ping-10: "));
    killed.kill();
    thread::sleep(Duration::from_millis(100));
    let well = child::run(client(Ours, port, "-v -V -C 2"), LIMIT);
    assert!(well.status.success() && well.output.lines().count() == 2, "{}", well.output);
    let said = server.said();
    assert!(said.contains("failed: the client's texts"), "{said}");
    assert!(!said.contains("error: ") && !said.contains("panicked"), "{said}");
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for arguments in [
        "",
        "-c",
        "-s -c -a 10.71.0.1",
        "-s -S 22",
        "-s -S 65536",
        "-s -C -1",
        "-s -p 0",
        "-c -a 10.71.0.1 -P",
        "-s --wait x",
    ] {
        refuses("rping", arguments);
    }
    let mut help = example("rping");
    help.arg("--help");
    let Ended { status, output } = child::run(help, LIMIT);
    assert!(status.success(), "{output}");
    if !Theirs.is_here() {
        return;
    }
    let mut theirs = Command::new("rping");
    theirs.arg("-h");
    let theirs = child::run(theirs, LIMIT).output;
    // Each option that the C program documents exists in ours.
    let options: Vec<&str> =
        theirs.lines().filter_map(|line| line.trim_start().get(..2)).filter(|word| word.starts_with('-')).collect();
    assert!(options.len() >= 10, "{theirs}");
    for option in options {
        assert!(output.contains(&format!(" {option}, ")), "no {option} in:\n{output}");
    }
}
