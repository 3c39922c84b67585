//! `rdcp`.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::inotify;

use crate::common::{Place, bytes};

/// A tree with files of several sizes, links and an empty directory.
fn tree(place: &Place, name: &str) {
    for number in 0..200 {
        place.write(&format!("{name}/many/f{number}"), bytes(number * 50));
    }
    place.write(&format!("{name}/deep/er/large"), bytes(3_000_000));
    place.write(&format!("{name}/deep/script"), "#!/bin/sh\n");
    fs::set_permissions(place.path(&format!("{name}/deep/script")), PermissionsExt::from_mode(0o750)).unwrap();
    fs::create_dir(place.path(&format!("{name}/empty"))).unwrap();
    symlink("deep/script", place.path(&format!("{name}/link"))).unwrap();
    symlink("/nowhere", place.path(&format!("{name}/broken"))).unwrap();
}

/// Fails unless two trees have the same entries, contents, modes and times.
#[track_caller]
fn assert_same(left: &Path, right: &Path) {
    let (a, b) = (left.symlink_metadata().unwrap(), right.symlink_metadata().unwrap());
    assert_eq!(a.file_type(), b.file_type(), "{}", right.display());
    if a.is_symlink() {
        assert_eq!(left.read_link().unwrap(), right.read_link().unwrap());
        return;
    }
    assert_eq!((a.mode(), a.mtime(), a.mtime_nsec()), (b.mode(), b.mtime(), b.mtime_nsec()), "{}", right.display());
    if a.is_file() {
        assert!(fs::read(left).unwrap() == fs::read(right).unwrap(), "{}", right.display());
        return;
    }
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(left), names(right));
    names(left).iter().for_each(|name| assert_same(&left.join(name), &right.join(name)));
}

/// As with rsync, so programs that wait for complete files see those of each length.
#[test]
fn watchers_see_files_that_are_moved_to_their_names() {
    let place = Place::new();
    fs::create_dir(place.path("new")).unwrap();
    let names = [("empty", 0), ("small", 5), ("large", 3 << 20)];
    names.iter().for_each(|(name, length)| drop(place.write(name, bytes(*length))));
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, place.path("new"), inotify::WatchFlags::MOVED_TO).unwrap();
    place.run("rdcp", ["empty", "small", "large", &place.on_host("new/")]).expect(0);
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let mut seen = BTreeSet::new();
    while let Ok(event) = events.next() {
        seen.insert(event.file_name().unwrap().to_str().unwrap().to_owned());
    }
    assert_eq!(seen, names.map(|(name, _)| name.to_owned()).into());
}

