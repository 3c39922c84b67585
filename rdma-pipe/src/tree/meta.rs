//! Modes, times, owners and extended attributes.

use std::os::fd::AsFd;

use rustix::fs::{Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::proto::Entry;

/// Longest list of names, and longest value.
const LONGEST: usize = 64 << 10;

/// Metadata that a copy keeps, besides contents and time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// All bits of the mode; otherwise the permissions that the umask leaves.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes, and so access control lists.
    pub attributes: bool,
    /// Hard links.
    pub links: bool,
}

/// Sets an entry's metadata on the file that was written.
///
/// # Errors
///
/// See fchown(2), fchmod(2), fsetxattr(2) and futimens(2).
pub fn set_facts(fd: impl AsFd, entry: &Entry, keep: Keep) -> Result<(), Errno> {
    let fd = fd.as_fd();
    let mut owns = true;
    if keep.owner {
        let (user, group) = (Uid::from_raw(entry.owner.0), Gid::from_raw(entry.owner.1));
        match rustix::fs::fchown(fd, Some(user), Some(group)) {
            // Only root may give files away.
            Err(Errno::PERM) => owns = false,
            set => set?,
        }
    } else {
        owns = rustix::process::geteuid().as_raw() == entry.owner.0;
    }
    if keep.attributes {
        for (name, value) in &entry.attributes {
            match rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty()) {
                // The file system has none, or the name is root's.
                Err(Errno::OPNOTSUPP | Errno::PERM) => {}
                set => set?,
            }
        }
    }
    if keep.mode {
        // Set-user-ID and set-group-ID stand for the source's owner.
        let mask = if owns { 0o7777 } else { 0o1777 };
        rustix::fs::fchmod(fd, Mode::from_raw_mode(u32::from(entry.mode) & mask))?;
    }
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let modified = Timespec { tv_sec: entry.modified.0, tv_nsec: entry.modified.1.min(999_999_999).into() };
    rustix::fs::futimens(fd, &Timestamps { last_access: omit, last_modification: modified })
}

/// Extended attributes of a file; those that cannot be read are left out.
pub fn read_attributes(fd: impl AsFd) -> Vec<(Vec<u8>, Vec<u8>)> {
    let fd = fd.as_fd();
    let mut names = vec![0; LONGEST];
    let length = rustix::fs::flistxattr(fd, names.as_mut_slice()).unwrap_or_default();
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; LONGEST];
        if let Ok(length) = rustix::fs::fgetxattr(fd, name, value.as_mut_slice()) {
            value.truncate(length);
            found.push((name.to_vec(), value));
        }
    }
    found
}
