//! Tests that faults of earlier tools do not occur, and tests the exit statuses of `rdcp`. `docs/safety.md` numbers the
//! faults.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdma_pipe::link::{Listener, Options, Patience, connect};
use rdma_pipe::proto::{Peer, Purpose};

use crate::common::{Place, Ran, bytes, may_not_run, port};

/// 4: both sides report a full disk.
#[test]
fn full_disk_fails_both_sides() {
    let place = Place::new();
    let port = port().to_string();
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut receiver = place.command("rdrecv", [&port, "key"]).stdout(full).spawn().unwrap();
    receiver.stdout = Some(tempty());
    let sent = place.run_with(&bytes(9_000_000), "rdsend", ["127.0.0.1", &port, "key"]).expect(200);
    assert!(sent.err.contains("the peer failed: cannot write") && sent.err.contains("no space left"), "{}", sent.err);
    Ran::from(&mut receiver, b"").expect(200);
    place.write("file", bytes(9_000_000));
    let ran = place.run("rdcp", ["file", "h:/dev/full"]).expect(23);
    assert!(ran.err.contains("no space left"), "{}", ran.err);
}

/// Returns the reading end of an empty pipe whose writing end is closed, to be used as input.
fn tempty() -> std::process::ChildStdout {
    let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    child.wait().unwrap();
    child.stdout.take().unwrap()
}

/// 5: a directory as input causes an error; it is not treated as an empty file.
#[test]
fn directory_as_input_is_refused() {
    let place = Place::new();
    let input = std::fs::File::open(place.path("bin")).unwrap();
    let mut sender = place.command("rdsend", ["127.0.0.1", "1", "key"]).stdin(input).spawn().unwrap();
    assert!(Ran::from(&mut sender, b"").expect(200).err.contains("is a directory"));
}

/// 6: the peer of a killed process exits.
#[test]
fn killed_peer_ends_the_transfer() {
    for place in [Place::new(), Place::with_tcp()] {
        for kills_sender in [true, false] {
            let port = port().to_string();
            let mut receiver = place.command("rdrecv", [&port, "key"]).spawn().unwrap();
            let mut sender =
                place.command("rdsend", ["127.0.0.1", &port, "key"]).stdin(Stdio::piped()).spawn().unwrap();
            let mut input = sender.stdin.take().unwrap();
            std::io::Write::write_all(&mut input, b"begin").unwrap();
            let mut begin = [0; 5];
            std::io::Read::read_exact(receiver.stdout.as_mut().unwrap(), &mut begin).unwrap();
            let (killed, left) = if kills_sender { (&mut sender, &mut receiver) } else { (&mut receiver, &mut sender) };
            killed.kill().unwrap();
            killed.wait().unwrap();
            // The sender must exit although its input is idle.
            Ran::from(left, b"").expect(12);
            drop(input);
        }
    }
}

/// 6: a receiver whose output blocks also exits, whether or not all data has arrived.
#[test]
fn killed_sender_ends_a_receiver_whose_output_blocks() {
    for place in [Place::new(), Place::with_tcp()] {
        for length in [16 << 20, 3 << 20] {
            let port = port().to_string();
            let mut receiver = place.command("rdrecv", [&port, "key"]).spawn().unwrap();
            let file = std::fs::File::open(place.write("file", bytes(length))).unwrap();
            let mut sender = place.command("rdsend", ["127.0.0.1", &port, "key"]).stdin(file).spawn().unwrap();
            // Waits until the pipe is full: nothing reads from it, so the next write blocks.
            let output = receiver.stdout.take().unwrap();
            while rustix::io::ioctl_fionread(&output).unwrap() < 1 << 20 {
                std::thread::sleep(Duration::from_millis(1));
            }
            sender.kill().unwrap();
            sender.wait().unwrap();
            receiver.stdout = Some(tempty());
            Ran::from(&mut receiver, b"").expect(12);
            drop(output);
        }
    }
}

