//! Tests the limits that the system sets for a process.

use crate::common::{Place, Ran, bytes, may_not_run, port};
use crate::machine::is_root;

/// The limit of the length of files, for `sh`: 2.5 MB.
const LIMIT: &str = "ulimit -f 5000; exec";

/// As with cp, a file above the limit is an error of this file, and the others are copied.
#[test]
fn file_above_the_size_limit_fails_and_the_others_are_copied() {
    for place in [Place::new(), Place::with_tcp()] {
        place.write("a/big", bytes(12 << 20));
        place.write("a/hole", "");
        place.shell("truncate -s 9M a/hole").expect(0);
        place.write("a/small", "small");
        let from = place.on_host("a");
        for (number, words) in ["rdcp -r a", &format!("rdcp -r {from}")].into_iter().enumerate() {
            let ran = place.shell(&format!("{LIMIT} {words} d{number}")).expect(23);
            for name in ["big", "hole"] {
                assert!(ran.err.contains(&format!("/{name}: file too large")), "{}", ran.err);
            }
            assert_eq!(place.names(&format!("d{number}")), ["small"], "{words}");
        }
    }
}

/// A host of a chain that reaches the limit is named, and the others get everything.
#[test]
fn host_of_a_chain_with_a_size_limit_is_named() {
    let place = Place::new();
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    place.write("bin/ssh", ssh.replace("shift\nSSH", "shift\n[ \"$STAND_IN_HOST\" = i ] && ulimit -f 5000\nSSH"));
    place.write("a/big", bytes(12 << 20));
    place.write("a/small", "small");
    let to = |host: &str| format!("{host}:{}", place.path(host).display());
    let ran = place.run("rdcp", ["-r", "a", &to("h"), &to("i"), &to("j")]).expect(23);
    assert!(ran.err.contains(&format!("i:{}", place.path("i").display())), "{}", ran.err);
    assert!(ran.err.contains("i/big: file too large") && !ran.err.contains("the connection broke"), "{}", ran.err);
    assert_eq!((place.names("h"), place.names("i"), place.names("j")), (full(), vec!["small".into()], full()));
}

fn full() -> Vec<String> {
    vec!["big".to_owned(), "small".to_owned()]
}

#[test]
fn stream_above_the_size_limit_is_an_error() {
    let place = Place::new();
    place.write("in", bytes(12 << 20));
    for out in ["out", "> out"] {
        let port = port().to_string();
        let words = format!("{LIMIT} rdrecv {port} key {out}");
        let mut receiver = place.command("/bin/sh", ["-c", &words]).spawn().unwrap();
        let sent = place.run("rdsend", ["127.0.0.1", &port, "key", "in"]).expect(200);
        assert!(sent.err.contains("the peer failed: cannot write"), "{}", sent.err);
        let received = Ran::from(&mut receiver, b"").expect(200);
        assert!(received.err.contains("file too large"), "{}", received.err);
    }
    assert!(place.read("out").len() < 12 << 20);
    assert_eq!(place.names("."), ["bin", "in", "out"]);
}

/// The programs' own treatment of the signal does not reach the commands that they start.
#[test]
fn commands_of_a_pipeline_get_the_signal_of_the_size_limit() {
    let place = Place::new();
    place.shell(&format!("{LIMIT} rdpipe 'exec head -c 9000000 /dev/zero > out'")).expect(153);
}

/// A thread that the system refuses is an error with its reason.
#[test]
fn limit_of_threads_is_an_error() {
    let place = Place::new();
    place.write("s/f", "data");
    std::fs::create_dir(place.path("d")).unwrap();
    // The processes of this user belong to this test.
    let user = "setpriv --reuid 23456 --regid 23456 --clear-groups";
    if !is_root() || place.shell(&format!("{user} true")).status != 0 {
        may_not_run("no other user here");
        return;
    }
    place.shell("cp \"$(command -v rdcp)\" bin/ && chmod 755 . && chmod 777 d").expect(0);
    let mut refused = 0;
    for limit in [2, 5, 8, 9, 10, 11, 12, 13] {
        let ran = place.shell(&format!("{user} prlimit --nproc={limit} rdcp -r s d/{limit}"));
        assert!(!ran.err.contains("panicked"), "{limit}: {}", ran.err);
        refused += usize::from(ran.err.contains("cannot start a thread"));
        assert_eq!(place.path(&format!("d/{limit}/f")).exists(), ran.status == 0, "{limit}: {ran:?}");
    }
    assert!(refused > 0);
}

