//! A file that is being written under its temporary name.
//!
//! If a run is interrupted, a long file stays under this name. Nothing vouches for its contents: it may belong to
//! another version of the source, or a reboot may have lost blocks. So the next run continues it only after those bytes
//! that the hashes of the source's own blocks prove.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FileType, Mode, SeekFrom, Stat};
use rustix::io::Errno;
use twox_hash::XxHash3_128;

use super::Directory;
use super::keep::facts;
use crate::proto::Sum;

/// Files up to this length, in bytes, are sent again after an interruption.
pub const LEAST: u64 = 8 << 20;

/// What the temporary names stand for: a file, the probe of its metadata, a symbolic link, a hard link, a special file.
const TEMPORARY: [&[u8]; 5] = [b"file", b"mode", b"link", b"same", b"special"];

/// A partial file, under its temporary name.
#[derive(Debug)]
pub struct Partial {
    /// The file.
    pub fd: OwnedFd,
    name: Vec<u8>,
}

impl Partial {
    /// Returns how many bytes an earlier run has left of a file.
    pub fn length(directory: &Directory, name: &[u8]) -> u64 {
        let found = directory.stat(&partial_name(name)).ok().filter(is_ours);
        found.map_or(0, |found| found.st_size as u64)
    }

    /// Opens the file that an earlier run has left, and gives it the mode that a new file gets.
    ///
    /// # Errors
    ///
    /// See openat(2); `ENOENT` if the file is another user's, or has other names, or more users may read it than would
    /// be allowed now; `EWOULDBLOCK` if another process writes it.
    pub fn earlier(directory: &Directory, name: &[u8], mode: u16) -> Result<Partial, Errno> {
        let (fd, found) = directory.open_file(&partial_name(name), true)?;
        let partial = Partial { fd, name: partial_name(name) };
        if !is_ours(&found) {
            return Err(Errno::NOENT);
        }
        directory.lock(&partial.fd, &partial.name)?;
        // The umask and the directory's default permissions change the mode of a new file.
        let made = probe(directory, name, mode)?;
        let new = rustix::fs::fstat(&made)?;
        let mode = new.st_mode & 0o777;
        let is_wider = found.st_mode & 0o777 & !mode != 0;
        if is_wider || found.st_gid != new.st_gid || access_list(&partial.fd) != access_list(&made) {
            return Err(Errno::NOENT);
        }
        rustix::fs::fchmod(&partial.fd, Mode::from_raw_mode(mode))?;
        Ok(partial)
    }

    /// Removes what an earlier run has left, because the file is complete. Returns whether there was such a file.
    pub fn remove_earlier(directory: &Directory, name: &[u8]) -> bool {
        let name = partial_name(name);
        let is_left = directory
            .open_file(&name, false)
            .is_ok_and(|(fd, found)| is_ours(&found) && directory.lock(&fd, &name).is_ok());
        if is_left {
            directory.remove_stale(&name);
        }
        is_left
    }

    /// Creates the file with this mode. A file of an earlier run is removed.
    ///
    /// # Errors
    ///
    /// See openat(2); `EWOULDBLOCK` if another process writes the file.
    pub fn create(directory: &Directory, name: &[u8], mode: u16) -> Result<Partial, Errno> {
        let name = partial_name(name);
        let fd = directory.claim(&name, mode)?;
        directory.check_same(&fd, &name)?;
        Ok(Partial { fd, name })
    }

    /// Whether the file contains the block with this hash, after nothing but zeros from the offset `at`.
    pub fn has(&self, at: u64, sum: &Sum) -> bool {
        let data = rustix::fs::seek(&self.fd, SeekFrom::Data(at));
        let is_hole = at == sum.offset || data.is_ok_and(|data| data >= sum.offset);
        let mut bytes = vec![0; sum.length as usize];
        let is_read = is_hole && read_at(&self.fd, &mut bytes, sum.offset).is_ok_and(|count| count == bytes.len());
        is_read && XxHash3_128::oneshot(&bytes) == sum.hash
    }

