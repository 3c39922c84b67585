//! Creates entries that are no regular files: links, special files, and further names of a file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Errno;

use super::Directory;
use super::keep::Keep;
use super::meta::{set_link_facts, set_special_facts, shared};
use super::partial::temporary_name;
use crate::proto::{Entry, Special};

impl Directory {
    /// Creates a symbolic link under a temporary name, and renames it. A link with this target is kept. Returns whether
    /// its owner and time could be set.
    ///
    /// # Errors
    ///
    /// See symlinkat(2) and renameat(2).
    pub fn link(&self, entry: &Entry, target: &[u8], keep: Keep) -> Result<Result<(), Errno>, Errno> {
        let name = OsStr::from_bytes(&entry.name);
        let is_same = rustix::fs::readlinkat(self, name, Vec::new()).is_ok_and(|found| found.to_bytes() == target);
        let old = if is_same { shared(self, entry, keep)? } else { None };
        if is_same && old.is_none() {
            return Ok(set_link_facts(self, &entry.name, entry, keep));
        }
        let temporary = temporary_name(&entry.name, b"link");
        self.remove_stale(&temporary);
        rustix::fs::symlinkat(OsStr::from_bytes(target), self, OsStr::from_bytes(&temporary))?;
        let set = |entry: &Entry, keep| set_link_facts(self, &temporary, entry, keep);
        self.replace_shared(&temporary, old, entry, keep, set)
    }

    /// Creates a special file under a temporary name, and renames it. One of the same kind is kept. Returns whether its
    /// metadata could be set.
    ///
    /// # Errors
    ///
    /// See mknodat(2) and renameat(2); `EPERM` if this user may not make device nodes.
    pub fn special(&self, entry: &Entry, kind: Special, keep: Keep) -> Result<Result<(), Errno>, Errno> {
        let (file_type, device) = match kind {
            Special::Fifo => (FileType::Fifo, 0),
            Special::Socket => (FileType::Socket, 0),
            Special::Character(device) => (FileType::CharacterDevice, device),
            Special::Block(device) => (FileType::BlockDevice, device),
        };
        let is_same = |found: Stat| FileType::from_raw_mode(found.st_mode) == file_type && found.st_rdev == device;
        let is_same = self.stat(&entry.name).is_ok_and(is_same);
        let old = if is_same { shared(self, entry, keep)? } else { None };
        if is_same && old.is_none() {
            return Ok(set_special_facts(self, &entry.name, file_type, entry, keep));
        }
        let temporary = temporary_name(&entry.name, b"special");
        self.remove_stale(&temporary);
        // With `-p`, no other user may use it until it gets the source's owner and mode.
        let is_private = keep.mode || old.is_some();
        let mode = Mode::from_raw_mode(if is_private { 0o600 } else { u32::from(entry.mode) & 0o777 });
        rustix::fs::mknodat(self, OsStr::from_bytes(&temporary), file_type, mode, device)?;
        let set = |entry: &Entry, keep| set_special_facts(self, &temporary, file_type, entry, keep);
        self.replace_shared(&temporary, old, entry, keep, set)
    }

    /// Gives a new entry its metadata, and its name. If it takes the place of one with other names (hard links), `old`,
    /// it first gets the metadata of that one, as if that one itself were changed.
    fn replace_shared(
        &self,
        temporary: &[u8],
        old: Option<Entry>,
        entry: &Entry,
        keep: Keep,
        set: impl Fn(&Entry, Keep) -> Result<(), Errno>,
    ) -> Result<Result<(), Errno>, Errno> {
        if let Some(old) = old {
            set(&old, Keep::ALL).inspect_err(|_| self.remove_stale(temporary))?;
        }
        let facts = set(entry, keep);
        self.rename(temporary, &entry.name).map(|()| facts)
    }

    /// Creates a hard link in this directory to a file of another directory.
    ///
    /// # Errors
    ///
    /// See linkat(2) and renameat(2).
    pub fn same(&self, name: &[u8], other: &Directory, other_name: &[u8]) -> Result<(), Errno> {
        let (from, to) = (other.stat(other_name)?, self.stat(name));
        // If both names already refer to the same file, rename(2) does nothing and keeps both names.
        if to.is_ok_and(|to| (to.st_ino, to.st_dev) == (from.st_ino, from.st_dev)) {
            return Ok(());
        }
        let temporary = temporary_name(name, b"same");
        self.remove_stale(&temporary);
        let (old, new) = (OsStr::from_bytes(other_name), OsStr::from_bytes(&temporary));
        rustix::fs::linkat(other, old, self, new, AtFlags::empty())?;
        self.rename(&temporary, name)?;
        // File systems such as sshfs give each name of a file another inode, so that it was not found to be the same.
        self.remove_stale(&temporary);
        Ok(())
    }
}
