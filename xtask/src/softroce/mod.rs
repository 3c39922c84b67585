//! `cargo xtask softroce`: runs a command on a machine with a real soft-RoCE device.
//!
//! The kernel module `rdma_rxe` makes an RDMA device of any Ethernet interface, but containers and many cloud kernels
//! lack it. So QEMU boots a distribution kernel on the host's own files, and the command runs there: [`kernel`] finds
//! the kernel, [`initrd`] packs it, [`accel`] chooses between KVM and TCG, [`machine`] is the QEMU process and
//! [`session`] one run in it.

mod accel;
mod check;
mod console;
mod cpio;
mod download;
mod image;
mod initrd;
mod kernel;
mod lock;
mod machine;
mod modules;
mod payload;
mod session;
mod siw;
mod unpack;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

pub(crate) use self::payload::Request;
use self::session::Session;
pub(crate) use self::session::{Outcome, Sinks};

use self::lock::Lock;
use self::machine::Machine;
use crate::packages;
use crate::repo;

/// Time limit of a boot, which takes seconds, or a minute on a busy machine.
const BOOT: Duration = Duration::from_secs(150);

/// The exit status of `docker run` and others for a failure of their own, as opposed to the command's.
const BROKEN: u8 = 125;

const LONG_HELP: &str = "\
Boots a Linux kernel of your distribution in QEMU, with a soft-RoCE (RXE) device named rxe_0, and runs COMMAND there.

The guest sees the files of this machine at the same paths. It can write everywhere, but its changes are kept in its \
memory and lost at its end. It has no network but its own. COMMAND runs as the guest's root in the current folder, \
with your environment, unlimited locked memory, and SIDEWAY_TEST_DEVICE=rxe_0; its standard input is empty.

rxe_0 is on eth_a (10.71.0.1); eth_a and eth_b (10.71.0.2) are the two ends of a virtual cable. GID 0 is the \
link-local one, GID 1 the one of 10.71.0.1.

Neither root nor KVM is needed. The first run downloads a kernel (70 to 150 MB) and prepares it in target/softroce; \
later ones start in seconds.";

const EXAMPLES: &str = "\
Examples:
  cargo xtask softroce -- ibv_devinfo -d rxe_0
  cargo xtask softroce -- cargo run --offline --example NAME
  cargo xtask softroce --shell 'rping -s & sleep 1; rping -c -a 10.71.0.1 -C 3 -v'
  cargo xtask softroce --timeout 3600 -- bash -c 'sleep 10; dmesg'

Exit status: that of COMMAND (128 + N if signal N killed it); 124 after a time-out; 125 if the guest could not be \
started or died.";

/// Run a command on a machine with a real soft-RoCE device, rxe_0 (a kernel booted in QEMU)
#[derive(Args, Debug)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct Softroce {
    /// Give up after this many seconds, boot included
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// Only check the requirements, and report what a run would do
    #[arg(long, conflicts_with_all = ["shell", "command"])]
    check: bool,

    /// Run this text with `sh -c`; COMMAND's words, if any, are $0, $1, ...
    #[arg(long, value_name = "TEXT")]
    shell: Option<OsString>,

    /// The program and its arguments, passed on unchanged
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,

    // The help heading also covers later options, so this field is last.
    #[command(flatten)]
    guest: Guest,
}

/// The guest's parameters, shared by the tasks that boot one.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Guest")]
pub(crate) struct Guest {
    /// Accelerator of the guest
    #[arg(long, value_enum, default_value = "auto", env = "SIDEWAY_SOFTROCE_ACCEL")]
    accel: accel::Asked,

    /// Memory of the guest
    #[arg(long, value_name = "MiB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(512..))]
    memory: u32,

    /// Processors of the guest; one with --accel count
    #[arg(long, value_name = "N", default_value_t = 2, default_value_if("accel", "count", "1"),
        value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,

    /// Release of your distribution's kernel (6.1.0-13-amd64), or path of your own image
    #[arg(long, value_name = "RELEASE|PATH")]
    kernel: Option<String>,

    /// Folder with the modules.dep of your own image
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,

    /// Also load the kernel's software iWARP (siw); if the kernel lacks it, build it (downloads 155 MB)
    #[arg(long)]
    siw: bool,

    /// MTU of eth_a and eth_b: 9000 gives rxe_0 a path MTU of 4096, 1500 one of 1024
    #[arg(long, value_name = "BYTES", default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1280..=9000))]
    mtu: u16,
}

/// Runs the task; the exit code is the command's.
pub(crate) fn main(task: Softroce) -> ExitCode {
    match run_task(task) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("softroce: {error:#}");
            ExitCode::from(BROKEN)
        }
    }
}

fn run_task(task: Softroce) -> Result<u8> {
    if task.check {
        return check::check(&task.guest);
    }
    let mut words = task.command;
    if let Some(text) = task.shell {
        words.splice(0..0, ["/bin/sh".into(), "-c".into(), text]);
    }
    if words.is_empty() {
        bail!(
            "COMMAND is missing. For example:\n  cargo xtask softroce -- ibv_devinfo -d rxe_0\n  cargo xtask softroce \
             --shell 'ls /sys/class/infiniband; rdma link'\nMore: cargo xtask softroce --help"
        );
    }
    let request = Request::new(words)?;
    let ready = ready(&task.guest)?;
    Ok(ready.run(&request, Sinks::inherit, Duration::from_secs(task.timeout))?.exit_status())
}

