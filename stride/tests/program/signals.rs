//! Tests of SIGINT (Ctrl-C) and SIGTERM while a test runs.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use stride_perf::control::Wire;

use super::{port, program};

/// A time that is longer than any test in this file.
const LONG: Duration = Duration::from_secs(60);

/// A running program, which is killed on drop.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    printed: String,
}

impl Running {
    fn start(words: &str) -> Self {
        let mut child = program(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out, printed: String::new() }
    }

    /// Waits until the program has printed a row of the table.
    fn await_row(&mut self) {
        loop {
            let mut line = String::new();
            assert_ne!(self.out.read_line(&mut line).unwrap(), 0, "it has ended: {}", self.printed);
            self.printed.push_str(&line);
            if is_row(&line) {
                return;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the program to end. Returns its status, its standard output and its standard error.
    fn end(mut self) -> (Option<i32>, String, String) {
        self.out.read_to_string(&mut self.printed).unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.printed), err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ignores the error, because the program may have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_row(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|word| word.parse::<u64>().is_ok()) && words.count() > 5
}

#[test]
fn interrupted_test_keeps_its_results_and_the_server_continues() {
    let port = port();
    let _server = Running::start(&format!("-d soft0 -p {port}"));
    let folder = env!("CARGO_TARGET_TMPDIR");
    for (signal, name, status, words) in [
        (Signal::INT, "SIGINT", 130, "write bw"),
        (Signal::TERM, "SIGTERM", 143, "send bw --validate"),
        (Signal::INT, "SIGINT", 130, "write lat"),
        // The side that is stopped no longer receives, while its peer still sends.
        (Signal::INT, "SIGINT", 130, "send bw -b -r 16 -t 16"),
    ] {
        let file = |ending: &str| format!("{folder}/cut-{status}.{ending}");
        let [json, csv, svg] = ["json", "csv", "svg"].map(file);
        let mut client = Running::start(&format!(
            "{words} -d soft0 -D 3s --warm-up 0 -s 64,65,66 -p {port} --wait-server 60 127.0.0.1 --json {json} --csv {csv} --plot {svg}"
        ));
        client.await_row();
        client.signal(signal);
        let (found, out, err) = client.end();
        assert_eq!(found, Some(status), "{words}: {out}\n{err}");
        let sentence = format!("ended by {name}: the results are incomplete, 1 of 3 sizes are complete");
        assert!(err.contains(&sentence), "{words}: {err}");
        let text = |file: &str| std::fs::read_to_string(file).unwrap();
        let document: serde_json::Value = serde_json::from_str(&text(&json)).unwrap();
        assert!(document["error"].as_str().is_some_and(|error| error.starts_with(&sentence)), "{document}");
        let rows = document["rows"].as_array().unwrap();
        let whole: Vec<_> = rows.iter().map(|row| row["is_whole"].as_bool().unwrap()).collect();
        assert!(whole == [true] || whole == [true, false], "{document}");
        assert_eq!(out.lines().filter(|line| is_row(line)).count(), rows.len(), "{out}");
        assert_eq!(out.contains("cut short"), rows.len() == 2, "{out}");
        assert_eq!(text(&csv).lines().count(), 1 + rows.len());
        assert!(text(&svg).contains("</svg>"));
    }
    // The server must not hang, so it can serve the next client.
    let (status, out, err) =
        Running::start(&format!("read bw -d soft0 -n 100 -p {port} --wait-server 60 127.0.0.1")).end();
    assert_eq!(status, Some(0), "{out}\n{err}");
}

#[test]
fn endless_test_prints_rows_until_stopped() {
    for (words, rows_of) in
        [("write bw --interval 100ms", "bandwidth"), ("write lat --imm --run-infinitely", "latency")]
    {
        let json = format!("{}/endless-{rows_of}.json", env!("CARGO_TARGET_TMPDIR"));
        let forever = if words.contains("infinitely") { "" } else { "-D forever" };
        let mut only =
            Running::start(&format!("{words} {forever} --warm-up 0 -d soft0 -s 64 --loopback --json {json}"));
        only.await_row();
        only.await_row();
        only.signal(Signal::INT);
        let (status, out, err) = only.end();
        assert_eq!(status, Some(0), "{out}\n{err}");
        assert!(err.contains("runs until Ctrl-C") && !err.contains("incomplete"), "{err}");
        let (_, total) = out.split_once("total:\n").expect("a total");
        assert!(is_row(total.lines().next().unwrap()) && !total.contains("cut short"), "{out}");
        let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        let rows = document["rows"].as_array().unwrap();
        assert!(rows.len() == 1 && rows[0]["is_whole"] == true && rows[0]["kind"] == rows_of, "{document}");
        assert!(document["error"].is_null() && document["environment"]["plan"]["is_endless"] == true, "{document}");
    }
}

#[test]
fn endless_test_without_reader_ends_with_its_results() {
    for (limit, status) in [("0.000001", 0), ("1000000", 3)] {
        let json = format!("{}/unread-{status}.json", env!("CARGO_TARGET_TMPDIR"));
        let mut only = Running::start(&format!(
            "write bw -D forever --interval 100ms --warm-up 0 -d soft0 -s 64 --loopback --min-gbps {limit} --json {json}"
        ));
        only.await_row();
        let Running { child, out, .. } = &mut only;
        // The pipe is closed at its reading end, as `head` does after its last line.
        let (reader, _) = std::io::pipe().unwrap();
        drop(std::mem::replace(out, BufReader::new(ChildStdout::from(OwnedFd::from(reader)))));
        let end = Instant::now() + LONG;
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "runs until Ctrl-C");
            thread::sleep(Duration::from_millis(20));
        }
        let (found, _, err) = only.end();
        assert_eq!((found, err.contains("missed: ")), (Some(status), status == 3), "{err}");
        let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(document["verdict"]["is_held"], status == 0, "{document}");
        assert_eq!(document["rows"].as_array().map(Vec::len), Some(1), "{document}");
    }
}

#[test]
fn signal_in_the_warm_up_leaves_no_result() {
    let mut only = Running::start("write bw -D forever --warm-up 1h -d soft0 -s 64 --loopback");
    let mut line = String::new();
    while !line.contains("Gb/s") {
        line.clear();
        assert_ne!(only.out.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    only.signal(Signal::INT);
    let (status, out, err) = only.end();
    assert_eq!(status, Some(130), "{out}\n{err}");
    let err = "ended by SIGINT: the results are incomplete, 0 of 1 sizes are complete: the warm-up of 1h had not ended";
    assert!(!out.contains("all of it") && err.contains(err), "{out}\n{err}");
}

#[test]
fn loopback_test_ends_at_a_signal() {
    let mut only = Running::start("write bw -d soft0 -D 3s --warm-up 0 -s 64,65,66 --loopback");
    only.await_row();
    only.signal(Signal::INT);
    let (status, out, err) = only.end();
    assert_eq!(status, Some(130), "{out}\n{err}");
}

#[test]
fn second_signal_ends_the_client_at_once() {
    let port = port();
    let server = Running::start(&format!("-d soft0 -p {port}"));
    let words =
        format!("write bw -d soft0 -D 3s --warm-up 0 -s 64,65 -p {port} --wait-server 60 --timeout 1h 127.0.0.1");
    let mut client = Running::start(&words);
    client.await_row();
    // While the server process is suspended, it sends no figures.
    server.signal(Signal::STOP);
    let end = Instant::now() + LONG;
    while client.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "runs until Ctrl-C");
        client.signal(Signal::INT);
        thread::sleep(Duration::from_millis(50));
    }
    let (status, out, err) = client.end();
    assert_eq!(status, Some(130), "{out}\n{err}");
    assert!(!err.contains("incomplete"), "{err}");
}

#[test]
fn two_signals_at_once_count_as_one() {
    let json = format!("{}/twice.json", env!("CARGO_TARGET_TMPDIR"));
    let mut only = Running::start(&format!("write bw -d soft0 -D 3s --warm-up 0 -s 64,65,66 --loopback --json {json}"));
    only.await_row();
    // The two signals differ, because the kernel may merge two equal ones.
    only.signal(Signal::INT);
    only.signal(Signal::TERM);
    let (status, out, err) = only.end();
    assert!(matches!(status, Some(130 | 143)), "{status:?}: {out}\n{err}");
    assert!(err.contains("the results are incomplete, 1 of 3 sizes are complete"), "{err}");
    let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(!document["rows"].as_array().unwrap().is_empty(), "{document}");
}

#[test]
fn signalled_server_ends_after_its_test() {
    for signal in [Signal::INT, Signal::TERM] {
        let port = port();
        let server = Running::start(&format!("-d soft0 -p {port}"));
        let words = format!("write bw -d soft0 -D 1s --warm-up 0 -s 64,65 -p {port} --wait-server 60 127.0.0.1");
        let mut client = Running::start(&words);
        client.await_row();
        server.signal(signal);
        let (status, out, err) = client.end();
        assert_eq!(status, Some(0), "{out}\n{err}");
        assert_eq!(out.lines().filter(|line| is_row(line)).count(), 2, "{out}");
        let (status, _, err) = server.end();
        assert_eq!(status, Some(0), "{err}");
        assert!(err.contains("exits after this test"), "{err}");
    }
}

#[test]
fn idle_server_ends_at_a_signal() {
    let mut server = Running::start("-p 0");
    let mut err = BufReader::new(server.child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert!(line.starts_with("waiting for clients"), "{line}");
    server.signal(Signal::INT);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn server_with_a_silent_connection_announces_no_test() {
    let mut server = Running::start("-p 0");
    let mut err = BufReader::new(server.child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let port: u16 = line.split("TCP port ").nth(1).and_then(|rest| rest.split(';').next()).unwrap().parse().unwrap();
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    line.clear();
    err.read_line(&mut line).unwrap();
    assert!(line.ends_with(": connected\n"), "{line}");
    server.signal(Signal::INT);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    err.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("exits after this test"), "{rest}");
}

#[test]
fn signal_does_not_interrupt_a_connection_poll() {
    let (_one, mut other) = UnixStream::pair().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    // Any handler will do. Without a handler, this signal is ignored, and then it interrupts nothing.
    signal_hook::flag::register(libc::SIGURG, Arc::default()).unwrap();
    // SAFETY: the function has no preconditions.
    let this = unsafe { libc::pthread_self() };
    let sender = thread::spawn({
        let is_over = is_over.clone();
        move || {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: that thread waits for this one to end, so its identifier is valid.
                sent += u32::from(unsafe { libc::pthread_kill(this, libc::SIGURG) } == 0);
            }
            sent
        }
    });
    let looks: Vec<_> = (0..50_000).map(|_| other.has_input()).collect();
    is_over.store(true, Ordering::Relaxed);
    assert!(sender.join().unwrap() > 0);
    assert!(looks.iter().all(|found| matches!(found, Ok(false))), "{:?}", looks.iter().find(|found| found.is_err()));
}
