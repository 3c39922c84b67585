//! Walks the entries of a source.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use twox_hash::xxhash3_128;

use super::ancestry::Ancestry;
use super::filter::Filter;
use super::meta::{Keep, read_attributes};
use super::origin::Origin;
use super::partial::entry_of;
use crate::error::Error;
use crate::proto::{Entry, EntryKind, Id, Special};

/// The length in bytes above which a list ends, so that most lists fit into a message of several frames.
const BATCH: usize = 12 << 10;
/// The length in bytes of an entry without its name, target and attributes, as a frame encodes it: about.
const ENTRY: usize = 32;
/// Maximum length in bytes of the extended attributes of an entry.
const ATTRIBUTES: usize = 2 << 20;

/// The location of an entry on this host.
#[derive(Clone, Debug)]
pub struct Place {
    /// The entry's directory.
    pub directory: Arc<PathBuf>,
    /// Path of the directory below the destination.
    pub below: Arc<Vec<u8>>,
    /// Whether the entry is an operand that may be a link to what is copied.
    pub follows: bool,
}

/// A list of some or all entries of a directory.
#[derive(Debug)]
pub struct Listing {
    /// The location of the entries.
    pub place: Place,
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether this is the last list of the directory, and all entries of the directory could be read.
    pub whole: bool,
}

/// How a walk reads entries.
#[derive(Debug)]
pub struct Walk<'o> {
    /// Resolves paths.
    pub origin: &'o Origin,
    /// The filter of entries.
    pub filter: Filter,
    /// Metadata to read in addition to contents and time.
    pub keep: Keep,
    /// Whether to walk directories; if false, a directory is an error.
    pub recursive: bool,
    /// Whether to hash contents.
    pub sums: bool,
    /// The entries that the copy writes. They may be below the source, also by a mount, and are not copied into
    /// themselves.
    pub into: Vec<Ancestry>,
    /// The numbers of the files that have several hard links, by device and inode.
    links: HashMap<(u64, u64), Id>,
}

impl Place {
    /// Returns the path of an entry.
    pub fn path(&self, name: &[u8]) -> PathBuf {
        self.directory.join(OsStr::from_bytes(name))
    }
}