impl Guest {
    /// The guest with the kernel's software iWARP.
    pub(crate) fn with_siw(&self) -> Self {
        Self { siw: true, ..self.clone() }
    }
}

/// A guest that is ready to start.
#[derive(Debug)]
pub(crate) struct Ready(Machine);

/// Prepares everything, and reports in one line what will be booted.
///
/// # Errors
///
/// This machine cannot run the guest; the message has the remedy.
pub(crate) fn ready(guest: &Guest) -> Result<Ready> {
    supported_host()?;
    packages::require("the soft-RoCE guest", &[packages::SOFTROCE])?;
    let home = repo::softroce_folder()?;
    prepare(guest, &home).map(Ready)
}

impl Ready {
    /// Boots and runs the request.
    pub(crate) fn run(self, request: &Request, sinks: fn() -> Sinks, timeout: Duration) -> Result<Outcome> {
        self.start(request, Box::new(sinks), timeout)?.finish()
    }

    /// Begins to boot, and runs the request after that, within `timeout`. The output goes to the sinks.
    pub(crate) fn start(self, request: &Request, sinks: Box<dyn Fn() -> Sinks>, timeout: Duration) -> Result<Started> {
        let (Self(machine), script) = (self, request.script());
        let session = Session::start(&machine, script.clone(), sinks())?;
        Ok(Started { machine, script, sinks, timeout, session })
    }
}

/// A guest that has been started.
pub(crate) struct Started {
    machine: Machine,
    script: Vec<u8>,
    sinks: Box<dyn Fn() -> Sinks>,
    timeout: Duration,
    session: Session,
}

impl Started {
    /// Waits until the request has run. A guest that hangs during boot is booted once more. After a time-out, prints
    /// the guest's last lines.
    pub(crate) fn finish(self) -> Result<Outcome> {
        let Self { machine, script, sinks, timeout, session } = self;
        let boot = timeout.min(BOOT);
        let mut report = session.finish(&machine, boot, timeout)?;
        if report.outcome == Outcome::TimedOut && !report.booted && boot < timeout {
            eprintln!("softroce: the guest had not booted after {} s: booting it again", boot.as_secs());
            report = Session::start(&machine, script, sinks())?.finish(&machine, boot, timeout)?;
        }
        if report.outcome == Outcome::TimedOut {
            let stage = if report.booted { "the command had not ended" } else { "the guest had not booted" };
            eprint!(
                "softroce: gave up: {stage} after {} s; {}",
                if report.booted { timeout } else { boot }.as_secs(),
                console::tail(&machine)
            );
            if machine.accelerator == machine::Accelerator::Kvm && !report.booted {
                eprintln!("softroce: try without KVM: --accel tcg");
            }
            eprintln!("softroce: logs: {}", machine.logs.display());
        }
        Ok(report.outcome)
    }
}

/// Whether this host can run the guest at all; the guest runs this host's programs.
fn supported_host() -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "the guest runs this machine's own programs on an x86-64 kernel: it works on x86-64 Linux only"
    );
    Ok(())
}

/// Everything before the start of QEMU, under the lock.
fn prepare(guest: &Guest, home: &Path) -> Result<Machine> {
    ensure!(
        guest.accel != accel::Asked::Count || guest.cpus == 1,
        "--accel count has one processor, because its clock counts the instructions of all; leave out --cpus {}",
        guest.cpus
    );
    let choice = kernel::Choice::new(guest.kernel.as_deref(), guest.modules.as_deref())?;
    let lock = Lock::take(home)?;
    let kernel = kernel::prepare(&choice, home)?;
    if guest.siw
        && let Err(error) = siw::prepare(&kernel, home)
    {
        eprintln!("softroce: the guest has no siw: {error:#}");
    }
    let mut machine = Machine {
        accelerator: machine::Accelerator::Tcg,
        cpus: guest.cpus,
        memory: guest.memory,
        image: kernel.folder.join("vmlinuz"),
        initrd: initrd::prepare(&kernel)?,
        arguments: format!("loglevel=5 SOFTROCE_MTU={}", guest.mtu),
        logs: console::new_folder(home)?,
    };
    let (accelerator, reason) = accel::choose(guest.accel, &machine, home)?;
    machine.accelerator = accelerator;
    drop(lock);
    eprintln!(
        "softroce: Linux {}, {} ({reason}), {} processors, {} MiB",
        kernel.release,
        accelerator.name(),
        guest.cpus,
        guest.memory
    );
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Asked {
        #[command(flatten)]
        guest: Guest,
    }

    #[test]
    fn accel_count_has_one_processor() {
        let cpus = |words: &[&str]| {
            let words = std::iter::once(&"softroce").chain(words);
            Asked::try_parse_from(words).map(|asked| asked.guest.cpus).expect("the arguments are valid")
        };
        assert_eq!(cpus(&["--accel", "tcg"]), 2);
        assert_eq!(cpus(&["--accel", "count"]), 1);
        let guest = Asked::try_parse_from(["softroce", "--accel", "count", "--cpus", "2"])
            .expect("the arguments are valid")
            .guest;
        let said = prepare(&guest, Path::new("/nonexistent")).expect_err("it is rejected").to_string();
        assert!(said.contains("--accel count") && said.contains("--cpus 2"), "{said}");
    }
}