    /// Removes the bytes from this offset on, or adds a hole up to it.
    ///
    /// # Errors
    ///
    /// See ftruncate(2).
    pub fn resize(&self, size: u64) -> Result<(), Errno> {
        // Some file systems of FUSE do not have the call.
        if rustix::fs::fstat(&self.fd)?.st_size as u64 == size {
            return Ok(());
        }
        rustix::fs::ftruncate(&self.fd, size)
    }

    /// Copies the contents of another file of this length, whose holes stay holes.
    ///
    /// # Errors
    ///
    /// See lseek(2) and copy_file_range(2); `EBUSY` if the other file changes meanwhile.
    pub fn fill(&self, from: OwnedFd, found: &Stat) -> Result<(), Errno> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let (from, mut to) = (File::from(from), File::from(self.fd.try_clone().map_err(errno)?));
        let (size, mut at) = (found.st_size as u64, 0);
        while at < size {
            let start = match rustix::fs::seek(&from, SeekFrom::Data(at)) {
                Err(Errno::NXIO) => break,
                start => start?,
            };
            at = rustix::fs::seek(&from, SeekFrom::Hole(start))?.min(size);
            for fd in [&from, &to] {
                rustix::fs::seek(fd, SeekFrom::Start(start))?;
            }
            std::io::copy(&mut (&from).take(at.saturating_sub(start)), &mut to).map_err(errno)?;
        }
        self.resize(size)?;
        if facts(&rustix::fs::fstat(&from)?) == facts(found) { Ok(()) } else { Err(Errno::BUSY) }
    }

    /// Writes a block that was verified.
    ///
    /// # Errors
    ///
    /// See pwrite(2).
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Renames the file to its final name. Returns it.
    ///
    /// # Errors
    ///
    /// See [`Directory::publish`].
    pub fn finish(self, directory: &Directory, name: &[u8]) -> Result<OwnedFd, Errno> {
        if let Err(error) = directory.settle(&self.fd) {
            self.discard(directory);
            return Err(error);
        }
        directory.publish(&self.fd, &self.name, name).map(|()| self.fd)
    }

    /// Removes the file.
    pub fn discard(self, directory: &Directory) {
        directory.remove_stale(&self.name);
    }

    /// Keeps the file for the next run, or removes it if the source's file, with this size, is sent again anyway.
    pub fn abandon(self, directory: &Directory, size: u64) {
        if size <= LEAST {
            directory.remove_stale(&self.name);
        }
    }
}

/// The files that this copy has written over all of its connections, each as a hash of its device, its inode, and the
/// time of its last change. A comparison of times with a clock would not suffice: the file system may have another
/// clock, and another process may have changed a file meanwhile.
#[derive(Debug, Default)]
pub struct Written(Mutex<HashSet<u64>>);

impl Written {
    fn key(found: &Stat) -> u64 {
        let time = [found.st_ctime, found.st_ctime_nsec as i64].map(i64::to_le_bytes);
        XxHash3_128::oneshot(&[found.st_dev.to_le_bytes(), found.st_ino.to_le_bytes(), time[0], time[1]].concat())
            as u64
    }

    /// Records a file that has its name and its metadata. If it cannot be asked for these, it is sent again.
    pub fn note(&self, fd: &OwnedFd) {
        if let Ok(found) = rustix::fs::fstat(fd) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(Self::key(&found));
        }
    }

    /// Whether this copy has written a file, and it did not change since then.
    pub fn has(&self, found: &Stat) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&Self::key(found))
    }
}

