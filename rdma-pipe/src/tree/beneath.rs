//! An open directory. Each name below it is resolved only once, so a later change of the name has no effect.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::attributes::{ACCESS, ATTRIBUTE, DEFAULT, without_list};
use super::keep::Keep;
use super::permissions::{allow, needs_permissions};
use super::settle::{is_local, settle};
use crate::error::{Error, Kind, escape, reason};
use crate::proto::Entry;

/// The flags that open a directory.
pub(super) const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// What gives way to a new entry of another type. An entry of the same type is always replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GivesWay {
    /// Nothing, as in `cp -r`.
    #[default]
    Nothing,
    /// Everything except a directory with entries, as in rsync.
    Entry,
    /// Everything, as in rsync with `--delete`.
    Tree,
}

/// A directory that is kept open.
#[derive(Debug)]
pub struct Directory {
    pub(super) fd: OwnedFd,
    gives_way: GivesWay,
    /// What was below directories that gave way, in this directory and in those that were opened below it.
    cleared: Arc<Mutex<Vec<PathBuf>>>,
    /// Whether its files are on a local file system, once this is known.
    is_local: OnceLock<bool>,
    /// Whether its links have metadata of their own, once this is known.
    pub(super) has_link_facts: OnceLock<bool>,
    /// The unit of its files' times, once this is known.
    pub(super) unit: OnceLock<Option<i128>>,
    /// Whether this copy has made the directory, so that no entry in it is older than the copy.
    is_new: bool,
    /// The path by which the directory was opened, for messages.
    path: PathBuf,
}

