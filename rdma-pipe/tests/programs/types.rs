//! Tests entries that change their type at the source, links at the destination, and deletions.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use rdma_pipe::channel::BLOCK;

use crate::common::{Place, Ran, bytes, flip, is_same, may_not_run, remove};

/// Makes the entry `s/x` of a kind. The link names `s/rel`.
fn make(place: &Place, kind: &str) {
    remove(&place.path("s/x"));
    match kind {
        "small" => _ = place.write("s/x", "small"),
        "large" => _ = place.write("s/x", bytes(9 << 20)),
        "link" => symlink("rel", place.path("s/x")).unwrap(),
        "dangling" => symlink("nowhere", place.path("s/x")).unwrap(),
        "same" => std::fs::hard_link(place.path("s/rel/a"), place.path("s/x")).unwrap(),
        "empty" => std::fs::create_dir(place.path("s/x")).unwrap(),
        _ => _ = place.write("s/x/inner/b", "inner"),
    }
}

const KINDS: [&str; 7] = ["small", "large", "link", "dangling", "same", "empty", "tree"];

/// As rsync does: whatever the entry was, it becomes what the source has, and nothing else changes.
#[test]
fn entries_change_their_type_like_with_rsync() {
    let place = Place::new();
    place.write("s/rel/a", "a");
    let copy = ["-rH", "--sync", "--delete", "s/", &place.on_host("d")];
    for before in KINDS {
        for after in KINDS {
            make(&place, before);
            place.run("rdcp", copy).expect(0);
            make(&place, after);
            place.run("rdcp", copy).expect(0);
            assert!(is_same(&place.path("s"), &place.path("d")), "{before} to {after}");
            assert_eq!(place.read("d/rel/a"), b"a", "{before} to {after}");
        }
    }
}

/// Without `--delete`, a directory with entries stays, as with rsync; an empty one gives way.
#[test]
fn directory_with_entries_gives_way_only_with_delete() {
    let place = Place::new();
    place.write("s/rel/a", "a");
    for (before, after, status) in
        [("tree", "small", 23), ("tree", "large", 23), ("tree", "link", 23), ("empty", "small", 0), ("link", "tree", 0)]
    {
        remove(&place.path("d"));
        make(&place, before);
        let sync = ["-r", "--sync", "s/", &place.on_host("d")];
        place.run("rdcp", sync).expect(0);
        make(&place, after);
        let ran = place.run("rdcp", sync).expect(status);
        let sentence = format!("{}: directory not empty", place.path("d/x").display());
        assert!(status == 0 || ran.err.contains(&sentence), "{}", ran.err);
        assert_eq!(is_same(&place.path("s"), &place.path("d")), status == 0, "{before} to {after}");
        assert_eq!(place.names("d"), ["rel", "x"]);
        assert_eq!(place.read("d/rel/a"), b"a");
    }
}

/// Without `--sync`, as `cp -r` does: a link at the destination is neither followed nor replaced by a directory.
#[test]
fn copy_does_not_enter_a_link() {
    let place = Place::new();
    place.write("outside/a", "theirs");
    place.write("s/x/a", "ours");
    std::fs::create_dir_all(place.path("d/s")).unwrap();
    for target in ["../../outside", "../other"] {
        std::fs::create_dir_all(place.path("d/other")).unwrap();
        remove(&place.path("d/s/x"));
        symlink(target, place.path("d/s/x")).unwrap();
        let ran = place.run("rdcp", ["-r", "s", &place.on_host("d")]).expect(23);
        let sentence = format!("cannot make {}: not a directory", place.path("d/s/x").display());
        assert!(ran.err.contains(&sentence), "{}", ran.err);
        assert_eq!(std::fs::read_link(place.path("d/s/x")).unwrap(), Path::new(target));
        assert_eq!(place.names("d/other"), [""; 0]);
    }
    assert_eq!(place.read("outside/a"), b"theirs");
}