/// A pipeline does not wait for segments to which it cannot connect.
#[test]
fn limit_of_threads_ends_a_pipeline() {
    let place = Place::new();
    place.write("in", "data");
    let user = "setpriv --reuid 23457 --regid 23457 --clear-groups";
    if !is_root() || place.shell(&format!("{user} true")).status != 0 {
        may_not_run("no other user here");
        return;
    }
    place.shell("cp \"$(command -v rdpipe)\" bin/ && chmod 755 .").expect(0);
    let mut refused = 0;
    for limit in (3..20).chain(9..16) {
        for words in ["'wc -c'", "-e bin/ssh 'h:cat' 'wc -c'"] {
            let ran = place.shell(&format!("{user} prlimit --nproc={limit} rdpipe {words} < in"));
            // The segment would report that it has waited in vain.
            assert!(!ran.err.contains("in time") && !ran.err.contains("panicked"), "{limit} {words}: {ran:?}");
            assert!(ran.status != 0 || ran.out == "4\n", "{limit} {words}: {ran:?}");
            refused += usize::from(ran.err.to_lowercase().contains("resource temporarily unavailable"));
        }
    }
    assert!(refused > 0);
}

/// The software device needs shared memory between two processes, which is a file for this limit.
#[test]
fn copy_without_shared_memory_runs_over_tcp() {
    let place = Place::new();
    place.write("a", "data");
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    let limits =
        [("prlimit --fsize=1000:", "prlimit --fsize=unlimited:"), ("env SOFTRNIC_PEERS=0", "env SOFTRNIC_PEERS=1")];
    for (number, (limit, none)) in limits.into_iter().enumerate() {
        for (here, there) in [(limit, none), (none, limit), (limit, limit)] {
            place.write("bin/ssh", ssh.replace("exec sh -c", &format!("exec {there} sh -c")));
            let ran = place.shell(&format!("{here} rdcp -v a {}", place.on_host(&format!("b{number}")))).expect(0);
            let is_named = ran.err.contains("File too large") || ran.err.contains("declined the request");
            assert!(ran.err.contains("over TCP") && is_named, "{here}, {there}: {}", ran.err);
            assert_eq!(place.read(&format!("b{number}")), b"data", "{here}, {there}");
            // One line of each side.
            assert!(ran.err.lines().count() <= 5, "{here}, {there}: {}", ran.err);
        }
    }
}

/// With a few descriptors, a connection would be established or not by chance, after a long wait.
#[test]
fn too_few_open_files_are_reported_with_the_host() {
    let place = Place::new();
    place.write("s/f", "data");
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    let to = place.on_host("d");
    for limit in [12, 18, 33, 63] {
        let text = format!("the limit of open files is {limit}; raise it to 64");
        for words in [format!("rdcp -r s {to}"), "rdpipe h:cat".to_owned()] {
            place.write("bin/ssh", ssh.replace("exec sh -c", &format!("exec prlimit --nofile={limit} sh -c")));
            let ran = place.shell(&words).expect(12);
            assert!(ran.err.contains(&format!("h: {text}")), "{limit}: {}", ran.err);
            place.write("bin/ssh", &ssh);
            let ran = place.shell(&format!("prlimit --nofile={limit} {words}")).expect(12);
            assert!(ran.err.contains(&text), "{limit}: {}", ran.err);
        }
    }
    place.write("bin/ssh", ssh.replace("exec sh -c", "exec prlimit --nofile=64 sh -c"));
    place.shell(&format!("prlimit --nofile=64 rdcp -r s {to}")).expect(0);
    assert_eq!(place.read("d/f"), b"data");
}
