//! Tests `rdsend` and `rdrecv`.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Place, Ran, break_connections, bytes, may_not_run, port, proxy};

/// Runs both sides of a stream.
fn transfer(place: &Place, input: &[u8], more: &[&str]) -> (Ran, Ran) {
    let port = port().to_string();
    let mut receiver = place.command("rdrecv", more.iter().copied().chain([port.as_str(), "key"])).spawn().unwrap();
    std::thread::scope(|scope| {
        let received = scope.spawn(|| Ran::from(&mut receiver, b""));
        let sent = place.run_with(input, "rdsend", more.iter().copied().chain(["-v", "127.0.0.1", &port, "key"]));
        (sent, received.join().unwrap())
    })
}

#[test]
fn pipe_to_pipe_arrives_with_its_bandwidth() {
    for place in [Place::new(), Place::with_tcp()] {
        for input in ["hi\n".to_owned(), "line\n".repeat(700_000)] {
            let (sent, received) = transfer(&place, input.as_bytes(), &[]);
            assert!(received.status == 0 && received.out == input, "{} {}", received.status, received.err);
            let sent = sent.expect(0);
            let rate = sent
                .err
                .trim()
                .lines()
                .last()
                .unwrap()
                .strip_prefix("Bandwidth ")
                .and_then(|rest| rest.strip_suffix(" GB/s"));
            assert!(
                rate.is_some_and(|rate| rate.split_once('.').is_some_and(|(_, digits)| digits.len() == 3)),
                "{}",
                sent.err
            );
        }
    }
}

