//! Programs that a test starts, each with a deadline for its end.

use std::env;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use sideway_test_names::Folder;

use crate::device::{SOFT_DEVICE, TEST_DEVICE};

/// The environment variable that names the folder of the examples' programs.
pub const EXAMPLES_DIR: &str = "SIDEWAY_EXAMPLES_DIR";

const PAUSE: Duration = Duration::from_millis(10);
/// The file for a program's output, in its folder.
const OUTPUT: &str = "output";

/// One of this project's examples. If the tests run on a device of the system, the example lists only such devices,
/// like a C program.
///
/// # Panics
///
/// If the folder is unknown, or does not contain the program.
#[track_caller]
pub fn example(name: &str) -> Command {
    let folder = match env::var_os(EXAMPLES_DIR) {
        Some(folder) => PathBuf::from(folder),
        None => beside_tests(),
    };
    let program = folder.join(name);
    assert!(program.is_file(), "{} does not exist; {EXAMPLES_DIR} names the folder of the examples", program.display());
    let mut command = Command::new(program);
    if let Some(name) = env::var_os(TEST_DEVICE).filter(|name| !name.is_empty() && name != SOFT_DEVICE) {
        let is_soft = name.as_encoded_bytes().starts_with(b"soft");
        command.env(softrnic::DEVICES_VARIABLE, if is_soft { name } else { "0".into() });
    }
    command
}

/// The examples of this build, next to the tests. Not every `cargo test` builds them, so each test program does so
/// once.
#[track_caller]
fn beside_tests() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let test = env::current_exe().unwrap_or_else(|error| panic!("{error}"));
        // The tests are in `deps` of the profile's folder.
        let folder = test.ancestors().nth(2).unwrap_or_else(|| panic!("{} has no parent folder", test.display()));
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "sideway-examples", "--examples"]);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", folder.parent().unwrap_or(folder));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        let status = cargo.status().unwrap_or_else(|error| panic!("{cargo:?}: {error}"));
        assert!(status.success(), "{cargo:?}: {status}; {EXAMPLES_DIR} names a folder that has them");
        folder.join("examples")
    };
    BUILT.get_or_init(build).clone()
}

/// A running program, killed when this is dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    name: String,
    folder: Folder,
    deadline: Instant,
}

/// A program's exit status and its output on both streams.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit status.
    pub status: ExitStatus,
    /// The text.
    pub output: String,
}

impl Program {
    /// Starts a program that must end within `limit`.
    ///
    /// # Panics
    ///
    /// If the program does not start.
    #[track_caller]
    pub fn start(mut command: Command, limit: Duration) -> Self {
        let folder = Folder::new();
        let output = folder.join(OUTPUT);
        let name = format!("{command:?}");
        let file = File::create(&output).unwrap_or_else(|error| panic!("{}: {error}", output.display()));
        let errors = file.try_clone().unwrap_or_else(|error| panic!("{}: {error}", output.display()));
        // A missing backtrace must not hide a panic.
        command.env("RUST_BACKTRACE", "1").stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Self { child, name, folder, deadline: Instant::now() + limit }
    }

    /// Waits until a program listens on the TCP port, in the network namespace of this program.
    ///
    /// # Panics
    ///
    /// If the program exits first, or the deadline passes.
    #[track_caller]
    pub fn wait_for_port(&mut self, port: u16) {
        let process = self.child.id();
        self.wait_until("listen", |_| is_listened_at(process, port));
    }

