//! Files without a name (`O_TMPFILE`). If a copy is interrupted, nothing of them remains.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::Directory;

impl Directory {
    /// Creates a file without a name on the file system of this directory.
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

    /// Gives a file without a name this one.
    ///
    /// # Errors
    ///
    /// See linkat(2); `EEXIST` if the name belongs to another entry.
    pub fn give_name(&self, fd: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let name = OsStr::from_bytes(name);
        match rustix::fs::linkat(fd, "", &self.fd, name, AtFlags::EMPTY_PATH) {
            // Linux before 6.10 allows this to root only.
            Err(Errno::NOENT) => {
                let own = format!("/proc/self/fd/{}", fd.as_raw_fd());
                rustix::fs::linkat(CWD, own, &self.fd, name, AtFlags::SYMLINK_FOLLOW)
            }
            linked => linked,
        }
    }
}
