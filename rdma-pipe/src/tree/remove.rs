//! Removes entries with everything below them.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::{Directory, FOLDER};
use super::permissions::{allow, needs_permissions};

/// What gets the path of each entry that was removed, or could not be.
type Told<'t> = dyn FnMut(&[u8], Result<(), Errno>) + 't;

impl Directory {
    /// Removes an entry, with everything below it, except the entries for which `keeps` returns true, and their
    /// directories. `keeps` gets `path`, extended by the names below the entry, and whether that is a directory. Returns
    /// whether everything was removed. `told` gets the path below the entry, and whether it was removed, of everything that
    /// `keeps` does not keep. If `pretends` is set, nothing is removed. Only the directory that it empties is open, so any
    /// depth is possible.
    ///
    /// # Errors
    ///
    /// Another process has moved a directory meanwhile (`EXDEV`), or the process has too many open files.
    pub fn remove(
        &self,
        name: &[u8],
        path: &[u8],
        keeps: &dyn Fn(&[u8], bool) -> bool,
        pretends: bool,
        told: &mut Told<'_>,
    ) -> Result<bool, Errno> {
        let mut at = Self::of(self.fd.try_clone().map_err(|_| Errno::MFILE)?, PathBuf::new());
        let (start, mut path) = (path.len(), path.to_vec());
        let mut levels = vec![Level::new(&at, Vec::new(), vec![name.to_vec()], 0)?];
        while let Some(level) = levels.last_mut() {
            let Some(inner) = level.rest.pop() else {
                let Some(Level { name, mut is_empty, length, .. }) = levels.pop() else { break };
                let Some(above) = levels.last_mut() else { return Ok(is_empty) };
                let parent = rustix::fs::openat(&at.fd, "..", FOLDER, Mode::empty())?;
                if inode(&parent)? != above.inode {
                    return Err(Errno::XDEV);
                }
                at = Self::of(parent, PathBuf::new());
                if is_empty {
                    let remove = || rustix::fs::unlinkat(&at.fd, OsStr::from_bytes(&name), AtFlags::REMOVEDIR);
                    let removed = if pretends { Ok(()) } else { remove() };
                    is_empty = removed.is_ok();
                    told(&path[start..], removed);
                }
                path.truncate(length);
                above.is_empty &= is_empty;
                continue;
            };
            let length = path.len();
            // The first name is the last component of the path already.
            if !level.name.is_empty() {
                path.extend([b"/", inner.as_slice()].concat());
            }
            match at.remove_one(&inner, &path, keeps, pretends) {
                Ok(Removed::Yes) => {
                    told(&path[start..], Ok(()));
                    path.truncate(length);
                }
                Ok(Removed::Gone) => path.truncate(length),
                Ok(Removed::Kept) => {
                    level.is_empty = false;
                    path.truncate(length);
                }
                Ok(Removed::Directory(directory, names)) => {
                    at = directory;
                    levels.push(Level::new(&at, inner, names, length)?);
                }
                Err(error) => {
                    told(&path[start..], Err(error));
                    level.is_empty = false;
                    path.truncate(length);
                }
            }
        }
        Ok(true)
    }

    /// Removes an entry that is not a directory, or opens it.
    fn remove_one(
        &self,
        name: &[u8],
        path: &[u8],
        keeps: &dyn Fn(&[u8], bool) -> bool,
        pretends: bool,
    ) -> Result<Removed, Errno> {
        let found = match self.stat(name) {
            // For example, the partial file of an earlier run, which this run has continued and renamed.
            Err(Errno::NOENT) => return Ok(Removed::Gone),
            found => found?,
        };
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        if keeps(path, is_directory) {
            return Ok(Removed::Kept);
        }
        let entry = OsStr::from_bytes(name);
        if !is_directory && pretends {
            return Ok(Removed::Yes);
        }
        if !is_directory {
            return rustix::fs::unlinkat(&self.fd, entry, AtFlags::empty()).map(|()| Removed::Yes);
        }
        if !pretends && found.st_mode & 0o700 != 0o700 && needs_permissions(&found) {
            let fd = self.open_entry(entry, FOLDER | OFlags::PATH)?;
            allow(&fd, found.st_mode | 0o700)?;
        }
        let directory = Self::of(self.open_entry(entry, FOLDER)?, PathBuf::new());
        let names = directory.names()?;
        Ok(Removed::Directory(directory, names))
    }

    /// Removes a directory that gives way, with everything below it. `told` gets the path of each entry, and whether it was
    /// removed. If `pretends` is set, nothing is removed.
    ///
    /// # Errors
    ///
    /// See [`remove`](Self::remove).
    pub fn clear(
        &self,
        name: &[u8],
        pretends: bool,
        told: &mut dyn FnMut(&Path, Result<(), Errno>),
    ) -> Result<(), Errno> {
        let path = self.path().join(OsStr::from_bytes(name));
        let mut told = |below: &[u8], removed| match below {
            [] => told(&path, removed),
            [_, below @ ..] => told(&path.join(OsStr::from_bytes(below)), removed),
        };
        self.remove(name, name, &|_, _| false, pretends, &mut told).map(drop)
    }
}

/// What became of an entry that was to be removed.
enum Removed {
    Yes,
    /// It does not exist any more.
    Gone,
    Kept,
    /// It is a directory with these entries.
    Directory(Directory, Vec<Vec<u8>>),
}

/// A directory that is being emptied, or contains such a one.
struct Level {
    name: Vec<u8>,
    inode: (u64, u64),
    /// The names that are left.
    rest: Vec<Vec<u8>>,
    /// Whether all entries so far were removed.
    is_empty: bool,
    /// The length of its parent's path.
    length: usize,
}

impl Level {
    fn new(directory: &Directory, name: Vec<u8>, rest: Vec<Vec<u8>>, length: usize) -> Result<Level, Errno> {
        Ok(Level { name, inode: inode(&directory.fd)?, rest, is_empty: true, length })
    }
}

/// The device and the inode of an open file.
fn inode(fd: &OwnedFd) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(fd).map(|found| (found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither the stack nor the number of open files limits the depth.
    #[test]
    fn deep_trees_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let mut at = directory.enter(b"top", 0o700).unwrap().0;
        for depth in 0..3_000 {
            at.create(b"file", 0o600).unwrap();
            if depth == 2_000 {
                at.create(b"kept", 0o600).unwrap();
            }
            at = at.enter(b"d", 0o700).unwrap().0;
        }
        drop(at);
        let kept = [b"top".as_slice(), &b"/d".repeat(2_000), b"/kept"].concat();
        let remove = move |keeps: &dyn Fn(&[u8], bool) -> bool| {
            directory.remove(b"top", b"top", keeps, false, &mut |_, removed| removed.unwrap())
        };
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let removed =
            small.spawn(move || (remove(&|path, _| path == kept), remove(&|_, _| false))).unwrap().join().unwrap();
        assert_eq!(removed, (Ok(false), Ok(true)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
