//! Tests what operands mean: entries of a directory, links, names that exist, and names that are the source itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use rdma_pipe::tree::temporary_name;

use crate::common::{Place, may_not_run, remove};

/// As with cp and rsync, `.` at the end names the entries of a directory.
#[test]
fn dot_stands_for_the_entries() {
    let place = Place::new();
    place.write("s/x", "x");
    place.write("s/sub/y", "y");
    for (number, source) in ["s/.", "s/sub/..", "./s/./"].into_iter().enumerate() {
        let to = format!("d{number}");
        place.run("rdcp", ["-r", source, &place.on_host(&to)]).expect(0);
        assert_eq!(
            (place.names(&to), place.read(&format!("{to}/sub/y"))),
            (vec!["sub".into(), "x".into()], b"y".into())
        );
    }
    place.write("d0/surplus", "");
    place.run("rdcp", ["-r", "--sync", "--delete", "s/.", &place.on_host("d0")]).expect(0);
    assert_eq!(place.names("d0"), ["sub", "x"]);
    place.run("rdcp", ["-r", &format!("h:{}", place.path("s/.").display()), "pulled"]).expect(0);
    assert_eq!(place.names("pulled"), ["sub", "x"]);
    let ran = place.run("rdcp", ["s/x", &place.on_host("missing/.")]).expect(23);
    assert!(ran.err.contains("not a directory") && !place.path("missing").exists(), "{}", ran.err);
}

/// As with cp, `-r` copies a link as a link, also if it is an operand; without `-r`, the file that it names is copied.
#[test]
fn links_are_copied_as_links_only_in_trees() {
    let place = Place::new();
    place.write("s/f", "f");
    symlink("f", place.path("s/link")).unwrap();
    symlink("nowhere", place.path("s/dangling")).unwrap();
    std::fs::create_dir(place.path("d")).unwrap();
    let to = place.on_host("d");
    place.run("rdcp", ["-r", "s/f", "s/link", "s/dangling", &to]).expect(0);
    for (name, target) in [("link", "f"), ("dangling", "nowhere")] {
        assert_eq!(std::fs::read_link(place.path("d").join(name)).unwrap(), Path::new(target));
    }
    std::fs::remove_file(place.path("d/link")).unwrap();
    // The others are copied although one cannot be read.
    let ran = place.run("rdcp", ["s/dangling", "s/link", "missing", &to]).expect(23);
    assert!(ran.err.contains("cannot read s/dangling: ") && ran.err.contains("cannot read missing: "), "{}", ran.err);
    assert!(place.path("d/link").symlink_metadata().unwrap().is_file());
}

/// A file that the operator named is never replaced by a directory or by the entries of one.
#[test]
fn named_file_does_not_give_way_to_a_tree() {
    let place = Place::new();
    place.write("one/x", "x");
    place.write("list", "x");
    place.write("P", "precious");
    symlink("P", place.path("link")).unwrap();
    symlink("nowhere", place.path("dangling")).unwrap();
    let cases: [&[&str]; 5] = [
        &["--sync", "-r", "one/"],
        &["--sync", "-r", "one"],
        &["--sync", "--delete", "-r", "one/."],
        &["-r", "one"],
        &["--files-from", "list", "one"],
    ];
    for words in cases {
        for to in ["P", "link", "dangling"] {
            for to in [to.to_owned(), place.on_host(to)] {
                let ran = place.run("rdcp", words.iter().copied().chain([to.as_str()]));
                assert!(ran.status == 23 && ran.err.contains("not a directory"), "{words:?} {to}: {ran:?}");
            }
        }
        assert_eq!(place.read("P"), b"precious", "{words:?}");
        assert_eq!(std::fs::read_link(place.path("dangling")).unwrap(), Path::new("nowhere"));
    }
}

