//! Tests destinations and sources that are not ordinary files, and outputs that cannot be written.

use std::process::Command;

use crate::common::{Place, Ran, bytes, may_not_run};

/// A pipe has no holes, and a device may contain old data.
#[test]
fn holes_are_written_to_pipes() {
    let place = Place::new();
    for (name, data, length) in [("ends", bytes(70_000), 3 << 20), ("all", Vec::new(), 2 << 20), ("small", vec![1], 2)]
    {
        let file = std::fs::File::create(place.write(name, data)).unwrap();
        file.set_len(length).unwrap();
        let fifo = format!("{name}.fifo");
        assert!(Command::new("mkfifo").arg(place.path(&fifo)).status().unwrap().success());
        let fifo = place.path(&fifo);
        let to = place.on_host(fifo.file_name().unwrap().to_str().unwrap());
        let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
        place.run("rdcp", [name, &to]).expect(0);
        let read = reader.join().unwrap();
        assert!(read == place.read(name), "{name}: {} of {length} bytes", read.len());
    }
}

/// A failed copy does not keep the disk full, so that there is room again for other files and for the next copy.
#[test]
fn failed_copies_do_not_fill_the_disk() {
    let place = Place::new();
    place.write("large", bytes(30_000_000));
    place.write("several/a", bytes(9_000_000));
    place.write("several/b", bytes(9_000_001));
    place.write("fits", bytes(15_000_000));
    std::fs::create_dir(place.path("small")).unwrap();
    let script = "mount -t tmpfs -o size=16M none small || exit 77
        for source in large several; do
            for options in -r -r\\ --sync -r; do
                rdcp $options $source h:$PWD/small && exit 1
            done
            rm -f small/several/[ab]
            find small -type f
        done
        rdcp fits h:$PWD/small && cmp fits small/fits && ls -A small";
    let ran = place.shell(&format!("unshare --user --map-root-user --mount sh -c '{script}'"));
    if ran.status != 0 && ran.err.contains("unshare") || ran.status == 77 {
        may_not_run(&format!("no mounts in a user namespace here: {}", ran.err));
        return;
    }
    let ran = ran.expect(0);
    assert_eq!(ran.out, "fits\nseveral\n");
    assert!(ran.err.matches(": no space left on device").count() >= 6, "{}", ran.err);
    assert!(ran.err.contains("small/large: no space left on device"), "{}", ran.err);
}

/// If entries can be neither renamed nor removed, the error names what stays, and what the next run continues.
#[test]
fn leftovers_of_failed_copies_are_named() {
    let place = Place::new();
    place.write("s/small", "small");
    place.write("s/large", bytes(9_000_000));
    place.shell("ln -s target s/link; mkdir d; mkfifo s/fifo").expect(0);
    let change = |flag: &str| Command::new("chattr").arg(flag).arg(place.path("d")).output();
    if !change("+a").is_ok_and(|ran| ran.status.success()) {
        may_not_run("no directory can be made append-only here");
        return;
    }
    let ran = place.run("rdcp", ["-rD", "s/.", &place.on_host("d")]);
    let names = place.names("d");
    let stream = place.shell("echo data | rdpipe h:\"> $PWD/d/stream\"; status=$?; cat d/.stream.rdcp-*; exit $status");
    change("-a").unwrap();
    let named = format!("; the data is in {}", place.path("d/.stream.rdcp-").display());
    assert!(stream.status == 23 && stream.out == "data\n" && stream.err.contains(&named), "{stream:?}");
    assert_eq!(ran.status, 23, "{}", ran.err);
    let left: Vec<&String> = names.iter().filter(|name| name.contains(".rdcp-")).collect();
    assert!(left.len() >= 2, "{names:?}");
    for name in left {
        let sentence = format!("; an incomplete copy is in {}\n", place.path("d").join(name).display());
        assert!(ran.err.contains(&sentence), "{sentence}: {}", ran.err);
    }
}

