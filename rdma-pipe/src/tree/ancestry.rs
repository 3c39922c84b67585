//! The directories that contain a destination, to recognize a copy of a directory into itself.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// The components of a destination's path, from the root on, each with its identity if it exists. A path alone does not
/// suffice: a bind mount is another path of the same directory, and so may be a path on a host of another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestry {
    steps: Vec<(Vec<u8>, Option<u64>)>,
    is_directory: bool,
}

impl Ancestry {
    /// Finds the components of a path. `None` if its directory does not exist.
    pub fn of(path: &Path) -> Option<Ancestry> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let whole = place(path)?;
        let components: Vec<&Path> = whole.ancestors().collect();
        let step = |path: &&Path| {
            let name = path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
            (name, rustix::fs::stat(*path).ok().map(|found| identity(&found)))
        };
        Some(Ancestry { steps: components.iter().rev().map(step).collect(), is_directory: whole.is_dir() })
    }

    /// The entry that a source of this name becomes: if the destination is a directory, it is in it.
    pub(crate) fn entry(mut self, name: Option<&[u8]>) -> Ancestry {
        if let Some(name) = name.filter(|_| self.is_directory) {
            self.steps.push((name.to_vec(), None));
        }
        self
    }

    /// The path relative to this directory, if the destination is the directory itself or below it.
    pub(crate) fn below(&self, directory: &Stat) -> Option<PathBuf> {
        let identity = Some(identity(directory));
        let at = self.steps.iter().position(|(_, step)| *step == identity)?;
        Some(self.steps[at + 1..].iter().map(|(name, _)| OsStr::from_bytes(name)).collect())
    }

    /// Whether this directory is the destination.
    pub(super) fn is(&self, directory: &Stat) -> bool {
        self.steps.last().is_some_and(|(_, step)| *step == Some(identity(directory)))
    }

    /// Whether the copy makes the destination in this directory, under this name.
    pub(super) fn is_made_in(&self, directory: &Stat, name: &[u8]) -> bool {
        let [.., (_, above), (own, None)] = self.steps.as_slice() else { return false };
        own == name && *above == Some(identity(directory))
    }
}

/// Returns where an entry is, or will be.
pub(crate) fn place(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let missing = || Some(std::fs::canonicalize(parent).ok()?.join(path.file_name()?));
    std::fs::canonicalize(path).ok().or_else(missing)
}

/// Hashes the device and the inode of a file. They identify it on this host until the host restarts, so the hash includes
/// the number of this start.
fn identity(found: &Stat) -> u64 {
    static START: LazyLock<Vec<u8>> = LazyLock::new(|| {
        std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| {
            let mut only_here = vec![0; 16];
            // Without it, a process recognizes the files of its own only.
            _ = rustix::rand::getrandom(&mut only_here, rustix::rand::GetRandomFlags::empty());
            only_here
        })
    });
    let bytes = [START.as_slice(), &found.st_dev.to_le_bytes(), &found.st_ino.to_le_bytes()].concat();
    XxHash3_128::oneshot(&bytes) as u64
}
