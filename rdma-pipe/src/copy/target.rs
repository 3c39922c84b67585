//! The destination of a copy.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use crate::error::{Error, Kind, Result, escape};
use crate::proto::Folder;
use crate::standard::Standard;
use crate::tree::{Directory, base_name, own_stream};

/// The destination of a copy.
#[derive(Debug)]
pub enum Target {
    /// Creates entries in a directory.
    Inside(Inside),
    /// Writes a single file directly to the device or pipe of this path, which is opened when the file comes: a special
    /// file takes the place of another one, which may block if it is opened.
    Device(OnceLock<File>, PathBuf),
}

/// A directory in which entries are created.
#[derive(Clone, Debug)]
pub struct Inside {
    /// The directory.
    pub root: Arc<Directory>,
    /// The name that the single entry gets.
    pub name: Option<Name>,
    /// Given if the directory itself becomes the copy of a source, instead of containing it.
    pub top: Option<Top>,
}

/// The name for the copy of a single source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The last component of the destination.
    pub name: Vec<u8>,
    /// Whether a slash follows it, so that only a directory can have the name.
    pub is_directory: bool,
}

impl Name {
    /// The name of a path; `None` if the path has none, or stands for the entries of a directory.
    fn of(path: &Path) -> Option<Name> {
        let is_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        base_name(path).map(|name| Name { name, is_directory })
    }
}

/// A destination that becomes the copy of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top {
    /// Whether this copy has created it, so that it gets the permissions of the source.
    pub is_new: bool,
}

impl Folder {
    /// Opens the directory.
    ///
    /// # Errors
    ///
    /// See [`Directory::of_tree`].
    pub(super) fn open(&self, root: &Arc<Directory>) -> std::result::Result<Arc<Directory>, Errno> {
        match self.path.as_slice() {
            _ if self.is_lost => Err(Errno::NOENT),
            b"" => Ok(Arc::clone(root)),
            path => root.of_tree(path).map(|directory| Arc::new(directory.new_if(self.is_new))),
        }
    }
}

impl Target {
    fn inside(root: Directory, name: Option<Name>, top: Option<Top>) -> Target {
        Target::Inside(Inside { root: Arc::new(root), name, top })
    }

