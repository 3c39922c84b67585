//! Tests standard streams that are closed when a program starts, or that cannot be written.

use std::io::Read as _;
use std::process::Stdio;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;

use crate::common::{Place, bytes, port};

/// Data that no stream takes is a failure, as with cat.
#[test]
fn data_to_and_from_closed_streams_is_refused() {
    let place = Place::new();
    place.write("file", bytes(70_000));
    let (output, input) =
        ("cannot write the standard output: it is closed", "cannot read the standard input: it is closed");
    let port = port();
    let cases = [
        (format!("rdrecv {port} key >&-"), 200, output),
        (format!("rdsend 127.0.0.1 {port} key <&-"), 200, input),
        (format!("rdrecv {port} - <&-"), 200, input),
        ("rdpipe 'cat' < file >&-".to_owned(), 23, output),
        ("rdpipe 'cat' <&-".to_owned(), 23, input),
        ("rdcp -r --files-from - . h:copy <&-".to_owned(), 23, input),
        ("rdcp h:file /dev/stdout >&-".to_owned(), 23, "cannot write to /dev/stdout: bad file descriptor"),
        ("rdcp h:file /dev/stderr 2>&-".to_owned(), 23, ""),
        (format!("rdsend 127.0.0.1 {port} key /dev/stdin <&-"), 200, "cannot open /dev/stdin: no such device"),
    ];
    for (line, status, text) in cases {
        let ran = place.shell(&format!("timeout 60 {line}"));
        assert!(ran.status == status && ran.err.contains(text), "{line}: {ran:?}");
    }
    assert!(place.shell("cat file >&-").status != 0 && place.shell("cat <&-").status != 0);
}

/// Reports and messages that are lost are a failure, as with cp; what prints nothing needs no stream.
#[test]
fn messages_to_closed_streams_are_a_failure() {
    check_messages(&Place::new());
}

/// A warning that the copy runs over TCP is no output that the command requests, so its loss is no failure.
#[test]
fn messages_to_closed_streams_are_a_failure_over_tcp() {
    check_messages(&Place::with_tcp());
}

fn check_messages(place: &Place) {
    place.write("file", bytes(70_000));
    let copy = place.on_host("copy");
    let output = "cannot write the standard output: it is closed";
    let cases = [
        (format!("rdcp file {copy} <&- >&- 2>&-"), 0, ""),
        (format!("rdcp --json file {copy} >&-"), 23, output),
        (format!("rdcp --json missing {copy} >&-"), 23, "cannot read missing: no such file"),
        (format!("rdcp -v file {copy} 2>&-"), 23, ""),
        (format!("rdcp -v file {copy} 2>/dev/full"), 23, ""),
        (format!("rdcp -n file {copy} 2>&-"), 23, ""),
        (format!("rdcp missing {copy} 2>&-"), 23, ""),
        ("rdcp 2>&-".to_owned(), 1, ""),
        ("rdcp --help >&-".to_owned(), 23, output),
        ("rdrecv --version >&-".to_owned(), 200, output),
        ("rdrecv --version >/dev/full".to_owned(), 200, "cannot write the standard output: no space left"),
        ("rdcp --generate man >&-".to_owned(), 23, output),
        ("rdpipe -n 'cat' 2>&-".to_owned(), 23, ""),
    ];
    for (line, status, text) in cases {
        let ran = place.shell(&line);
        assert!(ran.status == status && ran.err.contains(text), "{line}: {ran:?}");
    }
    assert!(place.read("copy") == place.read("file"));
    assert!(place.shell("cp -v file copy >&-").status != 0 && place.shell("cp --help >&-").status != 0);
}

/// Messages wait for a reader although another program has made the stream non-blocking.
#[test]
fn messages_wait_for_a_slow_reader() {
    let place = Place::new();
    let name = |number: usize| format!("{number}-{}", "n".repeat(100));
    for number in 0..500 {
        place.write(&format!("s/{}", name(number)), "");
    }
    let (mut reader, writer) = std::io::pipe().unwrap();
    fcntl_setpipe_size(&writer, 4096).unwrap();
    fcntl_setfl(&writer, fcntl_getfl(&writer).unwrap() | OFlags::NONBLOCK).unwrap();
    let mut command = place.command("rdcp", ["-r", "-v", "s", "d"]);
    let mut child = command.stderr(Stdio::from(writer)).spawn().unwrap();
    // Only the child writes to the pipe, so that its end ends the reading.
    drop(command);
    let mut first = [0];
    reader.read_exact(&mut first).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    let printed = String::from_utf8(first.to_vec()).unwrap() + &rest;
    let missing = (0..500).map(name).find(|name| !printed.contains(&format!("{name}\n")));
    assert_eq!(missing, None, "{printed}");
}

/// No file of a program gets the number of a closed stream, so messages and data reach only their own files.
#[test]
fn files_do_not_get_the_numbers_of_closed_streams() {
    let place = Place::new();
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        place.write(&format!("s/{name}"), bytes(70_000 + number));
    }
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let ran = place.shell(&format!("rdcp -r -v --json s/. {} {closed}", place.on_host("d")));
        assert_eq!(ran.status, if closed == "<&-" { 0 } else { 23 }, "{closed}: {ran:?}");
        assert!(crate::common::is_same(&place.path("s"), &place.path("d")), "{closed}");
        crate::common::remove(&place.path("d"));
    }
}
