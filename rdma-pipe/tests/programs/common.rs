//! Functions and types that the tests share.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;
use sideway_test_names::Port;

/// A time limit that only a hung operation reaches.
const LONG: Duration = Duration::from_secs(60);

/// A folder for a test, with the programs and a script that replaces ssh.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    tcp: bool,
}

impl Place {
    pub(crate) fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let ssh = folder.path().join("bin/ssh");
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        let script = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\n\
            export STAND_IN_HOST=\"$1\"\nshift\n\
            SSH_CONNECTION=\"127.0.0.1 1 127.0.0.1 22\" exec sh -c \"$*\"\n";
        std::fs::write(&ssh, script).unwrap();
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
        Place { folder, tcp: false }
    }

    /// Creates a folder whose programs find no RDMA device.
    pub(crate) fn with_tcp() -> Place {
        Place { tcp: true, ..Place::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns an operand that names a path of this folder on the host `h`.
    pub(crate) fn on_host(&self, name: &str) -> String {
        format!("h:{}", self.path(name).display())
    }

    /// Prepares a program with its arguments, in this folder.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_rdcp")).parent().unwrap();
        self.prepare(Command::new(programs.join(program)), arguments)
    }

    /// Prepares a command that finds the programs.
    pub(crate) fn prepare<A: AsRef<OsStr>>(
        &self,
        mut command: Command,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_rdcp")).parent().unwrap();
        let path = format!("{}:{}:{}", self.path("bin").display(), programs.display(), std::env::var("PATH").unwrap());
        command.args(arguments).current_dir(self.folder.path()).env("PATH", path).env("SHELL", "/bin/sh");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.tcp {
            command.env("SOFTRNIC_DEVICES", "0");
        }
        command
    }

    /// Runs a program until it exits.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> Ran {
        Ran::from(&mut self.command(program, arguments).spawn().unwrap(), b"")
    }

    /// Runs a script of the shell, which finds the programs.
    pub(crate) fn shell(&self, script: &str) -> Ran {
        Ran::from(&mut self.prepare(Command::new("sh"), ["-c", script]).spawn().unwrap(), b"")
    }

    /// Runs a program with an input.
    pub(crate) fn run_with<A: AsRef<OsStr>>(
        &self,
        input: &[u8],
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Ran {
        Ran::from(&mut self.command(program, arguments).stdin(Stdio::piped()).spawn().unwrap(), input)
    }

    /// Finds the running far side of a host, by the environment variable that the script sets.
    pub(crate) fn far_side(&self, host: &str) -> Option<Pid> {
        let is_far_side = |entry: &std::fs::DirEntry| {
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let has = |name, wanted: &str| read(name).split(|&byte| byte == 0).any(|word| word == wanted.as_bytes());
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == self.folder.path())
                && has("cmdline", "--server")
                && has("environ", &format!("STAND_IN_HOST={host}"))
        };
        let number = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw);
        let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes.find_map(|entry| number(&entry).filter(|_| is_far_side(&entry)))
    }

    /// Returns the names in a folder, including hidden ones.
    pub(crate) fn names(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the path and the length of the file that a copy is writing in a folder, or has left there.
    pub(crate) fn partial(&self, folder: &str) -> Option<(PathBuf, u64)> {
        let entries = std::fs::read_dir(self.path(folder)).ok()?;
        let mut paths = entries.flatten().map(|entry| entry.path());
        let path = paths.find(|path| path.to_string_lossy().contains(".rdcp-"))?;
        let length = path.metadata().ok()?.len();
        Some((path, length))
    }

    /// Whether a copy has written this many bytes of a file in a folder.
    pub(crate) fn has_begun(&self, folder: &str, bytes: u64) -> bool {
        self.partial(folder).is_some_and(|(_, length)| length >= bytes)
    }
}