impl Directory {
    /// Opens a path that the operator named, without restrictions.
    ///
    /// # Errors
    ///
    /// The path is not a directory, or cannot be opened.
    pub fn open(path: &Path) -> Result<Directory, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let open = |flags| rustix::fs::openat(CWD, path, flags, Mode::empty());
        let opened = match open(FOLDER) {
            // Entries can be made in a directory that this user may not list.
            Err(Errno::ACCESS) => open(FOLDER | OFlags::PATH),
            opened => opened,
        };
        opened.map(|fd| Self::of(fd, path.to_owned()))
    }

    pub(super) fn of(fd: OwnedFd, path: PathBuf) -> Directory {
        let (is_local, has_link_facts, unit) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (gives_way, cleared) = (GivesWay::Nothing, Arc::default());
        Directory { fd, gives_way, cleared, is_local, has_link_facts, unit, is_new: false, path }
    }

    /// A directory below this one, with its rules.
    pub(super) fn inner(&self, fd: OwnedFd, name: &OsStr) -> Directory {
        let (gives_way, cleared) = (self.gives_way, Arc::clone(&self.cleared));
        Directory { gives_way, cleared, ..Self::of(fd, self.path.join(name)) }
    }

    /// Returns the path by which the directory was opened. It may name something else by now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the same directory with this rule, which also holds for the directories that are opened below it.
    ///
    /// # Errors
    ///
    /// The process has too many open files.
    pub fn with(&self, gives_way: GivesWay) -> Result<Directory, Errno> {
        let fd = self.fd.try_clone().map_err(|_| Errno::MFILE)?;
        let cleared = Arc::clone(&self.cleared);
        Ok(Directory { gives_way, cleared, ..Self::of(fd, self.path.clone()) })
    }

    /// Opens an empty directory that has no path. It stands for a directory that a dry run would create.
    ///
    /// # Errors
    ///
    /// The folder of temporary files does not exist, or cannot be written.
    pub fn without_path() -> Result<Directory, Error> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let folder = std::env::temp_dir();
        let path = folder.join(format!(".rdcp-{}-{time}", std::process::id()));
        let open = || {
            rustix::fs::mkdir(&path, Mode::RWXU)?;
            let directory = Self::open(&path);
            rustix::fs::rmdir(&path)?;
            directory
        };
        open().map_err(|error: Errno| {
            let text = format!("cannot write to {}: {}; set TMPDIR", escape(&folder), reason(&error.into()));
            Error::new(Kind::File, text)
        })
    }

    /// Marks a directory that this copy has made.
    pub fn new_if(self, is_new: bool) -> Directory {
        Directory { is_new, ..self }
    }

    /// Whether this copy has made the directory.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Creates a file without a name (`O_TMPFILE`) on the file system of this directory.
    ///
    /// # Errors
    ///
    /// See openat(2); `EOPNOTSUPP` if the file system has no such files.
    pub fn unnamed(&self, mode: u16) -> Result<OwnedFd, Errno> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, ".", flags, Mode::from_raw_mode(mode.into())) {
            Err(Errno::ISDIR | Errno::INVAL) => Err(Errno::OPNOTSUPP),
            opened => opened,
        }
    }

    /// Opens a new file, which must not exist yet.
    ///
    /// # Errors
    ///
    /// See openat(2).
    pub fn create(&self, name: &[u8], mode: u16) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, OsStr::from_bytes(name), flags, Mode::from_raw_mode(mode.into()))
    }

    /// Creates a temporary file, locks it, and replaces the file of an earlier run. [`publish`](Self::publish) detects if
    /// another process has replaced it meanwhile.
    ///
    /// # Errors
    ///
    /// See openat(2); `EWOULDBLOCK` if another process writes the file.
    pub fn claim(&self, name: &[u8], mode: u16) -> Result<OwnedFd, Errno> {
        let created = match self.create(name, mode) {
            Err(Errno::EXIST) => {
                // Only the process that holds the lock may remove the name. A file that cannot be opened does not
                // belong to a running copy.
                let earlier = self.open_file(name, false).ok();
                if let Some((earlier, _)) = &earlier {
                    self.lock(earlier, name)?;
                }
                let removed = rustix::fs::unlinkat(&self.fd, OsStr::from_bytes(name), AtFlags::empty());
                match (self.create(name, mode), removed) {
                    (Err(Errno::EXIST), Err(error)) if error != Errno::NOENT => Err(error),
                    // Another process has created the file in the meantime.
                    (Err(Errno::EXIST), _) => Err(Errno::WOULDBLOCK),
                    (created, _) => created,
                }
            }
            created => created,
        };
        let fd = created?;
        take_lock(&fd)?;
        Ok(fd)
    }

    /// Locks a temporary file for this process.
    ///
    /// # Errors
    ///
    /// See flock(2); `EWOULDBLOCK` if another process writes the file, or has replaced it.
    pub fn lock(&self, fd: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        take_lock(fd).and_then(|()| self.check_same(fd, name))
    }

    /// See [`settle`]; asks for the file system only once.
    ///
    /// # Errors
    ///
    /// See [`settle`].
    pub fn settle(&self, fd: impl AsFd) -> Result<(), Errno> {
        if self.is_local() { Ok(()) } else { settle(fd) }
    }

    /// Writes everything on the file system of this directory to the disk.
    ///
    /// # Errors
    ///
    /// See syncfs(2).
    pub fn sync(&self) -> Result<(), Errno> {
        match rustix::fs::syncfs(&self.fd) {
            // This user may not list the directory, so that the descriptor only stands for it.
            Err(Errno::BADF) => {
                match self.unnamed(0o600) {
                    Ok(file) => rustix::fs::syncfs(file),
                    // The file system has no unnamed files, or this user may make none.
                    Err(Errno::OPNOTSUPP | Errno::ACCESS | Errno::ROFS) => {
                        rustix::fs::sync();
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            synced => synced,
        }
    }

    /// See [`is_local`]; asks for the file system only once.
    pub(super) fn is_local(&self) -> bool {
        *self.is_local.get_or_init(|| is_local(&self.fd).unwrap_or(false))
    }

    pub(super) fn check_same(&self, fd: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let (ours, named) = (rustix::fs::fstat(fd)?, self.stat(name));
        let is_same = named.is_ok_and(|named| (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino));
        if is_same { Ok(()) } else { Err(Errno::WOULDBLOCK) }
    }

    /// Renames a file of this process from its temporary name to its final name.
    ///
    /// # Errors
    ///
    /// See renameat(2); `EWOULDBLOCK` if the temporary name is another process's file.
    pub fn publish(&self, fd: &OwnedFd, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        self.check_same(fd, from)?;
        self.rename(from, to)
    }

    /// Opens a regular file of this directory.
    ///
    /// # Errors
    ///
    /// See openat(2); `EINVAL` if the entry is not a regular file.
    pub fn open_file(&self, name: &[u8], write: bool) -> Result<(OwnedFd, Stat), Errno> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // `NONBLOCK` prevents that opening a FIFO waits for its other end.
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, OsStr::from_bytes(name), flags, Mode::empty())?;
        let found = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(found.st_mode).is_file() { Ok((fd, found)) } else { Err(Errno::INVAL) }
    }

    /// Returns the metadata of an entry. Links are not followed.
    ///
    /// # Errors
    ///
    /// See fstatat(2).
    pub fn stat(&self, name: &[u8]) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Returns the permissions of an existing regular file. Without `-p`, the file that replaces it gets them, as with
    /// cp and rsync. If the file has an access control list, its group gets no more than before, unless this directory gives
    /// the new file a list: then the group bits are the mask of that list. In a directory that this copy has made, nothing
    /// is asked: no file is older, and each name is copied once.
    pub fn permissions(&self, name: &[u8]) -> Option<u16> {
        if self.is_new {
            return None;
        }
        let found = self.stat(name).ok().filter(|found| FileType::from_raw_mode(found.st_mode).is_file())?;
        let mode = found.st_mode & 0o777;
        let gives_list = rustix::fs::fgetxattr(&self.fd, DEFAULT, &mut [0_u8; 0][..]).is_ok();
        if mode & 0o070 == 0 || gives_list {
            return Some(mode as u16);
        }
        // Its owner may not be allowed to open it.
        let path = [format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).as_bytes(), name].concat();
        let mut list = vec![0; ATTRIBUTE];
        let length = rustix::fs::lgetxattr(OsStr::from_bytes(&path), ACCESS, list.as_mut_slice());
        Some(length.map_or(mode, |length| without_list(mode, &list[..length])) as u16)
    }

    /// Creates a directory. If the name already refers to a directory, even through a link, that directory is kept.
    /// Returns whether it is new.
    ///
    /// # Errors
    ///
    /// See mkdirat(2).
    pub fn make(&self, name: &[u8], mode: u16) -> Result<bool, Errno> {
        match rustix::fs::mkdirat(&self.fd, OsStr::from_bytes(name), Mode::from_raw_mode(mode.into())) {
            Err(Errno::EXIST) => Ok(false),
            made => made.map(|()| true),
        }
    }

    /// Opens a directory of a received tree. If it is missing, creates it with the permissions in `mode`, as far as the
    /// umask allows them. Meanwhile its owner has all permissions, because the copy writes into it; if that is more than
    /// it had or will have, also returns its permissions. A link is not followed: it gives way, or is an error.
    ///
    /// # Errors
    ///
    /// See mkdirat(2) and openat(2); `ENOTDIR` if the name belongs to something that does not give way.
    pub fn enter(&self, name: &[u8], mode: u16) -> Result<(Directory, Option<u16>), Errno> {
        let entry = OsStr::from_bytes(name);
        let make = || self.make(name, mode & 0o777 | 0o700);
        let open = || match self.open_entry(entry, FOLDER) {
            // Its owner may not list it.
            Err(Errno::ACCESS) => self.open_entry(entry, FOLDER | OFlags::PATH),
            opened => opened,
        };
        let mut is_new = make()?;
        let fd = match open() {
            Err(Errno::LOOP) if self.gives_way == GivesWay::Nothing => Err(Errno::NOTDIR),
            Err(Errno::LOOP | Errno::NOTDIR) if self.gives_way != GivesWay::Nothing => {
                rustix::fs::unlinkat(&self.fd, entry, AtFlags::empty())?;
                is_new = make()?;
                open()
            }
            opened => opened,
        }?;
        let directory = self.inner(fd, entry).new_if(is_new);
        if !is_new {
            return directory.open_up();
        }
        let has = (rustix::fs::fstat(&directory.fd)?.st_mode & 0o7777) as u16;
        Ok((directory, Some(has & !(0o700 & !mode)).filter(|permissions| *permissions != has)))
    }

    /// Gives the owner of this directory all permissions, if that is this user. If it had less, also returns the
    /// permissions that it had.
    ///
    /// # Errors
    ///
    /// See chmod(2) and openat(2).
    pub fn open_up(self) -> Result<(Directory, Option<u16>), Errno> {
        let found = rustix::fs::fstat(&self.fd)?;
        if !needs_permissions(&found) {
            return Ok((self, None));
        }
        let permissions = (found.st_mode & 0o700 != 0o700).then_some((found.st_mode & 0o7777) as u16);
        if permissions.is_some() {
            allow(&self.fd, found.st_mode | 0o700)?;
        } else if !rustix::fs::fcntl_getfl(&self.fd)?.contains(OFlags::PATH) {
            return Ok((self, None));
        }
        // The descriptor may only stand for the directory, also if an earlier connection has given the permissions.
        let opened = self.open_entry(OsStr::new("."), FOLDER).inspect_err(|_| {
            // The caller learns of no permissions to give back.
            if permissions.is_some() {
                _ = allow(&self.fd, found.st_mode);
            }
        });
        let fd = opened?;
        Ok((Directory { fd, ..self }, permissions))
    }

    /// Takes those permissions for others from this directory that its metadata will not give them, because the copy
    /// writes into it what the source protects by them.
    ///
    /// # Errors
    ///
    /// See chmod(2).
    pub fn narrow(&self, entry: &Entry, keep: Keep) -> Result<(), Errno> {
        let found = rustix::fs::fstat(&self.fd)?;
        // Those of another group, or of an access control list, are others' permissions.
        let is_same_group = !keep.owner || found.st_gid == entry.owner.1;
        let group = if is_same_group && !keep.attributes_differ(&self.fd, entry) { 0o070 } else { 0 };
        let mode = found.st_mode & 0o7777;
        let narrow = mode & (0o7700 | u32::from(entry.mode) & (0o007 | group));
        if !keep.mode || narrow == mode { Ok(()) } else { allow(&self.fd, narrow) }
    }

    /// Gives the owner of this directory the permissions back that it had before [`open_up`](Self::open_up) or
    /// [`enter`](Self::enter). Those of others stay as they are, because an access control list may have set them.
    ///
    /// # Errors
    ///
    /// See fchmod(2).
    pub fn give_back(&self, permissions: u16) -> Result<(), Errno> {
        let mode = rustix::fs::fstat(&self.fd)?.st_mode & 0o7077 | u32::from(permissions) & 0o700;
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(mode))
    }

    pub(super) fn open_entry(&self, entry: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.fd, entry, flags | OFlags::NOFOLLOW, Mode::empty())
    }

    /// Renames a file within this directory. A directory of that name gives way if it may. If that fails, removes the
    /// file.
    ///
    /// # Errors
    ///
    /// See renameat(2); `ENOTEMPTY` if a directory with entries does not give way.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let rename = || rustix::fs::renameat(&self.fd, OsStr::from_bytes(from), &self.fd, OsStr::from_bytes(to));
        let renamed = match (rename(), self.gives_way) {
            (Err(Errno::ISDIR), GivesWay::Entry) => {
                rustix::fs::unlinkat(&self.fd, OsStr::from_bytes(to), AtFlags::REMOVEDIR).and_then(|()| rename())
            }
            (Err(Errno::ISDIR), GivesWay::Tree) => {
                let mut first = Ok(());
                let removed = self.clear(to, false, &mut |path, removed| {
                    first = first.and(removed);
                    if removed.is_ok() && path != self.path.join(OsStr::from_bytes(to)) {
                        self.cleared.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
                    }
                });
                removed.and(first).and_then(|()| rename())
            }
            (renamed, _) => renamed,
        };
        renamed.inspect_err(|_| self.remove_stale(from))
    }

    /// Takes the paths of what was below directories that gave way since the last call.
    pub fn take_cleared(&self) -> Vec<PathBuf> {
        std::mem::take(&mut *self.cleared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes a file of this run or of an earlier one.
    pub fn remove_stale(&self, name: &[u8]) {
        // Ignores the error: usually the file does not exist.
        _ = rustix::fs::unlinkat(&self.fd, OsStr::from_bytes(name), AtFlags::empty());
    }

    /// Returns the names of all entries.
    ///
    /// # Errors
    ///
    /// See getdents(2).
    pub fn names(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// Locks an open file for this process.
fn take_lock(fd: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
        // The file system has no locks; `publish` nevertheless detects another process's file.
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(()),
        locked => locked,
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
