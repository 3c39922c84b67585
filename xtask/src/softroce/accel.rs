//! Chooses the accelerator of the guest: the processor (KVM) or QEMU's translator (TCG).
//!
//! An open `/dev/kvm` is no proof: on some nested hosts a guest then hangs at its first instruction. So KVM is tried
//! once with a short deadline, and the result is kept until the host restarts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;

use super::machine::{Accelerator, Machine};

/// The caller's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Asked {
    /// KVM if a short trial succeeds, else TCG
    Auto,
    /// KVM, without a trial
    Kvm,
    /// QEMU's translator: works everywhere, slower
    Tcg,
    /// QEMU's translator with one processor; its clock counts instructions, one per nanosecond, so times are
    /// reproducible
    Count,
}

/// Time until the kernel's first line; a working KVM needs a tenth of a second.
const FIRST_LINE: Duration = Duration::from_secs(3);
/// Time from that line to the first program.
const FIRST_PROGRAM: Duration = Duration::from_secs(12);

/// Chooses, with the reason. `machine` is the machine to start; the caller holds the lock.
pub(crate) fn choose(asked: Asked, machine: &Machine, home: &Path) -> Result<(Accelerator, String)> {
    match asked {
        Asked::Kvm => return Ok((Accelerator::Kvm, "asked for".into())),
        Asked::Tcg => return Ok((Accelerator::Tcg, "asked for".into())),
        Asked::Count => return Ok((Accelerator::Count, "asked for".into())),
        Asked::Auto => {}
    }
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        return Ok((Accelerator::Tcg, format!("/dev/kvm: {}", plain(&error))));
    }
    if let Some(verdict) = remembered(home) {
        return Ok(verdict);
    }
    let fault = probe(&Machine { accelerator: Accelerator::Kvm, ..machine.clone() })?;
    let verdict = match fault {
        None => (Accelerator::Kvm, "tried, works".to_owned()),
        Some(fault) => (Accelerator::Tcg, format!("KVM tried: {fault}")),
    };
    remember(home, &verdict)?;
    Ok(verdict)
}

/// The result of an earlier trial since the host's last start.
pub(crate) fn remembered(home: &Path) -> Option<(Accelerator, String)> {
    let text = std::fs::read_to_string(note(home)).ok()?;
    let mut lines = text.lines();
    if lines.next()? != boot_id() {
        return None;
    }
    let accelerator = match lines.next()? {
        "KVM" => Accelerator::Kvm,
        "TCG" => Accelerator::Tcg,
        _ => return None,
    };
    Some((accelerator, lines.next()?.to_owned()))
}

fn remember(home: &Path, (accelerator, reason): &(Accelerator, String)) -> Result<()> {
    Ok(std::fs::write(note(home), format!("{}\n{}\n{reason}\n", boot_id(), accelerator.name()))?)
}

fn note(home: &Path) -> PathBuf {
    home.join("accelerator")
}

/// A random number of the kernel, new at each start.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Boots the kernel up to its first program. Returns `None` on success, else the reason of the failure.
fn probe(machine: &Machine) -> Result<Option<String>> {
    let machine = Machine { arguments: "earlyprintk=ttyS0 SOFTROCE_PROBE=1".into(), ..machine.clone() };
    let mut running = machine.start_bare()?;
    let started = Instant::now();
    let mut first_line = None;
    loop {
        let ended = running.ended()?.is_some();
        let console = std::fs::read(machine.console()).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        if console.contains("softroce: probe passed") {
            return Ok(None);
        }
        if ended {
            let messages = std::fs::read_to_string(machine.messages()).unwrap_or_default();
            return Ok(Some(messages.lines().next_back().unwrap_or("QEMU ended early").to_owned()));
        }
        if first_line.is_none() && console.contains("Linux version") {
            first_line = Some(Instant::now());
        }
        match first_line {
            None if started.elapsed() > FIRST_LINE => {
                return Ok(Some(format!("the kernel printed nothing for {} s", FIRST_LINE.as_secs())));
            }
            Some(then) if then.elapsed() > FIRST_PROGRAM => {
                return Ok(Some(format!("no program ran within {} s", FIRST_PROGRAM.as_secs())));
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn plain(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::NotFound => "it does not exist",
        std::io::ErrorKind::PermissionDenied => "no permission (the group kvm has it)",
        _ => "it cannot be opened",
    }
}
