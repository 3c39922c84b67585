//! Tests directories as destinations: their names, permissions and attributes.

use std::fs::Permissions;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rdma_pipe::tree::Directory;
use rustix::fs::{OFlags, XattrFlags};
use rustix::process::Pid;

use crate::common::{Place, Ran, break_connections, bytes, is_same, may_not_run, remove};

/// Runs a program as a user without privileges, which owns the files of root.
const USER: &str = "unshare --user --map-user=1000 --map-group=1000";

/// As with cp, a slash after a missing name stands for the copy of a directory, and for nothing else.
#[test]
fn missing_destination_with_a_slash_becomes_the_directory() {
    let place = Place::new();
    place.write("tree/sub/f", "data");
    place.write("file", "data");
    std::os::unix::fs::symlink("nowhere", place.path("link")).unwrap();
    let rsh = place.write("rsh", "#!/bin/sh\nSSH_CONNECTION='1 1 127.0.0.1 22' exec rdcp --server --root root\n");
    std::fs::set_permissions(rsh, Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(place.path("root")).unwrap();
    for (options, from, to, new) in [
        ("", "tree", "new/", "new"),
        ("", "h:$PWD/tree/", "new//", "new"),
        ("--sync", "tree", "h:$PWD/new/", "new"),
        ("-e ./rsh", "tree", "h:new/", "root/new"),
    ] {
        place.shell(&format!("rdcp -n -r {options} {from} {to}")).expect(0);
        assert!(!place.path(new).exists());
        for copy in ["", "/tree"] {
            place.shell(&format!("rdcp -r {options} {from} {to}")).expect(0);
            assert!(is_same(&place.path("tree"), &place.path(&format!("{new}{copy}"))) || copy.is_empty(), "{to}");
        }
        assert_eq!(place.names(new), ["sub", "tree"], "{to}");
        remove(&place.path(new));
    }
    place.shell("mkdir tree2; cp -r tree new/ && diff -r tree new && rm -r new").expect(0);
    for (from, to) in [
        ("file", "new/"),
        ("-e ./rsh file", "h:new/"),
        ("tree", "file/"),
        ("tree", "link/"),
        ("tree", "missing/new/"),
        ("tree", "new/."),
        ("tree tree2", "new/"),
    ] {
        let ran = place.shell(&format!("rdcp -r {from} {to}")).expect(23);
        assert!(ran.err.contains("directory"), "{from} {to}: {}", ran.err);
        assert!(!place.path("new").exists() && !place.path("nowhere").exists() && place.names("root").is_empty());
        if !from.starts_with('-') {
            assert_ne!(place.shell(&format!("cp -r {from} {to}")).status, 0, "cp -r {from} {to}");
        }
    }
}

/// Their owner may not list or write them. cp writes what it may, and rsync what it can.
#[test]
fn destinations_without_permissions_of_their_owner_are_written() {
    let place = Place::new();
    place.write("s/sub/f", "data");
    place.write("s/f", "data");
    if place.shell(&format!("{USER} true")).status != 0 {
        may_not_run("no user namespace here");
        return;
    }
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o7777;
    for options in ["-r", "-a", "-r --sync", "-a --sync --delete"] {
        for (top, sub) in [(0o300, 0o500), (0o500, 0o300), (0o000, 0o000)] {
            place.write("d/sub/old", "old");
            std::fs::set_permissions(place.path("d/sub"), Permissions::from_mode(sub)).unwrap();
            std::fs::set_permissions(place.path("d"), Permissions::from_mode(top)).unwrap();
            let ran = place.shell(&format!("{USER} rdcp {options} s/. d")).expect(0);
            // The test may run as a user that cannot look into such directories either.
            let given = opened(&place, ["d", "d/sub"]);
            let expected = if options.starts_with("-a") { [mode("s"), mode("s/sub")] } else { [top, sub] };
            assert_eq!(given, expected, "{options} {top:o}: {}", ran.err);
            assert_eq!(place.path("d/sub/old").exists(), !options.contains("--delete"));
            remove(&place.path("d/sub/old"));
            assert!(is_same(&place.path("s"), &place.path("d")), "{options} {top:o}");
            remove(&place.path("d"));
        }
    }
}

#[test]
#[cfg(debug_assertions)]
fn failed_copy_gives_directories_their_permissions_back() {
    let place = Place::new();
    place.write("s/dir/sub/large", bytes(9_000_000));
    place.write("s/new/large", bytes(9_000_000));
    if place.shell(&format!("{USER} true")).status != 0 {
        may_not_run("no user namespace here");
        return;
    }
    let set = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    set("s/new", 0o555);
    for options in ["-r", "-a --sync"] {
        std::fs::create_dir_all(place.path("d/dir/sub")).unwrap();
        for (name, mode) in [("d/dir/sub", 0o500), ("d/dir", 0o400), ("d", 0o300)] {
            set(name, mode);
        }
        let ran = place.shell(&format!("{USER} rdcp {options} --fault flip:3 s/. d")).expect(12);
        assert!(ran.err.contains("altered"), "{}", ran.err);
        assert_eq!(opened(&place, ["d", "d/dir", "d/dir/sub"]), [0o300, 0o400, 0o500], "{options}");
        if place.path("d/new").exists() {
            let [new] = opened(&place, ["d/new"]);
            assert_eq!(new & 0o200, 0, "{options}");
        }
        remove(&place.path("d"));
    }
    set("s/new", 0o755);
}

/// The far side ends with the program that started it.
#[test]
fn directories_have_their_permissions_back_after_the_starter_was_killed() {
    let place = Place::new();
    place.write("s/sub/large", bytes(9_000_000));
    if place.shell(&format!("{USER} true")).status != 0 {
        may_not_run("no user namespace here");
        return;
    }
    std::fs::create_dir_all(place.path("d/sub")).unwrap();
    std::fs::set_permissions(place.path("d/sub"), Permissions::from_mode(0o500)).unwrap();
    let script =
        "wait_for() { n=0; until [ \"$(stat -c %a d/sub)\" = $1 ]; do n=$((n + 1)); [ $n -lt 3000 ] || exit 3; \
                  sleep 0.02; done; }
                  USER rdcp -r --bwlimit 1M s/. d & wait_for 700; kill -9 $!; wait_for 500";
    place.shell(&script.replace("USER", USER)).expect(0);
    assert!(!place.path("d/sub/large").exists(), "the copy was not killed");
}

/// The owner's entry of a list comes with the list, and not from the directory as it was.
#[test]
fn closed_directory_gets_the_whole_list_of_the_source() {
    let place = Place::new();
    place.write("s/sub/f", "data");
    // The only user of the namespace.
    let list = access_list_of(rustix::process::geteuid().as_raw(), [7, 7, 5, 7, 5]);
    let has_lists =
        rustix::fs::setxattr(place.path("s/sub"), "system.posix_acl_access", &list, XattrFlags::empty()).is_ok();
    if !has_lists || place.shell(&format!("{USER} true")).status != 0 {
        may_not_run("no such attributes or no user namespace here");
        return;
    }
    for options in ["-r -X", "-r -X --sync", "-a"] {
        std::fs::create_dir_all(place.path("d/sub")).unwrap();
        std::fs::set_permissions(place.path("d/sub"), Permissions::from_mode(0o300)).unwrap();
        let ran = place.shell(&format!("{USER} rdcp {options} s/. d"));
        let [mode] = opened(&place, ["d/sub"]);
        assert_eq!((ran.status, mode), (0, 0o775), "{options}: {mode:o} {}", ran.err);
        remove(&place.path("d"));
    }
}

/// The first connection has given the owner all permissions, so the second finds them.
#[test]
fn closed_destinations_are_written_over_another_connection() {
    let place = Place::with_tcp();
    place.write("s/large", bytes(8_000_000));
    place.write("s/sub/f", "data");
    if place.shell(&format!("{USER} true")).status != 0 {
        may_not_run("no user namespace here");
        return;
    }
    for top in [0o300, 0o000] {
        std::fs::create_dir(place.path("d")).unwrap();
        std::fs::set_permissions(place.path("d"), Permissions::from_mode(top)).unwrap();
        let script = format!("exec {USER} rdcp -r --no-encrypt --bwlimit 4M s/. h:$PWD/d");
        let mut command = place.command("/bin/sh", ["-c", &script]).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !place.has_begun("d", 1_000_000) || break_connections(Pid::from_child(&command)) == 0 {
            assert!(Instant::now() < until && command.try_wait().unwrap().is_none(), "{top:o}: no copy to interrupt");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ran::from(&mut command, b"").expect(0);
        assert_eq!(opened(&place, ["d"]), [top]);
        assert!(is_same(&place.path("s"), &place.path("d")), "{top:o}");
        remove(&place.path("d"));
    }
}

/// Returns the permissions of directories, and gives their owner all permissions. A directory comes before those in it.
fn opened<const COUNT: usize>(place: &Place, names: [&str; COUNT]) -> [u32; COUNT] {
    names.map(|name| {
        let path = place.path(name);
        let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
        std::fs::set_permissions(path, Permissions::from_mode(mode | 0o700)).unwrap();
        mode
    })
}

/// With `-a`, what the source has no more is removed, as with `rsync -AX`.
#[test]
fn attributes_that_the_source_has_not_are_removed() {
    let place = Place::new();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::setxattr(place.path(name), attribute, value, XattrFlags::empty()).is_ok()
    };
    let get = |path: &Path, attribute: &str| rustix::fs::getxattr(path, attribute, &mut [0_u8; 256][..]).ok();
    place.write("s/kept", "data");
    place.write("s/new", "data");
    place.write("s/sub/f", "data");
    if !set("s/kept", "user.both", b"value") {
        may_not_run("no such attributes here");
        return;
    }
    let access = access_list([7, 7, 5, 7, 5]);
    for options in ["-a --sync", "-r -X --sync", "-a", "-r --sync"] {
        place.shell("cp -a s d && rm d/new").expect(0);
        assert!(set("d/kept", "user.old", b"old") && set("d/sub", "user.old", b"old"));
        let has_lists =
            set("d", "system.posix_acl_default", &access) && set("d/kept", "system.posix_acl_access", &access);
        place.shell(&format!("rdcp {options} s/. h:$PWD/d")).expect(0);
        let is_exact = options != "-r --sync";
        for (name, attribute) in [("d/kept", "user.old"), ("d/sub", "user.old")] {
            assert_eq!(get(&place.path(name), attribute).is_none(), is_exact, "{options}: {name} {attribute}");
        }
        assert_eq!(get(&place.path("d/kept"), "user.both"), Some(5), "{options}");
        if has_lists {
            for name in ["d/kept", "d/new"] {
                let has = get(&place.path(name), "system.posix_acl_access").is_some();
                assert_eq!(has, !is_exact, "{options}: {name}");
            }
            assert_eq!(get(&place.path("d"), "system.posix_acl_default").is_some(), !is_exact, "{options}");
        }
        remove(&place.path("d"));
    }
}

/// An access control list, as the value of its attribute: the permissions of the owner, of user 1234, of the group, the
/// mask, and the permissions of others.
pub(crate) fn access_list(permissions: [u16; 5]) -> Vec<u8> {
    access_list_of(1234, permissions)
}

/// A list that names this user.
fn access_list_of(named: u32, permissions: [u16; 5]) -> Vec<u8> {
    let entries = [1_u16, 2, 4, 16, 32].into_iter().zip(permissions).flat_map(|(tag, mode)| {
        let user: u32 = if tag == 2 { named } else { u32::MAX };
        [&tag.to_le_bytes()[..], &mode.to_le_bytes(), &user.to_le_bytes()].concat()
    });
    2_u32.to_le_bytes().into_iter().chain(entries).collect()
}

/// An entry whose attributes cannot be read, although its contents are not read either.
#[test]
fn attributes_stay_if_those_of_the_source_cannot_be_read() {
    let place = Place::new();
    let set = |name: &str, mode| std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    place.write("s/f", "data");
    place.write("s/sub/f", "data");
    place.shell("cp -a s d").expect(0);
    let attribute =
        |name: &str| rustix::fs::setxattr(place.path(name), "user.important", b"value", XattrFlags::empty()).is_ok();
    if place.shell(&format!("{USER} true")).status != 0 || !["s/f", "s/sub", "d/f", "d/sub"].into_iter().all(attribute)
    {
        may_not_run("no user namespace or no such attributes here");
        return;
    }
    set("s/f", 0o000);
    set("s/sub", 0o300);
    for options in ["-r -X --sync", "-r -X --sync --delete"] {
        let ran = place.shell(&format!("{USER} rdcp {options} s/. d")).expect(23);
        for name in ["f", "sub"] {
            assert!(ran.err.contains(&format!("cannot read s/./{name}: permission denied")), "{}", ran.err);
            let found = rustix::fs::getxattr(place.path(&format!("d/{name}")), "user.important", &mut [0_u8; 9][..]);
            assert_eq!(found, Ok(5), "{options}: {name}");
        }
        assert!(place.path("d/sub/f").exists(), "{options}");
    }
    set("s/sub", 0o700);
}

/// The group bits of a mode are the mask of the access control list while there is one.
#[test]
fn removed_access_lists_leave_the_group_its_own_permissions() {
    let place = Place::new();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::setxattr(place.path(name), attribute, value, XattrFlags::empty()).is_ok()
    };
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o7777;
    place.write("s/f", "data");
    place.write("s/sub/f", "data");
    place.shell("chmod 600 s/f s/sub/f && chmod 700 s s/sub").expect(0);
    let names = ["d", "d/f", "d/sub", "d/sub/f"];
    // The group has no permissions, or only some of them apply because the mask has fewer.
    for (group, mask, left) in [(0, 7, 0), (5, 7, 5), (7, 4, 4)] {
        let list = access_list([7, 7, group, mask, 0]);
        for options in ["-r -X --sync", "-a --sync", "-r -X", "-a"] {
            place.shell("cp -a s d").expect(0);
            if !names.iter().all(|name| set(name, "system.posix_acl_access", &list)) {
                may_not_run("no such attributes here");
                return;
            }
            place.shell(&format!("umask 0; rdcp {options} s/. d")).expect(0);
            for name in names {
                let kept =
                    if options.starts_with("-r") { 0o700 | left << 3 } else { mode(&name.replacen('d', "s", 1)) };
                let lists = rustix::fs::getxattr(place.path(name), "system.posix_acl_access", &mut [0_u8; 99][..]);
                assert!(lists.is_err(), "{options}: {name}");
                assert_eq!(mode(name), kept, "{options}: {name}: {:o}, not {kept:o}", mode(name));
            }
            remove(&place.path("d"));
        }
    }
    // New entries get the default list of their directory.
    place.shell("chmod 660 s/f s/sub/f && chmod 770 s/sub").expect(0);
    for options in ["-r -X", "-r -X --sync"] {
        std::fs::create_dir(place.path("d")).unwrap();
        assert!(set("d", "system.posix_acl_default", &access_list([7, 7, 0, 7, 0])));
        place.shell(&format!("umask 0; rdcp {options} s h:$PWD/d")).expect(0);
        for (name, expected) in [("d/s/f", 0o600), ("d/s/sub", 0o700), ("d/s/sub/f", 0o600)] {
            assert_eq!(mode(name), expected, "{options}: {name}: {:o}", mode(name));
        }
        remove(&place.path("d"));
    }
}

