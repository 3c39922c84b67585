//! Files of results that are open already, as the program's own output goes there too.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test, also outside of a function marked as one")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A log with a line in it, of the test that asks for it.
fn log(name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("stride-log-{name}-{}", std::process::id()));
    fs::write(&file, "an old line\n").unwrap();
    file
}

/// What a log holds after a test whose standard output, or standard error, has gone there.
fn logged(name: &str, words: &str, is_error: bool, is_appended: bool) -> String {
    let file = log(name);
    let opened = if is_appended { File::options().append(true).open(&file) } else { File::create(&file) };
    let (log, other) = (Stdio::from(opened.unwrap()), Stdio::null());
    let (out, err) = if is_error { (other, log) } else { (log, other) };
    let words = format!("write bw -d soft0 --loopback -n 10 {words}").replace("LOG", file.to_str().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_stride-perf"));
    command.args(words.split_whitespace()).env("NO_COLOR", "1").stdin(Stdio::null()).stdout(out).stderr(err);
    assert!(command.status().unwrap().success(), "{words}");
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    text
}

#[test]
fn results_for_standard_output_come_after_what_is_there() {
    for words in ["--csv /dev/stdout", "--csv /dev/fd/1", "--csv /proc/self/fd/1", "--csv LOG"] {
        for is_appended in [true, false] {
            let text = logged("out", words, false, is_appended);
            assert_eq!(text.starts_with("an old line\n"), is_appended, "{words}: {text}");
            let [table, csv] = ["  client: soft0", "\n65536,"].map(|part| text.find(part));
            assert!(table.is_some() && table < csv && !text.contains('\0'), "{words}: {text:?}");
        }
    }
}

#[test]
fn results_for_standard_error_come_after_what_is_there() {
    for words in ["--json /dev/stderr", "--json /dev/fd/2", "--json LOG"] {
        let text = logged("err", words, true, true);
        assert!(text.starts_with("an old line\n") && text.ends_with("}\n"), "{words}: {text}");
    }
}

#[test]
fn a_plot_does_not_destroy_what_is_printed_beside_it() {
    let file = log("plot").with_extension("svg");
    let out = File::create(&file).unwrap();
    let words = format!("write bw -d soft0 --loopback -n 10 -s 64,128 --plot {}", file.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_stride-perf"));
    command.args(words.split_whitespace()).env("NO_COLOR", "1").stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(text.contains("  client: soft0") && text.ends_with("</svg>\n") && !text.contains('\0'), "{text}");
}
