//! Copies files and trees over a connection. The threads of both sides drive the state machines of [`crate::proto`].

mod chain;
mod limiter;
mod list;
mod options;
mod progress;
mod read;
mod shared;
mod sink;
mod source;
mod target;
mod writer;

pub use options::CopyOptions;
pub use progress::Progress;
pub use sink::{give_back_permissions, receive};
pub use source::send;
pub use target::{Target, below};

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};

use crate::error::{Error, Kind, Result, escape};
use crate::proto::Totals;
use crate::tree::{Ancestry, Origin, base_name, entry_of, names, place};

/// Rejects sources if two of their entries would become the same entry of the destination.
///
/// # Errors
///
/// Two sources have the same name, or contain entries with the same name.
pub fn check_names(origin: &Origin, paths: &[PathBuf], options: &CopyOptions) -> Result<()> {
    if paths.len() < 2 {
        return Ok(());
    }
    let mut known = HashSet::new();
    for path in paths {
        let names = match options.is_contents(path.as_os_str().as_encoded_bytes()) {
            // The copy reports a source that cannot be read.
            true => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let names = origin.open(path, flags, true).and_then(names);
                names.map(|(_, names)| names).unwrap_or_default()
            }
            false => base_name(path).into_iter().collect(),
        };
        let all = names.clone();
        for name in names
            .into_iter()
            .filter(|name| entry_of(name, &all).is_none())
            .filter(|name| options.filter.allows(name, false) || options.filter.allows(name, true))
        {
            if let Some(name) = known.replace(name) {
                let name = escape(String::from_utf8_lossy(&name).as_ref().as_ref());
                let text = format!("several sources have the name {name}; copy them to different directories");
                return Err(Error::new(Kind::Usage, text));
            }
        }
    }
    Ok(())
}

/// Rejects sources that the copy would copy to themselves or into themselves, as cp does. The destination is on the
/// sources' host.
///
/// # Errors
///
/// A source is the entry that the copy would write, or a directory that contains it.
pub fn check_itself(paths: &[PathBuf], destination: &Path, options: &CopyOptions) -> Result<()> {
    for path in paths {
        let contents = options.is_contents(path.as_os_str().as_encoded_bytes());
        let name = base_name(path).filter(|_| !contents);
        let written = match name.as_ref().filter(|_| destination.is_dir()) {
            Some(name) => destination.join(OsStr::from_bytes(name)),
            None => destination.to_owned(),
        };
        let is_link = options.recursive && path.is_symlink();
        let (source, into) = if is_link {
            let lexical = |path: &Path| Some(place(path.parent()?)?.join(path.file_name()?));
            (lexical(path), lexical(&written))
        } else {
            (place(path), place(&written))
        };
        let (Some(source), Some(into)) = (source, into) else { continue };
        let inode = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
        let is_same = source == into || (!is_link && source.is_file() && inode(&source) == inode(&into));
        // With --sync, a file that is the same is skipped.
        if is_same && !(options.sync && source.is_file() && !written.is_symlink()) {
            let text = format!("{} and {} are the same file", escape(path), escape(&written));
            return Err(Error::new(Kind::Usage, text));
        }
        if let Some(into) = Ancestry::of(&into) {
            check_inside(&Origin::default(), path, &into, &escape(&written), options)?;
        }
    }
    Ok(())
}

/// Rejects sources that the copy would copy into themselves, if the destination may be on another host: the two names
/// may mean one host.
///
/// # Errors
///
/// A source is a directory that contains the destination.
pub fn check_ancestry(origin: &Origin, paths: &[PathBuf], options: &CopyOptions) -> Result<()> {
    for path in paths {
        written(path, options).try_for_each(|into| check_inside(origin, path, &into, "the destination", options))?;
    }
    Ok(())
}

/// The entries that a source becomes, at the destinations that are known.
fn written(path: &Path, options: &CopyOptions) -> impl Iterator<Item = Ancestry> {
    let contents = options.is_contents(path.as_os_str().as_encoded_bytes());
    let name = base_name(path).filter(|_| !contents);
    options.into.iter().map(move |into| into.clone().entry(name.as_deref()))
}

fn check_inside(origin: &Origin, path: &Path, into: &Ancestry, written: &str, options: &CopyOptions) -> Result<()> {
    let contents = options.is_contents(path.as_os_str().as_encoded_bytes());
    let found = origin.stat(path, contents || options.follows());
    let Some(found) = found.ok().filter(|found| FileType::from_raw_mode(found.st_mode).is_dir()) else {
        return Ok(());
    };
    let Some(inner) = into.below(&found) else { return Ok(()) };
    let name = base_name(path).filter(|_| !contents).unwrap_or_default();
    let below = Path::new(OsStr::from_bytes(&name)).join(inner);
    let is_excluded = below.ancestors().any(|path| {
        let path = path.as_os_str().as_bytes();
        !path.is_empty() && !options.filter.allows(path, true)
    });
    if options.files_from.is_none() && !is_excluded {
        let text = format!("cannot copy {} into itself, {written}", escape(path));
        return Err(Error::new(Kind::Usage, text));
    }
    Ok(())
}

/// The result of a copy that was not aborted.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Totals of the copy.
    pub totals: Totals,
    /// Bytes that this side sent or received.
    pub carried: u64,
    /// The entries that failed, and those that were skipped.
    pub failures: Vec<Error>,
}

impl Outcome {
    /// The exit status: 0, 24 if sources vanished or changed and nothing else failed, otherwise 23.
    pub fn status(&self) -> u8 {
        let kinds = self.failures.iter().map(Error::kind).filter(|kind| *kind != Kind::Skipped);
        match kinds.max_by_key(|kind| *kind != Kind::Vanished) {
            None => 0,
            Some(Kind::Vanished) => 24,
            Some(_) => 23,
        }
    }
}