impl Walk<'_> {
    /// Starts a walk.
    pub fn new(origin: &Origin, filter: Filter, keep: Keep, recursive: bool, sums: bool) -> Walk<'_> {
        Walk { origin, filter, keep, recursive, sums, into: Vec::new(), links: HashMap::new() }
    }

    /// Reads an entry by its path. `id` is the number that the entry will have, and `below` its path below the
    /// destination, with which patterns are compared if it is given. `None` if a pattern excludes the entry.
    ///
    /// # Errors
    ///
    /// The entry cannot be read, or its type is not copied.
    pub fn entry(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        (id, below): (Id, Option<&[u8]>),
        follows: bool,
    ) -> Result<Option<Entry>, Error> {
        let found = self.origin.stat(path, follows).map_err(|error| Error::file("read", path, &error.into()))?;
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        if below.is_some_and(|below| !self.filter.allows(below, is_directory)) {
            return Ok(None);
        }
        self.entry_of(path, name, &found, id, follows).map(Some)
    }

    fn entry_of(&mut self, path: &Path, name: Vec<u8>, found: &Stat, id: Id, follows: bool) -> Result<Entry, Error> {
        let cannot = |error: Errno| Error::file("read", path, &error.into());
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory if self.recursive => EntryKind::Directory,
            FileType::Directory => {
                let text = format!("{} is a directory; copy it with -r", crate::error::escape(path));
                return Err(Error::new(crate::error::Kind::File, text));
            }
            FileType::Symlink => EntryKind::Link(self.origin.read_link(path).map_err(cannot)?),
            FileType::RegularFile => self.file(path, found, follows)?,
            FileType::Fifo => self.special(Special::Fifo, found),
            FileType::Socket => self.special(Special::Socket, found),
            FileType::CharacterDevice => self.special(Special::Character(found.st_rdev), found),
            FileType::BlockDevice => self.special(Special::Block(found.st_rdev), found),
            FileType::Unknown => {
                let text = format!("cannot copy {}: it has an unknown type", crate::error::escape(path));
                return Err(Error::new(crate::error::Kind::File, text));
            }
        };
        let mut attributes = Vec::new();
        let is_bare = || self.origin.has_no_attributes(path, follows);
        if self.keep.attributes && !matches!(kind, EntryKind::Same(_)) && !is_bare() {
            let flags = match kind {
                // To open a device may have an effect.
                EntryKind::Link(_) | EntryKind::Special { .. } => OFlags::PATH | OFlags::CLOEXEC,
                _ => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            };
            // An entry without its attributes would remove those of the copy, also if it is not read because the copy has
            // the same contents.
            let fd = self.origin.open(path, flags, follows).map_err(cannot)?;
            attributes = read_attributes(fd).map_err(|error| {
                let what = "read the attributes of";
                match error {
                    Errno::NOENT => Error::file(what, path, &std::io::Error::other("/proc is not mounted")),
                    error => Error::file(what, path, &error.into()),
                }
            })?;
            let length = lengths(&attributes);
            if length > ATTRIBUTES {
                let text = format!(
                    "cannot copy {}: its extended attributes have {length} bytes, more than {ATTRIBUTES}",
                    crate::error::escape(path)
                );
                return Err(Error::new(crate::error::Kind::File, text));
            }
        }
        // Only an entry that is listed gets its number.
        if matches!(kind, EntryKind::File { has_links: true, .. } | EntryKind::Special { has_links: true, .. }) {
            self.links.insert((found.st_dev, found.st_ino), id);
        }
        let (mode, owner) = ((found.st_mode & 0o7777) as u16, (found.st_uid, found.st_gid));
        Ok(Entry { name, kind, mode, owner, modified: facts(found).1, attributes })
    }

    /// Whether this entry of a directory is one that the copy writes.
    fn is_written(&self, directory: Result<Stat, Errno>, name: &[u8], found: &Stat) -> bool {
        let is_made = |into: &Ancestry| directory.is_ok_and(|directory| into.is_made_in(&directory, name));
        let is = |into: &Ancestry| into.is(found) || is_made(into);
        FileType::from_raw_mode(found.st_mode).is_dir() && self.into.iter().any(is)
    }

    fn file(&self, path: &Path, found: &Stat, follows: bool) -> Result<EntryKind, Error> {
        let has_links = self.keep.links && found.st_nlink > 1;
        if has_links && let Some(known) = self.links.get(&(found.st_dev, found.st_ino)) {
            return Ok(EntryKind::Same(*known));
        }
        let sum = if self.sums { Some(sum(self.origin, path, follows)?) } else { None };
        Ok(EntryKind::File { size: facts(found).0, has_links, sum })
    }

    fn special(&self, kind: Special, found: &Stat) -> EntryKind {
        let has_links = self.keep.links && self.keep.specials && found.st_nlink > 1;
        match self.links.get(&(found.st_dev, found.st_ino)).filter(|_| has_links) {
            Some(known) => EntryKind::Same(*known),
            None => EntryKind::Special { kind, has_links },
        }
    }

    /// Lists a directory in parts. The first entry gets the number `next`. Each part is passed to `take`, which returns
    /// the number that the first entry of this part has got. Failed entries are passed to `failed`. If the directory
    /// changes or cannot be read, its last part is not `whole`.
    pub fn list(
        &mut self,
        directory: &Path,
        below: &[u8],
        mut next: Id,
        mut take: impl FnMut(Listing) -> Result<Id, Error>,
        mut failed: impl FnMut(Error),
    ) -> Result<(), Error> {
        let place =
            Place { directory: Arc::new(directory.to_owned()), below: Arc::new(below.to_vec()), follows: false };
        let (dir, names) = match names(self.origin, directory) {
            Ok(found) => found,
            Err(error) => {
                failed(Error::file("read", directory, &error.into()));
                return take(Listing { place, entries: Vec::new(), whole: false }).map(drop);
            }
        };
        let own = dir.fd().and_then(rustix::fs::fstat);
        let into_itself = |path: &Path| {
            let text = format!("cannot copy {} into itself, the destination", crate::error::escape(path));
            Error::new(crate::error::Kind::File, text)
        };
        if own.is_ok_and(|own| self.into.iter().any(|into| into.is(&own))) {
            failed(into_itself(directory));
            return take(Listing { place, entries: Vec::new(), whole: false }).map(drop);
        }
        let (mut entries, mut length, mut whole) = (Vec::new(), 0, true);
        // Files that an interrupted copy has left are no contents of the tree.
        for name in &names {
            let path = place.path(name);
            // A name is resolved in the open directory, which is faster than a path.
            let found = dir.fd().and_then(|fd| rustix::fs::statat(fd, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW));
            let is_directory = found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir());
            if !is_directory && entry_of(name, &names).is_some() {
                continue;
            }
            if !self.filter.is_empty() {
                let relative = if below.is_empty() { name.clone() } else { [below, b"/", name].concat() };
                if !self.filter.allows(&relative, is_directory) {
                    continue;
                }
            }
            let entry = match found {
                Ok(found) if self.is_written(own, name, &found) => Err(into_itself(&path)),
                Ok(found) => self.entry_of(&path, name.clone(), &found, next + entries.len() as Id, false),
                Err(error) => Err(Error::file("read", &path, &error.into())),
            };
            match entry {
                Ok(entry) => {
                    length += size(&entry);
                    entries.push(entry);
                }
                Err(error) => {
                    whole = false;
                    failed(error);
                }
            }
            if length > BATCH {
                let count = entries.len() as Id;
                length = 0;
                next = take(Listing { place: place.clone(), entries: std::mem::take(&mut entries), whole: false })?
                    + count;
            }
        }
        take(Listing { place, entries, whole }).map(drop)
    }
}