#[test]
fn sender_may_start_before_the_receiver() {
    let place = Place::new();
    let port = port().to_string();
    let mut sender = place.command("rdsend", ["127.0.0.1", &port, "key"]).stdin(Stdio::piped()).spawn().unwrap();
    let sent = std::thread::spawn(move || Ran::from(&mut sender, b"early"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(place.run("rdrecv", [&port, "key"]).expect(0).out, "early");
    sent.join().unwrap().expect(0);
}

#[test]
fn file_operands_keep_their_bytes() {
    let place = Place::new();
    let data = bytes(3_000_001);
    place.write("in", &data);
    let port = port().to_string();
    let mut receiver = place.command("rdrecv", [port.as_str(), "key", "out"]).spawn().unwrap();
    place.run("rdsend", ["127.0.0.1", &port, "key", "in"]).expect(0);
    Ran::from(&mut receiver, b"").expect(0);
    assert!(place.read("out") == data);
    assert_eq!(place.names("."), ["bin", "in", "out"]);
}

#[test]
fn wrong_key_exits_with_20_and_the_receiver_keeps_waiting() {
    let place = Place::new();
    let port = port().to_string();
    let mut receiver = place.command("rdrecv", [port.as_str(), "key"]).spawn().unwrap();
    place.run_with(b"secret", "rdsend", ["127.0.0.1", &port, "other"]).expect(20);
    place.run_with(b"open", "rdsend", ["127.0.0.1", &port, "key"]).expect(0);
    assert_eq!(Ran::from(&mut receiver, b"").expect(0).out, "open");
}

#[test]
fn key_of_the_input_leaves_the_stream_whole() {
    let place = Place::new();
    let data = "a line of text\n".repeat(7000);
    let port = port().to_string();
    let input = place.write("in", format!("key\n{data}"));
    let mut receiver = place.command("rdrecv", [&port, "key"]).spawn().unwrap();
    let input = std::fs::File::open(input).unwrap();
    let mut sender = place.command("rdsend", ["127.0.0.1", &port, "-"]).stdin(input).spawn().unwrap();
    let received = Ran::from(&mut receiver, b"").expect(0);
    Ran::from(&mut sender, b"").expect(0);
    assert!(received.out == data, "{}", received.out.len());
}

#[test]
fn receiver_that_encrypts_refuses_data_in_clear() {
    let place = Place::new();
    let port = port().to_string();
    let mut receiver = place.command("rdrecv", ["--encrypt", &port, "key"]).spawn().unwrap();
    let sent = place.run_with(b"open", "rdsend", ["--no-encrypt", "127.0.0.1", &port, "key"]).expect(12);
    assert!(sent.err.contains("start it with --encrypt"), "{}", sent.err);
    assert_eq!(Ran::from(&mut receiver, b"").expect(12).out, "");
}

#[test]
fn statuses_follow_the_table() {
    let place = Place::with_tcp();
    place.run("rdsend", ["-v", "host", "1"]).expect(1);
    place.run("rdsend", ["--nonsense"]).expect(1);
    place.run("rdsend", ["--help"]).expect(0);
    place.run("rdsend", ["127.0.0.1", "1", "key", "missing"]).expect(200);
    place.run("rdrecv", ["--rdma", "0", "key"]).expect(101);
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    place.run("rdrecv", [&taken.local_addr().unwrap().port().to_string(), "key"]).expect(1);
    let unreachable = place.run("rdsend", ["127.0.0.1", &port().to_string(), "key"]).expect(199);
    assert!(unreachable.err.contains("check that the receiver runs there"), "{}", unreachable.err);
}

/// No time limit is so long that it cannot be added to the time of now.
#[test]
fn timeouts_out_of_range_are_refused() {
    let place = Place::with_tcp();
    place.write("file", "data");
    let copy = place.on_host("copy");
    for timeout in ["18446744073709551615", "86401", "0", "-1", "soon"] {
        let option = format!("--timeout={timeout}");
        for (program, operands) in [
            ("rdsend", &["127.0.0.1", "1", "key"][..]),
            ("rdrecv", &["0", "key"]),
            ("rdcp", &["file", &copy]),
            ("rdpipe", &["cat"]),
        ] {
            let ran = place.run(program, [option.as_str()].iter().chain(operands)).expect(1);
            assert!(ran.err.contains("--timeout <SECONDS>"), "{program} {timeout}: {}", ran.err);
        }
    }
    place.run("rdcp", ["--timeout", "86400", "file", &copy]).expect(0);
    let (sent, received) = transfer(&place, b"data", &["--timeout", "86400"]);
    assert_eq!((sent.status, received.status, received.out.as_str()), (0, 0, "data"));
    // A far side serves requests of any starter.
    let copy = place.path("served").display().to_string();
    let rsh = place.write("rsh", "#!/bin/sh\nexport SSH_CONNECTION=\"1 1 127.0.0.1 22\"\nsed -u '1s/\"timeout\":86400/\"timeout\":18446744073709551615/' | rdcp --server\n");
    std::fs::set_permissions(rsh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    place.run("rdcp", ["-e", "./rsh", "--timeout", "86400", "file", &format!("h:{copy}")]).expect(0);
    assert_eq!(place.read("served"), b"data");
}

/// What would fail at the end of a transfer fails before it.
#[test]
fn files_get_names_where_proc_is_missing_and_at_any_length() {
    let place = Place::with_tcp();
    let longest = "n".repeat(255);
    let port = port().to_string();
    let ran = place.run("rdrecv", [port.as_str(), "key", &"n".repeat(256)]).expect(200);
    assert!(ran.err.contains(": file name too long"), "{}", ran.err);
    for name in [longest.as_str(), &longest[..243], "short"] {
        let mut receiver = place.command("rdrecv", [port.as_str(), "key", name]).spawn().unwrap();
        place.run_with(b"data", "rdsend", ["127.0.0.1", &port, "key"]).expect(0);
        Ran::from(&mut receiver, b"").expect(0);
        assert_eq!(place.read(name), b"data");
        std::fs::remove_file(place.path(name)).unwrap();
    }
    // The processes of this namespace see an empty folder in the place of /proc.
    let hidden = "unshare --user --map-root-user --mount sh -c";
    if place.shell(&format!("{hidden} 'mount -t tmpfs none /proc'")).status != 0 {
        may_not_run("no mounts in a user namespace here");
        return;
    }
    for name in [longest.as_str(), "short"] {
        let line = format!(
            "{hidden} 'mount -t tmpfs none /proc; rdrecv {port} key {name} & \
            printf data | rdsend 127.0.0.1 {port} key && wait $!'"
        );
        place.shell(&line).expect(0);
        assert_eq!(place.read(name), b"data");
    }
    let mut names = place.names(".");
    names.retain(|name| name != "bin");
    assert_eq!(names, [longest, "short".to_owned()]);
}

#[test]
#[cfg(debug_assertions)]
fn corruption_on_the_wire_exits_with_12_on_both_sides() {
    for place in [Place::new(), Place::with_tcp()] {
        for fault in ["flip:0", "drop:1", "swap:1"] {
            let port = port().to_string();
            let mut receiver = place.command("rdrecv", [port.as_str(), "key", "out"]).spawn().unwrap();
            let sender = ["--fault", fault, "127.0.0.1", &port, "key"];
            let sent = place.run_with(&bytes(4_000_000), "rdsend", sender).expect(12);
            assert!(sent.err.contains("altered"), "{}", sent.err);
            Ran::from(&mut receiver, b"").expect(12);
            assert_eq!(place.names("."), ["bin"], "{fault}");
        }
    }
}

#[test]
fn pages_and_completions_come_from_the_command_line() {
    let place = Place::new();
    for program in ["rdcp", "rdsend", "rdrecv", "rdpipe"] {
        assert!(place.run(program, ["--generate", "man"]).expect(0).out.contains(".TH"));
        for shell in ["bash", "zsh", "fish"] {
            assert!(place.run(program, ["--generate", shell]).expect(0).out.contains(program));
        }
    }
}

/// Cuts the connection at several moments, from a pipe to a pipe and from a file to a file.
#[test]
fn stream_continues_over_another_connection() {
    let place = Place::with_tcp();
    let data = bytes(20_000_000);
    place.write("in", &data);
    for (seed, is_file) in [(1_u64, false), (2, true), (3, false), (4, true)] {
        let to = port();
        // The first cut is within the handshake, the last within the answer to the end of the stream.
        let cuts =
            vec![200 * seed, 1_000_000 * seed + 77, 3_000_000, 1000 * seed, 9_000_000, 4_000_000 * seed % 7_000_000];
        let (port, cut) = proxy(to, cuts);
        let (to, port) = (to.to_string(), port.to_string());
        let out = std::fs::File::create(place.path("out")).unwrap();
        let receiving = if is_file { vec![to.as_str(), "key", "out"] } else { vec![to.as_str(), "key"] };
        let mut receiver = place.command("rdrecv", receiving).stdout(out).spawn().unwrap();
        let sending = ["-vv", "127.0.0.1", &port, "key", "in"];
        let input = if is_file { &[] } else { data.as_slice() };
        let sent = place.run_with(input, "rdsend", &sending[..if is_file { 5 } else { 4 }]).expect(0);
        assert!(receiver.wait().unwrap().success());
        assert!(place.read("out") == data);
        assert!(cut.load(std::sync::atomic::Ordering::SeqCst) >= 4, "{}", sent.err);
        assert!(sent.err.contains("connecting again"), "{}", sent.err);
    }
}

/// Breaks the connection repeatedly while there is nothing to send.
#[test]
fn idle_stream_continues_after_any_number_of_breaks() {
    let place = Place::with_tcp();
    let port = port().to_string();
    let mut receiver = place.command("rdrecv", [port.as_str(), "key", "out"]).spawn().unwrap();
    let (input, mut writer) = std::io::pipe().unwrap();
    let sender = place.command("rdsend", ["-vv", "127.0.0.1", &port, "key"]).stdin(input).spawn().unwrap();
    writer.write_all(b"first ").unwrap();
    let pid = rustix::process::Pid::from_raw(receiver.id() as i32).unwrap();
    for _ in 0..10 {
        // A connection that breaks before the receiver has answered counts, so the test lets it answer.
        std::thread::sleep(Duration::from_millis(200));
        while break_connections(pid) == 0 {
            assert!(receiver.try_wait().unwrap().is_none(), "the receiver ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    writer.write_all(b"last").unwrap();
    drop(writer);
    let ended = sender.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && receiver.wait().unwrap().success(), "{said}");
    assert_eq!(place.read("out"), b"first last");
    assert!(said.matches("connecting again").count() >= 6, "{said}");
}
