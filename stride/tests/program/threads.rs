//! A thread that the system refuses is an error with its reason.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use sideway_test_names::Folder;
use sideway_tests::requirements::may_not_run;

use super::{ends, port};

const REFUSED: &str = "cannot start a thread (raise `ulimit -u`, `ulimit -v` or the container's `pids.max`): ";

/// A copy of the program that another user can run. The processes of this user belong to this test.
struct Other(PathBuf, #[expect(dead_code, reason = "keeps the copy")] Folder);

impl Other {
    /// Returns `None` if this process cannot run programs as another user.
    fn new() -> Option<Self> {
        let folder = Folder::new();
        let program = folder.join("stride-perf");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_stride-perf"), &program).unwrap();
        let other = Self(program, folder);
        let is_usable = other.run(100, "--version").is_some_and(|ran| ran.status.success());
        if !is_usable {
            may_not_run("runs without threads: this needs root, setpriv and prlimit");
        }
        is_usable.then_some(other)
    }

    /// Runs the program with so few threads.
    fn run(&self, threads: u32, words: &str) -> Option<Output> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=23457", "--regid=23457", "--clear-groups", "prlimit", &format!("--nproc={threads}")]);
        command.arg(&self.0).args(words.split_whitespace()).env("NO_COLOR", "1").stdin(Stdio::null());
        command.output().ok()
    }
}

#[test]
fn server_without_threads_reports_the_limit() {
    let Some(other) = Other::new() else { return };
    // It needs three threads before its first client.
    for threads in 1..=3 {
        let (_, err) = ends(&other.run(threads, &format!("-p {}", port())).unwrap(), 1);
        assert!(err.contains(REFUSED), "{threads}: {err}");
    }
}

#[test]
fn test_without_threads_reports_the_limit() {
    let Some(other) = Other::new() else { return };
    let mut refused = 0;
    for threads in 1..20 {
        let ran = other.run(threads, "send bw --loopback -d soft0 -n 100 -s 64").unwrap();
        let err = String::from_utf8_lossy(&ran.stderr);
        assert!(!err.contains("panicked"), "{threads}: {err}");
        assert!(ran.status.success() || err.contains("error: "), "{threads}: {err}");
        refused += usize::from(err.contains(REFUSED));
    }
    assert!(refused > 0);
    let ran = other.run(1, &format!("send bw -p {} localhost", port())).unwrap();
    let (_, err) = ends(&ran, 1);
    assert!(err.contains(REFUSED), "{err}");
}