    /// Waits until the program has done `what`.
    ///
    /// # Panics
    ///
    /// If the program exits first, or the deadline passes.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, mut is_done: impl FnMut(&Self) -> bool) {
        while !is_done(self) {
            let is_running = matches!(self.child.try_wait(), Ok(None));
            assert!(is_running, "{} ended and did not {what}:\n{}", self.name, self.said());
            assert!(Instant::now() < self.deadline, "{} does not {what}:\n{}", self.name, self.said());
            thread::sleep(PAUSE);
        }
    }

    /// Waits until a program listens on the port of the connection manager (in its TCP or UDP port space).
    ///
    /// # Panics
    ///
    /// As [`wait_for_port`](Self::wait_for_port).
    #[track_caller]
    pub fn wait_for_cm_port(&mut self, port: u16) {
        let process = self.child.id();
        self.wait_until("listen", |_| is_listened_at_by_cm(process, port));
    }

    /// Waits until a program listens on the TCP port or on the port of the connection manager.
    ///
    /// # Panics
    ///
    /// As [`wait_for_port`](Self::wait_for_port).
    #[track_caller]
    pub fn wait_for_any_port(&mut self, port: u16) {
        let process = self.child.id();
        self.wait_until("listen", |_| is_listened_at(process, port) || is_listened_at_by_cm(process, port));
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The program's output so far.
    pub fn said(&self) -> String {
        fs::read(self.folder.join(OUTPUT)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until the program exits; `None` if the deadline passed and the program was killed.
    pub fn wait(&mut self) -> Option<Ended> {
        self.wait_unless(|_| false)
    }

    /// Does the same as [`wait`](Self::wait), but kills the program also if `is_over` returns true.
    pub fn wait_unless(&mut self, mut is_over: impl FnMut(&Self) -> bool) -> Option<Ended> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(Ended { status, output: self.said() });
            }
            if Instant::now() >= self.deadline || is_over(self) {
                self.kill();
                return None;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Stops the program with SIGSTOP.
    ///
    /// # Panics
    ///
    /// If the program has ended.
    #[track_caller]
    pub fn stop(&mut self) {
        assert!(matches!(self.child.try_wait(), Ok(None)), "{} has ended:\n{}", self.name, self.said());
        let pid = libc::pid_t::try_from(self.child.id()).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: a plain system call. The child has not been waited for, so the process ID is still its own.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGSTOP) }, 0, "{} cannot be stopped", self.name);
    }

    /// Kills the program.
    pub fn kill(&mut self) {
        // Each call fails only if the program has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Terminates the program with SIGTERM.
    ///
    /// # Panics
    ///
    /// If the program has ended.
    #[track_caller]
    pub fn terminate(&mut self) {
        assert!(matches!(self.child.try_wait(), Ok(None)), "{} has ended:\n{}", self.name, self.said());
        let pid = libc::pid_t::try_from(self.child.id()).unwrap_or_else(|error| panic!("{error}"));
        // SAFETY: a plain system call. The child has not been waited for, so the process ID is still its own.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0, "{} cannot be terminated", self.name);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs one program to its end.
///
/// # Panics
///
/// If the program does not end within `limit`.
#[track_caller]
pub fn run(command: Command, limit: Duration) -> Ended {
    let mut program = Program::start(command, limit);
    match program.wait() {
        Some(ended) => ended,
        None => panic!("{} did not end within {limit:?}:\n{}", program.name, program.said()),
    }
}

/// Starts a server, waits until it listens on the port of TCP or of the connection manager, runs a client, and waits for both.
///
/// # Panics
///
/// If one of the programs does not end within `limit`.
#[track_caller]
pub fn run_both(server: Command, client: Command, port: u16, limit: Duration) -> [Ended; 2] {
    run_pair(server, client, limit, |server| server.wait_for_any_port(port))
}

/// Runs a server that listens on the port of the connection manager, and a client.
///
/// # Panics
///
/// As [`run_both`].
#[track_caller]
pub fn run_both_by_cm(server: Command, client: Command, port: u16, limit: Duration) -> [Ended; 2] {
    run_pair(server, client, limit, |server| server.wait_for_cm_port(port))
}

#[track_caller]
fn run_pair(server: Command, client: Command, limit: Duration, wait: impl FnOnce(&mut Program)) -> [Ended; 2] {
    let mut server = Program::start(server, limit);
    wait(&mut server);
    let mut client = Program::start(client, limit);
    match (client.wait(), server.wait()) {
        (Some(client), Some(server)) => [server, client],
        _ => panic!(
            "not ended within {limit:?}\n== {}\n{}\n== {}\n{}",
            server.name,
            server.said(),
            client.name,
            client.said()
        ),
    }
}

/// Whether a program listens on the port of the connection manager, in either port space: the kernel's, or softrnic's.
fn is_listened_at_by_cm(process: u32, port: u16) -> bool {
    if is_listened_at_by_soft_cm(process, port) {
        return true;
    }
    // If `rdma` is not installed, no kernel device is used.
    let Ok(output) = Command::new("rdma").args(["resource", "show", "cm_id"]).output() else { return false };
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |key: &str| words.iter().skip_while(|word| **word != key).nth(1).copied().unwrap_or_default();
        let local = value("src-addr").rsplit(':').next().and_then(|port| port.parse().ok());
        value("state") == "LISTEN" && local == Some(port)
    })
}

/// Whether a listening socket has the port in its name: `@softrnic/1/cm/PORT SPACE/PORT/ADDRESS`.
fn is_listened_at_by_soft_cm(process: u32, port: u16) -> bool {
    // __SO_ACCEPTCON.
    const LISTENS: &str = "00010000";
    let table = fs::read(format!("/proc/{process}/net/unix")).unwrap_or_default();
    String::from_utf8_lossy(&table).lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.get(7).and_then(|name| name.strip_prefix("@softrnic/1/cm/"));
        let bound = name.and_then(|name| name.split('/').nth(1)?.parse().ok());
        words.get(3) == Some(&LISTENS) && bound == Some(port)
    })
}

/// Whether a socket in the network namespace of the process listens on the TCP port, found without connecting to it.
fn is_listened_at(process: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|file| {
        let table = fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default();
        table.lines().skip(1).any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let local = columns.next().and_then(|local| local.rsplit(':').next());
            // 0A is TCP_LISTEN.
            local.and_then(|local| u16::from_str_radix(local, 16).ok()) == Some(port) && columns.nth(1) == Some("0A")
        })
    })
}

/// Runs the tests of this program that `filter` selects (all if it is empty) under valgrind, with the variable
/// `marker` set. An error or a leak gives exit status 99.
///
/// # Panics
///
/// If this program has no path.
#[track_caller]
pub fn under_valgrind(marker: &str, filter: &[&str]) -> Command {
    let this = env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new("valgrind");
    // valgrind does not support the drivers' system calls, so it cannot check for uninitialised bytes.
    command
        .args([
            "--error-exitcode=99",
            "--undef-value-errors=no",
            "--fair-sched=yes",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/valgrind.supp"),
        ])
        .arg(this)
        .args(filter)
        .args(["--include-ignored", "--nocapture", "--test-threads=1"])
        .env(marker, "1");
    command
}
