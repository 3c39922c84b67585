//! Allows one builder at a time in `target/softroce`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};

/// Holds the lock of a folder until it is dropped; the system also releases the lock when the process dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock, with a message if it has to wait for another process.
    pub(crate) fn take(folder: &Path) -> Result<Self> {
        let path = folder.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        if !flock(&file, libc::LOCK_EX | libc::LOCK_NB) {
            eprintln!("softroce: another run is preparing; waiting for it");
            while !flock(&file, libc::LOCK_EX) {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error).with_context(|| format!("cannot lock {}", path.display()));
                }
            }
        }
        Ok(Self { _file: file })
    }
}

fn flock(file: &File, operation: i32) -> bool {
    // SAFETY: `file` is an open descriptor for the whole call, and flock accesses no memory of ours.
    unsafe { libc::flock(file.as_raw_fd(), operation) == 0 }
}