/// A link to `..` that an earlier run made is not a way out.
#[test]
fn link_to_the_parent_that_becomes_a_directory_leads_nowhere() {
    let place = Place::new();
    place.write("d/.bashrc", "mine");
    std::fs::create_dir_all(place.path("s/t")).unwrap();
    symlink("..", place.path("s/t/sub")).unwrap();
    place.run("rdcp", ["-r", "--sync", "s/t", &place.on_host("d")]).expect(0);
    remove(&place.path("s/t/sub"));
    place.write("s/t/sub/.bashrc", "theirs");
    for options in [&["-r"][..], &["-r", "--sync"], &["-r", "--sync", "--delete"]] {
        place.run("rdcp", options.iter().copied().chain(["s/t", &place.on_host("d")]));
        assert_eq!(place.read("d/.bashrc"), b"mine", "{options:?}");
    }
    assert!(is_same(&place.path("s/t"), &place.path("d/t")));
}

/// Surplus directories keep what a pattern protects, at any depth.
#[test]
fn patterns_protect_entries_of_surplus_directories() {
    let place = Place::new();
    place.write("s/a", "a");
    for name in ["d/cache/x.keep", "d/cache/deep/y.keep", "d/cache/z", "d/gone/z", "d/a.keep"] {
        place.write(name, name);
    }
    place.run("rdcp", ["-r", "--sync", "--delete", "--exclude", "*.[jk]eep", "s/", &place.on_host("d")]).expect(0);
    assert_eq!(place.names("d"), ["a", "a.keep", "cache"]);
    assert_eq!(
        (place.names("d/cache"), place.names("d/cache/deep")),
        (vec!["deep".into(), "x.keep".into()], vec!["y.keep".to_owned()])
    );
    // A directory with a protected file does not give way to a file.
    place.write("s/cache", "now a file");
    let ran = place.run("rdcp", ["-r", "--sync", "--delete", "--exclude", "*.[jk]eep", "s/", &place.on_host("d")]);
    assert_eq!((ran.expect(23).out.as_str(), place.read("d/cache/x.keep").as_slice()), ("", &b"d/cache/x.keep"[..]));
}

/// A deletion that fails at the far side is a failure of the command.
#[test]
fn failed_deletion_is_reported() {
    let place = Place::new();
    place.write("s/a", "a");
    place.write("d/imm", "stays");
    let change = |flag: &str| Command::new("chattr").arg(flag).arg(place.path("d/imm")).output();
    if !change("+i").is_ok_and(|ran| ran.status.success()) {
        may_not_run("no file can be made immutable here");
        return;
    }
    let ran = place.run("rdcp", ["-r", "--sync", "--delete", "--json", "s/", &place.on_host("d")]);
    change("-i").unwrap();
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.status, report["status"].as_u64()), (23, Some(23)), "{}", ran.out);
    let sentence = format!("cannot remove {}: ", place.path("d/imm").display());
    assert!(report["errors"][0].to_string().contains(&sentence), "{}", ran.out);
}