/// Returns the entry of which `name` is a temporary name, which an interrupted copy may have left. Long names are
/// truncated in their temporary names, so they are looked up in `names`.
pub(crate) fn entry_of<'n>(name: &'n [u8], names: impl IntoIterator<Item = &'n Vec<u8>>) -> Option<&'n [u8]> {
    let of = |entry: &[u8]| TEMPORARY.iter().any(|kind| name == temporary_name(entry, kind));
    let shown = name.len().checked_sub(SUFFIX).and_then(|end| name.get(1..end))?;
    if of(shown) {
        return Some(shown);
    }
    let mut names = names.into_iter().filter(|_| name.len() == LONGEST).map(Vec::as_slice);
    names.find(|other| other.starts_with(shown) && of(other))
}

/// Returns the path of what was written of an entry under one of its temporary names, and was not removed.
pub(crate) fn leftover(folder: &Path, name: &[u8]) -> Option<PathBuf> {
    let mut paths = TEMPORARY.iter().map(|kind| folder.join(OsStr::from_bytes(&temporary_name(name, kind))));
    paths.find(|path| path.symlink_metadata().is_ok())
}

/// The temporary name of a file.
pub(crate) fn partial_name(name: &[u8]) -> Vec<u8> {
    temporary_name(name, TEMPORARY[0])
}