/// The group bits of a file with a list are its mask, which applies to the users that the list names.
#[test]
fn replaced_files_keep_the_mask_of_the_list_that_their_directory_gives() {
    let place = Place::new();
    place.write("s/f", "new");
    place.shell("mkdir d").expect(0);
    let list = access_list([7, 7, 0, 7, 0]);
    if rustix::fs::setxattr(place.path("d"), "system.posix_acl_default", &list, XattrFlags::empty()).is_err() {
        may_not_run("no such attributes here");
        return;
    }
    for options in ["-r --sync", "-r"] {
        place.shell("rm -f d/f; echo old > d/f; chmod 660 d/f").expect(0);
        place.shell(&format!("rdcp {options} s/. d")).expect(0);
        let mode = place.path("d/f").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, place.read("d/f")), (0o660, b"new".to_vec()), "{options}: {mode:o}");
    }
}

/// A new directory has all permissions of its owner while it is written. The mask of its list stays when they go.
#[test]
fn access_lists_of_closed_directories_keep_their_mask() {
    let place = Place::new();
    let mode = |name: &str| place.path(name).metadata().unwrap().permissions().mode() & 0o7777;
    place.write("s/sub/f", "data");
    let list = access_list([5, 7, 7, 7, 0]);
    if rustix::fs::setxattr(place.path("s/sub"), "system.posix_acl_access", &list, XattrFlags::empty()).is_err() {
        may_not_run("no such attributes here");
        return;
    }
    for options in ["-r -X", "-r -X --sync", "-a"] {
        place.shell(&format!("umask 022; rdcp {options} s/. d")).expect(0);
        assert_eq!(mode("d/sub"), 0o570, "{options}: {:o}", mode("d/sub"));
        let mut found = [0; 99];
        let length = rustix::fs::getxattr(place.path("d/sub"), "system.posix_acl_access", &mut found[..]).unwrap();
        assert_eq!(found[..length], list, "{options}");
        opened(&place, ["d/sub"]);
        remove(&place.path("d"));
    }
    opened(&place, ["s/sub"]);
}