#[test]
fn missing_folder_of_temporary_files_is_named() {
    let place = Place::new();
    place.write("s/f", "x");
    let ran = place.shell("TMPDIR=$PWD/none rdcp -rn --sync s/ d").expect(23);
    let sentence = format!("cannot write to {}: no such file or directory; set TMPDIR", place.path("none").display());
    assert!(ran.err.contains(&sentence), "{}", ran.err);
}

/// The far side's standard output carries its messages.
#[test]
fn far_side_does_not_write_into_its_own_streams() {
    let place = Place::new();
    place.write("file", bytes(5 << 20));
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/0"] {
        let ran = place.run("rdcp", ["file", &format!("h:{name}")]);
        assert!(ran.status != 0 && ran.err.contains(&format!("{name}: ")), "{ran:?}");
    }
    place.run("rdcp", ["file", "h:/dev/null"]).expect(0);
}

/// What is in the file already stays, and what follows comes after.
#[test]
fn own_output_that_is_a_file_is_written_where_it_is() {
    let place = Place::new();
    place.write("data", "data\n");
    let data = place.on_host("data");
    for from in [&data, "data"] {
        for (name, to, stream) in
            [("/dev/stdout", ">> log", 1), ("/dev/fd/1", "> log", 1), ("/dev/stderr", "2> log", 2)]
        {
            place.write("log", "");
            let echo = |text: &str| format!("echo {text} >&{stream}");
            let script = format!("{{ {}; rdcp -q {from} {name}; {}; }} {to}", echo("header"), echo("trailer"));
            place.shell(&script).expect(0);
            assert_eq!(place.read("log"), b"header\ndata\ntrailer\n", "{from} {name}");
        }
        assert_eq!(place.shell(&format!("rdcp -q {from} /dev/stdout | cat")).expect(0).out, "data\n");
    }
    let ran = place.shell(&format!("exec 5>> log; rdcp {data} /dev/fd/5")).expect(23);
    assert!(ran.err.contains("names an open file") && place.read("log").ends_with(b"trailer\n"), "{}", ran.err);
}

/// In /proc and /sys, the length of a file is not that of its contents.
#[test]
fn files_of_unknown_length_are_refused() {
    let place = Place::new();
    for name in ["/proc/version", "/sys/class/net/lo/mtu"] {
        if !std::path::Path::new(name).exists() {
            println!("there is no {name} here");
            continue;
        }
        let ran = place.run("rdcp", [name, &place.on_host("copy")]).expect(23);
        assert!(ran.err.contains(&format!("{name} is not as long as its metadata states")), "{}", ran.err);
        assert!(!place.path("copy").exists());
    }
}

#[test]
fn report_that_cannot_be_written_is_a_failure() {
    let place = Place::new();
    place.write("file", "data");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = place.command("rdcp", ["--json", "file", &place.on_host("copy")]);
    let ran = command.stdout(full).output().unwrap();
    let err = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(23), "{err}");
    assert!(err.contains("cannot write the standard output: no space left on device"), "{err}");
}

/// A copy that fails as a whole has a report, too.
#[test]
fn every_failure_is_in_the_report() {
    let place = Place::new();
    place.write("file", "data");
    let cases = [
        (vec!["file", "h:/nonexistent/copy"], 23, "cannot write to /nonexistent: no such file or directory"),
        (vec!["missing", "h:copy"], 23, "cannot read missing: no such file or directory"),
        (vec!["file", "h:x/", "file"], 1, ""),
    ];
    for (operands, status, text) in cases {
        let ran: Ran = place.run("rdcp", ["--json"].iter().chain(&operands));
        if status == 1 {
            assert_eq!(ran.status, 1, "{ran:?}");
            continue;
        }
        let report: serde_json::Value =
            serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
        assert_eq!((ran.status, report["status"].as_i64()), (status, Some(status.into())), "{ran:?}");
        assert!(report["errors"][0].as_str().unwrap().contains(text), "{ran:?}");
    }
}
