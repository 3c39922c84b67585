//! Tests modes, owners, times and extended attributes.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use crate::common::{Place, Ran, bytes, is_same, may_not_run, remove};
use crate::directories::access_list;
use crate::machine::receive_as_other;

/// Permissions as with `cp -r`: what is private stays private, and what exists keeps its own.
#[test]
fn permissions_are_those_of_cp() {
    let place = Place::new();
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o7777;
    let set = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    for name in ["s/d/small", "s/d/new"] {
        place.write(name, "new");
    }
    place.write("s/d/large", bytes(9 << 20));
    place.write("s/d/readonly", "new");
    place.write("s/d/fixed/f", "new");
    set("s/d", 0o700);
    set("s/d/new", 0o640);
    set("s/d/readonly", 0o444);
    set("s/d/fixed", 0o555);
    for options in [&["-r"][..], &["-r", "--sync"]] {
        remove(&place.path("ours"));
        remove(&place.path("theirs"));
        for copy in ["ours", "theirs"] {
            for name in ["small", "large"] {
                std::fs::create_dir_all(place.path(copy)).unwrap();
                place.write(&format!("{copy}/old/{name}"), "old");
                set(&format!("{copy}/old/{name}"), 0o600);
            }
        }
        place.run("rdcp", options.iter().copied().chain(["s/d", &place.on_host("ours")])).expect(0);
        let cp = |from: &str, to: &str| {
            let ran = Command::new("cp").arg("-r").args([place.path(from), place.path(to)]).status();
            assert!(ran.unwrap().success());
        };
        cp("s/d", "theirs");
        for name in ["small", "large"] {
            let name = format!("old/{name}");
            place.run("rdcp", options.iter().copied().chain(["s/d/small", &place.on_host(&format!("ours/{name}"))]));
            cp("s/d/small", &format!("theirs/{name}"));
        }
        place.run("rdcp", options.iter().copied().chain(["s/d/large", &place.on_host("ours/old/large")])).expect(0);
        for name in ["d", "d/small", "d/new", "d/large", "d/readonly", "d/fixed", "old/small", "old/large"] {
            let [ours, theirs] = ["ours", "theirs"].map(|copy| mode(&format!("{copy}/{name}")));
            assert_eq!(ours, theirs, "{name}: {ours:o}, not {theirs:o}");
        }
    }
}

/// An owner that does not exist here is a failure, but the data is copied.
#[test]
fn owner_that_cannot_be_set_is_reported_and_the_data_arrives() {
    let place = Place::new();
    place.write("s/small", "data");
    place.write("s/large", bytes(9 << 20));
    for name in ["s/small", "s/large"] {
        if std::os::unix::fs::chown(place.path(name), Some(12345), Some(12345)).is_err() {
            may_not_run("this user cannot change owners");
            return;
        }
    }
    // In this user namespace, root is the only user.
    let rdcp = Path::new(env!("CARGO_BIN_EXE_rdcp"));
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).arg(rdcp).args(["-a", "s", "d"]).current_dir(place.path("."));
    std::fs::create_dir(place.path("d")).unwrap();
    let ran = command.output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    if err.contains("unshare") {
        may_not_run(&format!("no user namespace here: {err}"));
        return;
    }
    assert_eq!(ran.status.code(), Some(23), "{err}");
    assert!(err.contains("cannot set the metadata of d/s/small: invalid argument"), "{err}");
    assert!(is_same(&place.path("s"), &place.path("d/s")));
}

