//! The permissions of files: those that a copy gets, and those that this user needs.

use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::OnceLock;

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;

use crate::proto::Entry;

/// The mode that a file gets. The set-user-ID bit is safe only if the copy has the user of the source, and the
/// set-group-ID bit only if it has the group. In a directory, they give no privilege.
pub(super) fn mode_for(found: &Stat, entry: &Entry) -> u32 {
    if FileType::from_raw_mode(found.st_mode).is_dir() {
        return u32::from(entry.mode) & 0o7777;
    }
    let user = if found.st_uid == entry.owner.0 { 0o4000 } else { 0 };
    let group = if found.st_gid == entry.owner.1 { 0o2000 } else { 0 };
    u32::from(entry.mode) & (0o1777 | user | group)
}

/// Lets the owner of a file write it, without which the owner cannot set its attributes; rsync does the same. Returns
/// false if the owner could not.
pub(super) fn writable(fd: impl AsFd) -> Result<bool, Errno> {
    let fd = fd.as_fd();
    let found = rustix::fs::fstat(fd)?;
    if found.st_mode & 0o200 != 0 || !needs_permissions(&found) {
        return Ok(true);
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(found.st_mode & 0o7777 | 0o200)).map(|()| false)
}

/// Whether this user owns an entry, and is limited by its permissions. Those of root are others in some containers.
pub(super) fn needs_permissions(found: &Stat) -> bool {
    static OVERRIDES: OnceLock<bool> = OnceLock::new();
    let overrides = || {
        let all = rustix::thread::capabilities(None);
        all.is_ok_and(|all| all.effective.contains(rustix::thread::CapabilitySet::DAC_OVERRIDE))
    };
    found.st_uid == rustix::process::geteuid().as_raw() && !OVERRIDES.get_or_init(overrides)
}

/// Sets the permissions of an open directory. `fd` may only stand for the directory (`O_PATH`), which fchmod(2) refuses.
pub(super) fn allow(fd: impl AsFd, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()), Mode::from_raw_mode(mode & 0o7777))
}
