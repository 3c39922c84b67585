//! Tests with output files that are also standard output or standard error, and with a standard output that no process
//! reads or that has no space.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use sideway_test_names::Folder;

use super::{ends, port, program};

/// Returns a folder with the file `log`, which contains one line.
fn log() -> Folder {
    let folder = Folder::new();
    fs::write(folder.join("log"), "an old line\n").unwrap();
    folder
}

/// Runs a test whose standard output or standard error is a log file, and returns the contents of the file afterwards.
fn logged(words: &str, is_error: bool, is_appended: bool) -> String {
    let folder = log();
    let file = folder.join("log");
    let opened = if is_appended { File::options().append(true).open(&file) } else { File::create(&file) };
    let (log, other) = (Stdio::from(opened.unwrap()), Stdio::null());
    let (out, err) = if is_error { (other, log) } else { (log, other) };
    let words = format!("write bw -d soft0 --loopback -n 10 {words}").replace("LOG", file.to_str().unwrap());
    assert!(program(&words).stdout(out).stderr(err).status().unwrap().success(), "{words}");
    fs::read_to_string(&file).unwrap()
}

#[test]
fn results_on_standard_output_follow_its_contents() {
    for words in ["--csv /dev/stdout", "--csv /dev/fd/1", "--csv /proc/self/fd/1", "--csv LOG"] {
        for is_appended in [true, false] {
            let text = logged(words, false, is_appended);
            assert_eq!(text.starts_with("an old line\n"), is_appended, "{words}: {text}");
            let [table, csv] = ["  client: soft0", "\n65536,"].map(|part| text.find(part));
            assert!(table.is_some() && table < csv && !text.contains('\0'), "{words}: {text:?}");
        }
    }
}

#[test]
fn results_on_standard_error_follow_its_contents() {
    for words in ["--json /dev/stderr", "--json /dev/fd/2", "--json LOG"] {
        let text = logged(words, true, true);
        assert!(text.starts_with("an old line\n") && text.ends_with("}\n"), "{words}: {text}");
    }
}

#[test]
fn plot_on_standard_output_keeps_the_table() {
    let folder = Folder::new();
    let file = folder.join("plot.svg");
    let out = File::create(&file).unwrap();
    let words = format!("write bw -d soft0 --loopback -n 10 -s 64,128 --plot {}", file.display());
    assert!(program(&words).stdout(out).stderr(Stdio::null()).status().unwrap().success());
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("  client: soft0") && text.ends_with("</svg>\n") && !text.contains('\0'), "{text}");
}

#[test]
fn results_are_written_without_a_reader_of_the_table() {
    let folder = Folder::new();
    let file = folder.join("unseen.json");
    let words = |more: &str| format!("write bw -s 64,128 -n 100 --loopback -d soft0 {more}");
    let unseen = |more: &str| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        program(&words(more)).stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    ends(&unseen(&format!("--json {}", file.display())), 0);
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("\"size_bytes\":").count(), 2, "{text}");
    let (_, err) = ends(&unseen("--min-gbps 1000000"), 3);
    assert!(err.contains("missed: "), "{err}");
}

#[test]
fn emfile_error_suggests_ulimit() {
    let line = format!("ulimit -n 8; exec {} --port {}", env!("CARGO_BIN_EXE_stride-perf"), port());
    let (_, err) = ends(&Command::new("sh").args(["-c", &line]).output().unwrap(), 1);
    assert!(err.ends_with("Too many open files (os error 24); raise the limit (`ulimit -n`)\n"), "{err}");
}

#[test]
fn full_standard_output_is_an_error() {
    for words in ["--help", "--version", "write bw --help", "man", "devices"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = program(words);
        let (_, err) =
            ends(&command.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap(), 1);
        assert!(err.starts_with("error: standard output: "), "{words}: {err}");
    }
    ends(&program("--version").output().unwrap(), 0);
    let (out, err) = ends(&program("--no-such-option").output().unwrap(), 2);
    assert!(out.is_empty() && err.contains("--no-such-option"), "{out}{err}");
}

#[test]
fn output_that_is_an_input_is_an_error() {
    let folder = Folder::new();
    let [run, link] = ["run.svg", "link.svg"].map(|name| folder.join(name));
    fs::write(&run, "a run").unwrap();
    fs::hard_link(&run, &link).unwrap();
    for command in ["report", "plot"] {
        let words = format!("{command} {} -o {}", run.display(), link.display());
        let (_, err) = ends(&program(&words).output().unwrap(), 1);
        assert!(err.contains("link.svg would replace the input "), "{err}");
        assert_eq!(fs::read_to_string(&run).unwrap(), "a run");
    }
}

#[test]
fn report_of_another_file_is_an_error_and_leaves_the_page() {
    let folder = Folder::new();
    let [text, page] = ["notes.txt", "page.html"].map(|name| folder.join(name));
    fs::write(&text, "hello").unwrap();
    fs::write(&page, "an old page").unwrap();
    let (_, err) = ends(&program(&format!("report {} -o {}", text.display(), page.display())).output().unwrap(), 1);
    let why = "notes.txt is not a run: it is neither JSON of stride-perf nor output of a perftest program";
    assert!(err.contains(why), "{err}");
    let (_, err) =
        ends(&program(&format!("report {0}/none -o {0}/page.html", folder.path().display())).output().unwrap(), 1);
    assert!(err.contains("none: No such file or directory"), "{err}");
    assert_eq!(fs::read_to_string(&page).unwrap(), "an old page");
}