/// About the length of an entry in a frame.
fn size(entry: &Entry) -> usize {
    let target = if let EntryKind::Link(target) = &entry.kind { target.len() } else { 0 };
    ENTRY + entry.name.len() + target + lengths(&entry.attributes)
}

fn lengths(attributes: &[(Vec<u8>, Vec<u8>)]) -> usize {
    attributes.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Opens a directory. Also returns the names of its entries, which are sorted so that each run lists them in the same
/// order.
pub(crate) fn names(origin: &Origin, directory: &Path) -> Result<(Dir, Vec<Vec<u8>>), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = Dir::new(origin.open(directory, flags, true)?)?;
    let mut names = Vec::new();
    for entry in &mut dir {
        let name = entry?.file_name().to_owned().into_bytes();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok((dir, names))
}

/// Returns the size and time of a file.
pub fn facts(found: &Stat) -> (u64, (i64, u32)) {
    (found.st_size as u64, (found.st_mtime, found.st_mtime_nsec as u32))
}

fn sum(origin: &Origin, path: &Path, follows: bool) -> Result<u128, Error> {
    let cannot = |error: std::io::Error| Error::file("read", path, &error);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = origin.open(path, flags, follows).map_err(|error| cannot(error.into()))?;
    let found = rustix::fs::fstat(&fd).map_err(|error| cannot(error.into()))?;
    if !FileType::from_raw_mode(found.st_mode).is_file() {
        return Err(cannot(Errno::INVAL.into()));
    }
    sum_of(&mut std::fs::File::from(fd)).map_err(cannot)
}

/// Computes the XXH3-128 of the contents of a file.
pub(crate) fn sum_of(file: &mut impl std::io::Read) -> std::io::Result<u128> {
    let mut hasher = xxhash3_128::Hasher::new();
    let mut bytes = vec![0; 256 << 10];
    loop {
        match file.read(&mut bytes) {
            Ok(0) => return Ok(hasher.finish_128()),
            Ok(count) => hasher.write(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The last component of a path, without slashes at its end; empty for `/`.
fn last(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    path[..end].rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Whether an operand stands for the entries of a directory instead of the directory itself, as with cp and rsync: `.`,
/// `..` and `/` do, and paths that end in these, and with `--sync` all that end in a slash.
pub(crate) fn is_contents(path: &[u8], sync: bool) -> bool {
    matches!(last(path), b"" | b"." | b"..") || (sync && path.ends_with(b"/"))
}

/// Returns the last component of a path; `None` for paths that have no name, such as `.`.
pub(crate) fn base_name(path: &Path) -> Option<Vec<u8>> {
    let name = last(path.as_os_str().as_bytes());
    if is_contents(name, false) { None } else { Some(name.to_vec()) }
}
