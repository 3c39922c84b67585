//! Tests copies through a real sshd on its own port. If sshd is not installed, the tests print that they did not run.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, bytes, port};

/// A running sshd, with a key for this user.
struct Sshd {
    child: Child,
    /// The remote shell, for `-e`.
    shell: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // The process may have exited already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Sshd {
    /// Starts sshd; `forced` is the only command that it allows. Returns `None` if this host has no usable sshd.
    fn start(place: &Place, forced: Option<&str>) -> Option<Sshd> {
        let path = std::env::var("PATH").unwrap();
        let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
        let Some(sshd) = folders.map(|folder| PathBuf::from(folder).join("sshd")).find(|path| path.exists()) else {
            skipped("no sshd");
            return None;
        };
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(place.path(name))
                .stdin(Stdio::null())
                .status();
            assert!(made.unwrap().success());
        }
        let key = String::from_utf8(place.read("user.pub")).unwrap();
        let forced = forced.map(|command| format!("restrict,command=\"{command}\" ")).unwrap_or_default();
        let keys = place.write("keys", format!("{forced}{key}"));
        let (port, folder) = (port(), place.path(""));
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {0}host\nAuthorizedKeysFile {1}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPermitRootLogin yes\n",
            folder.display(),
            keys.display()
        );
        let config = place.write("sshd_config", config);
        let log = std::fs::File::create(place.path("log")).unwrap();
        let mut child = Command::new(sshd).args(["-D", "-e", "-f"]).arg(config).stderr(log).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if child.try_wait().unwrap().is_some() {
                skipped(&format!("sshd does not run: {}", String::from_utf8_lossy(&place.read("log")).trim()));
                return None;
            }
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        let shell = format!(
            "/usr/bin/ssh -T -p {port} -i {}user -oBatchMode=yes -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null \
             -oLogLevel=ERROR -F/dev/null",
            folder.display()
        );
        Some(Sshd { child, shell })
    }
}

/// Reports that a test did not run. Does not use `eprintln!`, whose output the test harness hides when a test passes.
fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "DID NOT RUN: {name}: {why}");
}

#[test]
fn files_go_over_a_real_sshd_and_come_back() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place, None) else { return };
    let data = bytes(9_000_000);
    place.write("a b/$file", &data);
    let rdcp = env!("CARGO_BIN_EXE_rdcp");
    let there = |name: &str| format!("127.0.0.1:{}", place.path(name).display());
    let run = |from: &str, to: &str| {
        place.run("rdcp", ["-r", "-e", &sshd.shell, "--rdcp-path", rdcp, from, to]).expect(0);
    };
    run("a b", &there("c d"));
    run(&there("c d"), "back");
    assert!(place.read("back/$file") == data);
    run(&there("back"), &there("third"));
    assert!(place.read("third/$file") == data);
}

#[test]
fn forced_command_of_sshd_serves_its_root() {
    let place = Place::new();
    std::fs::create_dir(place.path("root")).unwrap();
    let command = format!("{} --server --root {}", env!("CARGO_BIN_EXE_rdcp"), place.path("root").display());
    let Some(sshd) = Sshd::start(&place, Some(&command)) else { return };
    place.write("file", "data");
    place.run("rdcp", ["-e", &sshd.shell, "file", "127.0.0.1:/copy"]).expect(0);
    assert_eq!(place.read("root/copy"), b"data");
    let outside = format!("127.0.0.1:../{}", "file");
    place.run("rdcp", ["-e", &sshd.shell, &outside, "stolen"]).expect(23);
}
