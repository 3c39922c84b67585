//! `lens run --count`: what happens to the program's signals and status, and to counts that cannot be written. In place of
//! `softrnic-run`, a script executes the program without the library.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use sideway_test_names::Folder;

/// The command, beside the script. Both are there before a test starts a process, which could hold the script open.
fn lens() -> &'static Path {
    static LENS: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lens-counts");
        fs::create_dir_all(&folder).unwrap();
        let (lens, runner) = (folder.join("lens"), folder.join("softrnic-run"));
        let _ = fs::remove_file(&lens);
        fs::hard_link(env!("CARGO_BIN_EXE_lens"), &lens).unwrap();
        fs::write(&runner, "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n").unwrap();
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
        lens
    });
    &LENS
}

/// `lens run -c`, with options and a program of the shell.
fn counted(folder: &Folder, options: &[&str], program: &str) -> Command {
    let mut command = Command::new(lens());
    command.args(["run", "-c"]).args(options).args(["sh", "-c", program]).env("XDG_RUNTIME_DIR", folder.path());
    command
}

/// Counts as the library writes them.
const COUNTS: &str = "echo some counts > \"${LENS_COUNT%/*}/$$-1\"";

#[test]
fn signals_to_the_group_reach_the_program_once() {
    let folder = Folder::new();
    let program =
        "trap 'echo alarm' ALRM; trap 'echo usr2' USR2; trap 'exit 7' USR1; echo ready; while :; do sleep 0.01; done";
    let mut command = counted(&folder, &[], program);
    let mut lens = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(lens.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    };
    let process = lens.id().cast_signed();
    let send = |to: i32, signal| {
        // SAFETY: the processes are those of the test, and were not waited for.
        unsafe { libc::kill(to, signal) };
    };
    assert_eq!(line(), "ready\n");
    // The second time, with another witness.
    for _ in 0..2 {
        send(process, libc::SIGSTOP);
        send(-process, libc::SIGALRM);
        assert_eq!(line(), "alarm\n");
        send(-process, libc::SIGUSR2);
        assert_eq!(line(), "usr2\n");
        send(process, libc::SIGCONT);
    }
    // A signal to lens alone is passed on, after those before.
    send(process, libc::SIGUSR1);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), lens.wait().unwrap().code()), ("", Some(7)));
}

#[test]
fn lens_ends_by_the_signal_of_the_program() {
    let folder = Folder::new();
    let ended = counted(&folder, &[], "kill -KILL $$").status().unwrap();
    assert_eq!(ended.signal(), Some(libc::SIGKILL));
}

#[test]
fn counts_without_space_keep_the_status() {
    let folder = Folder::new();
    let ended = counted(&folder, &["-o", "/dev/full"], &format!("{COUNTS}; exit 3")).output().unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert!(error.contains("cannot write the counts to /dev/full: No space left"), "{error}");
    assert_eq!(ended.status.code(), Some(3));
}

#[test]
fn counts_without_a_reader_keep_the_status() {
    let folder = Folder::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = counted(&folder, &[], &format!("{COUNTS}; exit 3")).stderr(writer).status().unwrap();
    assert_eq!(ended.code(), Some(3));
}

#[test]
fn counts_are_printed() {
    let folder = Folder::new();
    let ended = counted(&folder, &[], COUNTS).output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "some counts\n");
}
