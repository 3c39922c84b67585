//! Finds out whether the file system stores the metadata of a file as it was set.

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use super::beneath::Directory;
use super::keep::{Keep, facts, times};
use super::partial::{probe, temporary_name};
use super::permissions::mode_for;
use crate::proto::Entry;

impl Directory {
    /// Whether links have a time and an owner of their own here. Some file systems that are not local, such as sshfs, change
    /// the file to which a link leads instead, which may be outside of the destination. Tries it with a link to itself,
    /// which leads to no file and gets a temporary name of this entry. Asks only once.
    pub(super) fn has_link_facts(&self, name: &[u8]) -> bool {
        let tried = || {
            let name = temporary_name(name, b"mode");
            let path = OsStr::from_bytes(&name);
            self.remove_stale(&name);
            let set = rustix::fs::symlinkat(path, self, path)
                .and_then(|()| rustix::fs::utimensat(self, path, &times(ODD), AtFlags::SYMLINK_NOFOLLOW));
            self.remove_stale(&name);
            set.is_ok()
        };
        *self.has_link_facts.get_or_init(|| self.is_local() || tried())
    }
}

/// Whether the time that was found is what a file of this directory has after the entry's time was set, because the file
/// system cannot store that, or stores it in a larger unit.
pub fn is_stored_as(directory: &Directory, entry: &Entry, found: (i64, u32), dry_run: bool) -> bool {
    if !USUAL.contains(&entry.modified.0) {
        return stored(directory, &entry.name, entry.modified, dry_run) == Ok(found);
    }
    let (time, found) = (nanos(entry.modified), nanos(found));
    let unit = || match stored(directory, &entry.name, ODD, dry_run).map(nanos) {
        Ok(stored) => Some(nanos(ODD) - stored + 1),
        // A dry run cannot ask here, and compares as rsync does.
        Err(Errno::OPNOTSUPP) if dry_run => Some(SECOND),
        Err(_) => None,
    };
    // Most files have another time because they have changed.
    let is_near = found < time && time - found < 2 * SECOND;
    let unit = if is_near { *directory.unit.get_or_init(unit) } else { None };
    unit.is_some_and(|unit| unit > 1 && found == time - time.rem_euclid(unit))
}

/// Returns the time that a file of this directory has after this one was set. Tries it with a file that has no name. Some
/// file systems, such as FAT, NFS and many of FUSE, have none; there the file first gets a temporary name of this entry,
/// but not in a dry run, which writes nothing.
fn stored(directory: &Directory, name: &[u8], time: (i64, u32), dry_run: bool) -> Result<(i64, u32), Errno> {
    let fd = match directory.unnamed(0o600) {
        Err(Errno::OPNOTSUPP) if !dry_run => probe(directory, name, 0o600)?,
        opened => opened?,
    };
    rustix::fs::futimens(&fd, &times(time))?;
    Ok(facts(&rustix::fs::fstat(fd)?).1)
}

/// A second, and the last time of an odd one, in nanoseconds.
const SECOND: i128 = 1_000_000_000;
const ODD: (i64, u32) = (1_000_000_001, 999_999_999);

fn nanos((seconds, nanos): (i64, u32)) -> i128 {
    i128::from(seconds) * SECOND + i128::from(nanos)
}

/// The times that every file system stores, in seconds: from 1980 (FAT) to 2038 (ext4 with short inodes). The kernel
/// replaces other times by the first or the last one of the file system, without an error.
pub(super) const USUAL: RangeInclusive<i64> = 315_532_800..=i32::MAX as i64;

/// Checks that an entry has the metadata that was set. A local file system changes nothing but unusual times. Others, such
/// as many of FUSE, also ignore calls without an error.
pub(super) fn has_facts(
    directory: &Directory,
    entry: &Entry,
    keep: Keep,
    found: impl FnOnce() -> Result<Stat, Errno>,
) -> Result<(), Errno> {
    let is_local = directory.is_local();
    if is_local && USUAL.contains(&entry.modified.0) {
        return Ok(());
    }
    check_facts(is_local, entry, keep, &found()?)
}

fn check_facts(is_local: bool, entry: &Entry, keep: Keep, found: &Stat) -> Result<(), Errno> {
    // FAT has a resolution of two seconds.
    if facts(found).1.0.abs_diff(entry.modified.0) > u64::from(!is_local) {
        return Err(Errno::OVERFLOW);
    }
    // The mode of a link has no meaning.
    let has_mode = !keep.mode || FileType::from_raw_mode(found.st_mode).is_symlink();
    let has_mode = has_mode || found.st_mode & 0o7777 == mode_for(found, entry);
    let has_owner = !keep.owner || (found.st_uid, found.st_gid) == entry.owner || !rustix::process::geteuid().is_root();
    if has_mode && has_owner { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_metadata_is_an_error_where_the_file_system_is_not_local() {
        let found = rustix::fs::fstat(tempfile::tempfile().unwrap()).unwrap();
        let (mode, modified) = ((found.st_mode & 0o7777) as u16, facts(&found).1);
        let owner = (found.st_uid, found.st_gid);
        let entry = |mode, owner, modified| Entry {
            name: Vec::new(),
            kind: crate::proto::EntryKind::Directory,
            mode,
            owner,
            modified,
            attributes: Vec::new(),
        };
        let set = |entry: &Entry| check_facts(false, entry, Keep::ALL, &found);
        let later = |seconds| (modified.0 + seconds, 0);
        assert_eq!((set(&entry(mode, owner, modified)), set(&entry(mode, owner, later(1)))), (Ok(()), Ok(())));
        assert_eq!(set(&entry(mode, owner, later(2))), Err(Errno::OVERFLOW));
        assert_eq!(set(&entry(mode ^ 0o100, owner, modified)), Err(Errno::OPNOTSUPP));
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(set(&entry(mode, (owner.0 ^ 1, owner.1), modified)).is_err(), is_root);
        assert_eq!(check_facts(false, &entry(mode ^ 0o100, (7, 7), modified), Keep::default(), &found), Ok(()));
    }
}
