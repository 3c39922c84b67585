//! Files without a name (`O_TMPFILE`). If a copy is interrupted, nothing of them remains.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
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
}