/// A stopped process is treated as a silent peer, even if this side must first send it a failure.
#[test]
fn peer_of_a_stopped_process_exits_with_30() {
    for place in [Place::new(), Place::with_tcp()] {
        for stops_sender in [true, false] {
            let port = port().to_string();
            let mut receiver = place.command("rdrecv", ["--timeout", "1", &port, "key"]).spawn().unwrap();
            let mut sender = place
                .command("rdsend", ["--timeout", "1", "127.0.0.1", &port, "key"])
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = sender.stdin.take().unwrap();
            std::io::Write::write_all(&mut input, b"begin").unwrap();
            let mut begin = [0; 5];
            std::io::Read::read_exact(receiver.stdout.as_mut().unwrap(), &mut begin).unwrap();
            let (stopped, left) =
                if stops_sender { (&mut sender, &mut receiver) } else { (&mut receiver, &mut sender) };
            let signal = |name: &str| {
                assert!(Command::new("kill").args([name, &stopped.id().to_string()]).status().unwrap().success())
            };
            signal("-STOP");
            let ran = Ran::from(left, b"");
            stopped.kill().unwrap();
            stopped.wait().unwrap();
            ran.expect(30);
            drop(input);
        }
    }
}

/// What stops both sides, such as Ctrl-Z or the host of a virtual machine, does not make one silent for the other.
#[test]
fn both_sides_that_were_stopped_continue() {
    for place in [Place::new(), Place::with_tcp()] {
        let port = port().to_string();
        let mut receiver = place.command("rdrecv", ["--timeout", "1", &port, "key"]).spawn().unwrap();
        let words = ["--timeout", "1", "127.0.0.1", &port, "key"];
        let mut sender = place.command("rdsend", words).stdin(Stdio::piped()).spawn().unwrap();
        let mut begin = [0; 5];
        std::io::Write::write_all(sender.stdin.as_mut().unwrap(), b"begin").unwrap();
        std::io::Read::read_exact(receiver.stdout.as_mut().unwrap(), &mut begin).unwrap();
        let words = ["--timeout", "1", "printf begin; sleep 4; printf end", "h:cat"];
        let mut pipe = place.command("rdpipe", words).spawn().unwrap();
        std::io::Read::read_exact(pipe.stdout.as_mut().unwrap(), &mut begin).unwrap();
        let mut all = vec![pipe.id().to_string(), receiver.id().to_string(), sender.id().to_string()];
        let started = place.shell(&format!("pgrep -P {}", pipe.id())).expect(0);
        all.extend(started.out.lines().map(str::to_owned));
        all.push(place.far_side("h").unwrap().as_raw_nonzero().to_string());
        let signal = |name| assert!(Command::new("kill").arg(name).args(&all).status().unwrap().success());
        for _ in 0..2 {
            signal("-STOP");
            std::thread::sleep(Duration::from_millis(2_500));
            signal("-CONT");
        }
        Ran::from(&mut sender, b"end").expect(0);
        assert_eq!(Ran::from(&mut receiver, b"").expect(0).out, "end");
        assert_eq!(Ran::from(&mut pipe, b"").expect(0).out, "end");
    }
}

/// If no process reads the output for longer than the time-out, the transfer only pauses.
#[test]
fn output_that_pauses_longer_than_the_timeout_gets_everything() {
    for place in [Place::new(), Place::with_tcp()] {
        let data = "a line of text\n".repeat(2_000_000);
        let port = port().to_string();
        let mut receiver = place.command("rdrecv", ["--timeout", "5", &port, "key"]).spawn().unwrap();
        std::thread::scope(|scope| {
            let sent = scope
                .spawn(|| place.run_with(data.as_bytes(), "rdsend", ["--timeout", "5", "127.0.0.1", &port, "key"]));
            std::thread::sleep(Duration::from_secs(8));
            let received = Ran::from(&mut receiver, b"").expect(0);
            sent.join().unwrap().expect(0);
            assert!(received.out == data, "{}", received.out.len());
        });
    }
}

/// 7: a copy with a missing source, with a directory but without -r, or with a directory as its target fails with a
/// reason and leaves the target unchanged.
#[test]
fn impossible_copies_end_and_touch_nothing() {
    let place = Place::new();
    place.write("kept", "old");
    place.write("dir/x", "1");
    for (arguments, reason) in [
        (["missing", &place.on_host("kept")], "no such file"),
        ([&place.on_host("missing"), "kept"], "no such file"),
        (["dir", &place.on_host("kept")], "copy it with -r"),
        ([&place.on_host("dir"), "kept"], "copy it with -r"),
        (["kept", &place.on_host("no/such/folder")], "no such file"),
    ] {
        let ran = place.run("rdcp", arguments).expect(23);
        assert!(ran.err.contains(reason), "{arguments:?}: {}", ran.err);
        assert_eq!(place.read("kept"), b"old");
    }
    place.run("rdcp", ["-r", "dir", &place.on_host("kept")]).expect(23);
    assert_eq!(place.read("kept"), b"old");
    // Copies a file into a directory, as cp does.
    place.run("rdcp", ["kept", &place.on_host("dir")]).expect(0);
    assert_eq!(place.read("dir/kept"), b"old");
}

