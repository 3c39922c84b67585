//! The destination of a copy.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result, escape};
use crate::tree::{Directory, base_name};

/// The destination of a copy.
#[derive(Debug)]
pub enum Target {
    /// Entries are made in this directory. The only one gets the given name, if there is one. The flag states that the directory itself is
    /// the copy of the one source.
    Inside(Directory, Option<Vec<u8>>, bool),
    /// The one file is written to this device or pipe as it is.
    Device(OwnedFd, PathBuf),
}

impl Target {
    /// Opens the destination that the operator named: a directory gets the sources, anything else is the name of the one source's copy.
    /// `contents` are the contents of the sources, for which the directory is made.
    ///
    /// # Errors
    ///
    /// There is no such directory, or several sources need one.
    pub fn open(path: &Path, sources: usize, contents: bool) -> Result<Target> {
        let cannot = |error: Errno| Error::file("write to", path, &error.into());
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        if contents {
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(cannot(error)),
            }
        }
        match rustix::fs::stat(path).map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Directory) => {
                Ok(Target::Inside(Directory::open(path).map_err(cannot)?, None, contents && sources == 1))
            }
            _ if sources > 1 || path.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                let text = format!("cannot write to {}: not a directory; make it first", escape(path));
                Err(Error::new(Kind::File, text))
            }
            Ok(FileType::RegularFile) | Err(Errno::NOENT) => Target::named(path),
            Ok(_) => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                Ok(Target::Device(rustix::fs::open(path, flags, Mode::empty()).map_err(cannot)?, path.to_owned()))
            }
            Err(error) => Err(cannot(error)),
        }
    }

    fn named(path: &Path) -> Result<Target> {
        // A link to a file stays, and its target is replaced.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let parent = path.parent().unwrap_or(Path::new("."));
        let directory = Directory::open(parent).map_err(|error| Error::file("write to", parent, &error.into()))?;
        let name = base_name(&path).ok_or_else(|| Error::file("write to", &path, &Errno::INVAL.into()))?;
        Ok(Target::Inside(directory, Some(name), false))
    }
}