/// The access control list of a file, in the form of its attribute; empty if it has none.
fn access_list(fd: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    let length = rustix::fs::fgetxattr(fd, "system.posix_acl_access", &mut bytes[..]).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

/// Whether no other user can write the file, and no other name leads to it.
fn is_ours(found: &Stat) -> bool {
    let is_file = FileType::from_raw_mode(found.st_mode).is_file();
    is_file && found.st_uid == rustix::process::geteuid().as_raw() && found.st_nlink == 1
}

fn read_at(fd: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(&fd, &mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Maximum length of a name, and the length of the end of a temporary name, in bytes.
const LONGEST: usize = 255;
const SUFFIX: usize = ".rdcp-".len() + 16;

/// Creates an empty file that has no name any more, to find out which metadata the file of this name would get.
///
/// # Errors
///
/// See openat(2).
pub(super) fn probe(directory: &Directory, name: &[u8], mode: u16) -> Result<OwnedFd, Errno> {
    let name = temporary_name(name, TEMPORARY[1]);
    directory.remove_stale(&name);
    let made = directory.create(&name, mode);
    directory.remove_stale(&name);
    made
}

/// Returns the temporary name of a file. Each run computes the same name, so it finds the partial file of an earlier
/// run.
pub fn temporary_name(name: &[u8], identity: &[u8]) -> Vec<u8> {
    let hash = XxHash3_128::oneshot(&[name, b"\0", identity].concat()) as u64;
    // The hash distinguishes names that are truncated.
    let shown = &name[..name.len().min(LONGEST - 1 - SUFFIX)];
    [b".", shown, format!(".rdcp-{hash:016x}").as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::OFlags;

    use super::*;
    use crate::channel::BLOCK;

    fn path_of(name: &[u8]) -> &OsStr {
        OsStr::from_bytes(name)
    }

    fn block(number: u64) -> (Sum, Vec<u8>) {
        let bytes = vec![number as u8 + 1; BLOCK];
        (Sum { offset: number * BLOCK as u64, length: BLOCK as u32, hash: XxHash3_128::oneshot(&bytes) }, bytes)
    }

    fn create(directory: &Directory) -> Result<Partial, Errno> {
        Partial::create(directory, b"f", 0o600)
    }

    #[test]
    fn long_file_is_kept_and_its_blocks_are_proved() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let partial = create(&directory).unwrap();
        // The third block is a hole.
        for number in [0, 1, 3] {
            let (sum, bytes) = block(number);
            partial.write(sum.offset, &bytes).unwrap();
        }
        assert_eq!(Partial::earlier(&directory, b"f", 0o600).map(drop), Err(Errno::WOULDBLOCK), "two writers");
        partial.abandon(&directory, LEAST + 1);
        assert_eq!(Partial::length(&directory, b"f"), 4 * BLOCK as u64);
        assert_eq!(Partial::earlier(&directory, b"f", 0o644).map(drop), Ok(()));
        assert_eq!(Partial::earlier(&directory, b"f", 0o600).map(drop), Err(Errno::NOENT), "others may have opened it");
        std::fs::set_permissions(folder.path().join(path_of(&partial_name(b"f"))), Permissions::from_mode(0o600))
            .unwrap();

        let partial = Partial::earlier(&directory, b"f", 0o600).unwrap();
        let ((first, _), (second, bytes), (last, _)) = (block(0), block(1), block(3));
        assert!(partial.has(0, &first) && partial.has(first.offset, &first) && partial.has(second.offset, &second));
        assert!(partial.has(2 * BLOCK as u64, &last), "a hole");
        assert!(!partial.has(0, &second), "the source has a hole where the file has data");
        assert!(!partial.has(BLOCK as u64, &Sum { hash: first.hash, ..second }), "other contents");
        assert!(!partial.has(4 * BLOCK as u64, &block(4).0), "the file is too short");
        partial.write(second.offset + 7, &[bytes[0] ^ 1]).unwrap();
        assert!(!partial.has(second.offset, &second), "one byte differs");
        partial.finish(&directory, b"f").unwrap();
        assert_eq!(directory.names().unwrap(), [b"f"]);
    }

    #[test]
    fn file_of_others_is_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        create(&directory).unwrap().write(0, b"x").unwrap();
        std::fs::hard_link(folder.path().join(path_of(&partial_name(b"f"))), folder.path().join("other")).unwrap();
        assert_eq!(Partial::length(&directory, b"f"), 0);
        assert_eq!(Partial::earlier(&directory, b"f", 0o600).map(drop), Err(Errno::NOENT));
    }

    #[test]
    fn only_one_copy_writes_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let first = create(&directory).unwrap();
        assert_eq!(create(&directory).map(drop), Err(Errno::WOULDBLOCK));
        first.finish(&directory, b"f").unwrap();
        assert_eq!(directory.names().unwrap(), [b"f"]);
        // The partial file of a killed copy is not locked.
        drop(create(&directory).unwrap());
        create(&directory).unwrap().abandon(&directory, LEAST);
        assert_eq!(directory.names().unwrap(), [b"f"]);
    }

    #[test]
    fn file_of_another_copy_gets_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(folder.path()).unwrap();
        let partial = create(&directory).unwrap();
        directory.remove_stale(&partial.name);
        let _other = directory.create(&partial.name, 0o600).unwrap();
        assert_eq!(partial.finish(&directory, b"f").map(drop), Err(Errno::WOULDBLOCK));
        assert_eq!(directory.stat(b"f").map(drop), Err(Errno::NOENT));
    }

    /// A file that is open for reading only stands for a file system that cannot change the length of a file.
    #[test]
    fn length_that_is_right_is_not_set() {
        let fd = OwnedFd::from(tempfile::tempfile().unwrap());
        rustix::io::pwrite(&fd, b"data", 0).unwrap();
        let fd = rustix::fs::open(format!("/proc/self/fd/{}", fd.as_raw_fd()), OFlags::RDONLY, Mode::empty()).unwrap();
        let partial = Partial { fd, name: Vec::new() };
        assert_eq!((partial.resize(4), partial.resize(3)), (Ok(()), Err(Errno::INVAL)));
    }

    #[test]
    fn temporary_names_are_recognized() {
        let long = vec![b'x'; 240];
        let names = [b"f".to_vec(), long.clone()];
        for kind in TEMPORARY {
            assert_eq!(entry_of(&temporary_name(b"a.b", kind), []), Some(&b"a.b"[..]));
            assert_eq!(entry_of(&temporary_name(&long, kind), &names), Some(&long[..]));
            assert_eq!(entry_of(&temporary_name(&long, kind), &names[..1]), None, "another name may be meant");
        }
        for name in ["f", ".f", "", ".f.rdcp-0123456789abcdef", "f.rdcp-0123456789abcdef"] {
            assert_eq!(entry_of(name.as_bytes(), &names), None, "{name}");
        }
    }
}
