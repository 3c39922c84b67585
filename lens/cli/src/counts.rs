//! `lens run --count`: the processes of the program write their counts into a folder, also while they run, so that the counts
//! of one that is killed are not lost. When the program has ended, they are printed.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::{env, process};

use rdma_lens::environment::COUNT;

/// The process of the program.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// Runs the program, prints its counts, and ends as it has ended.
pub(crate) fn run(mut command: Command, output: &Path) -> Result<ExitCode, String> {
    let folder = Folder::new().map_err(|error| format!("cannot make a folder for the counts: {error}"))?;
    command.env(COUNT, folder.0.join("%p"));
    let child = command.spawn().map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    let status = wait(child).map_err(|error| format!("cannot wait for the program: {error}"))?;
    print(&folder.0, output).map_err(|error| format!("cannot write the counts to {}: {error}", output.display()))?;
    drop(folder);
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(ExitCode::from(code.to_le_bytes()[0])),
        (None, Some(signal)) => die(signal),
        (None, None) => Ok(ExitCode::FAILURE),
    }
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("lens-{}", process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits for the program. Signals of the terminal reach it as well, and others are passed on.
fn wait(mut child: Child) -> io::Result<ExitStatus> {
    extern "C" fn pass_on(signal: libc::c_int) {
        // SAFETY: the call is allowed in a handler.
        unsafe { libc::kill(PROGRAM.load(Ordering::Relaxed), signal) };
    }
    PROGRAM.store(child.id().cast_signed(), Ordering::Relaxed);
    // SAFETY: the handler only sends a signal. The program was started before, so it does not inherit what is ignored.
    unsafe {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            libc::signal(signal, libc::SIG_IGN);
        }
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2] {
            libc::signal(signal, pass_on as *const () as libc::sighandler_t);
        }
    }
    child.wait()
}

/// Ends this process by the signal that ended the program.
fn die(signal: i32) -> ! {
    // SAFETY: the calls end the process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    process::exit(128 + signal)
}

/// Prints the counts of all processes, in the order of their numbers.
fn print(folder: &Path, output: &Path) -> io::Result<()> {
    let mut files: Vec<(u32, PathBuf)> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((path.file_name()?.to_str()?.parse().ok()?, path)))
        .collect();
    files.sort();
    let mut text = String::new();
    for (number, path) in &files {
        if files.len() > 1 {
            let _ = writeln!(text, "process {number}");
        }
        text.push_str(&fs::read_to_string(path)?);
    }
    if output == Path::new("-") {
        return io::stderr().write_all(text.as_bytes());
    }
    let name = output.to_string_lossy().replace("%p", &process::id().to_string());
    OpenOptions::new().create(true).append(true).open(name)?.write_all(text.as_bytes())
}
