//! Helpers of the tests.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;

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
        let path = format!("{}:{}:{}", self.path("bin").display(), programs.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(programs.join(program));
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
            let read = |from: &mut dyn std::io::Read| {
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

/// Returns a port that is free at the moment.
pub(crate) fn port() -> u16 {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let base = 20_000 + (std::process::id() as usize * 16) % 12_000;
    loop {
        let port = (base + NEXT.fetch_add(1, Ordering::Relaxed)) as u16;
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Bytes whose values depend on their positions.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    let mut state = length as u64 | 1;
    let next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}