/// Several sources with the same name would become one file.
#[test]
fn sources_of_one_name_are_refused() {
    let place = Place::new();
    for name in ["a/f", "b/f", "dir/kept"] {
        place.write(name, name);
    }
    let ran = place.run("rdcp", ["a/f", "b/f", &place.on_host("dir")]).expect(1);
    assert!(ran.err.contains("several sources have the name f"), "{}", ran.err);
    let ran = place.run("rdcp", ["-r", &place.on_host("a/f"), &place.on_host("b/f"), "dir"]).expect(1);
    assert!(ran.err.contains("several sources have the name f"), "{}", ran.err);
    // The contents of two sources would be mixed.
    for [left, right] in [["a/", "b/"], ["a/", "b/f"]] {
        let ran = place.run("rdcp", ["-r", "--sync", left, right, &place.on_host("dir")]).expect(1);
        assert!(ran.err.contains("several sources have the name f"), "{}", ran.err);
        let [left, right] = [left, right].map(|name| place.on_host(name));
        let ran = place.run("rdcp", ["-r", "--sync", &left, &right, "dir"]).expect(1);
        assert!(ran.err.contains("several sources have the name f"), "{}", ran.err);
    }
    assert_eq!(place.names("dir"), ["kept"]);
    place.write("b/g", "other");
    std::fs::remove_file(place.path("b/f")).unwrap();
    place.run("rdcp", ["-r", "--sync", "a/", "b/", &place.on_host("dir")]).expect(0);
    assert_eq!(place.names("dir"), ["f", "g", "kept"]);
}

/// 8: the remote shell cannot interpret a host name as an option.
#[test]
fn host_that_looks_like_an_option_is_refused() {
    let place = Place::new();
    place.write("file", "x");
    let ran = place.run("rdcp", ["--", "-oProxyCommand=touch pwned:file", "copy"]).expect(1);
    assert!(ran.err.contains("not a valid host name"), "{}", ran.err);
    assert!(!place.path("pwned").exists());
}

/// 9: output is written from the file's current position, and earlier data is kept.
#[test]
fn output_is_written_where_it_stands() {
    let place = Place::new();
    let port = port().to_string();
    let mut file = std::fs::File::create(place.path("out")).unwrap();
    std::io::Write::write_all(&mut file, b"head ").unwrap();
    let mut receiver = place.command("rdrecv", [&port, "key"]).stdout(file).spawn().unwrap();
    receiver.stdout = Some(tempty());
    place.run_with(b"tail", "rdsend", ["127.0.0.1", &port, "key"]).expect(0);
    Ran::from(&mut receiver, b"").expect(0);
    assert_eq!(place.read("out"), b"head tail");
}

/// 11: peers without the key, and programs of another protocol, do not end the receiver.
#[test]
fn other_programs_do_not_end_the_receiver() {
    let place = Place::with_tcp();
    let port = port();
    let mut receiver = place.command("rdrecv", [&port.to_string(), "key"]).spawn().unwrap();
    let connect = || {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match std::net::TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => return stream,
                Err(_) => assert!(Instant::now() < until),
            }
        }
    };
    let silent = connect();
    let mut loud = connect();
    std::io::Write::write_all(&mut loud, &[0xff; 4096]).unwrap();
    drop(loud);
    place.run_with(b"data", "rdsend", ["127.0.0.1", &port.to_string(), "key"]).expect(0);
    assert_eq!(Ran::from(&mut receiver, b"").expect(0).out, "data");
    drop(silent);
}

