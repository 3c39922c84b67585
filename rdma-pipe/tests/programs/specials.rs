//! Tests FIFOs, sockets and device nodes.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use crate::common::{Place, may_not_run, remove};
use crate::directories::access_list;

/// Makes a folder with a file, a FIFO of two names and a socket, and a device node if this user may make one.
fn make(place: &Place) -> bool {
    place.write("s/file", "data");
    UnixListener::bind(place.path("s/socket")).unwrap();
    place.shell("mkfifo -m 640 s/fifo && ln s/fifo s/other && chmod 755 s/socket").expect(0);
    let has_device = place.shell("mknod -m 604 s/device c 1 3 && chown 12:34 s/device").status == 0;
    place.shell("touch -h -d 2001-02-03 s/*").expect(0);
    has_device
}

/// Describes the entries of a folder: type, mode, owner, number of names, time and device.
fn list(place: &Place, folder: &str) -> String {
    place.shell(&format!("cd {folder} && stat -c '%n %F %a %u %g %h %Y %t %T' *")).expect(0).out
}

/// A FIFO of that name has no reader, so to open it would block.
#[test]
fn special_file_takes_the_place_of_another() {
    let place = Place::new();
    let has_device = make(&place);
    for name in ["fifo", "socket", "device"].into_iter().take(if has_device { 3 } else { 2 }) {
        for to in [format!("h:$PWD/{name}"), name.to_owned()] {
            for options in ["-a", "-a", "-a --sync", "-aD -n"] {
                let ran = place.shell(&format!("timeout 60 rdcp {options} s/{name} {to}"));
                assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{options} {to}");
            }
            let of = |path: &str| place.shell(&format!("stat -c '%F %a %u %g %Y %t %T' {path}")).expect(0).out;
            assert_eq!(of(name), of(&format!("s/{name}")));
            // Another kind.
            place.shell(&format!("rm {name}; mkfifo {name}; timeout 60 rdcp -a s/{name} {to}")).expect(0);
            assert_eq!(of(name), of(&format!("s/{name}")));
        }
    }
    // A link takes its place too.
    place.shell("ln -s nowhere s/link; mkfifo taken; timeout 60 rdcp -a s/link taken").expect(0);
    assert_eq!(place.path("taken").read_link().unwrap().to_str(), Some("nowhere"));
    // The name of a stream leads to a file of the starter.
    let ran = place.shell("timeout 60 rdcp -a s/fifo /dev/stderr 2>errors").expect(23);
    assert_eq!((place.path("errors").is_file(), ran.err.as_str()), (true, ""));
    // A file is written to the FIFO, and not instead of it.
    let ran = place
        .shell("timeout 60 cat fifo > got & timeout 60 rdcp -a s/file fifo; status=$?; wait; exit $status")
        .expect(0);
    assert_eq!((place.read("got"), ran.err.as_str()), (b"data".to_vec(), ""));
}

/// Each host of a chain but the last could only open it, and forward nothing.
#[test]
fn special_file_takes_the_place_of_another_on_each_host_of_a_chain() {
    let place = Place::new();
    let has_device = make(&place);
    let to = "h1:$PWD/d1 h2:$PWD/d2 h3:$PWD/d3";
    let of = |path: &str| place.shell(&format!("stat -c '%F %a %u %g %Y %t %T' {path}")).expect(0).out;
    for name in ["fifo", "socket", "device"].into_iter().take(if has_device { 3 } else { 2 }) {
        for options in ["-a", "-a", "-a --sync", "-a -n"] {
            let ran = place.shell(&format!("timeout 60 rdcp {options} s/{name} {to}"));
            assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{options} {name}");
        }
        ["d1", "d2", "d3"].iter().for_each(|copy| assert_eq!(of(copy), of(&format!("s/{name}"))));
    }
    // A file is not written in the place of a device, and the other hosts get it.
    place.shell("rm d? && mkfifo d1 d2").expect(0);
    let ran = place.shell(&format!("timeout 60 rdcp s/file {to}")).expect(23);
    for host in 1..=2 {
        let text = format!("d{host}: a device can be a destination only on the last host of a chain\n");
        assert!(ran.err.contains(&text), "{}", ran.err);
        assert!(of(&format!("d{host}")).starts_with("fifo"));
    }
    assert_eq!(place.read("d3"), b"data");
}