/// The result of a program: exit status and output.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Passes the input to a program, and waits until it exits.
    pub(crate) fn from(child: &mut Child, input: &[u8]) -> Ran {
        let stdin = child.stdin.take();
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(mut stdin) = stdin {
                    // The program may exit before it has read everything.
                    _ = stdin.write_all(input);
                }
            });
            let read = |from: &mut dyn Read| {
                let mut bytes = Vec::new();
                from.read_to_end(&mut bytes).unwrap();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            let err = scope.spawn(move || read(&mut err));
            let out = read(&mut out);
            let until = Instant::now() + LONG;
            let status = loop {
                match child.try_wait().unwrap() {
                    Some(status) => break status,
                    None if Instant::now() > until => {
                        child.kill().unwrap();
                        panic!("a program hangs");
                    }
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            };
            Ran { status: status.code().unwrap_or(-1), out, err: err.join().unwrap() }
        })
    }

    /// Fails unless the status is as expected.
    #[track_caller]
    pub(crate) fn expect(self, status: i32) -> Ran {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// Reports that a test, or the rest of it, did not run, because this machine or user does not permit it. The test harness
/// hides the standard output of a test that passes, but not this.
pub(crate) fn may_not_run(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    _ = writeln!(std::io::stderr(), "DID NOT RUN: {name}: {why}");
}

/// Returns a port that is reserved until the tests end.
pub(crate) fn port() -> u16 {
    Port::reserve().keep()
}

/// Forwards TCP connections to a port of this host. Each of the first connections is cut after the given number of
/// bytes in both directions together. Returns the port, and the number of connections that were cut.
pub(crate) fn proxy(to: u16, cuts: Vec<u64>) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let cut = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cut);
    std::thread::spawn(move || {
        let mut cuts = cuts.into_iter();
        for client in listener.incoming().flatten() {
            // The server may not be listening yet: the client then connects again.
            let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            let left = Arc::new(AtomicI64::new(cuts.next().map_or(i64::MAX, |cut| cut as i64)));
            for (mut from, mut to) in [(&client, &server), (&server, &client)]
                .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
            {
                let (left, counted) = (Arc::clone(&left), Arc::clone(&counted));
                std::thread::spawn(move || {
                    let mut bytes = [0; 8192];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        let before = left.fetch_sub(count as i64, Ordering::SeqCst);
                        if before <= count as i64 {
                            counted.fetch_add(usize::from(before > 0), Ordering::SeqCst);
                            _ = from.shutdown(Shutdown::Both);
                            break;
                        }
                        if to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    _ = to.shutdown(if left.load(Ordering::SeqCst) > 0 { Shutdown::Write } else { Shutdown::Both });
                });
            }
        }
    });
    (port, cut)
}

/// Shuts down the TCP connections of a process, to simulate a broken network.
pub(crate) fn break_connections(pid: Pid) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap() + &std::fs::read_to_string("/proc/net/tcp6").unwrap();
    // State 01 means established; the tenth column is the socket's inode.
    let established: Vec<&str> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|columns| columns.get(3) == Some(&"01"))
        .filter_map(|columns| columns.get(9).copied())
        .collect();
    let folder = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let mut broken = 0;
    for entry in std::fs::read_dir(Path::new(&folder)).unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default().to_string_lossy().into_owned();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        if inode.is_some_and(|inode| established.contains(&inode)) {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            let socket = rustix::process::pidfd_getfd(&process, number, rustix::process::PidfdGetfdFlags::empty());
            match socket.and_then(|socket| rustix::net::shutdown(&socket, rustix::net::Shutdown::Both)) {
                // The process has closed it since, or the peer has reset it.
                Err(Errno::BADF | Errno::NOTCONN) => continue,
                outcome => outcome.unwrap(),
            }
            broken += 1;
        }
    }
    broken
}

/// Returns bytes whose values depend on their positions.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let mut state = length as u64 | 1;
    let next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

/// Whether two trees are equal; links are compared as links.
pub(crate) fn is_same(left: &Path, right: &Path) -> bool {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"]).args([left, right]).status().unwrap().success()
}

/// Removes an entry, if it exists.
pub(crate) fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            // A test may have closed some of its directories to their owner.
            Command::new("chmod").args(["-R", "u+rwx"]).arg(path).status().unwrap();
            std::fs::remove_dir_all(path).unwrap();
        }
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Changes a byte of a file.
pub(crate) fn flip(path: &Path, at: usize) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at as u64).unwrap();
    file.write_at(&[byte[0] ^ 1], at as u64).unwrap();
}
