//! Successful pings.

use std::process::Command;

use sideway_tests::child::{self, Ended, Program, example};
use sideway_tests::connections::address;
use sideway_tests::device;
use sideway_tests::programs::{LIMIT, by_address, port};

/// rdma-core's program prints this on standard error on success.
const WELL: [&str; 3] =
    ["client DISCONNECT EVENT...\n", "server DISCONNECT EVENT...\n", "wait for RDMA_READ_ADV state 10\n"];

/// The origin of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    Theirs,
}

use Whose::{Ours, Theirs};

impl Whose {
    /// Whether the program has a device: rdma-core's has no soft device.
    pub(crate) fn is_here(self) -> bool {
        self == Ours || !device::is_soft()
    }

    fn program(self) -> Command {
        match self {
            Ours => example("rping"),
            Theirs => Command::new("rping"),
        }
    }
}

pub(crate) fn server(whose: Whose, port: u16, options: &str) -> Command {
    by_address(whose.program(), port, &format!("-s {options}"))
}

pub(crate) fn client(whose: Whose, port: u16, options: &str) -> Command {
    by_address(whose.program(), port, &format!("-c -a {} {options}", address()))
}

/// The output of a program that must succeed, without the usual messages of rdma-core's program.
#[track_caller]
fn pings(ended: &Ended) -> Vec<String> {
    assert!(ended.status.success(), "{}\n{}", ended.status, ended.output);
    // Standard output and standard error may interleave anywhere, because standard output is buffered.
    let output = WELL.iter().fold(ended.output.clone(), |output, line| output.replace(line, ""));
    output.lines().map(str::to_owned).collect()
}

/// The output of the server and the client.
#[track_caller]
fn play(whose: [Whose; 2], server_options: &str, client_options: &str) -> [Vec<String>; 2] {
    let port = port();
    let (server, client) = (server(whose[0], port, server_options), client(whose[1], port, client_options));
    child::run_both_by_cm(server, client, port, LIMIT).each_ref().map(pings)
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn both_sides_print_what_the_c_program_prints() {
    let mut lines = 0;
    for size in [23, 64, 4096, 65535] {
        let server = format!("-v -V -S {size}");
        let client = format!("-v -V -C 5 -S {size}");
        let expected = play([Theirs, Theirs], &server, &client);
        for whose in [[Ours, Ours], [Theirs, Ours], [Ours, Theirs]] {
            // The message leaves out the texts, which are long.
            assert!(play(whose, &server, &client) == expected, "{whose:?} with {size} bytes");
        }
        for said in expected {
            assert_eq!(said.len(), 5, "{said:?}");
            for line in said {
                let text = line.split_once("ping data: ").map_or("", |(_, text)| text);
                // The zero byte is not printed.
                assert_eq!(text.len(), size - 1, "{line}");
                lines += 1;
            }
        }
    }
    assert_eq!(lines, 40);
}

#[test]
#[ignore = "runs a program of rdma-core, which finds no soft device: cargo xtask softroce"]
fn rping_text_cycles_like_the_c_programs() {
    // More pings than there are letters, and numbers of one, two and three digits.
    let expected = play([Theirs, Theirs], "-v -S 100", "-v -V -C 120 -S 80");
    assert_eq!(expected.each_ref().map(Vec::len), [120, 120]);
    for whose in [[Ours, Ours], [Theirs, Ours], [Ours, Theirs]] {
        assert_eq!(play(whose, "-v -V -S 100", "-v -V -C 120 -S 80"), expected, "{whose:?}");
    }
}

#[test]
fn programs_own_queue_pairs_work_as_well() {
    let mut games = 0;
    for (whose, server, client) in [
        ([Ours, Ours], "-q", "-q"),
        ([Ours, Ours], "-q", ""),
        ([Ours, Ours], "", "-q"),
        ([Theirs, Ours], "-q", "-q"),
        ([Theirs, Ours], "", "-q"),
        ([Ours, Theirs], "-q", "-q"),
        ([Ours, Theirs], "-q", ""),
    ] {
        if !whose.into_iter().all(Whose::is_here) {
            continue;
        }
        let [served, pinged] = play(whose, &format!("-v {server}"), &format!("-v -V -C 3 {client}"));
        assert_eq!((served.len(), pinged.len()), (3, 3), "{whose:?} {server} {client}");
        games += 1;
    }
    assert_eq!(games, if Theirs.is_here() { 7 } else { 3 });
}

#[test]
fn rping_prints_nothing_without_v_and_each_step_with_d() {
    assert_eq!(play([Ours, Ours], "", "-C 2").each_ref().map(Vec::len), [0, 0]);
    let [served, pinged] = play([Ours, Ours], "-d", "-d -C 2");
    for (said, steps) in [
        (
            served,
            ["listening at ", "requests a connection", "ping 1: the client offers 64 bytes at 0x", "pings served: 2"],
        ),
        (
            pinged,
            ["the path to ", "the connection is established", "ping 1: offering 64 bytes at 0x", "ping 1: came back"],
        ),
    ] {
        for step in steps {
            assert!(said.iter().any(|line| line.contains(step)), "no `{step}` in {said:#?}");
        }
    }
}

#[test]
fn addresses_of_either_side_may_be_given() {
    let address = address();
    let [served, pinged] = play([Ours, Ours], &format!("-a {address} -v"), &format!("-I {address} -v -C 1"));
    assert_eq!((served.len(), pinged.len()), (1, 1));
    // The server listens at all addresses of either family.
    let [served, _] = play([Ours, Ours], "-a :: -v", "-C 1");
    assert_eq!(served.len(), 1);
}

#[test]
fn persistent_server_serves_client_after_client() {
    let mut served = 0;
    for (whose, clients) in [
        (Ours, [(Theirs, ""), (Ours, ""), (Ours, "-q"), (Theirs, "-q")]),
        (Theirs, [(Ours, ""), (Ours, ""), (Ours, "-q"), (Ours, "")]),
    ] {
        if !whose.is_here() {
            continue;
        }
        let port = port();
        let mut server = Program::start(server(whose, port, "-P -v -V"), LIMIT);
        server.wait_for_cm_port(port);
        for (whose, options) in clients {
            let whose = if whose.is_here() { whose } else { Ours };
            let options = format!("-v -V -C 3 {options}");
            let said = pings(&child::run(client(whose, port, &options), LIMIT));
            assert_eq!(said.len(), 3, "{said:?}");
            served += 1;
        }
        if whose == Ours {
            server.wait_until("print all pings", |server| server.said().lines().count() >= 12);
            let said = server.said();
            assert!(said.lines().all(|line| line.starts_with("server ping data: rdma-ping-")), "{said}");
        }
        server.kill();
    }
    assert_eq!(served, if Theirs.is_here() { 8 } else { 4 });
}

#[test]
fn persistent_server_serves_several_at_once() {
    let port = port();
    let mut server = Program::start(server(Ours, port, "-P"), LIMIT);
    server.wait_for_cm_port(port);
    // A connected but silent client does not delay the others.
    let mut stopped = Program::start(client(Ours, port, "-d"), LIMIT);
    stopped.wait_until("ping", |client| client.said().contains("ping 10: came back"));
    stopped.stop();
    let mut clients: Vec<Program> = (0..5).map(|_| Program::start(client(Ours, port, "-v -V -C 20"), LIMIT)).collect();
    for client in &mut clients {
        let ended = client.wait().unwrap_or_else(|| panic!("the program does not exit:\n{}", client.said()));
        assert_eq!(pings(&ended).len(), 20);
    }
    assert_eq!(clients.len(), 5);
}
