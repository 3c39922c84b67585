//! Tests copies to several destinations, and connections that break.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rdma_pipe::channel::BLOCK;
use rustix::process::{Pid, Signal};

use crate::common::{Place, Ran, break_connections, bytes, flip, is_same};

const LARGE: usize = 16_000_000;

/// Creates a tree with a large file and many small ones; returns the total size of the files in bytes.
fn tree(place: &Place) -> u64 {
    place.write("tree/large", bytes(LARGE));
    for number in 0..300 {
        place.write(&format!("tree/d{}/small{number}", number % 7), bytes(number * 11));
    }
    (0..300).map(|number| number as u64 * 11).sum::<u64>() + LARGE as u64
}

#[track_caller]
fn assert_same(place: &Place, copy: &str) {
    let diff = std::process::Command::new("diff").arg("-r").arg(place.path("tree")).arg(place.path(copy)).output();
    let diff = diff.unwrap();
    assert!(diff.status.success() && diff.stdout.is_empty(), "{diff:?}");
}

/// Waits until a path exists.
fn wait_for(mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn sent(ran: &Ran) -> u64 {
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    report["bytes"].as_u64().unwrap()
}

/// Returns the operands for a copy to each of the hosts `h1` to `h3`.
fn copies(place: &Place) -> [String; 3] {
    [1, 2, 3].map(|host| format!("h{host}:{}", place.path(&format!("copy{host}")).display()))
}

/// A host that no longer answers is named, as a host that has died is, and the others are complete.
#[test]
fn silent_host_of_a_chain_is_named_and_the_others_are_complete() {
    for silent in 1..=3 {
        let place = Place::new();
        tree(&place);
        let mut arguments = ["-r", "--timeout", "2", "--bwlimit", "8M", "tree"].map(str::to_owned).to_vec();
        arguments.extend(copies(&place));
        let mut copy = place.command("rdcp", &arguments).spawn().unwrap();
        let last = place.path("copy3");
        wait_for(|| last.exists() && place.has_begun(&format!("copy{silent}"), 1_000_000));
        let host = place.far_side(&format!("h{silent}")).unwrap();
        rustix::process::kill_process(host, Signal::STOP).unwrap();
        // The host that is stopped has the standard error open.
        copy.wait().unwrap();
        rustix::process::kill_process(host, Signal::KILL).unwrap();
        let ran = Ran::from(&mut copy, b"").expect(23);
        let named =
            format!("rdcp: h{silent}:{}: the peer was silent for 2 s", place.path(&format!("copy{silent}")).display());
        assert!(ran.err.contains(&named), "{}", ran.err);
        (1..=3).filter(|host| *host != silent).for_each(|host| assert_same(&place, &format!("copy{host}")));
    }
}

/// Whatever a host of the chain has already, it gets what it lacks, and the earlier hosts do, too.
#[test]
fn hosts_of_a_chain_may_have_more_than_earlier_ones() {
    let place = Place::new();
    for (name, length) in [("small", 100), ("other", 200), ("large", 300_000), ("sub/more", 70_000), ("sub/few", 3)] {
        place.write(&format!("tree/{name}"), bytes(length));
    }
    let cp = |name: &str, host: usize| {
        let to = place.path(&format!("copy{host}/{name}"));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        let ran = std::process::Command::new("cp").arg("-p").arg(place.path(&format!("tree/{name}"))).arg(to).status();
        assert!(ran.unwrap().success());
    };
    // Each file is at another set of hosts.
    for (number, name) in ["small", "other", "large", "sub/more", "sub/few"].into_iter().enumerate() {
        for host in 1..=3 {
            if (number + 3) >> (host - 1) & 1 == 1 {
                cp(name, host);
            }
        }
    }
    let mut arguments = ["-r", "--sync", "--json", "tree/"].map(str::to_owned).to_vec();
    arguments.extend(copies(&place));
    let ran = place.run("rdcp", &arguments).expect(0);
    ["copy1", "copy2", "copy3"].into_iter().for_each(|copy| assert_same(&place, copy));
    assert!(sent(&ran) > 0);
    let ran = place.run("rdcp", &arguments).expect(0);
    assert_eq!(sent(&ran), 0);
}

#[test]
fn every_host_of_a_chain_has_the_tree_and_the_source_sends_it_once() {
    for place in [Place::new(), Place::with_tcp()] {
        let all = tree(&place);
        let mut arguments = ["-r", "--json", "--no-encrypt", "tree"].map(str::to_owned).to_vec();
        arguments.extend(copies(&place));
        let ran = place.run("rdcp", &arguments).expect(0);
        assert_eq!(sent(&ran), all);
        ["copy1", "copy2", "copy3"].iter().for_each(|copy| assert_same(&place, copy));
        // The hosts have different parts of the large file: the second host has none of it, and on the third host the
        // file was changed.
        std::fs::remove_file(place.path("copy2/large")).unwrap();
        place.write("copy3/large", b"other");
        arguments[3] = "tree/".to_owned();
        arguments.push("--sync".to_owned());
        let ran = place.run("rdcp", &arguments).expect(0);
        assert_eq!(sent(&ran), LARGE as u64);
        ["copy1", "copy2", "copy3"].iter().for_each(|copy| assert_same(&place, copy));
    }
}

/// Each host has another part of an earlier copy, one of them the whole file, one of them other bytes.
#[test]
fn earlier_copies_of_a_chain_are_continued_where_all_have_the_same_bytes() {
    let place = Place::new();
    let all = tree(&place);
    let mut arguments = ["-r", "--json", "--sync", "tree/"].map(str::to_owned).to_vec();
    arguments.extend(copies(&place));
    let ours = |host: usize| place.partial(&format!("copy{host}")).unwrap().0;
    let cut = |host: usize, length: u64| {
        std::fs::File::options().write(true).open(ours(host)).unwrap().set_len(length).unwrap();
    };
    let remove = |host: usize| std::fs::remove_file(ours(host)).unwrap();
    let complete = |host: usize| {
        let to = place.path(&format!("copy{host}/large"));
        std::fs::copy(place.path("tree/large"), &to).unwrap();
        let time = place.path("tree/large").metadata().unwrap().modified().unwrap();
        std::fs::File::options().write(true).open(to).unwrap().set_modified(time).unwrap();
    };
    type Change<'c> = &'c dyn Fn();
    // The change between the two runs, and the number of bytes of the large file that are not sent again.
    let kept = 3_000_000 / BLOCK * BLOCK;
    let changes: [(Change<'_>, usize); 11] = [
        (&|| cut(1, 3_000_000), kept),
        (&|| cut(2, 3_000_000), kept),
        (&|| cut(3, 3_000_000), kept),
        (&|| flip(&ours(2), 2_000_000), 2_000_000 / BLOCK * BLOCK),
        (&|| remove(1), 0),
        (&|| remove(2), 0),
        (&|| remove(3), 0),
        (&|| [complete(1), cut(2, 3_000_000)].into_iter().collect(), kept),
        (&|| [complete(3), cut(2, 3_000_000)].into_iter().collect(), kept),
        (&|| [complete(2), complete(3)].into_iter().collect(), kept),
        (&|| [complete(1), complete(3), flip(&ours(2), 0)].into_iter().collect(), 0),
    ];
    for (number, (change, kept)) in changes.into_iter().enumerate() {
        let limited = arguments.iter().map(String::as_str).chain(["--bwlimit", "8M"]);
        let mut first = place.command("rdcp", limited).spawn().unwrap();
        wait_for(|| (1..=3).all(|host| place.has_begun(&format!("copy{host}"), 4_000_000)));
        first.kill().unwrap();
        first.wait().unwrap();
        wait_for(|| (1..=3).all(|host| place.far_side(&format!("h{host}")).is_none()));
        change();
        let ran = place.run("rdcp", &arguments).expect(0);
        assert!(sent(&ran) as usize <= all as usize - kept, "{number}: {} of {all}", sent(&ran));
        for host in 1..=3 {
            assert_same(&place, &format!("copy{host}"));
            std::fs::remove_dir_all(place.path(&format!("copy{host}"))).unwrap();
        }
    }
}

#[test]
fn killed_host_of_a_chain_is_named_and_the_others_are_complete() {
    for (place, killed) in [(Place::new(), 1), (Place::new(), 2), (Place::with_tcp(), 3)] {
        let all = tree(&place);
        let mut arguments: Vec<String> =
            ["-r", "--json", "--no-encrypt", "--bwlimit", "4M", "tree"].map(str::to_owned).to_vec();
        arguments.extend(copies(&place));
        let mut command = place.command("rdcp", &arguments).spawn().unwrap();
        wait_for(|| place.has_begun("copy3", 4_000_000));
        let host = format!("h{killed}");
        rustix::process::kill_process(place.far_side(&host).unwrap(), Signal::KILL).unwrap();
        let ran = Ran::from(&mut command, b"").expect(23);
        assert!(ran.err.contains(&format!("{host}:")), "{}", ran.err);
        (1..=3).filter(|&copy| copy != killed).for_each(|copy| assert_same(&place, &format!("copy{copy}")));
        // Only blocks that were in flight between two hosts are sent again, not those that the hosts already have.
        assert!(sent(&ran) < all + all / 2, "{} of {all}", sent(&ran));
    }
}

#[test]
fn host_that_does_not_start_is_named_and_the_others_are_complete() {
    let place = Place::new();
    tree(&place);
    let [first, _, third] = copies(&place);
    let ran = place.run("rdcp", ["-r", "tree", &first, "h2:/nonexistent/folder/", &third]).expect(23);
    assert!(ran.err.contains("h2"), "{}", ran.err);
    ["copy1", "copy3"].iter().for_each(|copy| assert_same(&place, copy));
    place.run("rdcp", ["-r", "tree", "h1:/nonexistent/a/", "h2:/nonexistent/b/"]).expect(23);
}

/// The error of a file names the host, once, wherever it is in the chain.
#[test]
fn failed_file_of_each_host_is_named_with_its_host() {
    let place = Place::new();
    place.write("tree/d/file", "data");
    for host in 1..=3 {
        place.write(&format!("copy{host}/d"), "in the way");
    }
    let all = copies(&place);
    let errors = |ran: &Ran| {
        let errors = ran.err.lines().filter_map(|line| line.strip_prefix("rdcp: ")).map(str::to_owned);
        errors.collect::<Vec<_>>()
    };
    let ran = place.run("rdcp", ["-r", "tree/."].map(str::to_owned).iter().chain(&all)).expect(23);
    let mut found = errors(&ran);
    found.sort();
    let expected = |host: usize, name: &str| {
        format!("{name}: cannot make {}: not a directory", place.path(&format!("copy{host}/d")).display())
    };
    assert_eq!(found, [1, 2, 3].map(|host| expected(host, &all[host - 1])));
    let ran = place.run("rdcp", ["-r", "tree/.", &all[1]]).expect(23);
    assert_eq!(errors(&ran), [expected(2, "h2")]);
    let ran = place.run("rdcp", ["-r", &format!("h1:{}/.", place.path("tree").display()), &all[1]]).expect(23);
    assert_eq!(errors(&ran), [expected(2, "h2")]);
    let ran = place.run("rdcp", ["-r", "tree/.", place.path("copy3").to_str().unwrap()]).expect(23);
    assert_eq!(errors(&ran), [expected(3, "")[2..].to_owned()]);
}

#[test]
fn copy_continues_over_another_connection() {
    for pulls in [false, true] {
        let place = Place::with_tcp();
        let all = tree(&place);
        // An existing file that this copy did not write is replaced, even if it has the same size and time.
        let other = place.write("copy/tree/d1/small1", [b'x'; 11]);
        let time = std::fs::metadata(place.path("tree/d1/small1")).unwrap().modified().unwrap();
        std::fs::File::options().append(true).open(other).unwrap().set_modified(time).unwrap();
        let (from, to) = match pulls {
            true => (place.on_host("tree"), "copy".to_owned()),
            false => ("tree".to_owned(), place.on_host("copy")),
        };
        let arguments = ["-r", "--json", "--no-encrypt", "--bwlimit", "4M", &from, &to];
        let mut command = place.command("rdcp", arguments).spawn().unwrap();
        for megabytes in [2, 6, 10] {
            wait_for(|| place.has_begun("copy/tree", megabytes * 1_000_000));
            // After the last break, the next connection may not exist yet.
            wait_for(|| break_connections(Pid::from_child(&command)) != 0);
        }
        let ran = Ran::from(&mut command, b"").expect(0);
        assert_same(&place, "copy/tree");
        assert!(sent(&ran) < all + all / 2, "{} of {all}", sent(&ran));
    }
}

/// Another process changes a file at the destination while the copy runs. The size, the time and the moment of the change
/// do not make it a file that the copy has written.
#[test]
fn file_that_another_process_changes_is_replaced_after_a_break() {
    let place = Place::with_tcp();
    place.write("tree/a", bytes(6_000_000));
    let source = place.write("tree/b", bytes(6_000_000));
    let other = place.write("copy/tree/b", vec![b'x'; 6_000_000]);
    let time = std::fs::metadata(source).unwrap().modified().unwrap();
    std::fs::File::options().append(true).open(&other).unwrap().set_modified(time).unwrap();
    let to = place.on_host("copy");
    let mut command = place.command("rdcp", ["-r", "--no-encrypt", "--bwlimit", "4M", "tree", &to]).spawn().unwrap();
    wait_for(|| place.has_begun("copy/tree", 1_000_000));
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o640)).unwrap();
    wait_for(|| break_connections(Pid::from_child(&command)) != 0);
    Ran::from(&mut command, b"").expect(0);
    assert!(is_same(&place.path("tree"), &place.path("copy/tree")));
}