/// `-e` has the quotations of a shell, and messages name the program that it names.
#[test]
fn remote_shell_is_split_as_a_shell_does() {
    let place = Place::new();
    place.write("file", "data");
    let set = |name: &str, script: &str| {
        let path = place.write(name, format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    set(
        "my shell",
        "printf '<%s>' \"$@\" > arguments; while [ \"$1\" != h ]; do shift; done; shift; SSH_CONNECTION='1 1 127.0.0.1 22' exec sh -c \"$*\"",
    );
    set("failing", "exit 255");
    let copy = place.on_host("copy");
    for rsh in ["'./my shell' -o 'A B' -i \"C  D\" E\\ F", "./my\\ shell -o 'A B' -i 'C  D' 'E F'"] {
        place.run("rdcp", ["-e", rsh, "file", &copy]).expect(0);
        assert_eq!(place.read("arguments"), b"<-o><A B><-i><C  D><E F><h><rdcp --server>", "{rsh}");
    }
    place.run_with(b"in", "rdpipe", ["-e", "'./my shell' -o 'A B'", "h:cat"]).expect(0);
    assert_eq!(place.read("arguments"), b"<-o><A B><h><rdpipe --server>");
    for (rsh, status, text) in [
        ("./my 'shell", 1, "-e ./my 'shell: a quotation or an escape has no end"),
        ("", 1, "-e names no program"),
        ("'./no shell' -o 'A B'", 1, "cannot run ./no shell: no such file or directory"),
        ("./failing -o 'A B'", 12, "check that `./failing h` works"),
    ] {
        let ran = place.run("rdcp", ["-e", rsh, "file", &copy]).expect(status);
        assert!(ran.err.contains(text) && !ran.err.contains("ssh"), "{rsh}: {}", ran.err);
    }
}

#[test]
fn file_goes_to_a_host_and_comes_back() {
    for place in [Place::new(), Place::with_tcp()] {
        let data = bytes(2_500_000);
        place.write("file", &data);
        let ran = place.run("rdcp", ["-v", "file", &place.on_host("there")]).expect(0);
        assert!(ran.err.contains("Bandwidth "), "{}", ran.err);
        place.run("rdcp", [&place.on_host("there"), "back"]).expect(0);
        assert!(place.read("there") == data && place.read("back") == data);
        assert_eq!(place.names("."), ["back", "bin", "file", "there"]);
        place.run("rdcp", ["-v", "file", "h:/dev/null"]).expect(0);
    }
}

#[test]
fn trees_arrive_in_every_direction_over_both_transports() {
    for place in [Place::new(), Place::with_tcp()] {
        tree(&place, "tree");
        place.run("rdcp", ["-r", "-p", "tree", &place.on_host("pushed")]).expect(0);
        place.run("rdcp", ["-r", "-p", &place.on_host("tree"), "pulled"]).expect(0);
        let (from, to) = (place.on_host("tree"), place.on_host("third").replace("h:", "other:"));
        place.run("rdcp", ["-r", "-p", &from, &to]).expect(0);
        place.run("rdcp", ["-r", "-p", "tree", "local"]).expect(0);
        for copy in ["pushed", "pulled", "third", "local"] {
            assert_same(&place.path("tree"), &place.path(copy));
        }
        // Copies into an existing directory, as cp does.
        place.run("rdcp", ["-r", "-p", "tree", &place.on_host("local")]).expect(0);
        assert_same(&place.path("tree"), &place.path("local/tree"));
    }
}

#[test]
fn several_sources_go_into_a_directory() {
    let place = Place::new();
    place.write("a", "1");
    place.write("b", "2");
    fs::create_dir(place.path("d")).unwrap();
    place.run("rdcp", ["a", "b", &place.on_host("d")]).expect(0);
    assert_eq!(place.names("d"), ["a", "b"]);
    let ran = place.run("rdcp", ["a", "b", &place.on_host("none")]).expect(23);
    assert!(ran.err.contains("not a directory"), "{}", ran.err);
}

#[test]
fn sync_sends_what_changed_and_deletes_on_request() {
    let place = Place::new();
    tree(&place, "tree");
    let to = place.on_host("copy");
    place.run("rdcp", ["-a", "--sync", "tree/", &to]).expect(0);
    assert_eq!(place.names("copy"), place.names("tree"));
    for name in place.names("tree") {
        assert_same(&place.path("tree").join(&name), &place.path("copy").join(&name));
    }
    let bytes_of = |arguments: &[&str]| {
        let ran = place.run("rdcp", arguments).expect(0);
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        report["bytes"].as_u64().unwrap()
    };
    assert_eq!(bytes_of(&["-a", "--sync", "--json", "tree/", &to]), 0);
    place.write("tree/many/f7", "changed");
    place.write("copy/many/extra", "stays");
    place.write("copy/keep.log", "kept");
    place.write("copy/top", "extra");
    assert_eq!(bytes_of(&["-a", "--sync", "--json", "tree/", &to]), 7);
    assert!(place.path("copy/many/extra").exists());
    assert_eq!(bytes_of(&["-a", "--sync", "--delete", "--exclude", "*.log", "--json", "tree/", &to]), 0);
    assert!(
        !place.path("copy/many/extra").exists()
            && !place.path("copy/top").exists()
            && place.path("copy/keep.log").exists()
    );
    // Size and time are equal, but the contents differ: only --checksum detects this.
    let times = fs::metadata(place.path("copy/deep/script")).unwrap().modified().unwrap();
    place.write("copy/deep/script", "#!/bin/xx\n");
    fs::File::options().write(true).open(place.path("copy/deep/script")).unwrap().set_modified(times).unwrap();
    assert_eq!(bytes_of(&["-a", "--sync", "--json", "tree/", &to]), 0);
    assert_eq!(bytes_of(&["-a", "--sync", "-c", "--json", "tree/", &to]), 10);
    // Only the mode, or only the time, differs: no data is sent.
    let script = place.path("copy/deep/script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(bytes_of(&["-a", "--sync", "--json", "tree/", &to]), 0);
    assert_same(&place.path("tree/deep/script"), &script);
    fs::File::options().write(true).open(&script).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    assert_eq!(bytes_of(&["-r", "--sync", "-c", "--json", "tree/", &to]), 0);
    assert_same(&place.path("tree/deep/script"), &script);
}

#[test]
fn dry_run_writes_nothing() {
    let place = Place::new();
    tree(&place, "tree");
    let ran = place.run("rdcp", ["-rn", "tree", &place.on_host("copy")]).expect(0);
    assert!(ran.err.contains("tree/deep/er/large") && ran.err.contains("tree/many/f7"), "{}", ran.err);
    assert!(!place.path("copy").exists());
    place.run("rdcp", ["-an", "--sync", "--delete", "tree/", &place.on_host("copy")]).expect(0);
    assert!(!place.path("copy").exists());
    place.run("rdcp", ["-an", "tree/", &place.on_host("missing/copy")]).expect(23);
    // Only the files that would be sent are printed.
    place.write("flat/same", "same");
    place.run("rdcp", ["-r", "--sync", "flat/", &place.on_host("copy")]).expect(0);
    place.write("flat/new", "new");
    let ran = place.run("rdcp", ["-rn", "--sync", "flat/", &place.on_host("copy")]).expect(0);
    // If the limit of locked memory is low, a warning comes first.
    let files: Vec<&str> = ran.err.lines().filter(|line| !line.contains(": warn: ")).collect();
    assert_eq!(files, ["flat/new"]);
    assert_eq!(place.names("copy"), ["same"]);
}

#[test]
fn filters_and_lists_select() {
    let place = Place::new();
    for name in ["src/a.c", "src/a.o", "src/keep.o", "src/sub/b.o", "src/sub/b.c", "src/target/x"] {
        place.write(name, name);
    }
    let to = place.on_host("copy");
    place.run("rdcp", ["-r", "--include", "keep.o", "--exclude", "*.o", "--exclude", "target/", "src", &to]).expect(0);
    assert_eq!(place.names("copy"), ["a.c", "keep.o", "sub"]);
    assert_eq!(place.names("copy/sub"), ["b.c"]);
    place.write("list", "sub/b.o\na.c\n");
    place.run("rdcp", ["--files-from", "list", "src", &place.on_host("some")]).expect(0);
    assert_eq!(place.names("some"), ["a.c", "sub"]);
    assert_eq!(place.names("some/sub"), ["b.o"]);
    // A directory and entries in it, in both orders.
    for list in ["sub\nsub/b.o\nsub\n", "sub/b.c\n./sub//b.c\nsub\n"] {
        place.write("list", list);
        fs::remove_dir_all(place.path("some")).unwrap();
        place.run("rdcp", ["-r", "--files-from", "list", "src", &place.on_host("some")]).expect(0);
        assert_eq!((place.names("some"), place.names("some/sub").len()), (vec!["sub".to_owned()], 2), "{list}");
    }
    place.write("bad", "../../etc/passwd\n");
    place.run("rdcp", ["--files-from", "bad", "src", &place.on_host("some")]).expect(1);
}

#[test]
fn hard_links_attributes_and_special_bits_are_kept_on_request() {
    let place = Place::new();
    place.write("t/a", "shared");
    fs::create_dir(place.path("t/sub")).unwrap();
    fs::hard_link(place.path("t/a"), place.path("t/sub/b")).unwrap();
    let has_attributes =
        rustix::fs::setxattr(place.path("t/a"), "user.mark", b"v", rustix::fs::XattrFlags::empty()).is_ok();
    fs::set_permissions(place.path("t/a"), PermissionsExt::from_mode(0o4755)).unwrap();
    place.run("rdcp", ["-a", "t", &place.on_host("u")]).expect(0);
    let facts = |name: &str| fs::metadata(place.path(name)).unwrap();
    assert_eq!(facts("u/a").ino(), facts("u/sub/b").ino());
    assert_eq!(facts("u/a").mode() & 0o7777, 0o4755);
    if has_attributes {
        let mut value = [0; 8];
        let length = rustix::fs::getxattr(place.path("u/a"), "user.mark", value.as_mut_slice()).unwrap();
        assert_eq!(&value[..length], b"v");
    }
    place.run("rdcp", ["-r", "t", &place.on_host("v")]).expect(0);
    assert_ne!(facts("v/a").ino(), facts("v/sub/b").ino());
    assert_eq!(facts("v/a").mode() & 0o7000, 0, "set-user-ID without -p");
}

#[test]
fn holes_are_neither_sent_nor_written() {
    let place = Place::new();
    let file = fs::File::create(place.path("sparse")).unwrap();
    for offset in [0_u64, 5 << 30, (10 << 30) - 5000] {
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes(5000), offset).unwrap();
    }
    let ran = place.run("rdcp", ["--json", "sparse", &place.on_host("copy")]).expect(0);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert!(report["bytes"].as_u64().unwrap() < 1 << 20, "{}", ran.out);
    let copy = fs::metadata(place.path("copy")).unwrap();
    assert_eq!(copy.len(), 10 << 30);
    assert!(copy.blocks() * 512 < 1 << 20);
    let file = fs::File::open(place.path("copy")).unwrap();
    let mut read = vec![0; 5000];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 5 << 30).unwrap();
    assert!(read == bytes(5000));
}

#[test]
fn odd_names_are_copied_and_escaped() {
    let place = Place::new();
    for name in ["t/a b", "t/-x", "t/new\nline", "t/q'uo\"te", "t/$(touch pwned)", "t/`touch pwned`", "t/;touch pwned"]
    {
        place.write(name, name);
    }
    let ran = place.run("rdcp", ["-rv", "t", &place.on_host("c;touch pwned")]).expect(0);
    assert!(ran.err.contains("new\\nline"), "{}", ran.err);
    assert_eq!(place.names("t"), place.names("c;touch pwned"));
    assert!(!place.path("pwned").exists());
}

/// ssh starts the far side in the home directory, as the script that replaces it starts it in this folder.
#[test]
fn home_directory_is_that_of_the_other_host() {
    let place = Place::new();
    place.write("file", "data");
    place.run("rdcp", ["file", "h:~/copy"]).expect(0);
    assert_eq!(place.read("copy"), b"data");
    place.run("rdcp", ["h:~/copy", "back"]).expect(0);
    assert_eq!(place.read("back"), b"data");
    let ran = place.run("rdcp", ["file", "h:~other/copy"]).expect(1);
    assert!(ran.err.contains("cannot resolve ~other: give the whole path"), "{}", ran.err);
}

#[test]
fn rate_is_limited() {
    let place = Place::new();
    place.write("file", bytes(3 << 20));
    let ran = place.run("rdcp", ["--json", "--bwlimit", "8M", "file", &place.on_host("copy")]).expect(0);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    // Checks only a lower bound, because a busy machine is slower.
    assert!(report["seconds"].as_f64().unwrap() > 0.25, "{}", ran.out);
}

/// `--fsync` includes the file systems that are mounted below the destination.
#[test]
fn each_file_system_that_is_written_is_synced() {
    let place = Place::new();
    place.write("a/mounted/f", "f");
    place.write("a/other/f", "f");
    let script = "command -v strace && mkdir -p d/a/mounted && mount -t tmpfs none d/a/mounted || exit 77; \
        strace -f -q -o trace -e trace=syncfs rdcp -r --fsync a d";
    let ran = place.shell(&format!("exec unshare -m sh -c '{script}'"));
    if ran.status == 77 || ran.err.contains("unshare") || ran.err.contains("ptrace") {
        return;
    }
    ran.expect(0);
    let trace = String::from_utf8(place.read("trace")).unwrap();
    assert_eq!(trace.matches("syncfs(").count(), 2, "{trace}");
}