/// As with cp: no directory is copied into itself, and no file to itself.
#[test]
fn nothing_is_copied_to_itself() {
    let place = Place::new();
    place.write("rec/z/f", "f");
    std::fs::hard_link(place.path("rec/z/f"), place.path("other")).unwrap();
    symlink("rec", place.path("to-rec")).unwrap();
    let cases: [&[&str]; 8] = [
        &["-r", "rec", "rec/z"],
        &["-r", "rec", "to-rec/z/new"],
        &["-r", "rec", "rec"],
        &["-r", "rec", "."],
        &["-r", "--sync", "rec/", "rec/z"],
        &["rec/z/f", "rec/z/f"],
        &["rec/z/f", "other"],
        &["rec/z/f", "rec/z"],
    ];
    for words in cases {
        let ran = place.run("rdcp", words).expect(1);
        assert!(ran.err.contains("into itself") || ran.err.contains("are the same file"), "{words:?}: {}", ran.err);
    }
    assert_eq!((place.names("rec"), place.names("rec/z")), (vec!["z".into()], vec!["f".into()]));
    assert_eq!(place.path("other").metadata().unwrap().nlink(), 2);
    // With --sync, a file that is the same is up to date, and a pattern may exclude the destination.
    place.run("rdcp", ["--sync", "rec/z/f", "rec/z"]).expect(0);
    symlink("rec/z/f", place.path("f")).unwrap();
    place.run("rdcp", ["--sync", "f", "."]).expect(1);
    assert!(place.path("f").is_symlink());
    place.run("rdcp", ["-r", "--sync", "--exclude", "/z/backup", "rec/", "rec/z/backup"]).expect(0);
    assert_eq!(place.names("rec/z/backup/z"), ["f"]);
    std::fs::remove_dir_all(place.path("rec/z/backup")).unwrap();
    place.run("rdcp", ["-r", "rec/z", "rec/new"]).expect(0);
    place.run("rdcp", ["-r", "rec", "rec2"]).expect(0);
}

/// Names of other hosts may mean this one, and a bind mount is another path of a directory.
#[test]
fn directory_is_not_copied_into_itself_by_another_name() {
    let place = Place::new();
    place.write("rec/z/f", "f");
    let whole = place.path("rec").display().to_string();
    let [far, to] = [place.on_host("rec"), place.on_host("rec/z/new")];
    let cases: [&[&str]; 5] = [
        &["-r", "rec", &to],
        &["-r", &far, "rec/z/new"],
        &["-r", &far, &format!("i:{whole}/z")],
        &["-r", &far, &format!("i:{whole}/z/new"), &place.on_host("elsewhere")],
        &["-r", "--sync", "rec/", &place.on_host("rec/z")],
    ];
    for words in cases {
        let ran = place.run("rdcp", words).expect(1);
        assert!(ran.err.contains("rec") && ran.err.contains(" into itself"), "{words:?}: {}", ran.err);
        assert_eq!((place.names("rec"), place.names("rec/z")), (vec!["z".into()], vec!["f".into()]), "{words:?}");
    }
    assert!(!place.path("elsewhere").exists());
    place.run("rdcp", ["-r", "--sync", "--exclude", "/z/new", "rec/", &to]).expect(0);
    remove(&place.path("rec/z/new"));
    let mounted = "mkdir m && mount --bind rec m 2>&1 && touch m/is || exit 77";
    let ran = place.shell(&format!("exec unshare -m sh -c '{mounted}; rm m/is; rdcp -r rec m/q'"));
    if ran.status == 77 || ran.err.contains("unshare") {
        return;
    }
    assert!(ran.status == 1 && ran.err.contains("cannot copy rec into itself"), "{ran:?}");
    assert_eq!(place.names("rec"), ["z"]);
}

