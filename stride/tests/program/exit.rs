//! Tests of the exit status when a test succeeds, misses a limit or fails.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::thread;

use stride_perf::control::PROTOCOL;

use std::process::Command;

use super::{ends, program, run};

/// Returns an encoded message of the control channel.
fn frame(protocol: u16, kind: u16, body: &str) -> Vec<u8> {
    let mut bytes = b"\x93stride\n".to_vec();
    bytes.extend(protocol.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((body.len() as u32).to_be_bytes());
    bytes.extend(body.as_bytes());
    bytes
}

#[test]
fn exit_status_follows_the_failure() {
    let hello = frame(PROTOCOL, 1, r#"{"version":"9"}"#);
    let error = |is_rdma: bool| {
        let body = format!(r#"{{"text":"a request failed","is_rdma":{is_rdma}}}"#);
        [hello.clone(), frame(PROTOCOL, 14, &body)].concat()
    };
    let old = frame(PROTOCOL - 1, 1, r#"{"version":"9"}"#);
    let busy = frame(PROTOCOL, 1, r#"{"version":"9","busy":"the server is busy"}"#);
    for (answer, status, sentence) in [
        (error(true), 5, "error: the server: a request failed"),
        (error(false), 1, "error: the server: a request failed"),
        (hello.clone(), 4, "error: the server disconnected"),
        (old, 4, "use the same version on both"),
        (busy, 4, "error: the server is busy"),
        (Vec::new(), 4, "closed the connection before its hello"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&answer).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // Reads until the program exits.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let (_, err) = ends(&run(&format!("write bw -d soft0 -p {port} --timeout 60 127.0.0.1")), status);
        assert!(err.contains(sentence), "{sentence}: {err}");
        server.join().unwrap();
    }
}

#[test]
fn foreign_peer_is_identified() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
        let mut rest = Vec::new();
        // Reads until the program exits.
        let _ = stream.read_to_end(&mut rest);
    });
    let (_, err) = ends(&run(&format!("write bw -d soft0 -p {port} --timeout 60 127.0.0.1")), 4);
    assert!(err.contains("SSH"), "{err}");
    other.join().unwrap();
}

#[test]
fn missed_limit_has_its_own_exit_status() {
    let (_, err) = ends(&run("write bw -d soft0 -n 200 -s 64 --loopback --min-gbps 1000000"), 3);
    assert!(err.contains("missed: "), "{err}");
    let (_, err) = ends(&run("write bw -d soft0 -n 200 -s 64 --loopback --min-mpps 1000000"), 3);
    assert!(err.contains("less than the 1000000 of --min-mpps"), "{err}");
    ends(&run("write bw -d soft0 -n 200 -s 64 --loopback --min-mpps 0.000001 --min-gbps 0.000001"), 0);
    ends(&run("write lat -d soft0 -n 50 --loopback --max-p99 1h"), 0);
}

#[test]
fn output_file_may_have_any_name() {
    let mut folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    folder.push(OsStr::from_bytes(b"a name \xff.json"));
    ends(&program("write bw -d soft0 -n 100 -s 64 --loopback --json").arg(&folder).output().unwrap(), 0);
    let text = std::fs::read_to_string(&folder).unwrap();
    assert!(text.contains("a name \u{fffd}.json"), "{text}");
}

#[test]
fn self_test_covers_operations_and_transports() {
    let (out, err) = ends(&run("self-test -d soft0"), 0);
    assert!(out.starts_with("self-test of soft0 port 1 on ") && out.contains("(softrnic), MTU "), "{out}");
    assert!(out.ends_with("\n40 ok, 0 not supported by the device, 0 failed\n") && err.is_empty(), "{out}\n{err}");
    let (out, err) = ends(&run("self-test -d nothing"), 1);
    assert!(out.is_empty() && err.contains("nothing"), "{out}\n{err}");
}

#[test]
fn like_perftest_prints_what_it_sets() {
    let (out, err) = ends(&run("send lat -d soft0 --loopback --like-perftest"), 0);
    assert!(err.contains("--like-perftest sets --warm-up 0 --recv-post-list 1 --inline 236;"), "{err}");
    assert!(out.contains(", up to 236 bytes inline"), "{out}");
    let (_, err) = ends(&run("send lat -d soft0 --loopback --like-perftest -I 0"), 0);
    assert!(err.contains("--like-perftest sets --warm-up 0 --recv-post-list 1;"), "{err}");
}

#[test]
fn stream_is_json_and_has_the_verdict() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("verdict.json").display().to_string();
    let words = "write bw -d soft0 -n 200 -s 64,128 --loopback";
    ends(&run(&format!("{words} --json {file}")), 0);
    let events = |more: &str, status| -> Vec<serde_json::Value> {
        let (out, _) = ends(&run(&format!("{words} --json-stream {more}")), status);
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = events(&format!("--compare {file} --threshold 1000000 --min-gbps 1000000"), 3);
    let verdict = &all.last().unwrap()["verdict"];
    assert_eq!((&all[0]["event"], &all.last().unwrap()["event"]), (&"start".into(), &"end".into()));
    assert_eq!(verdict["is_held"], false, "{verdict}");
    assert_eq!(verdict["misses"].as_array().map(Vec::len), Some(2), "{verdict}");
    assert_eq!(verdict["misses"][1]["size_bytes"], 128, "{verdict}");
    assert_eq!(verdict["comparison"]["outcome"], "held", "{verdict}");
    assert_eq!(verdict["comparison"]["sizes"].as_array().map(Vec::len), Some(2), "{verdict}");
    assert!(events("", 0).last().unwrap()["verdict"].is_null());
}

#[test]
fn stream_of_a_failed_start_has_an_end() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("older.json");
    std::fs::write(&file, "older").unwrap();
    let (out, err) = ends(&run(&format!("write bw -d soft0 --json-stream --json {} names.invalid", file.display())), 4);
    let event: serde_json::Value = serde_json::from_str(out.trim()).unwrap();
    assert_eq!((&event["event"], &event["rows"]), (&"end".into(), &0.into()), "{event}");
    assert!(event["error"].as_str().unwrap().contains("names.invalid"), "{event}");
    assert!(err.contains("older.json is unchanged"), "{err}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "older");
}

#[test]
fn incomparable_baseline_is_rejected_before_the_test() {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("baseline.json").display().to_string();
    ends(&run(&format!("write bw -d soft0 -n 100 -s 64,128 --loopback --json {file}")), 0);
    for (words, sentence) in [
        ("-s 4K", "no size in common: it has 64, 128, and this run has 4 KiB; give one of its sizes"),
        ("-s 64 -b", "the baseline is unidirectional, and this run is bidirectional"),
        ("-s 64 -c uc", "the baseline is over RC, and this run is over UC"),
        ("-s 64 --imm", "the baseline is write, and this run is write with immediate"),
    ] {
        let words = format!("write bw -d soft0 -n 100 --loopback {words} --compare {file}");
        let (out, err) = ends(&run(&words), 1);
        assert!(out.is_empty() && err.contains(sentence), "{words}: {out}{err}");
    }
    // The tests differ, but are compared nevertheless. The differences are listed.
    let (_, err) =
        ends(&run(&format!("write bw -d soft0 -n 200 -s 64 --loopback --threshold 1000000 --compare {file}")), 0);
    assert!(
        err.contains("differs: messages or time per size: 100 messages in the baseline, 200 messages in this run"),
        "{err}"
    );
}

#[test]
fn excessive_inline_error_names_options_and_limits() {
    let (_, err) = ends(&run("write bw -I 5000 --loopback -n 100 -d soft0"), 1);
    assert!(
        err.contains(" and 5000 bytes inline (-t, -r, -I; `stride-perf devices` lists the inline limits): "),
        "{err}"
    );
    let (_, err) = ends(&run("write bw -t 64K --loopback -n 100 -d soft0"), 1);
    assert!(err.contains("queue pairs with 65536 sends and 0 receives (-t, -r, -I): "), "{err}");
}

/// The client chooses the size, so a server with less memory must survive it.
#[test]
fn validation_without_memory_is_an_error() {
    let mut refused = 0;
    for megabytes in (200..300).step_by(20) {
        let test = program("write bw -n 1 -s 32MiB --validate -d soft0 --loopback");
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--as={}", megabytes << 20)).arg(test.get_program()).args(test.get_args());
        limited.env("RDMA_MUMMY_RDMACM", "softrnic").env("MALLOC_ARENA_MAX", "1");
        let ran = limited.output().unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        // A small allocation that fails ends the process.
        assert!(!err.contains(&format!("allocation of {} bytes", 32 << 20)), "{megabytes} MiB: {err}");
        refused += u32::from(err.contains("--validate: "));
    }
    assert!(refused != 0);
}
