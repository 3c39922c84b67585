//! Tests that the errors of softrnic-run contain what failed, why, and which variable or command to change.

use std::process::Command;

use sideway_tests::errors;

/// Command lines that fail. Each entry contains the command line, the value of the environment variable, the exit
/// status, the cause and the remedy.
const FAILURES: [(&str, Option<&str>, i32, &str, &str); 12] = [
    ("", None, 2, "no command given", "see `softrnic-run --help`"),
    ("--library ibv_devinfo", None, 2, "unknown option --library", "see `softrnic-run --help`"),
    ("-x ibv_devinfo", None, 2, "unknown option -x", "see `softrnic-run --help`"),
    ("no-such-program", None, 127, "not found in PATH", "give the path of the program"),
    ("ib_no_such_bw", None, 127, "not found in PATH", "install the Debian or Ubuntu package perftest"),
    ("ibv_no_such_pingpong", None, 127, "not found in PATH", "package ibverbs-utils"),
    ("/no-such-folder/program", None, 127, "cannot run /no-such-folder/program: No such file or directory", ""),
    ("/etc/passwd", None, 126, "/etc/passwd: not an executable file", ""),
    (
        "/bin/sh",
        Some("/no-such-folder/library.so"),
        126,
        "/no-such-folder/library.so: no such file",
        "correct or unset ",
    ),
    ("--libraries /bin/sh", Some("/no-such-folder"), 126, "/no-such-folder/libibverbs.so.1: no such file", "unset "),
    ("--control 1 port down", None, 2, "--control needs the folder", "set SOFTRNIC_CONTROL"),
    ("--libraries /bin/sh", None, 126, "libibverbs.so.1: no such file", "build it with `cargo xtask preload`"),
];

#[test]
fn errors_name_the_cause_and_the_remedy() {
    for (line, variable, status, cause, remedy) in FAILURES {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softrnic-run"));
        command.args(line.split_whitespace()).env_remove("SOFTRNIC_PRELOAD").env_remove("SOFTRNIC_CONTROL");
        if let Some(value) = variable {
            command.env("SOFTRNIC_PRELOAD", value);
        }
        let ended = command.output().expect("softrnic-run starts");
        let output = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{line}: {output}");
        let error = errors::text(&output, "softrnic-run: ");
        assert!(error.contains(cause) && error.contains(remedy), "{line}: {error}");
    }
}