/// The copy itself opens the device, or writes to it.
#[test]
fn errors_of_a_device_name_its_path_and_the_reason() {
    let place = Place::new();
    place.write("file", "data");
    let mut cases = vec![("/dev/full", "no space left on device")];
    if place.shell("mknod none c 4095 1048575").status == 0 {
        cases.push(("none", "no such device or address"));
    }
    for (name, reason) in cases {
        for (from, to) in [("file", ""), ("file", "h:"), ("h:$PWD/file", "")] {
            let path = if to.is_empty() { PathBuf::from(name) } else { place.path(name) };
            let ran = place.shell(&format!("timeout 60 rdcp {from} {to}{}", path.display())).expect(23);
            let (line, end) = (ran.err.trim_end(), format!("{}: {reason}", path.display()));
            let host = if to.is_empty() { "" } else { "h: " };
            let is_expected = line.starts_with(&format!("rdcp: {host}cannot write ")) && line.ends_with(&end);
            assert!(is_expected && line.lines().count() == 1, "{from} {to}: {line}");
        }
    }
}

#[test]
fn special_files_are_copied_as_with_cp_and_rsync() {
    let place = Place::new();
    let has_device = make(&place);
    let expected = list(&place, "s");
    place.shell("cp -a s theirs").expect(0);
    assert_eq!(list(&place, "theirs"), expected);
    for options in ["-a", "-a --sync --delete"] {
        for place_of in ["h:$PWD/d", "d"] {
            let copy = || place.shell(&format!("rdcp {options} s/. {place_of}")).expect(0);
            copy();
            assert_eq!(list(&place, "d"), expected, "{options}");
            let inodes = || place.shell("stat -c %i d/fifo d/socket d/device").out;
            let before = inodes();
            copy();
            assert_eq!(inodes(), before, "{options}: unchanged ones stay");
            // Metadata, kinds and types that have changed.
            place.shell("chmod 777 d/fifo; touch d/socket; rm d/other; ln -s file d/other").expect(0);
            if has_device {
                place.shell("rm d/device; mknod d/device c 1 5; chown 12:34 d/fifo").expect(0);
            }
            copy();
            assert_eq!(list(&place, "d"), expected, "{options}: changed ones");
            remove(&place.path("d"));
        }
    }
    // Other types give way to special files, and special files to other types.
    place.shell("mkdir -p d/fifo d/file; mkfifo d/socket d/gone; echo old > d/other").expect(0);
    place.shell("rm -r d/file; mkfifo d/file; rdcp -a --sync --delete s/ d").expect(0);
    assert_eq!(list(&place, "d"), expected);
    place.shell("rm s/fifo; echo now > s/fifo; rm s/other; mkdir s/other; rdcp -a --sync s/ d").expect(0);
    assert_eq!((place.read("d/fifo"), place.path("d/other").is_dir()), (b"now\n".to_vec(), true));
    // Without --sync, a directory stays, as with cp.
    remove(&place.path("d"));
    place.shell("rm -r s; mkdir -p s d/fifo; mkfifo s/fifo").expect(0);
    let ran = place.run("rdcp", ["-a", "s/.", "d"]).expect(23);
    assert!(ran.err.contains("cannot make d/fifo: is a directory"), "{}", ran.err);
    assert_eq!(place.names("d"), ["fifo"]);
    // -D alone keeps no modes.
    place.shell("umask 077; chmod 666 s/fifo; rdcp -rD s e && [ $(stat -c %a e/fifo) = 600 ]").expect(0);
}

/// As with rsync without -D, special files are skipped, which is no failure, and what has their names stays.
#[test]
fn special_files_are_skipped_without_their_option() {
    let place = Place::new();
    make(&place);
    for (from, to) in [("s/", "d"), ("s/", "h:$PWD/d"), ("h:$PWD/s/", "d"), ("h:$PWD/s/", "i:$PWD/d")] {
        place.write("d/socket", "stays");
        place.write("d/surplus", "old");
        let ran = place.shell(&format!("rdcp -r --sync --delete {from} {to}")).expect(0);
        assert!(
            ran.err.contains("skipping non-regular file ") && ran.err.contains("s/fifo; copy it with -D"),
            "{ran:?}"
        );
        assert_eq!((place.names("d"), place.read("d/socket")), (vec!["file".into(), "socket".into()], b"stays".into()));
        remove(&place.path("d"));
    }
    let ran = place.run("rdcp", ["-r", "--json", "s", "d"]).expect(0);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["errors"].as_array().map(Vec::len), Some(0), "{}", ran.out);
    assert!(report["skipped"].as_array().unwrap().len() >= 3, "{}", ran.out);
    // A skipped entry does not hide a failure.
    place.run("rdcp", ["-r", "s", "missing", "d"]).expect(23);
}

