//! Copies a kernel module, and decompresses it if needed (busybox loads only uncompressed ones).

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::packages::{self, Need};

/// Copies `source` (`….ko`, `….ko.xz`, `….ko.zst`, `….ko.gz`) to `target` (`….ko`).
pub(crate) fn copy_module(source: &Path, target: &Path) -> Result<()> {
    let (program, needs): (_, &[Need]) = match source.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => ("xz", &[]),
        Some("zst") => ("zstd", packages::ZSTD),
        Some("gz") => ("gzip", &[]),
        _ => {
            std::fs::copy(source, target).with_context(|| format!("cannot copy {}", source.display()))?;
            return Ok(());
        }
    };
    packages::require("unpacking this kernel's modules", &[needs])?;
    let status = Command::new(program)
        .args(["-q", "-dc"])
        .stdin(File::open(source).with_context(|| format!("cannot open {}", source.display()))?)
        .stdout(File::create(target)?)
        .stderr(Stdio::inherit())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program} could not unpack {}: {status}", source.display());
    Ok(())
}
