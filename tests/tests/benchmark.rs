//! The main jobs of `stride-perf`, in this process, on softrnic's device. The tests of the package `stride-perf` are
//! many more.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::process::ExitCode;

use stride_perf::{cli, program};

/// Runs a command line.
#[track_caller]
fn succeeds(words: &[&str]) {
    let job = cli::parse(std::iter::once(&"stride-perf").chain(words)).unwrap();
    // `ExitCode` can be compared only by its text.
    assert_eq!(format!("{:?}", program::run(job)), format!("{:?}", ExitCode::SUCCESS), "{words:?}");
}

#[test]
fn device_passes_the_self_test() {
    succeeds(&["self-test", "-d", "soft0"]);
}

#[test]
fn bandwidth_and_latency_have_a_row_for_each_size() {
    let folder = tempfile::tempdir().unwrap();
    for (words, count) in [("write bw --validate", "messages"), ("send lat", "samples")] {
        let file = folder.path().join("run.json");
        let words: Vec<&str> = words.split(' ').chain(["-s", "64,4K", "-n", "200", "-d", "soft0"]).collect();
        succeeds(&[&words[..], &["--loopback", "--json", file.to_str().unwrap()]].concat());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches("\"size_bytes\":").count(), 2, "{text}");
        assert_eq!(text.matches(&format!("\"{count}\":200,")).count(), 2, "{text}");
    }
}