/// A mount can put the destination below the source, so that no directory above the destination is the source. The copy
/// would enter what it writes, and copy that too.
#[test]
fn destination_that_is_mounted_below_the_source_is_not_copied() {
    // The two ends of the mount, the operands, and the end of the path that is left out.
    let cases = [
        ("s/z", "m", "s m", "s/z/s"),
        ("s/z", "m", "s m/new", "s/z/new/s"),
        ("s/z", "m", "s h:$PWD/m", "s/z/s"),
        ("s/z", "m", "h:$PWD/s m", "s/z/s"),
        ("s/z", "m", "h:$PWD/s i:$PWD/m/new", "s/z/new/s"),
        ("s/z", "m", "s/. m", "/z"),
        ("s/z", "m", "--sync --delete s/ m", "s/z"),
        ("d", "s/m", "s d", "s/m/s"),
        ("d", "s/m", "--sync --delete s/ h:$PWD/d", "s/m"),
        ("d", "s/m", "--sync --files-from list s h:$PWD/d", "s/m"),
    ];
    for (from, to, operands, left_out) in cases {
        let place = Place::new();
        place.shell("mkdir -p s/a s/m s/z d m && echo f > s/a/f && echo g > s/z/g && echo h > d/h").expect(0);
        // The destination exists when the directory is read that contains it.
        place.shell("mkdir -p s/z/s s/z/new/s d/s && printf 'a\nm\nz\n' > list").expect(0);
        let mounted = format!("mount --bind {from} {to} 2>&1 && touch {to}/is || exit 77; rm {to}/is");
        let script = format!("{mounted}; timeout 60 rdcp -r {operands}; s=$?; find s d; exit $s");
        let ran = place.shell(&format!("exec unshare -m sh -c '{script}'"));
        if ran.status == 77 || ran.err.contains("unshare") {
            may_not_run("this user cannot mount");
            return;
        }
        let text = format!("{left_out} into itself, the destination");
        assert!(ran.status == 23 && ran.err.contains("cannot copy") && ran.err.contains(&text), "{operands}: {ran:?}");
        assert!(ran.out.lines().all(|path| path.matches('/').count() < 6), "{operands}: {}", ran.out);
        let is_there = |file: &str| ran.out.lines().any(|path| path == file);
        assert!(is_there("s/a/f") && is_there("s/z/g") && is_there("d/h"), "{operands}: {}", ran.out);
        assert!(ran.out.lines().filter(|path| path.ends_with("a/f")).count() > 1, "{operands}: {}", ran.out);
    }
}

/// As with cp, a link that leads nowhere is kept; with `--sync`, it is replaced, as with rsync.
#[test]
fn link_that_leads_nowhere_is_no_file() {
    let place = Place::new();
    place.write("f", "f");
    symlink("nowhere", place.path("link")).unwrap();
    let far = place.on_host("link");
    for to in ["link", &far] {
        for trial in [true, false] {
            let ran = place.run("rdcp", ["f", to].into_iter().chain(trial.then_some("-n"))).expect(23);
            assert!(ran.err.contains("link: it is a link to a missing file"), "{}", ran.err);
            assert!(place.path("link").is_symlink() && !place.path("nowhere").exists());
        }
    }
    place.run("rdcp", ["--sync", "f", "link"]).expect(0);
    assert!(!place.path("link").is_symlink() && place.read("link") == b"f");
}

