//! The programs on trespass, on a device of the system: `rdsend`, `rdrecv` and `rdcp` of rdma-pipe, and the example
//! `kv` of trespass-rpc; and the tests of TLS of trespass-rpc and of the links of trespass. The programs' own tests run
//! on softrnic's device.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sideway_tests::child::{self, Ended, Program};
use sideway_tests::connections::address;
use sideway_tests::device;
use sideway_tests::programs::port;
use sideway_tests::requirements::may_not_run;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

/// The programs, and a folder for their files.
struct Place {
    programs: PathBuf,
    files: TempDir,
}

impl Place {
    fn new() -> Option<Self> {
        let Some(programs) = env::var_os("SIDEWAY_TRESPASS_PROGRAMS").map(PathBuf::from) else {
            may_not_run("SIDEWAY_TRESPASS_PROGRAMS does not name the folder of the programs");
            return None;
        };
        Some(Self { programs, files: tempfile::tempdir().expect("a temporary folder") })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a temporary folder");
        fs::write(path, bytes).expect("a temporary folder");
    }

    /// A program that uses the system's devices only.
    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(self.files.path()).env(softrnic::DEVICES_VARIABLE, "0");
        command
    }

    /// A program of rdma-pipe that uses only the device.
    fn on_device(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.command(program, &["--rdma", "--device", &device::name()]);
        command.args(arguments);
        command
    }
}

/// Bytes that repeat only after a few megabytes.
fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 / 7 + at / 4093) as u8).collect()
}

#[track_caller]
fn succeeds(ended: Option<Ended>) -> String {
    let Ended { status, output } = ended.expect("the program exits in time");
    assert!(status.success(), "{status}\n{output}");
    output
}

#[test]
#[ignore = "needs a device of the system: cargo xtask softroce"]
fn stream_arrives() {
    let Some(place) = Place::new() else { return };
    let (port, data) = (port().to_string(), bytes(3_000_001));
    place.write("sent", &data);
    let mut receiver = Program::start(place.on_device("rdrecv", &[&port, "key", "received"]), LIMIT);
    succeeds(Some(child::run(place.on_device("rdsend", &[&address().to_string(), &port, "key", "sent"]), LIMIT)));
    succeeds(receiver.wait());
    assert!(fs::read(place.path("received")).is_ok_and(|received| received == data));
}

/// A stand-in for ssh, which runs the far side on this machine.
fn stand_in(path: &Path) {
    let script = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\nexec sh -c \"$*\"\n";
    fs::write(path, script).expect("a temporary folder");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a file of this test");
}

#[test]
#[ignore = "needs a device of the system: cargo xtask softroce"]
fn tree_is_copied() {
    let Some(place) = Place::new() else { return };
    stand_in(&place.path("ssh"));
    let files: Vec<_> = (0..40).map(|number| (format!("sent/{}/{number}", number % 7), bytes(number * 1000))).collect();
    files.iter().for_each(|(name, data)| place.write(name, data));
    place.write("sent/large", &bytes(8_000_000));
    let target = format!("{}:{}", address(), place.path("received").display());
    let mut command = place.on_device("rdcp", &["-e", "./ssh", "-r", "-v", "sent", &target]);
    let path = format!("{}:{}", place.programs.display(), env::var("PATH").unwrap_or_default());
    command.env("PATH", path);
    let output = succeeds(Some(child::run(command, LIMIT)));
    assert!(output.contains(&format!("over {}", device::name())), "{output}");
    let received = |name: &str| fs::read(place.path(&name.replace("sent", "received")));
    assert!(files.iter().all(|(name, data)| received(name).is_ok_and(|received| received == *data)));
    assert!(received("sent/large").is_ok_and(|received| received == bytes(8_000_000)));
}

#[test]
#[ignore = "needs a device of the system: cargo xtask softroce"]
fn calls_carry_attachments() {
    let Some(place) = Place::new() else { return };
    let mut server = Program::start(place.command("examples/kv", &[]), LIMIT);
    server.wait_until("serve", |server| server.said().contains("serving at"));
    let output = succeeds(Some(child::run(place.command("examples/kv", &[&format!("{}:7175", address())]), LIMIT)));
    assert!(output.contains(&format!("connected over {}", device::name())), "{output}");
    assert!(output.contains("fruit/orchard has 10485760 bytes"), "{output}");
}

#[test]
#[ignore = "needs a device of the system: cargo xtask softroce"]
fn peers_with_tls_call_each_other_and_refuse_relays() {
    let Some(tests) = env::var_os("SIDEWAY_RPC_TESTS") else {
        return may_not_run("SIDEWAY_RPC_TESTS does not name the test program of trespass-rpc-ecosystem");
    };
    let mut command = Command::new(tests);
    command.args(["tls::", "--skip", "on_iwarp", "--test-threads=1"]).env(softrnic::DEVICES_VARIABLE, "0");
    command.env("TRESPASS_RPC_TEST_DEVICE", format!("{}={}", device::name(), address()));
    let output = succeeds(Some(child::run(command, 3 * LIMIT)));
    assert!(output.contains("ok. 4 passed"), "{output}");
}

#[test]
#[ignore = "needs a device of the system: cargo xtask softroce"]
fn links_keep_their_rules() {
    let Some(tests) = env::var_os("SIDEWAY_TRESPASS_TESTS") else {
        return may_not_run("SIDEWAY_TRESPASS_TESTS does not name the test program of trespass");
    };
    let mut command = Command::new(tests);
    command.args(["backend::verbs::tests::", "long_messages_arrive_in_a_region", "--test-threads=1"]);
    command.env("SIDEWAY_TEST_DEVICE", device::name()).env("TRESPASS_TEST_ADDRESS", address().to_string());
    let output = succeeds(Some(child::run(command, 3 * LIMIT)));
    for test in ["links_that_end_amid_messages_leave_all_receives", "long_messages_arrive_in_a_region"] {
        assert!(output.contains(test), "{output}");
    }
}