    /// Opens the destination that the operator named. If it is a directory, the sources are copied into it; any other
    /// path is the name for the copy of a single source. If `contents` is set, the contents of the sources are copied,
    /// and the directory is created if it is missing. A dry run creates nothing.
    ///
    /// # Errors
    ///
    /// The directory does not exist, or several sources require a directory.
    pub fn open(path: &Path, sources: usize, contents: bool, dry_run: bool) -> Result<Target> {
        let cannot = |error: Errno| Error::file("write to", path, &error.into());
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let mut is_new = false;
        if contents && dry_run {
            if let Err(Errno::NOENT) = rustix::fs::stat(path) {
                path.parent().map(Directory::open).transpose().map_err(cannot)?;
                let directory = Directory::without_path()?;
                return Ok(Target::inside(directory, None, Some(Top { is_new })));
            }
        } else if contents {
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o777)) {
                Ok(()) => is_new = true,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(cannot(error)),
            }
        }
        if let Some(stream) = own_stream(path) {
            return Ok(Target::Device(OnceLock::from(File::from(stream?)), path.to_owned()));
        }
        match rustix::fs::stat(path).map(|found| FileType::from_raw_mode(found.st_mode)) {
            Ok(FileType::Directory) => {
                let directory = Directory::open(path).map_err(cannot)?;
                Ok(Target::inside(directory, None, contents.then_some(Top { is_new })))
            }
            _ if contents || sources > 1 || base_name(path).is_none() => {
                let text = format!("cannot write to {}: not a directory; create it first", escape(path));
                Err(Error::new(Kind::File, text))
            }
            // As with cp, a link that leads nowhere is no directory yet.
            Err(Errno::NOENT) if path.as_os_str().as_encoded_bytes().ends_with(b"/") && path.is_symlink() => {
                Err(cannot(Errno::NOTDIR))
            }
            Ok(FileType::RegularFile) | Err(Errno::NOENT) => Target::named(path),
            Ok(_) => Ok(Target::Device(OnceLock::new(), path.to_owned())),
            Err(error) => Err(cannot(error)),
        }
    }

    /// Opens a destination below a directory. Links on the path must not lead out of it, and devices are not supported.
    ///
    /// # Errors
    ///
    /// See [`Target::open`].
    pub fn open_beneath(
        root: &Directory,
        path: &Path,
        sources: usize,
        contents: bool,
        dry_run: bool,
    ) -> Result<Target> {
        let cannot = |error: Errno| match error {
            Errno::XDEV => {
                Error::new(Kind::File, format!("cannot write to {}: it leads out of the root", escape(path)))
            }
            error => Error::file("write to", path, &error.into()),
        };
        let bytes = path.as_os_str().as_encoded_bytes();
        let (parent, name) = (path.parent().unwrap_or(Path::new("")), base_name(path));
        let parent = || {
            let parent = below(parent.as_os_str().as_encoded_bytes());
            root.beneath(parent).map_err(cannot)
        };
        let is_new = match &name {
            Some(name) if contents && !dry_run => parent()?.make(name, 0o777).map_err(cannot)?,
            _ => false,
        };
        match (root.beneath(below(bytes)), name) {
            (Err(Errno::NOENT), Some(_)) if contents && dry_run => {
                parent()?;
                let directory = Directory::without_path()?;
                Ok(Target::inside(directory, None, Some(Top { is_new })))
            }
            (Ok(directory), _) => Ok(Target::inside(directory, None, contents.then_some(Top { is_new }))),
            (Err(Errno::NOENT | Errno::NOTDIR), Some(_)) if sources == 1 && !contents => {
                Ok(Target::inside(parent()?, Name::of(path), None))
            }
            (Err(error), _) => Err(cannot(error)),
        }
    }

    /// Rejects `/dev/stdout` and other names of the streams through which this process talks to its starter.
    ///
    /// # Errors
    ///
    /// The destination is one of these streams.
    pub fn refuse_own_streams(&self) -> Result<()> {
        let Target::Device(_, path) = self else { return Ok(()) };
        let same = |stream: BorrowedFd<'_>| {
            let (ours, theirs) = (rustix::fs::stat(path)?, rustix::fs::fstat(stream)?);
            Ok::<_, Errno>((ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino))
        };
        let streams = [Standard::Input, Standard::Output].map(Standard::duplicate);
        if streams.iter().flatten().any(|stream| same(stream.as_fd()).unwrap_or(false)) {
            let text = format!("cannot write to {}: rdcp uses this stream on that host; use rdpipe", escape(path));
            return Err(Error::new(Kind::File, text));
        }
        Ok(())
    }

    /// Whether bytes may have been written that no other connection can send again.
    pub fn has_begun(&self) -> bool {
        matches!(self, Target::Device(file, _) if file.get().is_some())
    }

    /// The entry of a device that was not opened, for what takes its place; `None` if the target is another one.
    pub fn name_of_device(&self) -> Option<Result<Target>> {
        let Target::Device(file, path) = self else { return None };
        file.get().is_none().then(|| Target::named(path))
    }

    /// The entry of this path, for the copy of a single source.
    ///
    /// # Errors
    ///
    /// The directory cannot be opened.
    pub fn named(path: &Path) -> Result<Target> {
        let name = Name::of(path);
        // If the path is a link to a file, the link is kept and its target is replaced.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let parent = path.parent().unwrap_or(Path::new("."));
        let directory = Directory::open(parent).map_err(|error| Error::file("write to", parent, &error.into()))?;
        let is_directory = name.is_some_and(|name| name.is_directory);
        let name = base_name(&path).ok_or_else(|| Error::file("write to", &path, &Errno::INVAL.into()))?;
        Ok(Target::inside(directory, Some(Name { name, is_directory }), None))
    }
}

/// Returns a path relative to a root; `/` is the root itself.
pub fn below(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    if start == path.len() { b"." } else { &path[start..] }
}