/// What the command names is a failure if it is not copied, also beside other operands.
#[test]
fn special_files_that_the_command_names_are_failures_without_their_option() {
    let place = Place::new();
    make(&place);
    place.write("list", "fifo\nfile\n");
    let text = "not a regular file; -D copies the node itself, rdpipe what is read from it";
    for host in ["", "h:$PWD/"] {
        for (line, name) in [
            ("-q s/fifo", "s/fifo"),
            ("-r s/socket", "s/socket"),
            ("/dev/stdin", "/dev/stdin"),
            ("-q /dev/null", "/dev/null"),
        ] {
            let ran = place.shell(&format!("echo hi | rdcp {line} {host}d")).expect(23);
            assert!(ran.err.contains(&format!("cannot copy {name}: {text}")), "{line}: {ran:?}");
            assert!(!place.path("d").exists(), "{line}");
        }
        for line in ["s/fifo s/file", "--sync s/fifo s/file", "--files-from list s"] {
            let ran = place.shell(&format!("mkdir d; rdcp {line} {host}d")).expect(23);
            assert!(ran.err.contains(&format!("cannot copy s/fifo: {text}")), "{line}: {ran:?}");
            assert_eq!(place.names("d"), ["file"], "{line}: the rest is copied");
            remove(&place.path("d"));
        }
    }
    // A pattern excludes it, so it is not requested.
    place.shell("mkdir d && rdcp --exclude fifo s/fifo s/file d").expect(0);
}

/// The rest is copied, and the error names the node.
#[test]
fn device_node_that_cannot_be_made_is_reported() {
    let place = Place::new();
    if !make(&place) {
        may_not_run("this user cannot make device nodes");
        return;
    }
    place.shell("chown 0:0 s/device").expect(0);
    let user = "unshare --user --map-user=1000 --map-group=1000";
    if place.shell(&format!("{user} true")).status != 0 {
        may_not_run("no user namespace here");
        return;
    }
    let ran = place.shell(&format!("{user} rdcp -a s/. d")).expect(23);
    assert!(ran.err.contains("cannot make the device node d/device: operation not permitted"), "{}", ran.err);
    assert_eq!(place.names("d"), ["fifo", "file", "other", "socket"]);
    // A forced command makes none for its clients.
    let rsh = place.write("rsh", "#!/bin/sh\nSSH_CONNECTION='1 1 127.0.0.1 22' exec rdcp --server --root root\n");
    std::fs::set_permissions(rsh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(place.path("root")).unwrap();
    let ran = place.run("rdcp", ["-a", "-e", "./rsh", "s", "h:d"]).expect(23);
    assert!(ran.err.contains("a server with --root makes none"), "{}", ran.err);
    assert_eq!(place.names("root/d"), ["fifo", "file", "other", "socket"]);
}

/// A source without /proc cannot read the list. The copy must not lose it silently.
#[test]
fn access_list_of_a_fifo_is_not_lost_without_proc() {
    let place = Place::new();
    place.shell("mkdir s && mkfifo s/fifo && ln -s to s/link").expect(0);
    let list = access_list([6, 6, 4, 6, 0]);
    let path = place.path("s/fifo");
    let set = rustix::fs::setxattr(path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty());
    let hidden = "unshare --user --map-root-user --mount sh -c \"mount -t tmpfs none /proc && $*\"";
    if set.is_err() || place.shell(&format!("set -- true; {hidden}")).status != 0 {
        may_not_run("no such attributes, or no mounts in a user namespace, here");
        return;
    }
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    place.write("bin/ssh", ssh.replace("exec sh -c \"$*\"", &format!("exec {hidden}")));
    let ran = place.run("rdcp", ["-a", &format!("{}/.", place.on_host("s")), "d"]).expect(23);
    assert!(ran.err.contains("fifo: /proc is not mounted"), "{}", ran.err);
    assert_eq!(place.names("d"), ["link"]);
}