/// What an earlier run has left counts only as far as the source has the same bytes: not for another file of the same
/// name, size and time, nor for bytes that changed at the destination. It counts for a file that was written again with
/// the same bytes.
#[test]
fn earlier_copy_is_continued_only_where_the_contents_are_equal() {
    const SIZE: usize = 30_000_000;
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let place = Place::new();
    let write = |data: &[u8]| {
        let path = place.write("file", data);
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    let (data, to) = (bytes(SIZE), place.on_host("copy"));
    let with_other = |at: usize| {
        let mut data = data.clone();
        data[at] ^= 1;
        data
    };
    // The change between both runs, and the bytes that are not sent again.
    type Change<'c> = &'c dyn Fn(std::path::PathBuf);
    let changes: [(Change<'_>, usize); 5] = [
        (&|_| write(&with_other(0)), 0),
        (
            &|_| {
                remove(&place.path("file"));
                write(&with_other(2_000_000));
            },
            3 * BLOCK,
        ),
        (&|partial| flip(&partial, 2_000_000), 3 * BLOCK),
        (
            &|_| {
                remove(&place.path("file"));
                write(&data);
            },
            5_000_000 / BLOCK * BLOCK,
        ),
        (&|_| write(&data[..9_000_000]), 5_000_000 / BLOCK * BLOCK),
    ];
    for (number, (change, kept)) in changes.into_iter().enumerate() {
        write(&data);
        let mut first = place.command("rdcp", ["--bwlimit", "8M", "file", &to]).spawn().unwrap();
        while !place.has_begun(".", 5_000_000) {
            assert!(first.try_wait().unwrap().is_none());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        first.kill().unwrap();
        first.wait().unwrap();
        while place.far_side("h").is_some() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        change(place.partial(".").unwrap().0);
        let ran = place.run("rdcp", ["--json", "file", &to]).expect(0);
        let expected = place.read("file");
        assert!(place.read("copy") == expected, "{number}");
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let sent = report["bytes"].as_u64().unwrap() as usize;
        assert!(sent <= expected.len() - kept, "{number}: {sent} bytes were sent, although {kept} were equal");
        assert!(kept > 3 * BLOCK || sent == expected.len() - kept, "{number}: {sent}");
        remove(&place.path("copy"));
    }
}

/// What an interrupted copy has left in a tree is not copied with the tree, and does not get into the way of the file.
#[test]
fn files_of_interrupted_copies_are_not_copied() {
    let place = Place::new();
    place.write("other/big", bytes(20_000_000));
    place.write("tree/own", "own");
    let mut first = place.command("rdcp", ["--bwlimit", "8M", "other/big", &place.on_host("tree")]).spawn().unwrap();
    while !place.has_begun("tree", 1) {
        assert!(first.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    place.write("tree/big", bytes(20_000_000));
    assert_eq!(place.names("tree").len(), 3, "{:?}", place.names("tree"));
    place.run("rdcp", ["-r", "tree", &place.on_host("copy")]).expect(0);
    assert_eq!(place.names("copy"), ["big", "own"]);
    assert!(place.read("copy/big") == bytes(20_000_000));
}

/// Another name of a file that was not copied is not linked to what the destination has in its place.
#[test]
fn names_of_a_file_that_failed_keep_what_they_have() {
    let place = Place::new();
    place.write("s/a", bytes(20_000_000));
    std::fs::hard_link(place.path("s/a"), place.path("s/b")).unwrap();
    place.write("d/a", "old a");
    place.write("d/b", "old b");
    let copy = ["-rH", "--sync", "--bwlimit", "20M", "s/", &place.on_host("d")];
    let mut running = place.command("rdcp", copy).spawn().unwrap();
    while !place.has_begun("d", 1) {
        assert!(running.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    place.write("s/a", "changed");
    let ran = Ran::from(&mut running, b"").expect(23);
    assert!(ran.err.contains(&format!("cannot link {}: ", place.path("d/b").display())), "{}", ran.err);
    assert_eq!((place.read("d/a"), place.read("d/b")), (b"old a".to_vec(), b"old b".to_vec()));
    // What is complete already is a file to link to.
    place.write("d/a", "changed");
    let time = place.path("s/a").metadata().unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(place.path("d/a")).unwrap().set_modified(time).unwrap();
    place.run("rdcp", ["-rH", "--sync", "s/", &place.on_host("d")]).expect(0);
    assert_eq!(place.read("d/b"), b"changed");
}

/// The messages have whole paths, and a directory that has failed stands for its entries.
#[test]
fn names_in_a_directory_that_failed_are_not_reported_elsewhere() {
    let place = Place::with_tcp();
    place.write("one/sub/a", "contents");
    std::fs::create_dir(place.path("two")).unwrap();
    std::fs::hard_link(place.path("one/sub/a"), place.path("one/sub/z")).unwrap();
    std::fs::hard_link(place.path("one/sub/a"), place.path("two/b")).unwrap();
    place.write("d/one", "a file");
    let shown = |name: &str| place.path(name).display().to_string();
    for (first, second) in [("one", "two"), ("two", "one")] {
        let ran = place.run("rdcp", ["-a", first, second, &place.on_host("d")]).expect(23);
        assert!(ran.err.contains(&format!("cannot make {}: not a directory", shown("d/one"))), "{}", ran.err);
        let is_first = second == "one";
        let lost = format!("cannot link {}: {} was not copied", shown("d/two/b"), shown("d/one/sub/a"));
        assert_eq!(ran.err.contains(&lost), is_first, "{}", ran.err);
        assert_eq!(ran.err.matches("cannot").count(), 1 + usize::from(is_first), "{}", ran.err);
        assert_eq!(place.path("d/two/b").exists(), !is_first);
        remove(&place.path("d/two"));
    }
}

/// A name that is not listed, because a pattern excludes it or it cannot be read, gives its number to another file.
#[test]
fn names_are_linked_only_to_their_own_file() {
    let place = Place::new();
    for (file, name) in [("s/a", "s/b"), ("s/c", "s/c2")] {
        place.write(file, file);
        std::fs::hard_link(place.path(file), place.path(name)).unwrap();
    }
    place.write("list", "a\nc\nb\n");
    let copies: [&[&str]; 2] = [&["-H", "s/a", "s/c", "s/b"], &["-H", "--files-from", "list", "s"]];
    for words in copies {
        std::fs::create_dir(place.path("d")).unwrap();
        place.run("rdcp", ["-r", "--exclude", "a"].iter().chain(words).copied().chain(["d"])).expect(0);
        assert_eq!((place.names("d"), place.read("d/b")), (vec!["b".into(), "c".into()], b"s/a".to_vec()));
        remove(&place.path("d"));
    }
    // One file that cannot be read, with its other name far away in the list.
    std::fs::set_permissions(place.path("s/a"), Permissions::from_mode(0o000)).unwrap();
    (0..30_000).for_each(|number| _ = place.write(&format!("s/m/{number}"), ""));
    std::fs::rename(place.path("s/b"), place.path("s/z")).unwrap();
    let user = "unshare --user --map-user=1000 --map-group=1000";
    if place.shell(&format!("{user} true")).status != 0 {
        may_not_run("no user namespace here");
        return;
    }
    for options in ["-rH", "-rH --sync -c"] {
        let ran = place.shell(&format!("{user} rdcp {options} s/. d")).expect(23);
        assert!(ran.err.contains("/a: permission denied"), "{}", ran.err);
        assert_eq!((place.names("d/m").len(), place.read("d/c2")), (30_000, b"s/c".to_vec()), "{options}");
        assert!(!place.path("d/z").exists(), "{options}");
        remove(&place.path("d"));
    }
}

/// As with rsync, a deletion that fails does not keep the others, and each is named with its path.
#[test]
fn deletions_that_fail_are_named_and_the_others_are_made() {
    let place = Place::new();
    place.write("s/f", "f");
    for number in 0..5 {
        place.write(&format!("d/old/{number}/f"), "");
    }
    let change = |flag: &str| Command::new("chattr").arg(flag).arg(place.path("d/old/2/f")).output();
    if !change("+i").is_ok_and(|ran| ran.status.success()) {
        may_not_run("no file can be made immutable here");
        return;
    }
    let ran = place.run("rdcp", ["-r", "--sync", "--delete", "s/", "d"]).expect(23);
    change("-i").unwrap();
    assert!(ran.err.contains("cannot remove d/old/2/f: operation not permitted"), "{}", ran.err);
    assert_eq!((place.names("d/old"), place.names("d")), (vec!["2".into()], vec!["f".into(), "old".into()]));
}

/// Neither many directories nor many files are open at once.
#[test]
fn trees_need_few_open_files() {
    let place = Place::new();
    for number in 0..400 {
        place.write(&format!("s/{number}/small"), "small");
        place.write(&format!("s/{number}/large"), bytes(70_000));
    }
    for options in ["-r", "-r --sync", "-a --sync --delete --checksum"] {
        place.shell(&format!("ulimit -n 200; rdcp {options} s/. {}", place.on_host("d"))).expect(0);
        assert!(is_same(&place.path("s"), &place.path("d")), "{options}");
    }
    // Nothing is left of a copy that was killed, except what it was writing.
    let mut copy = place.command("rdcp", ["-r", "--bwlimit", "1M", "s", &place.on_host("e")]).spawn().unwrap();
    while !place.path("e").exists() {
        assert!(copy.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    copy.kill().unwrap();
    copy.wait().unwrap();
    while place.far_side("h").is_some() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let find = Command::new("find").arg(place.path("e")).args(["-name", ".*.rdcp-*"]).output().unwrap();
    assert!(find.stdout.split(|&byte| byte == b'\n').count() < 10, "{find:?}");
}

/// A directory that cannot be made is one failure, with its whole path.
#[test]
fn directory_that_fails_is_reported_once() {
    let place = Place::new();
    for name in ["s/a/b/f", "s/a/b/c/g", "s/x"] {
        place.write(name, "new");
    }
    place.write("d/a/b", "a file");
    let ran = place.run("rdcp", ["-r", "s/.", &place.on_host("d")]).expect(23);
    let sentence = format!("rdcp: h: cannot make {}: not a directory\n", place.path("d/a/b").display());
    assert_eq!((ran.err, place.read("d/x")), (sentence, b"new".to_vec()));
}

/// A file that another copy is writing is named, and the others are copied. Its list is long, so that an answer for it may
/// arrive while the list is still processed.
#[test]
fn file_that_another_copy_writes_is_named() {
    let place = Place::new();
    place.write("s/big", bytes(20_000_000));
    (0..900).for_each(|number| _ = place.write(&format!("s/x{number}"), ""));
    let name = rdma_pipe::tree::temporary_name(b"big", b"file");
    let path = place.write(&format!("d/{}", String::from_utf8(name).unwrap()), bytes(9_000_000));
    let held = std::fs::File::open(path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for from in ["s/.".to_owned(), place.on_host("s/.")] {
        let ran = place.run("rdcp", ["-r", &from, "d"]).expect(23);
        assert!(ran.err.contains("another transfer writes") && ran.err.contains("d/big"), "{}", ran.err);
        assert_eq!(place.names("d").len(), 901);
    }
    drop(held);
    place.run("rdcp", ["-r", "s/.", "d"]).expect(0);
    assert_eq!(place.names("d").len(), 901);
    assert!(place.read("d/big") == bytes(20_000_000));
}

/// A partial file gets the mode that a new file would get; it is not continued if others could have opened it meanwhile.
#[test]
fn continued_file_has_the_mode_of_a_new_one() {
    let place = Place::new();
    place.write("f", bytes(20_000_000));
    for (first, then, mode) in [("022", "077", 0o600), ("077", "022", 0o644)] {
        // The far side holds a lock as long as it writes.
        let interrupted = format!(
            "umask {first}; rdcp --bwlimit 8M f d & pid=$!; \
            until [ -n \"$(find . -maxdepth 1 -name '.d.rdcp-*' -size +2M)\" ]; do sleep .01; done; kill -9 $pid; \
            until flock -n .d.rdcp-* true; do sleep .02; done"
        );
        place.shell(&interrupted).expect(0);
        let ran = place.shell(&format!("umask {then}; rdcp --json f d")).expect(0);
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(report["bytes"].as_u64().unwrap() < 20_000_000, then == "022", "{}", ran.out);
        assert_eq!(place.path("d").metadata().unwrap().permissions().mode() & 0o777, mode);
        assert_eq!(place.names("."), ["bin", "d", "f"]);
        remove(&place.path("d"));
    }
}

/// Entries of a type that does not give way fail in a trial run as in the real one, and then nothing is deleted.
#[test]
fn trial_run_reports_what_would_be_in_the_way() {
    let place = Place::new();
    place.write("s/rel/a", "a");
    let lines = |text: &str| -> Vec<String> {
        // A trial run does not report the other names of a file that fails.
        let is_own = |line: &&str| line.starts_with("deleting") || line.starts_with("rdcp:");
        let lines = text.lines().filter(is_own).filter(|line| !line.ends_with(" was not copied"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for before in ["small", "link", "empty", "tree"] {
        for after in ["small", "link", "same", "fifo", "tree"] {
            for options in ["", "--sync", "--sync --delete", "--sync --delete --exclude pattern"] {
                for name in ["d", "e"] {
                    remove(&place.path(name));
                }
                make(&place, before);
                place.shell("cp -a s d && echo surplus > d/surplus && cp -a d e").expect(0);
                if after == "fifo" {
                    remove(&place.path("s/x"));
                    place.shell("mkfifo s/x").expect(0);
                } else {
                    make(&place, after);
                }
                let run = |trial: &str| place.shell(&format!("rdcp -rHDv {trial} {options} s/. d"));
                let pretended = run("-n");
                assert!(is_same(&place.path("d"), &place.path("e")));
                let real = run("");
                let case = format!("{before} to {after} {options}: {} {}", real.err, pretended.err);
                assert_eq!(pretended.status, real.status, "{case}");
                assert_eq!(lines(&pretended.err), lines(&real.err), "{case}");
            }
        }
    }
}
