//! Resolves paths below an open directory.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::beneath::{Directory, FOLDER};

/// The length in bytes from which a path is too long for a call.
const PATH_MAX: usize = 4096;

impl Directory {
    /// Opens a directory below this one, without following links out of it.
    ///
    /// # Errors
    ///
    /// See openat2(2); `EXDEV` if the path leads out of this directory.
    pub fn beneath(&self, path: &[u8]) -> Result<Directory, Errno> {
        self.open_beneath(path, FOLDER).map(|fd| Self::of(fd, self.path().join(OsStr::from_bytes(path))))
    }

    /// Opens a directory of a received tree below this one. Unlike [`beneath`](Self::beneath) it follows no link: a
    /// link in the tree is an entry, and what it names may belong to others.
    ///
    /// # Errors
    ///
    /// See openat2(2); `ELOOP` or `ENOTDIR` if a component of the path is a link.
    pub fn of_tree(&self, path: &[u8]) -> Result<Directory, Errno> {
        let open = |flags| self.resolve(path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS);
        let fd = match open(FOLDER) {
            Err(Errno::ACCESS) => open(FOLDER | OFlags::PATH)?,
            opened => opened?,
        };
        Ok(self.inner(fd, OsStr::from_bytes(path)))
    }

    /// Opens an entry below this directory, without following links out of it.
    ///
    /// # Errors
    ///
    /// See openat2(2); `EXDEV` if the path leads out of this directory.
    pub fn open_beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolve(path, flags, ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens a path below this directory. One that is too long for a call is resolved in parts.
    pub(super) fn resolve(&self, path: &[u8], flags: OFlags, within: ResolveFlags) -> Result<OwnedFd, Errno> {
        if let Some(most) = path.get(..PATH_MAX)
            && let Some(end) = most.iter().rposition(|&byte| byte == b'/')
        {
            let fd = self.resolve(&path[..end], OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, within)?;
            return Self::of(fd, PathBuf::new()).resolve(&path[end + 1..], flags, within);
        }
        let name = OsStr::from_bytes(path);
        let open = || rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), within);
        match open() {
            // On Linux before 5.6, or in a sandbox that forbids the call, opens each component in turn, without
            // following links.
            Err(Errno::NOSYS | Errno::PERM) => self.walk(path, flags),
            // A concurrent rename interrupted the resolution.
            Err(Errno::AGAIN) => open(),
            opened => opened,
        }
    }

    fn walk(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).peekable();
        let mut at = self.fd.try_clone().map_err(|_| Errno::MFILE)?;
        while let Some(part) = parts.next() {
            if part == b".." {
                return Err(Errno::XDEV);
            }
            let flags = if parts.peek().is_some() { FOLDER } else { flags } | OFlags::NOFOLLOW;
            at = rustix::fs::openat(&at, OsStr::from_bytes(part), flags, Mode::empty())?;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the way that is used if openat2(2) is unavailable.
    #[test]
    fn walk_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/own"), "own").unwrap();
        for (target, link) in [("d", "to-d"), ("own", "d/to-own")] {
            std::os::unix::fs::symlink(target, folder.path().join(link)).unwrap();
        }
        let directory = Directory::open(folder.path()).unwrap();
        let walk = |path: &str| directory.walk(path.as_bytes(), OFlags::RDONLY).map(drop);
        assert_eq!((walk("d/own"), walk("d//own"), walk(".")), (Ok(()), Ok(()), Ok(())));
        assert_eq!((walk("d/to-own"), walk("d/../d/own")), (Err(Errno::LOOP), Err(Errno::XDEV)));
        assert!(walk("to-d/own").is_err());
    }
}
