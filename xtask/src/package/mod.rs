//! `cargo xtask package`: what users install.
//!
//! `tree` lays out an installation of the programs and C libraries below a prefix; it becomes an archive and a Debian
//! package. `wheel` makes a wheel of `softrnic-run` and `lens`. `notices` collects the licences of dependencies.

mod notices;
mod tree;
pub(crate) mod wheel;

use std::env::consts::ARCH;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::preload::{self, run};
use crate::{capi, packages, repo, trespass_capi};

/// The packages whose programs and libraries are installed.
const SHIPPED: [&str; 7] = [
    "rdma-lens-cli",
    "rdma-mummy-capi",
    "rdma-pipe",
    "softrnic-preload",
    "stride-perf",
    "trespass-capi",
    "trespass-sockets",
];

/// Build what users install into target/packages: an archive, a Debian package and a Python wheel
///
/// The archive and the Debian package have the programs and C libraries, the wheel has softrnic-run and lens. The wheel needs
/// python3, and the Debian package dpkg-deb; without them, they are left out. The packages run on systems whose glibc is
/// at least as new as their symbols require; the name of the wheel has that version.
#[derive(Args, Debug)]
pub(crate) struct Package;

/// Runs the task.
pub(crate) fn main(_: &Package) -> Result<ExitCode> {
    packages::require("the packages", &[packages::LINKING, packages::PACKING])?;
    let root = repo::root()?;
    let target = repo::target_folder(&root)?;
    let folder = target.join("packages");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let softrnic = preload::build(&root, &[])?;
    let libraries = [capi::build(&root, true, "for-c", &[])?.folder, trespass_capi::build(&root)?];
    for (profile, names) in [("release", &["rdma-pipe", "stride-perf"][..]), ("for-c", &["trespass-sockets"])] {
        let mut cargo = repo::cargo(&root);
        cargo.args(["build", "--profile", profile, "--lib", "--bins"]).args(names.iter().flat_map(|name| ["-p", name]));
        repo::build(cargo)?;
    }
    let version = repo::version(&root, "stride-perf")?;
    let name = format!("sideway-{version}-{ARCH}-linux-gnu");
    let prefix = folder.join(&name);
    let programs = tree::Programs {
        softrnic: &softrnic,
        release: &target.join("release"),
        sockets: &target.join("for-c"),
        libraries: &libraries,
    };
    tree::lay_out(&root, &programs, &prefix)?;
    notices::write(&root, &SHIPPED, &prefix.join(tree::DOC).join("copyright"))?;
    let mut built = vec![archive(&folder, &name)?];
    match packages::find_program("dpkg-deb") {
        Some(_) => built.push(debian(&folder, &prefix, &version)?),
        None => println!("without the Debian package, which needs dpkg-deb"),
    }
    match packages::find_program("python3") {
        Some(_) => built.push(wheel::pack(&root, &softrnic, &folder)?),
        None => println!("without the wheel, which needs python3"),
    }
    for file in built {
        let length = file.metadata().map_or(0, |file| file.len());
        println!("built {} ({:.1} MB)", file.display(), length as f64 / 1e6);
    }
    Ok(ExitCode::SUCCESS)
}

/// Packs the tree such that equal trees give equal archives.
fn archive(folder: &Path, name: &str) -> Result<PathBuf> {
    let file = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--gzip"]);
    tar.arg("--create").arg("--file").arg(&file).arg("--directory").arg(folder).arg(name);
    run(tar)?;
    Ok(file)
}

/// Moves the tree into a Debian package.
fn debian(folder: &Path, prefix: &Path, version: &str) -> Result<PathBuf> {
    let architecture = match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let files = repo::files(prefix)?;
    let (major, minor) = glibc(files.iter().filter(|file| is_executable(file)))?;
    let control = format!(
        "Package: sideway\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: the contributors of sideway\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1\nSuggests: libibverbs1, librdmacm1, ibverbs-providers\n\
         Section: net\nPriority: optional\nDescription: RDMA programs and C libraries, with and without an RDMA NIC\n \
         rdcp, rdsend, rdrecv and rdpipe copy files and connect pipes; stride-perf is\n a benchmark; trespass-run runs \
         TCP programs over RDMA; softrnic-run runs RDMA\n programs on a NIC in software. librdma_mummy and libtrespass \
         are for C programs.\n"
    );
    let tree = folder.join("debian");
    fs::create_dir_all(tree.join("DEBIAN")).with_context(|| format!("cannot create {}", tree.display()))?;
    fs::write(tree.join("DEBIAN/control"), control).context("cannot write the control file")?;
    fs::rename(prefix, tree.join("usr")).with_context(|| format!("cannot move {}", prefix.display()))?;
    // Debian's zsh does not search the folder that others do.
    let zsh = tree.join("usr/share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions")).context("cannot move zsh's completions")?;
    let file = folder.join(format!("sideway_{version}_{architecture}.deb"));
    let mut deb = Command::new("dpkg-deb");
    deb.args(["--root-owner-group", "--build"]).arg(&tree).arg(&file).env("SOURCE_DATE_EPOCH", "0");
    run(deb)?;
    fs::remove_dir_all(&tree).with_context(|| format!("cannot remove {}", tree.display()))?;
    Ok(file)
}

/// Whether a file is a program or a shared library.
fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
}

/// The oldest glibc that has all symbols which these programs and libraries use.
fn glibc(files: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<(u32, u32)> {
    let output = Command::new("objdump").arg("-T").args(files).output().context("cannot run objdump")?;
    ensure!(output.status.success(), "objdump: {}", String::from_utf8_lossy(&output.stderr));
    newest(&String::from_utf8_lossy(&output.stdout)).context("the programs use no symbols of glibc")
}

/// The newest version of glibc in a list of symbols.
fn newest(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let mut numbers = rest.split(|letter: char| !letter.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    });
    versions.max()
}

/// Copies a file, and makes its folder.
fn put(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_version_is_by_number() {
        let symbols = "free (GLIBC_2.2.5)\n__isoc23 (GLIBC_2.38)\nmalloc GLIBC_2.4\n_dl (GLIBC_PRIVATE)\n";
        assert_eq!(newest(symbols), Some((2, 38)));
        assert_eq!(newest("nothing"), None);
    }
}