/// As with rsync, the list may name the whole tree, and patterns hold for what it names.
#[test]
fn listed_paths_are_filtered_and_may_be_the_whole_tree() {
    let place = Place::new();
    for name in ["s/a/key", "s/a/x", "s/b"] {
        place.write(name, name);
    }
    place.write("all", ".\n");
    place.write("some", "a/key\na/x\nb/\n");
    place.run("rdcp", ["-r", "--files-from", "all", "s", &place.on_host("d")]).expect(0);
    assert_eq!((place.names("d"), place.names("d/a")), (vec!["a".into(), "b".into()], vec!["key".into(), "x".into()]));
    let ran = place.run("rdcp", ["--files-from", "all", "s", &place.on_host("n")]).expect(23);
    assert!(ran.err.contains("s is a directory; copy it with -r"), "{}", ran.err);
    place.run("rdcp", ["--files-from", "some", "--exclude", "key", "s", &place.on_host("e")]).expect(0);
    assert_eq!((place.names("e"), place.names("e/a")), (vec!["a".into(), "b".into()], vec!["x".into()]));
    // A path that does not exist is an error, also below a directory that is listed whole.
    place.write("missing", "a\na/missing\n.\nnone/x\n");
    let ran = place.run("rdcp", ["-r", "--files-from", "missing", "s", &place.on_host("g")]).expect(23);
    assert!(ran.err.contains("s/a/missing: no such file") && ran.err.contains("s/none/x: no such file"), "{}", ran.err);
    // No directory is entered through a link, whatever the list names in which order.
    symlink("a", place.path("s/to-a")).unwrap();
    for list in ["to-a\nto-a/x\n", "to-a/x\nto-a/key\n", ".\nto-a/x\n.\n"] {
        place.write("links", list);
        let ran = place.run("rdcp", ["-r", "--files-from", "links", "s", &place.on_host("l")]).expect(23);
        assert!(ran.err.contains("not a directory") && place.path("l/to-a").is_symlink(), "{list}: {}", ran.err);
    }
    std::fs::remove_file(place.path("s/to-a")).unwrap();
    // A directory that is excluded does not stand for what is listed below it, unless a pattern excludes that, too.
    place.write("below", "a\na/x\n");
    place.run("rdcp", ["-r", "--files-from", "below", "--exclude", "/a", "s", &place.on_host("h")]).expect(0);
    assert_eq!((place.names("h"), place.names("h/a")), (vec!["a".into()], vec!["x".into()]));
    place.write("wrong", "b/below\n");
    let ran = place.run("rdcp", ["--files-from", "wrong", "s", &place.on_host("f")]).expect(23);
    assert!(ran.err.contains("cannot read s/b: not a directory"), "{}", ran.err);
}

/// As with rsync, patterns begin at the destination, so that several sources have one meaning.
#[test]
fn patterns_hold_for_several_sources() {
    let place = Place::new();
    for name in ["a/sub/f", "b/g", "b/h.o", "d/sub/keep", "d/old", "d/b/keep", "d/b/old"] {
        place.write(name, name);
    }
    let to = place.on_host("d");
    let patterns = ["--exclude", "/sub/keep", "--exclude", "b/keep", "--exclude", "*.o"];
    let delete = || ["-r", "--sync", "--delete"].into_iter().chain(patterns);
    place.run("rdcp", delete().chain(["a/", "b", &to])).expect(0);
    assert_eq!(
        (place.names("d"), place.names("d/sub")),
        (vec!["b".into(), "sub".into()], vec!["f".into(), "keep".into()])
    );
    assert_eq!(place.names("d/b"), ["g", "keep"]);
    place.write("d/old", "");
    place.run("rdcp", delete().chain(["a/", "b/", &to])).expect(0);
    assert_eq!(
        (place.names("d"), place.names("d/sub")),
        (vec!["b".into(), "g".into(), "sub".into()], vec!["f".into(), "keep".into()])
    );
    // What no pattern excludes is deleted, whatever the pattern makes of another type.
    for name in ["p/a.c", "x/sub/old.c", "x/tmp", "x/keep.h"] {
        place.write(name, name);
    }
    let patterns = ["--include", "*/", "--include", "*.c", "--include", "tmp", "--exclude", "tmp/", "--exclude", "*"];
    place
        .run("rdcp", ["-r", "--sync", "--delete"].into_iter().chain(patterns).chain(["p/", &place.on_host("x")]))
        .expect(0);
    assert_eq!(place.names("x"), ["a.c", "keep.h"]);
    // A source is an entry, too.
    place.run("rdcp", ["-r", "--exclude", "*.o", "b/h.o", "a", &place.on_host("d")]).expect(0);
    assert!(place.path("d/a").exists() && !place.path("d/h.o").exists());
    // Another name of the copy does not change the pattern.
    place.run("rdcp", ["-r", "--exclude", "/b/g", "b", &place.on_host("renamed")]).expect(0);
    assert_eq!(place.names("renamed"), ["h.o"]);
}

