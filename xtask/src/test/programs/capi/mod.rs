//! The C library: programs that link `librdma_mummy` and nothing of rdma-core.
//!
//! `names` compares the exported functions with the headers' declarations and with the exports of rdma-core's
//! libraries; `linking` checks how programs are linked. This module runs the programs: their output on softrnic,
//! without rdma-core, and without a request for softrnic.

mod linking;
mod names;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::play::{self, LIMIT};
use super::process::Process;
use crate::capi::{self, Built};
use crate::packages;
use crate::test::build;

/// A named check.
#[derive(Clone, Copy)]
pub(super) struct Check {
    pub(super) name: &'static str,
    run: fn(&Door) -> Result<()>,
}

impl Check {
    /// Runs the check.
    pub(super) fn run(&self, door: &Door) -> Result<()> {
        (self.run)(door)
    }
}

/// All checks.
pub(super) const CHECKS: &[Check] = &[
    Check { name: "capi_needs_no_rdma_core", run: linking::needs_no_rdma_core },
    Check { name: "capi_has_what_the_headers_declare", run: names::declared },
    Check { name: "capi_has_what_the_libraries_export", run: names::exported },
    Check { name: "capi_versions_are_its_own", run: names::versions },
    Check { name: "capi_links_by_pkg_config", run: linking::links_by_pkg_config },
    Check { name: "capi_beside_another_rust_library", run: linking::beside },
    Check { name: "capi_lists_what_libibverbs_lists", run: linking::as_libibverbs },
    Check { name: "capi_devices", run: |door| soft(door, "devices", "--soft", "soft0: InfiniBand channel adapter") },
    Check { name: "capi_devices_by_environment", run: by_environment },
    Check { name: "capi_wrong_devices_are_told", run: wrong_devices },
    Check { name: "capi_loopback", run: |door| soft(door, "loopback", "soft0", "all of them arrived") },
    Check { name: "capi_failures_without_rdma_core", run: failures },
    Check { name: "capi_devices_without_rdma_core", run: why_not },
    Check { name: "capi_panic_ends_the_program", run: panic },
];

/// Paths of the build.
#[derive(Debug)]
pub(super) struct Door {
    built: Built,
    /// The examples with the shared library, and the test programs with both.
    programs: PathBuf,
}

/// The test programs that are not examples.
const TESTS: [(&str, &str); 3] = [("without", "c"), ("list", "c"), ("panic", "cpp")];

/// How a program is linked.
#[derive(Clone, Copy, Debug)]
enum Linked {
    Static,
    Shared,
}

/// Builds the library, and each program with the static and with the shared one.
pub(super) fn build(root: &Path, profile: &str) -> Result<Door> {
    packages::require("C and C++ programs", &[packages::C_EXAMPLES])?;
    let built = capi::build(root, true, profile, if profile == "release" { build::BESIDE } else { &[] })?;
    capi::examples(root, &built)?;
    let programs = built.folder.join("tests");
    std::fs::create_dir_all(&programs).with_context(|| format!("cannot create {}", programs.display()))?;
    let door = Door { built, programs };
    for (source, name) in [("examples/devices.c", "devices"), ("examples/loopback.cpp", "loopback")] {
        let source = root.join(capi::SOURCES).join(source);
        door.built.compile_shared(&source, &door.program(name, Linked::Shared))?;
    }
    for (name, language) in TESTS {
        let source = root.join(capi::SOURCES).join("tests").join(name).with_extension(language);
        door.built.compile(&source, &door.program(name, Linked::Static))?;
        door.built.compile_shared(&source, &door.program(name, Linked::Shared))?;
    }
    Ok(door)
}

impl Door {
    fn program(&self, name: &str, linked: Linked) -> PathBuf {
        match linked {
            Linked::Static if TESTS.iter().all(|(test, _)| *test != name) => self.built.examples().join(name),
            Linked::Static => self.programs.join(name),
            Linked::Shared => self.programs.join(format!("{name}-shared")),
        }
    }

