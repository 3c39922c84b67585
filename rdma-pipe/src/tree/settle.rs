//! Finds out whether the file system has accepted the data of a file, and makes it write the data.

use std::os::fd::AsFd;

use rustix::fs::FileType;
use rustix::io::Errno;

/// File systems on which close(2) cannot fail, because written data is in the page cache of this host: ext4, xfs,
/// btrfs, tmpfs, overlayfs, ramfs, f2fs, ZFS.
const LOCAL: [u32; 8] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x8584_58f6, 0xf2f5_2010, 0x2fc1_2fc1];

/// Syncs a file, unless it is on a local file system. File systems such as NFS and FUSE report write errors only when a
/// file is closed or synced.
///
/// # Errors
///
/// See fdatasync(2).
pub fn settle(fd: impl AsFd) -> Result<(), Errno> {
    if is_local(&fd)? {
        return Ok(());
    }
    // Pipes and devices have nothing to sync.
    let is_file = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode).is_file();
    if is_file { rustix::fs::fdatasync(fd) } else { Ok(()) }
}

/// Whether an open file is on a file system on which close(2) cannot fail.
pub(super) fn is_local(fd: impl AsFd) -> Result<bool, Errno> {
    Ok(LOCAL.contains(&(rustix::fs::fstatfs(fd)?.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_report_late_are_asked() {
        let open = |path: &str| std::fs::File::options().write(true).open(path).unwrap();
        settle(open("/dev/null")).unwrap();
        settle(tempfile::tempfile().unwrap()).unwrap();
        // procfs does not support fdatasync(2), so the error proves that `settle` has called it.
        assert_eq!(settle(open("/proc/self/comm")), Err(Errno::INVAL));
    }
}