#[test]
fn names_need_no_encoding() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"\xff");
    std::fs::write(place.path(".").join(name), "data").unwrap();
    let words = [name, OsStr::new("copy"), OsStr::new("--exclude"), OsStr::from_bytes(b"\xfe*")];
    place.run("rdcp", words).expect(0);
    assert_eq!(place.read("copy"), b"data");
    assert_eq!(place.run("rdsend", [name]).expect(1).out, "");
    assert_eq!(place.run("rdpipe", [name]).expect(1).out, "");
}

/// What `--delete` removes is named, by a trial run too, and only a real run removes it.
#[test]
fn deletions_are_named() {
    let place = Place::new();
    place.write("s/a", "a");
    place.write("s/b", "b");
    let unchanged = String::from_utf8(temporary_name(b"b", b"file")).unwrap();
    let build = |name: &str| {
        // What an earlier run has left of `a` is replaced and renamed, not deleted.
        let left = String::from_utf8(temporary_name(b"a", b"file")).unwrap();
        ["old/deep/x", "old/keep", "gone", "a", &left, &unchanged]
            .iter()
            .for_each(|file| _ = place.write(&format!("{name}/{file}"), "old"));
        place.shell(&format!("cp -p s/b {name}/b")).expect(0);
    };
    let remote = |name: &str| place.on_host(name);
    let local = |name: &str| name.to_owned();
    for (from, to) in
        [(&local as &dyn Fn(&str) -> String, &remote as &dyn Fn(&str) -> String), (&remote, &local), (&local, &local)]
    {
        build("copy");
        for trial in [true, false] {
            let mut arguments = vec!["-r", "-v", "--sync", "--delete", "--exclude", "keep"];
            arguments.extend(trial.then_some("-n"));
            let ran = place.run("rdcp", arguments.into_iter().chain([from("s/").as_str(), &to("copy")])).expect(0);
            let mut named: Vec<&str> = ran
                .err
                .lines()
                .filter_map(|line| line.strip_prefix("deleting "))
                .map(|path| path.rsplit_once("copy/").unwrap().1)
                .collect();
            named.sort_unstable();
            assert_eq!(named, [&unchanged, "gone", "old/deep", "old/deep/x"], "{trial}: {}", ran.err);
            let exist = ["copy/old/deep/x", "copy/gone", "copy/old/keep"].map(|name| place.path(name).exists());
            assert_eq!(exist, [trial, trial, true], "{trial}");
        }
        remove(&place.path("copy"));
    }
}

/// As with rsync, what is below a directory that gives way is named, by a trial run too, and the directory itself is not.
#[test]
fn what_gives_way_is_named() {
    let place = Place::new();
    place.write("s/file", "now a file");
    symlink("nowhere", place.path("s/link")).unwrap();
    for name in ["d/file/deep/x", "d/file/y", "d/link/z"] {
        place.write(name, "old");
    }
    for trial in [true, false] {
        let mut arguments = vec!["-r", "-v", "--sync", "--delete"];
        arguments.extend(trial.then_some("-n"));
        let to = place.on_host("d");
        let ran = place.run("rdcp", arguments.into_iter().chain(["s/", &to])).expect(0);
        let lines = ran.err.lines().filter_map(|line| line.strip_prefix("deleting h: "));
        let mut named: Vec<&str> = lines.map(|path| path.rsplit_once("/d/").unwrap().1).collect();
        named.sort_unstable();
        assert_eq!(named, ["file/deep", "file/deep/x", "file/y", "link/z"], "{trial}: {}", ran.err);
        assert_eq!(place.path("d/file").is_dir(), trial);
    }
}
