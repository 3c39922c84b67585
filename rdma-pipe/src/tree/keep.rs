//! The metadata that a copy keeps, and what a file has of it.

use std::os::fd::AsFd;

use rustix::fs::{Gid, Stat, Timespec, Timestamps, UTIME_NOW};
use serde::{Deserialize, Serialize};

use super::attributes::{Attribute, read_attributes, surplus, wanted};
use super::permissions::mode_for;
use crate::proto::Entry;

/// Metadata that a copy keeps in addition to contents and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// Whether to keep all bits of the mode; otherwise the umask is applied to the permissions.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes, including access control lists.
    pub attributes: bool,
    /// Hard links.
    pub links: bool,
    /// FIFOs, sockets and device nodes; otherwise they are skipped.
    pub specials: bool,
}

impl Keep {
    /// All metadata of an entry.
    pub const ALL: Keep = Keep { mode: true, owner: true, attributes: true, links: false, specials: false };

    /// Whether metadata is kept, so that it is an error if it cannot be set.
    pub(super) fn has_metadata(&self) -> bool {
        self.mode || self.owner || self.attributes
    }

    /// Whether the metadata of an existing file differs from the source's. See also
    /// [`attributes_differ`](Self::attributes_differ).
    pub fn differs(&self, found: &Stat, entry: &Entry) -> bool {
        (found.st_mtime, found.st_mtime_nsec as u32) != entry.modified
            || (self.mode && found.st_mode & 0o7777 != mode_for(found, entry))
            || (self.owner && (found.st_uid, found.st_gid) != entry.owner && may_have(entry.owner))
    }

    /// Whether an open entry of the source has the metadata that was listed.
    pub fn has(&self, fd: impl AsFd, found: &Stat, entry: &Entry) -> bool {
        // What cannot be read has changed.
        let has_attributes = || {
            read_attributes(fd).is_ok_and(|found| {
                found.len() == entry.attributes.len() && found.iter().all(|one| entry.attributes.contains(one))
            })
        };
        (found.st_mode & 0o7777) as u16 == entry.mode
            && (!self.owner || (found.st_uid, found.st_gid) == entry.owner)
            && (!self.attributes || has_attributes())
    }

    /// Whether the extended attributes of an existing file differ from the source's.
    pub fn attributes_differ(&self, fd: impl AsFd, entry: &Entry) -> bool {
        let fd = fd.as_fd();
        let differs = |found: Vec<Attribute>| {
            let wanted = wanted(fd, entry);
            wanted.iter().any(|wanted| !found.contains(wanted)) || surplus(&found, &wanted).next().is_some()
        };
        // What cannot be read is set again, which reports the error.
        self.attributes && read_attributes(fd).map_or(true, differs)
    }
}

/// Whether this user may give a file to this user and group.
fn may_have((user, group): (u32, u32)) -> bool {
    use rustix::{process, thread};
    let is_own = || {
        process::getegid().as_raw() == group
            || process::getgroups().is_ok_and(|groups| groups.contains(&Gid::from_raw(group)))
    };
    process::geteuid().is_root()
        || (process::geteuid().as_raw() == user && is_own())
        || thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(thread::CapabilitySet::CHOWN))
}

/// The times to set. The time of access is set too, because many file systems of FUSE ignore a call that omits it.
pub(super) fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let modified = Timespec { tv_sec: seconds, tv_nsec: nanos.min(999_999_999).into() };
    Timestamps { last_access: now, last_modification: modified }
}

/// Returns the size and time of a file.
pub fn facts(found: &Stat) -> (u64, (i64, u32)) {
    (found.st_size as u64, (found.st_mtime, found.st_mtime_nsec as u32))
}
