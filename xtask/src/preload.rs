//! `cargo xtask preload`: softrnic for C programs.
//!
//! The libraries need symbol versions, which cargo cannot set: `cc` links them from a static library, with a version
//! script.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::packages;
use crate::repo;

/// The package.
const PACKAGE: &str = "softrnic-preload";
/// The package of the program that uses the same library.
const LENS: &str = "rdma-lens-cli";
/// The folder of its version scripts.
const SOURCES: &str = "softrnic/preload";

/// Build softrnic for C programs into target/preload: softrnic-run, lens, and the libraries that they set up
#[derive(Args, Debug)]
pub(crate) struct Preload;

/// The built files.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// The command.
    pub(crate) run: PathBuf,
    /// The folder of the pair.
    pub(crate) libraries: PathBuf,
}

/// Runs the task.
pub(crate) fn main(_task: &Preload) -> Result<ExitCode> {
    packages::require("softrnic for C programs", &[packages::LINKING])?;
    let built = build(&repo::root()?, &[])?;
    println!(
        "built {}\n  {} ibv_devinfo",
        built.libraries.parent().unwrap_or(&built.libraries).display(),
        built.run.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Builds the libraries and `softrnic-run`. The packages in `beside` are built as well, and share the choice of
/// features.
pub(crate) fn build(root: &Path, beside: &[&str]) -> Result<Built> {
    let target = repo::target_folder(root)?;
    let release = target.join("release");
    let folder = target.join("preload");
    let libraries = folder.join("lib");
    fs::create_dir_all(&libraries).with_context(|| format!("cannot create {}", libraries.display()))?;

    // Both builds put the static library in the same folder.
    let archive = release.join("libsoftrnic_preload.a");
    cargo(root, beside, &["--features", "softrnic-preload/pair"])?;
    link(root, &archive, &libraries.join("libibverbs.so.1"))?;
    link_rdmacm(root, &libraries)?;
    cargo(root, beside, &[])?;
    link(root, &archive, &folder.join("libsoftrnic_preload.so"))?;
    for program in ["softrnic-run", "lens"] {
        place(&release.join(program), &folder.join(program))?;
    }
    Ok(Built { run: folder.join("softrnic-run"), libraries })
}

fn cargo(root: &Path, beside: &[&str], more: &[&str]) -> Result<()> {
    let mut command = repo::cargo(root);
    // The dependencies of examples take part in the choice of features, so both builds name them.
    command.args(["build", "--release", "--lib", "--bins", "--examples", "--package", PACKAGE, "--package", LENS]);
    command.args(beside).args(more);
    repo::build(command)
}

/// Links a library with all functions. `dlclose` does not unload it, because its threads stay.
fn link(root: &Path, archive: &Path, library: &Path) -> Result<()> {
    let fresh = library.with_extension("new");
    let name = library.file_name().unwrap_or_default().display().to_string();
    let mut command = Command::new("cc");
    command.args(["-shared", "-Wl,-z,defs", "-Wl,-z,nodelete", "-Wl,--gc-sections", "-Wl,--strip-debug"]);
    command.arg(format!("-Wl,-soname,{name}")).arg(script(root, "libibverbs.map"));
    command.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    command.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc", "-o"]).arg(&fresh);
    run(command)?;
    rename(&fresh, library)
}

/// Links the other library of the pair, which only has the versions of librdmacm.
fn link_rdmacm(root: &Path, libraries: &Path) -> Result<()> {
    let (library, fresh) = (libraries.join("librdmacm.so.1"), libraries.join("librdmacm.so.new"));
    let mut command = Command::new("cc");
    command.args(["-shared", "-nostdlib", "-Wl,-soname,librdmacm.so.1", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"]);
    command.arg(script(root, "librdmacm.map")).arg(libraries.join("libibverbs.so.1")).arg("-o").arg(&fresh);
    run(command)?;
    rename(&fresh, &library)
}

fn script(root: &Path, name: &str) -> String {
    format!("-Wl,--version-script={}", root.join(SOURCES).join(name).display())
}

/// Copies a file to a path from which a program may be running.
pub(crate) fn place(from: &Path, to: &Path) -> Result<()> {
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).with_context(|| format!("cannot copy {} to {}", from.display(), fresh.display()))?;
    rename(&fresh, to)
}

/// Moves a file into place.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

/// Runs a command that must succeed.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let name = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("cannot run {}", name.display()))?;
    ensure!(status.success(), "`{} {}` ended with {status}", name.display(), words(&command).join(" "));
    Ok(())
}

fn words(command: &Command) -> Vec<String> {
    command.get_args().map(OsStr::to_string_lossy).map(String::from).collect()
}