/// No call takes a path of 4096 bytes, at the source or at the destination.
#[test]
fn paths_longer_than_a_call_takes_are_copied_and_removed() {
    let place = Place::with_tcp();
    let name = [b'n'; 255];
    for folder in ["s", "d", "empty"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    let levels = |folder: &str| {
        let mut at = Directory::open(&place.path(folder)).unwrap();
        move || {
            at = at.enter(&name, 0o755).unwrap().0;
            at.open_beneath(b".", OFlags::RDONLY | OFlags::DIRECTORY).unwrap()
        }
    };
    let path = |fd: &OwnedFd| format!("/proc/self/fd/{}/file", fd.as_raw_fd());
    let mut level = levels("s");
    for number in 0..20 {
        std::fs::write(path(&level()), number.to_string()).unwrap();
    }
    for option in ["-r", "-a"] {
        place.run("rdcp", ["--sync", "--delete", option, "s/", &place.on_host("d")]).expect(0);
        let mut level = levels("d");
        for number in 0..20 {
            assert_eq!(std::fs::read_to_string(path(&level())).unwrap(), number.to_string());
        }
    }
    place.run("rdcp", ["--sync", "--delete", "-r", "empty/", &place.on_host("d")]).expect(0);
    assert!(place.names("d").is_empty());
}
