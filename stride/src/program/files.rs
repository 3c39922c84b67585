//! Output files. A file may already be open, for example as standard output or standard error.

use std::fs::{self, File, Metadata};
use std::io::{self, Write, stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// Checks that a file can be written. Called before a test, which may take long. Does not change the contents of the
/// file.
pub(super) fn can_be_written(file: &Path) -> Result<()> {
    if is_open(file) {
        return Ok(());
    }
    // A symbolic link counts as an existing file even if its target does not exist, so it is not removed below.
    let is_there = file.symlink_metadata().is_ok();
    let opened = File::options().append(true).create(true).open(file);
    opened.with_context(|| format!("cannot write {}", file.display()))?;
    if !is_there {
        // Removes the file that the check has created. The file is created again when the results are written.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// Creates an output file and truncates it. If the file is already open, writes are appended to it instead, because it
/// may contain other data.
pub(super) fn create(file: &Path) -> io::Result<File> {
    let (mut out, mut err) = (stdout(), stderr());
    if let Ok(there) = fs::metadata(file) {
        if is_same(&there, out.as_fd()) {
            out.flush()?;
            return Ok(out.as_fd().try_clone_to_owned()?.into());
        }
        if is_same(&there, err.as_fd()) {
            err.flush()?;
            return Ok(err.as_fd().try_clone_to_owned()?.into());
        }
    }
    if is_descriptor(file) { File::options().append(true).open(file) } else { File::create(file) }
}

/// Whether the process inherited a descriptor of the file.
pub(super) fn is_open(file: &Path) -> bool {
    let is_either = |there: Metadata| is_same(&there, stdout().as_fd()) || is_same(&there, stderr().as_fd());
    is_descriptor(file) || fs::metadata(file).is_ok_and(is_either)
}

/// Whether a descriptor refers to this file.
fn is_same(file: &Metadata, descriptor: BorrowedFd<'_>) -> bool {
    let opened = descriptor.try_clone_to_owned().and_then(|descriptor| File::from(descriptor).metadata());
    opened.is_ok_and(|opened| (opened.dev(), opened.ino()) == (file.dev(), file.ino()))
}

/// Whether a name refers to a descriptor of this process, as `/dev/fd/3`, `/dev/stdout` and the targets of these links
/// do.
fn is_descriptor(file: &Path) -> bool {
    let plain: PathBuf = file.components().filter(|part| *part != Component::CurDir).collect();
    let is_number = |name: &Path| {
        let name = name.to_str().unwrap_or_default();
        !name.is_empty() && name.bytes().all(|digit| digit.is_ascii_digit())
    };
    let folders = ["/dev/fd", "/proc/self/fd"];
    folders.into_iter().any(|folder| plain.strip_prefix(folder).is_ok_and(is_number))
        || ["/dev/stdout", "/dev/stderr"].map(Path::new).contains(&plain.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_names_are_recognized() {
        for name in ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/./fd/63", "/proc/self/fd/2"] {
            assert!(is_descriptor(Path::new(name)), "{name}");
        }
        for name in ["/dev/null", "/dev/fd", "/dev/fd/x", "/dev/fd/1/x", "stdout", "fd/1", "/proc/self/fd/"] {
            assert!(!is_descriptor(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn created_file_is_truncated() {
        let folder = sideway_test_names::Folder::new();
        let file = folder.join("created");
        fs::write(&file, "old and long").unwrap();
        can_be_written(&file).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old and long");
        create(&file).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        fs::remove_file(&file).unwrap();
        can_be_written(&file).unwrap();
        assert!(!file.exists() && !is_open(&file));
    }
}
