//! Resolves the paths of a source.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::Directory;

/// The flags that open an entry without reading it. If the entry is a link, they open the link itself.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Resolves the paths of a source. It accepts any path, or only paths below a directory that is kept open. It would not
/// suffice to check a path first, because a link may replace the entry after the check.
#[derive(Debug, Default)]
pub struct Origin(Option<(PathBuf, Directory)>);

impl Origin {
    /// Resolves only paths below a directory. The paths begin with the directory's own path.
    ///
    /// # Errors
    ///
    /// See [`Directory::open`].
    pub fn below(root: &Path) -> Result<Origin, Errno> {
        Ok(Origin(Some((root.to_owned(), Directory::open(root)?))))
    }

    /// Opens an entry. If `follows` is set, the entry itself may be a link.
    ///
    /// # Errors
    ///
    /// See openat2(2); `EXDEV` if the path leads out of the directory.
    pub fn open(&self, path: &Path, flags: OFlags, follows: bool) -> Result<OwnedFd, Errno> {
        let flags = if follows { flags } else { flags | OFlags::NOFOLLOW };
        let Some((root, directory)) = &self.0 else { return rustix::fs::open(path, flags, Mode::empty()) };
        let path = path.strip_prefix(root).map_err(|_| Errno::XDEV)?.as_os_str().as_bytes();
        directory.open_beneath(if path.is_empty() { b"." } else { path }, flags)
    }

    /// Opens the directory of several entries, whose names are then resolved faster than their paths. It is resolved as
    /// in the path of an entry.
    ///
    /// # Errors
    ///
    /// See [`Origin::open`].
    pub fn folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.open(path, LOOK | OFlags::DIRECTORY, true)
    }

    /// Returns the metadata of an entry.
    ///
    /// # Errors
    ///
    /// See [`Origin::open`].
    pub fn stat(&self, path: &Path, follows: bool) -> Result<Stat, Errno> {
        match &self.0 {
            Some(_) => rustix::fs::fstat(self.open(path, LOOK, follows)?),
            None if follows => rustix::fs::stat(path),
            None => rustix::fs::lstat(path),
        }
    }

    /// Whether an entry is known to have no extended attributes, without that it is opened. Most have none.
    pub fn has_no_attributes(&self, path: &Path, follows: bool) -> bool {
        let list = if follows { rustix::fs::listxattr } else { rustix::fs::llistxattr };
        // Those of others do not fit into a byte.
        self.0.is_none() && list(path, &mut [0_u8; 1][..]) == Ok(0)
    }

    /// Returns the target of a link.
    ///
    /// # Errors
    ///
    /// See [`Origin::open`] and readlink(2).
    pub fn read_link(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        let target = match &self.0 {
            Some(_) => rustix::fs::readlinkat(self.open(path, LOOK, false)?, "", Vec::new()),
            None => rustix::fs::readlinkat(CWD, path, Vec::new()),
        };
        target.map(std::ffi::CString::into_bytes)
    }
}
