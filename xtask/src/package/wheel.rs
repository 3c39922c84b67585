//! The wheel `softrnic`: `softrnic-run`, `lens` and their libraries, for pip.
//!
//! A wheel is a zip archive. pip copies its `scripts` into the folder of programs, and its `data` below the prefix of
//! that folder, where `softrnic-run` finds the libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{glibc, notices, put};
use crate::preload::{Built, run};
use crate::repo;

/// The package of the programs in the wheel, whose version it has.
const PACKAGE: &str = "softrnic-preload";
/// The packages of its programs.
const PACKAGES: [&str; 2] = [PACKAGE, "rdma-lens-cli"];
const SUMMARY: &str = "Run RDMA programs without an RDMA NIC: softrnic-run, and a NIC in software";

/// The files of the wheel below the prefix of an installation.
pub(super) fn files(built: &Built) -> [(PathBuf, &'static str); 5] {
    [
        (built.run.clone(), "bin/softrnic-run"),
        (built.run.with_file_name("lens"), "bin/lens"),
        (built.run.with_file_name("libsoftrnic_preload.so"), "libexec/softrnic/libsoftrnic_preload.so"),
        (built.libraries.join("libibverbs.so.1"), "libexec/softrnic/libibverbs.so.1"),
        (built.libraries.join("librdmacm.so.1"), "libexec/softrnic/librdmacm.so.1"),
    ]
}

/// Writes the wheel of these programs into a folder.
pub(crate) fn pack(root: &Path, built: &Built, to: &Path) -> Result<PathBuf> {
    let version = repo::version(root, PACKAGE)?;
    let name = format!("softrnic-{version}");
    let folder = to.join("wheel");
    let (data, information) = (folder.join(format!("{name}.data")), folder.join(format!("{name}.dist-info")));
    let files = files(built);
    for (from, path) in &files {
        let place = path.strip_prefix("bin/").map_or_else(|| format!("data/{path}"), |name| format!("scripts/{name}"));
        put(from, &data.join(place))?;
    }
    let licenses = ["LICENSE-APACHE", "LICENSE-MIT"];
    for license in licenses {
        put(&root.join(license), &information.join("licenses").join(license))?;
    }
    notices::write(root, &PACKAGES, &information.join("licenses/THIRD-PARTY"))?;
    let (major, minor) = glibc(files.iter().map(|(file, _)| file))?;
    let tag = format!("py3-none-manylinux_{major}_{minor}_{}", std::env::consts::ARCH);
    let readme = fs::read_to_string(root.join("softrnic/README.md")).context("cannot read softrnic/README.md")?;
    let wheel = format!("Wheel-Version: 1.0\nGenerator: cargo xtask package\nRoot-Is-Purelib: false\nTag: {tag}\n");
    let metadata = format!(
        "Metadata-Version: 2.4\nName: softrnic\nVersion: {version}\nSummary: {SUMMARY}\n\
         License-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT\n\
         License-File: THIRD-PARTY\nDescription-Content-Type: text/markdown\n\n{readme}"
    );
    for (file, text) in [("WHEEL", wheel), ("METADATA", metadata)] {
        fs::write(information.join(file), text).with_context(|| format!("cannot write {file}"))?;
    }
    let wheel = to.join(format!("{name}-{tag}.whl"));
    let mut python = Command::new("python3");
    python.arg(root.join("xtask/src/package/wheel.py")).arg(&folder).arg(&wheel);
    run(python)?;
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(wheel)
}
