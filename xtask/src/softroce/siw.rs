//! The kernel's software iWARP, `siw`. Debian's kernel packages have its source but not the module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::download;
use super::kernel::Kernel;
use crate::packages;
use crate::progress::Step;

/// The folder of the source, below the kernel's.
const SOURCE: &str = "drivers/infiniband/sw/siw";

/// Builds the module for a prepared kernel that lacks it, and adds it to the kernel's modules. The caller holds the
/// lock.
///
/// # Errors
///
/// The packages cannot be downloaded, or the module cannot be built.
pub(crate) fn prepare(kernel: &Kernel, home: &Path) -> Result<()> {
    let list = kernel.folder.join("modules.list");
    let modules = fs::read_to_string(&list)?;
    if modules.lines().any(|line| line.ends_with(" siw")) {
        return Ok(());
    }
    ensure!(
        packages::is_debian(),
        "Linux {} has no module siw; pass a kernel that has it with --kernel",
        kernel.release
    );
    packages::require("building siw", &[packages::MODULE])?;
    // This process holds the lock, so an existing folder of this name is left from an interrupted run.
    let folder = home.join(".siw");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let built = build(&kernel.release, &folder)
        .and_then(|module| fs::copy(module, kernel.folder.join("modules/siw.ko")).context("cannot copy siw.ko"));
    let _ = fs::remove_dir_all(&folder);
    built?;
    let draft = kernel.folder.join(".list");
    fs::write(&draft, modules + "optional siw\n")?;
    Ok(fs::rename(draft, list)?)
}

/// Downloads the headers and the source, and builds the module in `folder`.
fn build(release: &str, folder: &Path) -> Result<PathBuf> {
    let headers = format!("linux-headers-{release}");
    let mut names = vec![headers.clone()];
    let is_part = |name: &&str| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-");
    names.extend(download::dependencies(&download::depends(&headers)?).filter(is_part).map(str::to_owned));
    for name in names {
        let file = download::fetch(&name, folder)?;
        run(Command::new("dpkg").arg("-x").arg(file).arg(folder))?;
    }
    // The archive with the source of Linux has 140 MB, of which 250 KB are needed.
    let version: Vec<&str> = release.split('.').take(2).collect();
    let source = format!("linux-source-{}", version.join("."));
    let package = download::fetch(&source, folder)?;
    let step = Step::start("softroce: building siw");
    let unpack =
        "dpkg --fsys-tarfile \"$1\" | tar -xO \"./usr/src/$2.tar.xz\" | tar -xJ --strip-components=1 \"$2/$3\"";
    run(Command::new("sh").args(["-c", unpack, "sh"]).arg(&package).args([&source, SOURCE]).current_dir(folder))?;
    // The only absolute path in the headers names the folder of an installation.
    let headers = folder.join("usr/src").join(headers);
    let makefile = headers.join("Makefile");
    let text = fs::read_to_string(&makefile).with_context(|| format!("cannot read {}", makefile.display()))?;
    fs::write(&makefile, text.replace("/usr/src", &folder.join("usr/src").to_string_lossy()))?;
    let source = folder.join(SOURCE);
    let mut make = Command::new("make");
    make.arg("-C").arg(headers).arg(format!("M={}", source.display())).args(["CONFIG_RDMA_SIW=m", "modules"]);
    run(&mut make)?;
    let module = source.join("siw.ko");
    run(Command::new("strip").arg("--strip-debug").arg(&module))?;
    step.done();
    Ok(module)
}

/// Runs a program; an error contains its output.
fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