/// The destination of `SRC/.` is a copy of SRC, and links have owners and times. As with cp and rsync.
#[test]
fn top_directory_and_links_have_their_metadata() {
    use std::os::unix::fs::MetadataExt as _;
    let place = Place::new();
    let found = |name: &str| {
        let found = place.path(name).symlink_metadata().unwrap();
        (found.mode() & 0o7777, found.uid(), found.mtime())
    };
    place.write("s/secret", "secret");
    symlink("secret", place.path("s/link")).unwrap();
    let is_root = std::os::unix::fs::lchown(place.path("s/link"), Some(1234), None).is_ok();
    place.shell("touch -h -d 2001-01-01 s/link && chmod 750 s && touch -d 2002-02-02 s").expect(0);
    for options in ["-r", "-a", "-a --sync --delete"] {
        place.shell(&format!("umask 022; rdcp {options} s/. {}", place.on_host("d"))).expect(0);
        assert_eq!(found("d"), found("s"), "{options}");
        assert_eq!(found("d/link").2, found("s/link").2, "{options}");
        if options != "-r" && is_root {
            assert_eq!(found("d/link").1, 1234, "{options}");
        }
        // A link that is up to date stays.
        let before = place.path("d/link").symlink_metadata().unwrap().ino();
        place.shell(&format!("rdcp {options} s/. {}", place.on_host("d"))).expect(0);
        assert_eq!(place.path("d/link").symlink_metadata().unwrap().ino(), before, "{options}");
        remove(&place.path("d"));
    }
    // What exists keeps its permissions without -p.
    std::fs::create_dir(place.path("d")).unwrap();
    std::fs::set_permissions(place.path("d"), Permissions::from_mode(0o711)).unwrap();
    place.run("rdcp", ["-r", "s/.", "d"]).expect(0);
    assert_eq!(found("d").0, 0o711);
    place.run("rdcp", ["-a", "s/.", "d"]).expect(0);
    assert_eq!(found("d"), found("s"));
}

