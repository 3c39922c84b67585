//! The initial RAM disk: busybox, the modules, the two scripts.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::cpio::Archive;
use super::kernel::Kernel;
use crate::packages;

const INIT: &str = include_str!("init.sh");
const GUEST: &str = include_str!("guest.sh");

/// The file for this kernel, built if missing or if a part of it has changed; the caller holds the lock.
pub(crate) fn prepare(kernel: &Kernel) -> Result<PathBuf> {
    let busybox = packages::static_busybox().context("busybox-static is missing")?;
    let data = busybox.metadata()?;
    let mut hasher = DefaultHasher::new();
    let list = std::fs::read_to_string(kernel.folder.join("modules.list"))?;
    (INIT, GUEST, &list, &busybox, data.len(), data.modified()?).hash(&mut hasher);
    let file = kernel.folder.join(format!("initrd-{:016x}", hasher.finish()));
    if file.is_file() {
        return Ok(file);
    }

    let mut archive = Archive::default();
    archive.folder("bin");
    archive.file("bin/busybox", &std::fs::read(&busybox)?);
    archive.folder("modules");
    for name in list.lines().filter_map(|line| line.split_whitespace().nth(1)) {
        let module = kernel.folder.join("modules").join(format!("{name}.ko"));
        archive.file(&format!("modules/{name}.ko"), &std::fs::read(&module)?);
    }
    archive.file("modules.list", list.as_bytes());
    archive.file("init", INIT.as_bytes());
    archive.file("guest.sh", GUEST.as_bytes());

    // The file is renamed into place, so that a machine that starts now reads the old or the new file.
    let draft = kernel.folder.join(".draft");
    std::fs::write(&draft, archive.finish())?;
    std::fs::rename(&draft, &file)?;
    Ok(file)
}
