//! `lens run --count`: the processes of the program write their counts into a folder, also while they run, so that the counts
//! of one that is killed are not lost. When the program has ended, they are printed.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::{env, process};

use rdma_lens::environment::COUNT;

/// Runs the program, prints its counts, and ends as it has ended.
pub(crate) fn run(mut command: Command, output: &Path) -> Result<ExitCode, String> {
    let folder = Folder::new().map_err(|error| format!("cannot make a folder for the counts: {error}"))?;
    command.env(COUNT, folder.0.join("%p"));
    let status = run_program(&mut command)
        .map_err(|error| format!("cannot run {}: {error}", command.get_program().display()))?;
    if let Err(error) = print(&folder.0, output) {
        // If this cannot be printed either, the status of the program still matters.
        let _ = writeln!(io::stderr(), "lens: cannot write the counts to {}: {error}", output.display());
    }
    drop(folder);
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(ExitCode::from(code.to_le_bytes()[0])),
        (None, Some(signal)) => die(signal),
        (None, None) => Ok(ExitCode::FAILURE),
    }
}

/// A folder of this user, which is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let template = std::path::absolute(env::temp_dir())?.join("lens-counts-XXXXXX");
        let mut template = template.into_os_string().into_vec();
        template.push(0);
        // SAFETY: the template is a C string that can be changed.
        if unsafe { libc::mkdtemp(template.as_mut_ptr().cast()) }.is_null() {
            return Err(io::Error::last_os_error());
        }
        template.pop();
        Ok(Self(OsString::from_vec(template).into()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Signals that are passed on, except those to the process group, which the program gets too.
const PASSED_ON: [libc::c_int; 8] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGPIPE,
];

/// Runs the program to its end.
fn run_program(command: &mut Command) -> io::Result<ExitStatus> {
    let passed_on = set(&PASSED_ON);
    let mut waited = passed_on;
    // SAFETY: the set is filled; the old mask is stored. Between fork and exec, the program only sets its mask, which is
    // allowed there.
    unsafe {
        let mut before = std::mem::zeroed();
        libc::sigaddset(&raw mut waited, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const waited, &raw mut before);
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            Ok(())
        });
    }
    let mut witness = Witness::new();
    let mut child = command.spawn()?;
    loop {
        // SAFETY: the set is filled.
        let signal = unsafe { libc::sigwaitinfo(&raw const waited, std::ptr::null_mut()) };
        if signal == libc::SIGCHLD {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
        } else if signal > 0 {
            let mut taken = vec![signal];
            let was_sent = |signal| witness.as_ref().is_some_and(|witness| witness.pending() & bit(signal) != 0);
            let next = was_sent(signal).then(|| replaced(&passed_on, &mut taken));
            for signal in taken.into_iter().filter(|signal| !was_sent(*signal)) {
                // SAFETY: the program has not been waited for, so the number is its own.
                unsafe { libc::kill(child.id().cast_signed(), signal) };
            }
            witness = next.unwrap_or(witness);
        }
    }
}

/// Makes the next witness, which has none of the signals that this process has taken, and takes those that are pending.
/// The last witness has all of them that were sent to the group.
fn replaced(passed_on: &libc::sigset_t, taken: &mut Vec<libc::c_int>) -> Option<Witness> {
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut next = None;
    // Again if a signal came between these steps; not forever if signals come without end.
    for _ in 0..8 {
        next = Witness::new();
        // SAFETY: the set and the time are readable.
        let take = || unsafe { libc::sigtimedwait(passed_on, std::ptr::null_mut(), &raw const none) };
        taken.extend(std::iter::repeat_with(take).take_while(|signal| *signal > 0));
        if next.as_ref().is_none_or(|next| next.pending() & PASSED_ON.map(bit).into_iter().sum::<u64>() == 0) {
            break;
        }
    }
    taken.sort_unstable();
    taken.dedup();
    next
}

/// The bit of a signal in the masks of `/proc`.
fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// A set of signals.
fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: the first call fills the set, to which the others add.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        signals.iter().for_each(|signal| _ = libc::sigaddset(&raw mut set, *signal));
        set
    }
}

/// A process of this group that never takes a signal. The kernel signals the processes of a group from the newest to the
/// oldest, so a signal that this process gets is pending in its witness if it was sent to the group, as by a terminal or
/// `kill -- -GROUP`.
struct Witness(libc::pid_t);

impl Witness {
    /// `None` if no process can be made: all signals are then passed on.
    fn new() -> Option<Self> {
        // SAFETY: this process has one thread, and the child only makes system calls. It ends with this process.
        unsafe {
            let parent = libc::getpid();
            match libc::fork() {
                -1 => None,
                0 => {
                    let mut all = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    // A reader of a pipe must not wait for it.
                    libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
                    while libc::getppid() == parent {
                        libc::pause();
                    }
                    libc::_exit(0)
                }
                process => Some(Self(process)),
            }
        }
    }

    /// The signals that are pending.
    fn pending(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        // SAFETY: the process is a child that was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Ends this process by the signal that ended the program, whose core is not replaced.
fn die(signal: i32) -> ! {
    // SAFETY: the calls end the process.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
    process::exit(128 + signal)
}

/// Prints the counts of all processes, in the order of their numbers.
fn print(folder: &Path, output: &Path) -> io::Result<()> {
    let mut files: Vec<(u32, PathBuf)> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter_map(|path| Some((path.file_name()?.to_str()?.split_once('-')?.0.parse().ok()?, path)))
        .filter(|(_, path): &(u32, PathBuf)| path.extension().is_none())
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
