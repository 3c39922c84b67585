//! Downloads a kernel of Debian or Ubuntu as an ordinary user: nothing is installed, and apt verifies the files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::packages;
use crate::progress::Step;

/// The packages of Debian and Ubuntu that always depend on the current kernel.
const NEWEST: &[&str] = &["linux-image-amd64", "linux-image-generic"];

/// A kernel in the layout of a distribution.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The release, such as `6.1.0-13-amd64`.
    pub(crate) release: String,
    /// The image.
    pub(crate) image: PathBuf,
    /// The folder that holds `modules.dep`.
    pub(crate) modules: PathBuf,
}

/// An unpacked kernel in a folder that lives as long as this value.
#[derive(Debug)]
pub(crate) struct Unpacked {
    /// The paths of its parts.
    pub(crate) tree: Tree,
    folder: PathBuf,
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Downloads and unpacks the packages of the current kernel, or of `release`; reuses downloads of earlier runs.
pub(crate) fn kernel(home: &Path, release: Option<&str>) -> Result<Unpacked> {
    if !packages::is_debian() {
        bail!(
            "this is neither Debian nor Ubuntu, and no installed kernel has all modules (rdma_rxe, veth, 9p, overlay, \
             virtio): pass a kernel with\n  --kernel PATH --modules DIR\nwhere DIR is the folder with its modules.dep"
        );
    }
    let cache = home.join("downloads");
    std::fs::create_dir_all(&cache)?;
    let files = match fetch_all(release, &cache) {
        // apt's lists are empty, or name packages that the archive has since replaced.
        Err(_) if packages::may_install() => {
            packages::apt_update()?;
            fetch_all(release, &cache)?
        }
        files => files?,
    };
    // This process holds the lock, so an existing folder of this name is left from an interrupted run.
    let folder = home.join(".unpacked");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    // Created before the unpacking, so that a failure does not leave half a gigabyte on the disk.
    let mut unpacked =
        Unpacked { tree: Tree { release: String::new(), image: PathBuf::new(), modules: PathBuf::new() }, folder };
    let step = Step::start("softroce: unpacking it");
    for file in &files {
        let status = Command::new("dpkg").arg("-x").arg(file).arg(&unpacked.folder).status()?;
        ensure!(status.success(), "dpkg -x {} ended with {status}", file.display());
    }
    step.done();
    unpacked.tree = find_tree(&unpacked.folder).with_context(|| format!("in {files:?}"))?;
    depmod(&unpacked.folder, &unpacked.tree.release)?;
    Ok(unpacked)
}

/// The package files of the kernel, downloaded unless they are in `cache`.
fn fetch_all(release: Option<&str>, cache: &Path) -> Result<Vec<PathBuf>> {
    kernel_packages(release)?.iter().map(|name| fetch(name, cache)).collect()
}

/// The packages that the current kernel depends on: on Debian one, on Ubuntu the image, its modules and the extra
/// modules.
fn kernel_packages(release: Option<&str>) -> Result<BTreeSet<String>> {
    if let Some(found) = look_up(release)? {
        return Ok(found);
    }
    match release {
        Some(release) => bail!("apt has no linux-image-{release}; if its lists are old: sudo apt-get update"),
        None => bail!(
            "apt has no kernel package ({}): its lists are empty or old. Run\n  sudo apt-get update",
            NEWEST.join(", ")
        ),
    }
}

fn look_up(release: Option<&str>) -> Result<Option<BTreeSet<String>>> {
    let start: Vec<String> = match release {
        Some(release) => vec![format!("linux-image-{release}"), format!("linux-modules-extra-{release}")],
        None => NEWEST.iter().map(|&name| name.to_owned()).collect(),
    };
    let mut found = BTreeSet::new();
    for name in start {
        collect(&name, &mut found)?;
        if release.is_none() && !found.is_empty() {
            break;
        }
    }
    let has_image = found.iter().any(|name| name.starts_with("linux-image-"));
    Ok(has_image.then_some(found))
}

/// Adds the package, if it can be downloaded and contains a kernel, and all such packages that it depends on.
fn collect(name: &str, found: &mut BTreeSet<String>) -> Result<()> {
    let text = depends(name)?;
    if text.is_empty() || found.contains(name) {
        return Ok(());
    }
    // `linux-image-amd64` is empty and only names another package; a version in the name means a kernel.
    if is_kernel_part(name) {
        found.insert(name.to_owned());
    }
    for next in dependencies(&text).filter(|name| is_kernel_part(name)) {
        collect(next, found)?;
    }
    Ok(())
}

/// The output of `apt-cache depends`, which is empty if there is no such package.
pub(super) fn depends(name: &str) -> Result<String> {
    let output = Command::new("apt-cache")
        .args(["depends", "--no-recommends", "--no-suggests", name])
        .stderr(Stdio::null())
        .output()
        .context("cannot run apt-cache")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The packages in the output of `apt-cache depends`.
pub(super) fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start_matches([' ', '|']).strip_prefix("Depends: "))
}

