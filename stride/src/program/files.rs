//! Output files. A file may already be open, for example as standard output or standard error.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Write, stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::report::{bytes_in_words, text};

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

/// The errors with which a folder refuses another file.
const REFUSALS: [ErrorKind; 4] =
    [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem, ErrorKind::ResourceBusy, ErrorKind::NotFound];

/// Replaces the contents of an output file at once, so that a failed write leaves an existing file as it is. If the file
/// is open, is not a regular file, or is in a folder that refuses another file, the data is written as to the file of
/// [`create`].
pub(super) fn replace(file: &Path, contents: &[u8]) -> Result<()> {
    let cannot = || format!("cannot write {}", file.display());
    let in_place = || create(file).and_then(|mut file| file.write_all(contents)).with_context(cannot);
    // The target of a symbolic link is replaced, and the link is kept.
    let target = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let there = target.symlink_metadata().ok();
    if is_open(file) || there.as_ref().is_some_and(|there| !there.is_file()) {
        return in_place();
    }
    let part = part_of(&target);
    let written = File::create_new(&part).and_then(|mut out| {
        out.write_all(contents)?;
        there.as_ref().map_or(Ok(()), |there| out.set_permissions(there.permissions()))?;
        fs::rename(&part, &target)
    });
    let Err(error) = written else { return Ok(()) };
    // Ignores the error, because the error of the write is reported.
    let _ = fs::remove_file(&part);
    if there.is_some() && REFUSALS.contains(&error.kind()) {
        return in_place();
    }
    Err(error).with_context(cannot)
}

/// Returns the name of the file in which new contents of a file are prepared. It is short, because that of the file may
/// have the maximum length.
fn part_of(file: &Path) -> PathBuf {
    file.with_file_name(format!(".stride-perf.{}.part", std::process::id()))
}

/// Maximum length of an input file in bytes.
const LONGEST: u64 = 64 << 20;

/// Reads the text of a file with the results of a run.
pub(super) fn read(file: &Path) -> Result<String> {
    let cannot = || format!("cannot read {}", file.display());
    let mut bytes = Vec::new();
    File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes)).with_context(cannot)?;
    ensure!(bytes.len() as u64 <= LONGEST, "{} has more than {}", file.display(), bytes_in_words(LONGEST));
    text(bytes).with_context(cannot)
}

/// Checks that an output file is none of the input files, which it would replace.
pub(super) fn is_no_input(output: &Path, inputs: &[PathBuf]) -> Result<()> {
    let file = |file: &Path| fs::metadata(file).ok().filter(Metadata::is_file).map(|there| (there.dev(), there.ino()));
    let is_it = |input: &&PathBuf| file(output).is_some_and(|output| file(input) == Some(output));
    match inputs.iter().find(is_it) {
        Some(input) => bail!("{} would replace the input {}; give another --output", output.display(), input.display()),
        None => Ok(()),
    }
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
    fn failed_replacement_keeps_the_file() {
        let folder = sideway_test_names::Folder::new();
        let file = folder.join("page");
        replace(&file, b"old").unwrap();
        fs::create_dir(part_of(&file)).unwrap();
        assert!(replace(&file, b"new").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        fs::remove_dir(part_of(&file)).unwrap();
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), link.is_symlink()), ("new", true));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        let long = folder.join("n".repeat(255));
        replace(&long, b"long").unwrap();
        assert_eq!(fs::read_to_string(&long).unwrap(), "long");
    }

    #[test]
    fn target_of_a_link_is_replaced_at_once() {
        let folder = sideway_test_names::Folder::new();
        let [file, link] = ["page", "link"].map(|name| folder.join(name));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let old = File::open(&file).unwrap();
        replace(&link, b"new").unwrap();
        assert_ne!(old.metadata().unwrap().ino(), fs::metadata(&file).unwrap().ino());
        assert_eq!(io::read_to_string(old).unwrap(), "old");
    }

    #[test]
    fn file_in_a_folder_that_refuses_others_is_written() {
        // The name of this thread is in a folder that refuses other files even to root.
        let name = Path::new("/proc/thread-self/comm");
        replace(name, b"renamed").unwrap();
        assert_eq!(fs::read_to_string(name).unwrap(), "renamed\n");
    }

    #[test]
    fn long_input_is_an_error() {
        let folder = sideway_test_names::Folder::new();
        let file = folder.join("long");
        File::create(&file).unwrap().set_len(LONGEST + 1).unwrap();
        assert!(read(&file).unwrap_err().to_string().ends_with("long has more than 64 MiB"));
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
