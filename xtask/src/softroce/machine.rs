//! One QEMU process: its command line, and its end together with this program.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

use crate::packages;

/// The translator's processor, without what it translates badly: a string instruction copies a byte at a time, and each
/// permission of the kernel to touch a program's memory ends a translated block. Without these, the kernel and the C
/// library choose code that takes a fifth less time.
const TRANSLATED: &str = "max,-erms,-smap,-smep";

/// The parts of the machine.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The accelerator of the guest.
    pub(crate) accelerator: Accelerator,
    /// Processors.
    pub(crate) cpus: u32,
    /// Memory in MiB.
    pub(crate) memory: u32,
    /// The kernel image.
    pub(crate) image: PathBuf,
    /// The initial RAM disk.
    pub(crate) initrd: PathBuf,
    /// Arguments added to the kernel's command line.
    pub(crate) arguments: String,
    /// The folder for the logs: `console.log` of the guest, `qemu.log` of QEMU's own messages.
    pub(crate) logs: PathBuf,
}

/// The accelerator of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The processor.
    Kvm,
    /// QEMU's translator.
    Tcg,
    /// QEMU's translator, with a clock that counts instructions.
    Count,
}

/// A running machine; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
}

/// The host's ends of the guest's ports.
#[derive(Debug)]
pub(crate) struct Ports {
    /// The command's standard output.
    pub(crate) stdout: UnixStream,
    /// The command's standard error.
    pub(crate) stderr: UnixStream,
    /// Lines to and from guest.sh.
    pub(crate) control: UnixStream,
}

impl Machine {
    /// The guest's console.
    pub(crate) fn console(&self) -> PathBuf {
        self.logs.join("console.log")
    }

    /// QEMU's own messages.
    pub(crate) fn messages(&self) -> PathBuf {
        self.logs.join("qemu.log")
    }

    /// Starts the machine without ports and without the host's files: for the trial of an accelerator.
    pub(crate) fn start_bare(&self) -> Result<Running> {
        self.spawn(self.command()?, Vec::new())
    }

    /// Starts the machine with the host's root directory, read-only, and three ports.
    pub(crate) fn start(&self) -> Result<(Running, Ports)> {
        let mut command = self.command()?;
        command
            .args(["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"])
            .args(["-device", "virtio-serial-pci"]);
        let mut inherited = Vec::new();
        let mut port = |name: &str| -> Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair().context("cannot create a socket pair")?;
            command.args(["-chardev", &format!("socket,id={name},fd={}", theirs.as_raw_fd())]);
            command.args(["-device", &format!("virtserialport,chardev={name},name=softroce.{name}")]);
            inherited.push(OwnedFd::from(theirs));
            Ok(ours)
        };
        let ports = Ports { stdout: port("stdout")?, stderr: port("stderr")?, control: port("control")? };
        Ok((self.spawn(command, inherited)?, ports))
    }

    fn command(&self) -> Result<Command> {
        let qemu = packages::find_program("qemu-system-x86_64").context("qemu-system-x86_64 is missing")?;
        let mut command = Command::new(qemu);
        command
            .args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"])
            .args(self.accelerator.arguments())
            .args(["-smp", &self.cpus.to_string()])
            .args(["-m", &self.memory.to_string()])
            .arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(&self.initrd)
            // An oops becomes a panic, and a panic ends QEMU, so that no run waits for a broken guest.
            .arg("-append")
            .arg(format!(
                "console=ttyS0 oops=panic panic=-1 {} {}",
                self.accelerator.kernel_arguments(),
                self.arguments
            ))
            .args(["-chardev", &format!("file,id=console,path={}", option_value(&self.console()))])
            .args(["-serial", "chardev:console"]);
        Ok(command)
    }

    fn spawn(&self, mut command: Command, inherited: Vec<OwnedFd>) -> Result<Running> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.messages())?);
        // QEMU has its own process group: Ctrl-C ends only this program, whose end then ends QEMU (see below).
        command.process_group(0);
        let descriptors: Vec<i32> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
        let parent = std::process::id();
        // SAFETY: the closure runs in the child between fork and exec. The closure calls fcntl, prctl, getppid and
        // _exit only, all async-signal-safe, and neither allocates nor locks: `descriptors` was made before the fork.
        unsafe {
            command.pre_exec(move || {
                for &descriptor in &descriptors {
                    if libc::fcntl(descriptor, libc::F_SETFD, 0) != 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                // The parent may have died before the call above.
                if libc::getppid().cast_unsigned() != parent {
                    libc::_exit(1);
                }
                Ok(())
            });
        }
        let child = command.spawn().context("cannot start qemu-system-x86_64")?;
        // The parent's copies are closed here, so that the ports end with QEMU.
        drop(inherited);
        Ok(Running { child })
    }
}

impl Accelerator {
    /// QEMU's arguments.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &["-accel", "kvm", "-cpu", "host"],
            Self::Tcg => &["-accel", "tcg,thread=multi", "-cpu", TRANSLATED],
            // Each instruction takes 2^0 nanoseconds; an idle processor waits for real time.
            Self::Count => &["-accel", "tcg,thread=single", "-cpu", TRANSLATED, "-icount", "shift=0"],
        }
    }

    /// The kernel's arguments.
    pub(crate) fn kernel_arguments(self) -> &'static str {
        match self {
            Self::Kvm => "",
            // The translator counts for all processors with one clock. The kernel cannot detect that, and would read a
            // timer of the machine instead: two to three microseconds and a system call for each clock reading of a
            // program. The kernel guards itself against faults of processors that the translator does not have: retpolines
            // alone are a sixth of the work. A fifth level of page tables makes each miss of the translator's own table
            // dearer.
            Self::Tcg | Self::Count => "tsc=reliable mitigations=off no5lvl",
        }
    }

    /// The usual name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "TCG",
            Self::Count => "TCG that counts instructions",
        }
    }
}

impl Running {
    /// The exit status, if QEMU has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In an option of QEMU, a comma is written twice.
fn option_value(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
