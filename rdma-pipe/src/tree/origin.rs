//! Resolves the paths of a source.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::Directory;
use super::settle::is_local;

/// The flags that open an entry without reading it. If the entry is a link, they open the link itself.
pub(super) const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Maximum number of operands whose directories are kept open.
const BASES: usize = 32;

/// Resolves the paths of a source. It accepts any path, or only paths below a directory that is kept open. It would not
/// suffice to check a path first, because a link may replace the entry after the check.
#[derive(Debug, Default)]
pub struct Origin {
    root: Option<(PathBuf, Directory)>,
    /// The directories of the operands that were used last.
    bases: Mutex<VecDeque<(PathBuf, Arc<Directory>)>>,
}

/// A directory of the source: an operand, or a directory below it. The operand may be reached through links. Below it,
/// no link is followed, because a link that has replaced a directory of the source may lead out of the source.
#[derive(Clone, Debug)]
pub struct Branch {
    path: PathBuf,
    /// The length of the operand.
    base: usize,
    /// The device and the inode of the directory that was listed, which another one may replace later.
    identity: Option<(u64, u64)>,
}

/// How an entry of the source is reached.
#[derive(Clone, Copy, Debug)]
pub(super) enum At<'a> {
    /// By the path of an operand, which may be a link to what is copied if the second field is set.
    Operand(&'a Path, bool),
    /// By its name in an open directory.
    Name(BorrowedFd<'a>, &'a [u8]),
}

impl Branch {
    /// The directory of an operand.
    pub fn operand(path: &Path) -> Branch {
        Branch { path: path.to_owned(), base: path.as_os_str().len(), identity: None }
    }

    /// The directory with this path below this one.
    pub fn inner(&self, below: &[u8]) -> Branch {
        Branch { path: self.path.join(OsStr::from_bytes(below)), base: self.base, identity: None }
    }

    /// The directory with this metadata at the same path.
    pub(super) fn found(self, found: &Stat) -> Branch {
        Branch { identity: Some((found.st_dev, found.st_ino)), ..self }
    }

    /// Whether an open directory is this one. File systems that are not local may give a directory another number
    /// later.
    fn is(&self, fd: &OwnedFd) -> Result<bool, Errno> {
        let found = rustix::fs::fstat(fd)?;
        let is_same = self.identity.is_none_or(|identity| identity == (found.st_dev, found.st_ino));
        Ok(is_same || !is_local(fd)?)
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path below the operand.
    fn below(&self) -> &[u8] {
        let below = &self.path.as_os_str().as_bytes()[self.base..];
        below.strip_prefix(b"/").unwrap_or(below)
    }
}

impl Origin {
    /// Resolves only paths below a directory. The paths begin with the directory's own path.
    ///
    /// # Errors
    ///
    /// See [`Directory::open`].
    pub fn below(root: &Path) -> Result<Origin, Errno> {
        Ok(Origin { root: Some((root.to_owned(), Directory::open(root)?)), ..Origin::default() })
    }

    /// Opens an operand. If `follows` is set, it may be a link.
    ///
    /// # Errors
    ///
    /// See openat2(2); `EXDEV` if the path leads out of the directory.
    pub fn open(&self, path: &Path, flags: OFlags, follows: bool) -> Result<OwnedFd, Errno> {
        let flags = if follows { flags } else { flags | OFlags::NOFOLLOW };
        let Some((root, directory)) = &self.root else { return rustix::fs::open(path, flags, Mode::empty()) };
        let path = path.strip_prefix(root).map_err(|_| Errno::XDEV)?.as_os_str().as_bytes();
        directory.open_beneath(if path.is_empty() { b"." } else { path }, flags)
    }

    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// See openat2(2); `ELOOP` or `ENOTDIR` if a link has replaced a directory, `ESTALE` if another directory has, and
    /// `EXDEV` if the operand leads out of the directory of this origin.
    pub fn folder(&self, branch: &Branch, flags: OFlags) -> Result<OwnedFd, Errno> {
        let fd = self.resolve(branch, flags | OFlags::DIRECTORY)?;
        if branch.is(&fd)? { Ok(fd) } else { Err(Errno::STALE) }
    }

    /// Opens an entry of a directory.
    ///
    /// # Errors
    ///
    /// See [`Origin::folder`].
    pub fn entry(&self, branch: &Branch, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let folder = self.folder(branch, LOOK)?;
        rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW, Mode::empty())
    }

    fn resolve(&self, branch: &Branch, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if branch.below().is_empty() { b"." } else { branch.below() };
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        self.base(branch)?.resolve(path, flags | OFlags::NOFOLLOW, within)
    }

    /// Opens the operand of a directory, and keeps it open: what its path names may change during the copy.
    fn base(&self, branch: &Branch) -> Result<Arc<Directory>, Errno> {
        let path = Path::new(OsStr::from_bytes(&branch.path.as_os_str().as_bytes()[..branch.base]));
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = bases.iter().position(|(base, _)| base.as_os_str() == path.as_os_str()) {
            let known = Arc::clone(&bases[at].1);
            bases.swap(0, at);
            return Ok(known);
        }
        let named = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = self.open(named, LOOK | OFlags::DIRECTORY, false)?;
        let opened = Arc::new(Directory::of(fd, path.to_owned()));
        bases.truncate(BASES - 1);
        bases.push_front((path.to_owned(), Arc::clone(&opened)));
        Ok(opened)
    }

    /// Returns the metadata of an operand.
    ///
    /// # Errors
    ///
    /// See [`Origin::open`].
    pub fn stat(&self, path: &Path, follows: bool) -> Result<Stat, Errno> {
        match &self.root {
            Some(_) => rustix::fs::fstat(self.open(path, LOOK, follows)?),
            None if follows => rustix::fs::stat(path),
            None => rustix::fs::lstat(path),
        }
    }

    /// Returns the metadata of an entry.
    ///
    /// # Errors
    ///
    /// See [`Origin::open`] and fstatat(2).
    pub(super) fn stat_at(&self, at: At<'_>) -> Result<Stat, Errno> {
        match at {
            At::Operand(path, follows) => self.stat(path, follows),
            At::Name(directory, name) => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW),
        }
    }

    /// Opens an entry.
    ///
    /// # Errors
    ///
    /// See [`Origin::open`].
    pub(super) fn open_at(&self, at: At<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        match at {
            At::Operand(path, follows) => self.open(path, flags, follows),
            At::Name(directory, name) => rustix::fs::openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty()),
        }
    }

    /// Whether an entry is known to have no extended attributes, without that it is opened. Most have none.
    pub(super) fn has_no_attributes(&self, at: At<'_>) -> bool {
        // Those of others do not fit into a byte.
        let list = |path: &Path, follows| {
            let list = if follows { rustix::fs::listxattr } else { rustix::fs::llistxattr };
            list(path, &mut [0_u8; 1][..]) == Ok(0)
        };
        match at {
            At::Operand(path, follows) => self.root.is_none() && list(path, follows),
            At::Name(directory, name) => {
                let path = [format!("/proc/self/fd/{}/", directory.as_raw_fd()).as_bytes(), name].concat();
                list(Path::new(OsStr::from_bytes(&path)), false)
            }
        }
    }
}