/// What is private at the source is private from its first byte on, whatever the destination had.
#[test]
fn private_files_are_private_while_they_are_copied() {
    let place = Place::new();
    let set = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    place.write("sec", bytes(30_000_000));
    place.write("d/sec", "public");
    set("sec", 0o600);
    set("d/sec", 0o644);
    let mut copy = place.command("rdcp", ["-a", "--bwlimit", "8M", "sec", &place.on_host("d")]).spawn().unwrap();
    let partial = loop {
        if let Some((partial, _)) = place.partial("d") {
            break partial;
        }
        assert!(copy.try_wait().unwrap().is_none());
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    let mode = partial.metadata().unwrap().permissions().mode();
    copy.kill().unwrap();
    copy.wait().unwrap();
    assert_eq!(mode & 0o777, 0o600);
}

/// A directory protects what is below it, also while the copy writes into one that others may still enter.
#[test]
fn directory_that_becomes_private_is_private_before_its_files_arrive() {
    for (from, to) in [("s/dir", "d"), ("s/dir/.", "d/dir")] {
        let place = Place::with_tcp();
        let set = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
        place.write("s/dir/large", bytes(8_000_000));
        place.write("d/dir/old", "public");
        set("s/dir", 0o700);
        set("d/dir", 0o755);
        let to = place.on_host(to);
        let mut copy = place.command("rdcp", ["-a", "--bwlimit", "8M", from, &to]).spawn().unwrap();
        while place.partial("d/dir").is_none() {
            assert!(copy.try_wait().unwrap().is_none());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(place.path("d/dir").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        Ran::from(&mut copy, b"").expect(0);
    }
}

/// Directories and files that their owner may not write, and targets that he may not list, as an ordinary user.
#[test]
fn users_without_privileges_copy_what_is_read_only() {
    // Files of root belong to the user of this namespace, without capabilities. Some containers limit root, too.
    for user in [
        "unshare --user --map-user=1000 --map-group=1000",
        "setpriv --bounding-set -dac_override,-dac_read_search --inh-caps -dac_override,-dac_read_search",
    ] {
        let place = Place::new();
        if place.shell(&format!("{user} true")).status == 0 {
            copy_what_is_read_only(&place, user);
        } else {
            may_not_run(&format!("this user may not run {user}"));
        }
    }
}

fn copy_what_is_read_only(place: &Place, user: &str) {
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o7777;
    let set = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    place.write("s/dir/sub/f", "one");
    place.write("s/dir/readonly", "one");
    for options in ["-a --sync --delete", "-r --sync"] {
        set("s/dir/readonly", 0o444);
        set("s/dir", 0o555);
        for text in ["one", "two", "three"] {
            place.write("s/dir/sub/f", text);
            place.shell(&format!("{user} rdcp {options} s/ d")).expect(0);
            assert_eq!((place.read("d/dir/sub/f"), mode("d/dir")), (text.into(), 0o555), "{options}");
            assert_eq!((place.read("d/dir/readonly"), mode("d/dir/readonly")), (b"one".into(), 0o444), "{options}");
        }
        set("d/dir", 0o333);
        place.shell(&format!("{user} rdcp {options} s/ d")).expect(0);
        set("d/dir", 0o755);
        remove(&place.path("d"));
        set("s/dir", 0o755);
    }
    // What is read-only is deleted, and gives way.
    for name in ["d/old/ro/f", "d/dir/f"] {
        place.write(name, "old");
    }
    set("d/old/ro", 0o555);
    set("d/old", 0o555);
    set("d/dir", 0o500);
    place.write("t/dir", "now a file");
    place.shell(&format!("{user} rdcp -r --sync --delete t/ d")).expect(0);
    assert_eq!((place.names("d"), place.read("d/dir")), (vec!["dir".into()], b"now a file".to_vec()));
    std::fs::create_dir(place.path("target")).unwrap();
    set("target", 0o333);
    place.shell(&format!("{user} rdcp -r --fsync s/dir target")).expect(0);
    assert_eq!(place.read("target/dir/sub/f"), b"three");
    // A copy of a file that its owner may not write is continued.
    place.write("large", bytes(30_000_000));
    set("large", 0o444);
    let start = format!(
        "{user} rdcp --bwlimit 8M large copy & pid=$!; \
        until [ -n \"$(find . -maxdepth 1 -name '.copy.rdcp-*' -size +4M)\" ]; do sleep .01; done; kill -9 $pid"
    );
    place.shell(&start).expect(0);
    // The far side holds a lock as long as it writes.
    place.shell("until flock -n .copy.rdcp-???????????????? true; do sleep .02; done").expect(0);
    let ran = place.shell(&format!("{user} rdcp --json large copy")).expect(0);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert!(report["bytes"].as_u64().unwrap() < 29_000_000, "{}", ran.out);
    assert_eq!((place.read("copy") == bytes(30_000_000), mode("copy")), (true, 0o444));
}

/// Attributes make a list longer than a message may be, so that it is sent in parts.
#[test]
fn lists_with_many_attributes_arrive() {
    let place = Place::new();
    let value = "v".repeat(3_000);
    for number in 0..600 {
        let path = place.write(&format!("s/{number}"), "");
        for name in ["user.a", "user.b", "user.c", "user.d"] {
            if rustix::fs::setxattr(&path, name, value.as_bytes(), rustix::fs::XattrFlags::empty()).is_err() {
                may_not_run("no such attributes here");
                return;
            }
        }
    }
    place.run("rdcp", ["-a", "s", &place.on_host("d")]).expect(0);
    let mut found = vec![0; 4_000];
    let length = rustix::fs::getxattr(place.path("d/599"), "user.d", found.as_mut_slice()).unwrap();
    assert_eq!((&found[..length], place.names("d").len()), (value.as_bytes(), 600));
}

/// The receiver owns one of the two files, which no user may write, and not the other.
#[test]
fn attributes_that_another_user_cannot_set_are_failures() {
    let place = Place::new();
    place.write("s/own", "data");
    place.write("s/other", "data");
    std::fs::create_dir(place.path("d")).unwrap();
    place.write("d/keep", "");
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(place.path(name), "user.k", value, rustix::fs::XattrFlags::empty())
    };
    if set("s/own", b"1").is_err() || !receive_as_other(&place) {
        may_not_run("no attributes, or no other user, here");
        return;
    }
    let to = place.on_host("d");
    for options in ["-rpX", "-rX"] {
        place.shell("chmod 444 s/own; chmod 644 s/other").expect(0);
        place.run("rdcp", [options, "--sync", "s/", &to]).expect(0);
        place.shell("chown 0:0 d/other").expect(0);
        set("s/own", options.as_bytes()).unwrap();
        place.run("rdcp", [options, "--sync", "s/", &to]).expect(0);
        let mut value = [0; 10];
        let length = rustix::fs::getxattr(place.path("d/own"), "user.k", &mut value[..]).unwrap();
        let mode = std::fs::metadata(place.path("d/own")).unwrap().permissions().mode() & 0o777;
        assert_eq!((&value[..length], mode), (options.as_bytes(), 0o444));
        set("s/other", b"2").unwrap();
        let ran = place.run("rdcp", [options, "--sync", "s/", &to]).expect(23);
        assert!(ran.err.contains("d/other: permission denied"), "{}", ran.err);
        place.shell("rm d/own d/other").expect(0);
        _ = rustix::fs::removexattr(place.path("s/other"), "user.k");
    }
}

/// A set-group-ID file of a private group would otherwise become one of the receiver's group.
#[test]
fn set_id_bits_are_kept_only_with_the_user_and_the_group_of_the_source() {
    let place = Place::new();
    let make = "mkdir s && cd s && echo x > user && echo x > group && echo x > both && echo x > own && mkdir dir
        chown 12345 user && chown :12345 group && chown 12345:12345 both dir
        chmod 4755 user && chmod 2755 group && chmod 6755 both own dir";
    if place.shell(make).status != 0 {
        may_not_run("this user cannot change owners");
        return;
    }
    let list = |folder: &str| place.shell(&format!("cd {folder} && stat -c '%n %a %u:%g' *")).expect(0).out;
    // In a directory, the bits give no privilege. As with cp and rsync, it keeps them.
    let new = "both 755 0:0\ndir 6755 0:0\ngroup 755 0:0\nown 6755 0:0\nuser 755 0:0\n";
    // The copy of one half of the owner.
    let halves = "both 4755 12345:0\ndir 6755 12345:0\ngroup 755 0:0\nown 2755 7:0\nuser 755 0:0\n";
    for to in ["d", "h:$PWD/d"] {
        place.shell(&format!("rdcp -rp s/. {to}")).expect(0);
        assert_eq!(list("d"), new, "{to}: new entries");
        place.shell("chmod ug-s d/*").expect(0);
        place.shell(&format!("rdcp -rp --sync s/ {to}")).expect(0);
        assert_eq!(list("d"), new, "{to}: existing entries");
        place.shell("chown 12345 d/both d/dir; chown 7 d/own; chmod ug-s d/*").expect(0);
        place.shell(&format!("rdcp -rp --sync s/ {to}")).expect(0);
        assert_eq!(list("d"), halves, "{to}: entries of others");
        place.shell(&format!("rdcp -a --sync s/ {to}")).expect(0);
        assert_eq!(list("d"), list("s"), "{to}: with owners");
        remove(&place.path("d"));
    }
}

/// Like set-ID bits, file capabilities give a privilege to those that the owner and the group allow to run the file.
#[test]
fn capabilities_are_kept_only_with_the_owner_of_the_source() {
    let place = Place::new();
    place.shell("mkdir s && cd s && echo x > own && echo x > user && echo x > group && echo x > none").expect(0);
    // CAP_NET_RAW, permitted and effective.
    let value = [&[1_u8, 0, 0, 2, 0, 0x20][..], &[0; 14]].concat();
    let set = |name: &str| rustix::fs::setxattr(place.path(name), NAME, &value, rustix::fs::XattrFlags::empty());
    const NAME: &str = "security.capability";
    let owned = place.shell("cd s && chown 12345 user && chown :12345 group && chmod 755 *").status == 0;
    if !owned || ["s/own", "s/user", "s/group"].into_iter().any(|name| set(name).is_err()) {
        may_not_run("this user cannot set capabilities or owners");
        return;
    }
    let has = |folder: &str| {
        ["own", "user", "group", "none"].map(|name| {
            let found = rustix::fs::getxattr(place.path(folder).join(name), NAME, &mut [0_u8; 99][..]);
            found == Ok(value.len())
        })
    };
    let only_own = [true, false, false, false];
    for to in ["d", "h:$PWD/d"] {
        for options in ["-rX", "-rpX"] {
            place.shell(&format!("rdcp {options} s/. {to}")).expect(0);
            assert_eq!(has("d"), only_own, "{options} {to}: new files");
            // A program of another version had them, or the source has lost them.
            for name in ["user", "group", "none"] {
                set(&format!("d/{name}")).unwrap();
            }
            place.shell(&format!("rdcp {options} --sync s/ {to}")).expect(0);
            assert_eq!(has("d"), only_own, "{options} {to}: existing files");
            place.shell(&format!("rdcp {options}o --sync s/ {to}")).expect(0);
            assert_eq!(has("d"), has("s"), "{options}o {to}");
            remove(&place.path("d"));
        }
    }
}

/// Links have only labels of the system; special files may also have access control lists.
#[test]
fn links_and_special_files_keep_their_attributes() {
    let place = Place::new();
    place.shell("mkdir s && ln -s nowhere s/link && mkfifo s/fifo").expect(0);
    UnixListener::bind(place.path("s/socket")).unwrap();
    // Another name of a socket, which cannot be opened.
    place.shell("ln s/socket s/socket-too").expect(0);
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::lsetxattr(place.path(name), attribute, value, rustix::fs::XattrFlags::empty())
    };
    let get = |name: &str, attribute: &str| {
        let mut value = [0; 100];
        rustix::fs::lgetxattr(place.path(name), attribute, &mut value[..]).map(|length| value[..length].to_vec())
    };
    let names = ["link", "fifo", "socket"];
    if names.iter().any(|name| set(&format!("s/{name}"), "trusted.k", b"1").is_err()) {
        may_not_run("this user cannot set such attributes");
        return;
    }
    let server = "#!/bin/sh\nSSH_CONNECTION='1 1 127.0.0.1 22' exec rdcp --server --root .\n";
    std::fs::set_permissions(place.write("rsh", server), Permissions::from_mode(0o755)).unwrap();
    for (value, options) in [(b"1", "-a"), (b"2", "-a --sync"), (b"3", "-rDX")] {
        for name in names {
            set(&format!("s/{name}"), "trusted.k", value).unwrap();
        }
        for (from, to) in [("s/.", "d"), ("s/.", "h:$PWD/e"), ("-e ./rsh h:s/.", "f"), ("-e ./rsh s/.", "h:g")] {
            place.shell(&format!("rdcp {options} {from} {to}")).expect(0);
        }
        for (folder, name) in ["d", "e", "f", "g"].iter().flat_map(|folder| names.map(|name| (folder, name))) {
            let copied = get(&format!("{folder}/{name}"), "trusted.k");
            assert_eq!(copied.as_deref(), Ok(&value[..]), "{options} {folder}/{name}");
        }
    }
    let acl = access_list([6, 6, 4, 6, 0]);
    if set("s/fifo", "system.posix_acl_access", &acl).is_err() {
        may_not_run("no access control lists here");
        return;
    }
    let mode = || std::fs::metadata(place.path("d/fifo")).unwrap().permissions().mode() & 0o777;
    place.shell("rdcp -a --sync s/. d").expect(0);
    assert_eq!((get("d/fifo", "system.posix_acl_access"), mode()), (Ok(acl), 0o660));
    // Without the list, the group gets only what the list gave it.
    place.shell("chmod 640 s/fifo").expect(0);
    rustix::fs::removexattr(place.path("s/fifo"), "system.posix_acl_access").unwrap();
    place.shell("rdcp -rDX --sync s/. d").expect(0);
    assert_eq!((get("d/fifo", "system.posix_acl_access").is_err(), mode()), (true, 0o640));
}

/// Only some file systems have times before 1901 and after 2446.
#[test]
fn times_that_the_destination_cannot_hold_are_failures_and_copied_once() {
    let (place, Ok(wide)) = (Place::new(), tempfile::tempdir_in("/dev/shm")) else {
        may_not_run("no tmpfs here");
        return;
    };
    let from = wide.path().display();
    let make = "mkdir dir && echo data > old && echo data > new && echo data > usual && ln -s nowhere link
        touch -h -d 1800-01-01 old dir link && touch -d 2600-01-01 new && touch -d 1960-01-01 usual";
    place.shell(&format!("cd {from} && {make}")).expect(0);
    let years = |folder: &str| place.shell(&format!("cd {folder} && date -r old +%Y && date -r new +%Y")).expect(0).out;
    place.shell("echo data > old && echo data > new && touch -d 1800-01-01 old && touch -d 2600-01-01 new").expect(0);
    if years(&from.to_string()) != "1800\n2600\n" || years(".") != "1901\n2446\n" {
        may_not_run("no such file systems here");
        return;
    }
    let report = |ran: &Ran| serde_json::from_str::<serde_json::Value>(&ran.out).unwrap();
    for options in ["-r", "-r --sync", "-a --sync", "-a --sync -c", "-r --sync -n"] {
        let ran = place.shell(&format!("rdcp --json {options} {from}/. d"));
        let is_dry = options.ends_with("-n");
        assert_eq!(ran.status, if is_dry { 0 } else { 23 }, "{options}: {ran:?}");
        for name in ["old", "new", "dir", "link"].into_iter().filter(|_| !is_dry) {
            let text = format!("cannot set the metadata of d/{name}: the file system cannot store the time");
            assert!(ran.err.contains(&text), "{options}: {}", ran.err);
        }
        assert!(!ran.err.contains("usual"), "{options}: {}", ran.err);
        let bytes = if options == "-r" { 15 } else { 0 };
        assert_eq!(report(&ran)["bytes"].as_u64(), Some(bytes), "{options}: {}", ran.out);
        assert_eq!(years("d"), "1901\n2446\n");
    }
    // A file that has changed is copied, whatever time it has.
    place.shell(&format!("echo longer > {from}/old; touch -d 1800-01-01 {from}/old")).expect(0);
    place.shell(&format!("rdcp -r --sync {from}/ d")).expect(23);
    place.shell("echo other > d/new; touch -d 2001-01-01 d/new").expect(0);
    place.shell(&format!("rdcp -r --sync {from}/ d")).expect(23);
    assert_eq!((place.read("d/old"), place.read("d/new")), (b"longer\n".to_vec(), b"data\n".to_vec()));
}

/// On such a file system, the copy tries a time with a named file. The injected error is that of FAT, NFS and FUSE.
#[test]
fn times_that_cannot_be_stored_are_compared_without_unnamed_files() {
    let (place, Ok(wide)) = (Place::new(), tempfile::tempdir_in("/dev/shm")) else {
        may_not_run("no tmpfs here");
        return;
    };
    let from = wide.path().display();
    place.shell(&format!("echo data > {from}/old && touch -d 1800-01-01 {from}/old && mkdir d")).expect(0);
    let inject = "strace -f -q -o trace -P . -e inject=openat:error=EOPNOTSUPP";
    let copy = |options: &str| {
        let ran = place.shell(&format!("{inject} rdcp --json {options} {from}/. d"));
        let report = serde_json::from_str::<serde_json::Value>(&ran.out).unwrap_or_default();
        (ran.status, report["bytes"].as_u64())
    };
    if place.shell(&format!("{inject} true && touch -d 1800-01-01 d && [ $(date -r d +%Y) = 1901 ]")).status != 0 {
        may_not_run("no strace or no such file system here");
        return;
    }
    assert_eq!(copy("-r --sync"), (23, Some(5)));
    assert_eq!(copy("-r --sync"), (23, Some(0)));
    let trace = String::from_utf8(place.read("trace")).unwrap();
    assert!(trace.contains("O_TMPFILE"), "{trace}");
    assert_eq!((place.names("d"), place.read("d/old")), (vec!["old".into()], b"data\n".to_vec()));
    place.shell(&format!("echo other > {from}/old; touch -d 1800-01-01 {from}/old")).expect(0);
    assert_eq!(copy("-r --sync -n").0, 0);
    assert_eq!(copy("-r --sync"), (23, Some(6)));
}

/// Many file systems of FUSE ignore a call that sets only one of the two times.
#[test]
fn times_arrive_on_file_systems_of_fuse() {
    let place = Place::with_tcp();
    place.write("src/d/f", "x");
    let script = "mkdir back m && touch -h -d @1600000000 src/d/f src/d src || exit 1
        bindfs --no-allow-other back m || exit 77
        trap 'fusermount -u m || umount m' EXIT
        rdcp -r src h:$PWD/m || exit 2
        stat -c %Y m/src m/src/d m/src/d/f";
    let ran = place.shell(script);
    if matches!(ran.status, 77 | 127) {
        may_not_run(&format!("no bindfs here: {}", ran.err));
        return;
    }
    assert_eq!((ran.status, ran.out.as_str()), (0, &*"1600000000\n".repeat(3)), "{}", ran.err);
}