fn is_kernel_part(name: &str) -> bool {
    ["linux-image-", "linux-image-unsigned-", "linux-modules-", "linux-modules-extra-"]
        .iter()
        .filter_map(|prefix| name.strip_prefix(prefix))
        .any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// The package file, downloaded into `cache` unless it is there. apt verifies its hash with the signed lists.
pub(super) fn fetch(name: &str, cache: &Path) -> Result<PathBuf> {
    if let Some(file) = cached(name, cache) {
        return Ok(file);
    }
    let step = Step::start(format!("softroce: downloading {name}"));
    let draft = cache.join(".draft");
    let _ = std::fs::remove_dir_all(&draft);
    std::fs::create_dir_all(&draft)?;
    let output = Command::new("apt-get")
        .args(["-qq", "download", name])
        .current_dir(&draft)
        .stdin(Stdio::null())
        .output()
        .context("cannot run apt-get")?;
    if !output.status.success() {
        let _ = std::fs::remove_dir_all(&draft);
        bail!(
            "`apt-get download {name}` ended with {}:\n{}If the lists are old: sudo apt-get update",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    for entry in std::fs::read_dir(&draft)?.flatten() {
        std::fs::rename(entry.path(), cache.join(entry.file_name()))?;
    }
    let _ = std::fs::remove_dir_all(&draft);
    step.done();
    cached(name, cache).with_context(|| format!("`apt-get download {name}` left no package"))
}

fn cached(name: &str, cache: &Path) -> Option<PathBuf> {
    let start = format!("{name}_");
    std::fs::read_dir(cache)
        .ok()?
        .flatten()
        .find(|entry| {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            file.starts_with(&start) && file.ends_with(".deb")
        })
        .map(|entry| entry.path())
}

/// Finds the image and the modules; newer distributions have the modules below `usr`.
fn find_tree(folder: &Path) -> Result<Tree> {
    if !folder.join("lib").exists() && folder.join("usr/lib").exists() {
        std::os::unix::fs::symlink("usr/lib", folder.join("lib"))?;
    }
    let images = std::fs::read_dir(folder.join("boot")).context("no folder boot")?;
    for entry in images.flatten() {
        if let Some(release) = entry.file_name().to_string_lossy().strip_prefix("vmlinuz-") {
            let modules = folder.join("lib/modules").join(release);
            ensure!(modules.is_dir(), "no modules for {release}");
            return Ok(Tree { release: release.to_owned(), image: entry.path(), modules });
        }
    }
    bail!("no vmlinuz")
}

/// Runs depmod on an unpacked package: packages come without `modules.dep`.
fn depmod(root: &Path, release: &str) -> Result<()> {
    let program = packages::find_program("depmod").context("depmod (package kmod) is missing")?;
    let status = Command::new(program).arg("-b").arg(root).arg(release).status()?;
    ensure!(status.success(), "depmod ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernel_packages_are_followed() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-13-amd64\n |Depends: initramfs-tools\n  \
                    Depends: <linux-initramfs-tool>\n  Recommends: linux-image-9\n  Depends: linux-modules-extra-6.8.0-4-generic\n";
        let found: Vec<&str> = dependencies(text).filter(|name| is_kernel_part(name)).collect();
        assert_eq!(found, ["linux-image-6.1.0-13-amd64", "linux-modules-extra-6.8.0-4-generic"]);
    }

    #[test]
    fn names_without_a_version_are_no_kernels() {
        assert!(is_kernel_part("linux-image-6.1.0-13-amd64"));
        assert!(is_kernel_part("linux-modules-6.8.0-4-generic"));
        assert!(!is_kernel_part("linux-image-amd64"));
        assert!(!is_kernel_part("linux-base"));
    }
}