    /// A program as a user starts it, without our environment variables.
    fn command(&self, name: &str, linked: Linked) -> Command {
        let mut command = Command::new(self.program(name, linked));
        let ours = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with("RDMA_MUMMY_") || name.starts_with("SOFTRNIC_") || name.starts_with("LD_")
        });
        for name in ours {
            command.env_remove(name);
        }
        command
    }

    /// A program as a user starts it, without rdma-core.
    fn command_alone(&self, name: &str, linked: Linked) -> Command {
        let mut command = self.command(name, linked);
        command.envs([("RDMA_MUMMY_LIBIBVERBS", "/nonexistent"), ("RDMA_MUMMY_LIBRDMACM", "/nonexistent")]);
        command
    }
}

/// Runs a program with both libraries, with rdma-core and without it.
fn soft(door: &Door, name: &str, word: &str, expected: &str) -> Result<()> {
    for linked in [Linked::Static, Linked::Shared] {
        for mut command in [door.command(name, linked), door.command_alone(name, linked)] {
            command.arg(word);
            well(command, expected)?;
        }
    }
    Ok(())
}

/// Checks that softrnic's device is listed only if the environment requests it.
fn by_environment(door: &Door) -> Result<()> {
    for (value, expected) in [("1", true), ("0", false), ("", false)] {
        let mut command = door.command_alone("devices", Linked::Static);
        command.env("RDMA_MUMMY_SOFTRNIC", value);
        if expected {
            well(command, "soft0: InfiniBand channel adapter")?;
        } else {
            badly(command, "softrnic: not requested")?;
        }
    }
    Ok(())
}

/// Checks that a request for invalid devices is an error, both from the variable and from the function.
fn wrong_devices(door: &Door) -> Result<()> {
    let mut command = door.command_alone("devices", Linked::Static);
    command.envs([("RDMA_MUMMY_SOFTRNIC", "1"), ("SOFTRNIC_DEVICES", "a/b")]);
    badly(command, "cannot register softrnic")?;
    let mut command = door.command_alone("devices", Linked::Static);
    command.arg("--soft").env("SOFTRNIC_DEVICES", "a/b");
    badly(command, "cannot register softrnic: Invalid argument")?;
    let mut command = door.command_alone("devices", Linked::Shared);
    command.arg("--soft").env("SOFTRNIC_DEVICES", "a/b");
    badly(command, "softrnic: cannot register device")
}

/// Checks that each function fails as documented.
fn failures(door: &Door) -> Result<()> {
    well(door.command_alone("without", Linked::Static), "all is well")?;
    well(door.command_alone("without", Linked::Shared), "all is well")
}

/// Checks that a program prints why no device exists.
fn why_not(door: &Door) -> Result<()> {
    for linked in [Linked::Static, Linked::Shared] {
        badly(door.command_alone("devices", linked), "libibverbs: cannot load libibverbs.so.1")?;
    }
    Ok(())
}

/// Checks that a panic is printed and ends the program at once: no frame of C or C++ is unwound, and no call returns.
fn panic(door: &Door) -> Result<()> {
    for linked in [Linked::Static, Linked::Shared] {
        let mut command = door.command("panic", linked);
        command.env("RUST_BACKTRACE", "0");
        let mut process = Process::start(command)?;
        let Some(status) = process.wait(Instant::now() + LIMIT)? else { bail!("did not end\n{}", process.story()) };
        ensure!(status.signal() == Some(libc::SIGABRT), "{status}\n{}", process.story());
        let printed = process.printed();
        let Some((_, after)) = printed.split_once("the clock fails from now on\n") else {
            bail!("ended before the panic\n{}", process.story());
        };
        ensure!(after.contains("panicked at"), "no panic is reported\n{}", process.story());
        for unwound in ["a frame of the program", "ibv_query_gid returned", "came as an exception"] {
            ensure!(!after.contains(unwound), "the panic reached the program\n{}", process.story());
        }
    }
    Ok(())
}

/// Runs a program, which must succeed and print `expected`.
fn well(command: Command, expected: &str) -> Result<()> {
    play::finish(&mut Process::start(command)?, None, expected, Instant::now() + LIMIT)
}

/// Runs a program, which must fail and print `expected`.
fn badly(command: Command, expected: &str) -> Result<()> {
    let mut process = Process::start(command)?;
    let Some(status) = process.wait(Instant::now() + LIMIT)? else { bail!("did not end\n{}", process.story()) };
    ensure!(status.code() == Some(1), "{status}\n{}", process.story());
    ensure!(process.printed().contains(expected), "did not print {expected:?}\n{}", process.story());
    Ok(())
}

/// The output of a tool.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