/// A host that is stopped while it starts is named too.
#[test]
fn host_of_a_chain_that_does_not_answer_is_named_and_the_others_are_complete() {
    let place = Place::new();
    tree(&place);
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    place.write("bin/ssh", ssh.replace("shift\nSSH", "shift\n[ \"$STAND_IN_HOST\" = h2 ] && exec sleep 1000\nSSH"));
    let arguments = ["-r", "--timeout", "1", "tree"].map(str::to_owned);
    let ran = place.run("rdcp", arguments.iter().chain(&copies(&place))).expect(23);
    assert!(ran.err.contains("rdcp: h2: the far side was silent for 1 s"), "{}", ran.err);
    ["copy1", "copy3"].iter().for_each(|copy| assert_same(&place, copy));
}

/// The host that fails is named, whether it sends or receives, and whichever process reads its messages.
#[test]
fn host_that_is_killed_or_stopped_is_named() {
    for (from, to, failing) in [("h1", "h2", "h1"), ("h1", "h2", "h2"), ("", "h2", "h2"), ("h1", "", "h1")] {
        for (signal, status) in [(Signal::KILL, 12), (Signal::STOP, 30)] {
            let place = Place::new();
            tree(&place);
            let on = |host: &str, name: &str| match host {
                "" => name.to_owned(),
                host => format!("{host}:{}", place.path(name).display()),
            };
            let words = ["-r", "--timeout", "1", "--bwlimit", "4M", &on(from, "tree"), &on(to, "copy")];
            let mut copy = place.command("rdcp", words).spawn().unwrap();
            wait_for(|| place.has_begun("copy", 1_000_000));
            let host = place.far_side(failing).unwrap();
            rustix::process::kill_process(host, signal).unwrap();
            // A host that is stopped has the standard error open.
            copy.wait().unwrap();
            // A host that was killed has ended already.
            _ = rustix::process::kill_process(host, Signal::KILL);
            let ran = Ran::from(&mut copy, b"").expect(status);
            assert!(ran.err.contains(&format!("{failing}: the ")), "{from} to {to}, {signal:?}: {}", ran.err);
        }
    }
}

/// Connections that break, which both ends survive, cost no host its place in the chain, as they do not end a copy to
/// one host. The file is too short for a copy to continue it.
#[test]
fn hosts_of_a_chain_keep_their_places_when_connections_break() {
    let place = Place::with_tcp();
    place.write("tree/file", bytes(6_000_000));
    let mut arguments = ["-r", "--json", "--no-encrypt", "--bwlimit", "4M", "tree"].map(str::to_owned).to_vec();
    arguments.extend(copies(&place));
    let mut command = place.command("rdcp", &arguments).spawn().unwrap();
    wait_for(|| place.has_begun("copy3", 1_000_000));
    for _ in 0..3 {
        // One connection to each neighbour.
        let middle = place.far_side("h2").unwrap();
        wait_for(|| break_connections(middle) != 0);
    }
    Ran::from(&mut command, b"").expect(0);
    ["copy1", "copy2", "copy3"].iter().for_each(|copy| assert_same(&place, copy));
}