/// Peers that connect and send nothing do not block the sender.
#[test]
fn silent_peers_do_not_keep_the_sender_out() {
    let place = Place::with_tcp();
    let port = port();
    let mut receiver = place.command("rdrecv", ["--tcp", &port.to_string(), "key"]).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut silent = Vec::new();
    while silent.len() < 4 {
        match trespass::Connection::connect(("127.0.0.1", port)) {
            Ok(connection) => silent.push(connection),
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
    place.run_with(b"data", "rdsend", ["--tcp", "127.0.0.1", &port.to_string(), "key"]).expect(0);
    assert_eq!(Ran::from(&mut receiver, b"").expect(0).out, "data");
}

/// A peer can try at most three keys per second.
#[test]
fn wrong_keys_take_their_time() {
    let place = Place::with_tcp();
    let port = port().to_string();
    let mut receiver = place.command("rdrecv", [&port, "key"]).spawn().unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| place.run_with(b"", "rdsend", ["127.0.0.1", &port, "other"]).expect(20));
        }
    });
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
    place.run_with(b"data", "rdsend", ["127.0.0.1", &port, "key"]).expect(0);
    Ran::from(&mut receiver, b"").expect(0);
}

/// 12: it is an error if a source is shorter than listed, or changes.
#[test]
fn source_that_changes_exits_with_24_and_is_not_renamed() {
    let place = Place::new();
    place.write("file", bytes(30_000_000));
    let mut command = place.command("rdcp", ["--bwlimit", "10M", "file", &place.on_host("copy")]).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !place.has_begun(".", 1) {
        assert!(Instant::now() < until, "the copy does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::OpenOptions::new().write(true).open(place.path("file")).unwrap().set_len(1000).unwrap();
    let ran = Ran::from(&mut command, b"").expect(24);
    assert!(ran.err.contains("changed while it was read"), "{}", ran.err);
    assert_eq!(place.names("."), ["bin", "file"]);
}

/// Without ssh, or without rdcp on the other host, the error names the reason.
#[test]
fn far_side_that_does_not_start_is_named() {
    let place = Place::new();
    place.write("file", "x");
    let ran = place.run("rdcp", ["--rdcp-path", "no-such-program", "file", &place.on_host("copy")]).expect(12);
    assert!(ran.err.contains("rdcp is not installed"), "{}", ran.err);
    let ran = place.run("rdcp", ["-e", "no-such-shell", "file", &place.on_host("copy")]).expect(1);
    assert!(ran.err.contains("cannot run no-such-shell"), "{}", ran.err);
    let ran = place.run("rdcp", ["-e", "false", "file", &place.on_host("copy")]).expect(12);
    assert!(ran.err.contains("ended with status 1"), "{}", ran.err);
}

/// A host may have a name for the remote shell only, such as that of an entry in ssh's configuration.
#[test]
fn name_that_only_the_remote_shell_has_is_an_error_with_its_remedy() {
    let place = Place::new();
    place.write("file", "x");
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    place.write("bin/ssh", ssh.replace("SSH_CONNECTION=\"127.0.0.1 1 127.0.0.1 22\" ", ""));
    // Two dots are no name, so no name server is asked.
    let to = format!("a..b:{}", place.path("copy").display());
    for words in [["rdcp", "file", &to].as_slice(), &["rdpipe", "a..b:cat"]] {
        let ran = place.run(words[0], &words[1..]).expect(12);
        assert!(ran.err.contains("cannot resolve the name") && ran.err.contains("/etc/hosts"), "{}", ran.err);
    }
}

/// A host that guesses keys delays its own next guess, and no other host.
#[test]
fn wrong_keys_of_one_host_delay_no_other() {
    const PEERS: usize = 60;
    const TIMES: usize = 5;
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        may_not_run("no IPv6 here");
        return;
    }
    let timeout = Duration::from_secs(60);
    let options = Options { timeout, transport: trespass::Transport::Tcp, ..Options::default() };
    let listener = Listener::bind(None, 0, &options).unwrap();
    let wrong = Peer::unnamed(format!("127.0.0.1:{}", listener.port()), b"guess");
    let right = Peer::unnamed(format!("[::1]:{}", listener.port()), b"key");
    let (refused, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..PEERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    _ = connect(&wrong, Purpose::Send, Patience::Coming(Duration::ZERO), &options);
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let accepted = scope.spawn(move || {
            (0..TIMES).try_for_each(|_| listener.accept(b"key", Some(Instant::now() + timeout)).map(drop))
        });
        while refused.load(Ordering::Relaxed) < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Single attempts. The keys of the others are checked at three per second, and their number delays these by about
        // the time limit of a handshake, if they wait for their turn among them.
        let attempt = || connect(&right, Purpose::Send, Patience::Coming(Duration::ZERO), &options).map(drop);
        let connected = (0..TIMES).try_for_each(|_| attempt());
        is_over.store(true, Ordering::Relaxed);
        connected.unwrap();
        accepted.join().unwrap().unwrap();
    });
}
