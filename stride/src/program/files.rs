//! Files for results, some of which are open already: what standard output or standard error leads to.

use std::fs::{self, File, Metadata};
use std::io::{self, Write, stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// Whether a file can be written, before a long test has run for it. What it holds stays.
pub(super) fn can_be_written(file: &Path) -> Result<()> {
    if is_open(file) {
        return Ok(());
    }
    // Also a link to what is not there yet: what is removed below is no link.
    let is_there = file.symlink_metadata().is_ok();
    let opened = File::options().append(true).create(true).open(file);
    opened.with_context(|| format!("cannot write {}", file.display()))?;
    if !is_there {
        // It comes again with the results.
        let _ = fs::remove_file(file);
    }
    Ok(())
}

/// A file for results, in place of what it held. What is open already goes on where it is: others may have written to it before.
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

/// Whether it was opened by who has started the program.
pub(super) fn is_open(file: &Path) -> bool {
    let is_either = |there: Metadata| is_same(&there, stdout().as_fd()) || is_same(&there, stderr().as_fd());
    is_descriptor(file) || fs::metadata(file).is_ok_and(is_either)
}

/// Whether a descriptor leads to this file.
fn is_same(file: &Metadata, descriptor: BorrowedFd<'_>) -> bool {
    let opened = descriptor.try_clone_to_owned().and_then(|descriptor| File::from(descriptor).metadata());
    opened.is_ok_and(|opened| (opened.dev(), opened.ino()) == (file.dev(), file.ino()))
}

/// Whether a name is that of a descriptor of this process: `/dev/fd/3`, `/dev/stdout` and those that they stand for.
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
    fn descriptors_are_known_by_their_names() {
        for name in ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/./fd/63", "/proc/self/fd/2"] {
            assert!(is_descriptor(Path::new(name)), "{name}");
        }
        for name in ["/dev/null", "/dev/fd", "/dev/fd/x", "/dev/fd/1/x", "stdout", "fd/1", "/proc/self/fd/"] {
            assert!(!is_descriptor(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_file_of_its_own_loses_what_it_held() {
        let file = std::env::temp_dir().join(format!("stride-created-{}", std::process::id()));
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
