//! Walks the entries of a source.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use twox_hash::xxhash3_128;

use super::ancestry::Ancestry;
use super::attributes::read_attributes;
use super::filter::Filter;
use super::keep::{Keep, facts};
use super::origin::{At, Branch, LOOK, Origin};
use super::partial::entry_of;
use crate::error::{Error, Kind, escape};
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
    pub directory: Arc<Branch>,
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
    /// The directories among them, each numbered by its position.
    pub folders: Vec<Pending>,
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
        self.directory.path().join(OsStr::from_bytes(name))
    }
}

/// A directory that was listed, and is not read yet.
#[derive(Debug)]
pub struct Pending {
    /// Where it is.
    pub branch: Branch,
    /// Its entry, unless the operator has named it for its contents.
    pub entry: Option<Entry>,
    /// Its path below the destination.
    pub below: Vec<u8>,
    /// Its number.
    pub id: Id,
}

impl Listing {
    /// A part of a directory, which contains no directories that are read later.
    pub fn of(place: Place, entries: Vec<Entry>) -> Listing {
        Listing { place, entries, folders: Vec::new(), whole: false }
    }
}

impl Walk<'_> {
    /// Starts a walk.
    pub fn new(origin: &Origin, filter: Filter, keep: Keep, recursive: bool, sums: bool) -> Walk<'_> {
        Walk { origin, filter, keep, recursive, sums, into: Vec::new(), links: HashMap::new() }
    }

    /// Reads an operand. `id` is the number that the entry will have, and `below` its path below the destination, with
    /// which patterns are compared if it is given. `None` if a pattern excludes the entry.
    ///
    /// # Errors
    ///
    /// The entry cannot be read, or its type is not copied.
    pub fn operand(
        &mut self,
        path: &Path,
        name: Vec<u8>,
        id: Id,
        below: Option<&[u8]>,
        follows: bool,
    ) -> Result<Option<Entry>, Error> {
        self.filtered(At::Operand(path, follows), path, name, id, below)
    }

    /// Reads an entry of a directory, as [`operand`](Self::operand) does.
    ///
    /// # Errors
    ///
    /// See [`operand`](Self::operand).
    pub fn entry(
        &mut self,
        place: &Place,
        name: Vec<u8>,
        id: Id,
        below: Option<&[u8]>,
    ) -> Result<Option<Entry>, Error> {
        let path = place.path(&name);
        let folder = self.origin.folder(&place.directory, LOOK);
        let folder = folder.map_err(|error| Error::file("read", &path, &error.into()))?;
        let at = name.clone();
        self.filtered(At::Name(folder.as_fd(), &at), &path, name, id, below)
    }

    fn filtered(
        &mut self,
        at: At<'_>,
        path: &Path,
        name: Vec<u8>,
        id: Id,
        below: Option<&[u8]>,
    ) -> Result<Option<Entry>, Error> {
        let found = self.origin.stat_at(at).map_err(|error| Error::file("read", path, &error.into()))?;
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        if below.is_some_and(|below| !self.filter.allows(below, is_directory)) {
            return Ok(None);
        }
        self.entry_of(at, path, name, &found, id).map(Some)
    }

    fn entry_of(&mut self, at: At<'_>, path: &Path, name: Vec<u8>, found: &Stat, id: Id) -> Result<Entry, Error> {
        // If the entry is replaced meanwhile, what is read belongs to another one.
        let mut opened = None;
        let kind = match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory if self.recursive => EntryKind::Directory,
            FileType::Directory => {
                let text = format!("{} is a directory; copy it with -r", escape(path));
                return Err(Error::new(Kind::File, text));
            }
            FileType::Symlink => {
                let link = opened.insert(self.open(at, path, found, LOOK)?);
                let target = rustix::fs::readlinkat(&*link, "", Vec::new());
                EntryKind::Link(target.map_err(|error| unreadable(path, error))?.into_bytes())
            }
            FileType::RegularFile => self.file(at, path, found)?,
            FileType::Fifo => self.special(Special::Fifo, found),
            FileType::Socket => self.special(Special::Socket, found),
            FileType::CharacterDevice => self.special(Special::Character(found.st_rdev), found),
            FileType::BlockDevice => self.special(Special::Block(found.st_rdev), found),
            FileType::Unknown => {
                let text = format!("cannot copy {}: it has an unknown type", escape(path));
                return Err(Error::new(Kind::File, text));
            }
        };
        let mut attributes = Vec::new();
        let is_bare = || self.origin.has_no_attributes(at);
        if self.keep.attributes && !matches!(kind, EntryKind::Same(_)) && !is_bare() {
            let flags = match kind {
                // To open a device may have an effect.
                EntryKind::Link(_) | EntryKind::Special { .. } => LOOK,
                _ => READ,
            };
            // An entry without its attributes would remove those of the copy, also if it is not read because the copy has
            // the same contents.
            let fd = match opened {
                Some(opened) => opened,
                None => self.open(at, path, found, flags)?,
            };
            attributes = read_attributes(&fd).map_err(|error| {
                let what = "read the attributes of";
                match error {
                    Errno::NOENT => Error::file(what, path, &std::io::Error::other("/proc is not mounted")),
                    error => Error::file(what, path, &error.into()),
                }
            })?;
            check_same(path, &fd, found)?;
            let length = lengths(&attributes);
            if length > ATTRIBUTES {
                let text = format!(
                    "cannot copy {}: its extended attributes have {length} bytes, more than {ATTRIBUTES}",
                    escape(path)
                );
                return Err(Error::new(Kind::File, text));
            }
        }
        // Only an entry that is listed gets its number.
        if matches!(kind, EntryKind::File { has_links: true, .. } | EntryKind::Special { has_links: true, .. }) {
            self.links.insert((found.st_dev, found.st_ino), id);
        }
        let (mode, owner) = ((found.st_mode & 0o7777) as u16, (found.st_uid, found.st_gid));
        Ok(Entry { name, kind, mode, owner, modified: facts(found).1, attributes })
    }

    /// Opens an entry with this metadata.
    fn open(&self, at: At<'_>, path: &Path, found: &Stat, flags: OFlags) -> Result<OwnedFd, Error> {
        let fd = self.origin.open_at(at, flags).map_err(|error| unreadable(path, error))?;
        check_same(path, &fd, found).map(|()| fd)
    }

    /// Whether this entry of a directory is one that the copy writes.
    fn is_written(&self, directory: &Stat, name: &[u8], found: &Stat) -> bool {
        let is_made = |into: &Ancestry| into.is_made_in(directory, name);
        let is = |into: &Ancestry| into.is(found) || is_made(into);
        FileType::from_raw_mode(found.st_mode).is_dir() && self.into.iter().any(is)
    }

    fn file(&self, at: At<'_>, path: &Path, found: &Stat) -> Result<EntryKind, Error> {
        let has_links = self.keep.links && found.st_nlink > 1;
        if has_links && let Some(known) = self.links.get(&(found.st_dev, found.st_ino)) {
            return Ok(EntryKind::Same(*known));
        }
        let sum = if self.sums { Some(self.sum(at, path, found)?) } else { None };
        Ok(EntryKind::File { size: facts(found).0, has_links, sum })
    }

    /// Computes the sum of the contents of a file.
    fn sum(&self, at: At<'_>, path: &Path, found: &Stat) -> Result<u128, Error> {
        let mut file = std::fs::File::from(self.open(at, path, found, READ)?);
        let sum = sum_of(&mut file).map_err(|error| Error::file("read", path, &error))?;
        check_same(path, &file, found).map(|()| sum)
    }

    fn special(&self, kind: Special, found: &Stat) -> EntryKind {
        let has_links = self.keep.links && self.keep.specials && found.st_nlink > 1;
        match self.links.get(&(found.st_dev, found.st_ino)).filter(|_| has_links) {
            Some(known) => EntryKind::Same(*known),
            None => EntryKind::Special { kind, has_links },
        }
    }

    /// Lists a directory in parts. Its first entry gets the number `next`. Each part is passed to `take`, which returns
    /// the number that the first entry of this part has got. Failed entries are passed to `failed`. If the directory
    /// changes or cannot be read, its last part is not `whole`.
    pub fn list(
        &mut self,
        Pending { branch, entry, below, .. }: Pending,
        mut next: Id,
        mut take: impl FnMut(Listing) -> Result<Id, Error>,
        mut failed: impl FnMut(Error),
    ) -> Result<(), Error> {
        let directory = branch.path();
        let cannot = |error| match &entry {
            Some(_) => unreadable(directory, error),
            None => Error::file("read", directory, &error.into()),
        };
        let opened = self.origin.folder(&branch, READ).and_then(|fd| Ok((rustix::fs::fstat(&fd)?, fd)));
        let checked = match (opened, &entry) {
            (Ok((found, fd)), Some(entry)) if !self.keep.has(&fd, &found, entry) => Err(changed(directory)),
            (Ok((found, fd)), _) => names(fd).map(|(dir, names)| (found, dir, names)).map_err(cannot),
            (Err(error), _) => Err(cannot(error)),
        };
        let (own, dir, names) = match checked {
            Ok(found) => found,
            Err(error) => {
                failed(error);
                let place = Place { directory: Arc::new(branch), follows: false };
                return take(Listing::of(place, Vec::new())).map(drop);
            }
        };
        let branch = branch.found(&own);
        let directory = branch.path();
        let place = Place { directory: Arc::new(branch.clone()), follows: false };
        let into_itself = |path: &Path| {
            let text = format!("cannot copy {} into itself, the destination", escape(path));
            Error::new(Kind::File, text)
        };
        if self.into.iter().any(|into| into.is(&own)) {
            failed(into_itself(directory));
            return take(Listing::of(place, Vec::new())).map(drop);
        }
        let dir = match dir.fd() {
            Ok(dir) => dir,
            Err(error) => {
                failed(Error::file("read", directory, &error.into()));
                return take(Listing::of(place, Vec::new())).map(drop);
            }
        };
        let (mut entries, mut folders, mut length, mut whole) = (Vec::new(), Vec::new(), 0, true);
        // Files that an interrupted copy has left are no contents of the tree.
        for name in &names {
            let path = place.path(name);
            // A name is resolved in the open directory, because another one may have its path by now.
            let at = At::Name(dir, name);
            let found = self.origin.stat_at(at);
            let is_directory = found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_dir());
            if !is_directory && entry_of(name, &names).is_some() {
                continue;
            }
            if !self.filter.is_empty() && !self.filter.allows(&join(&below, name), is_directory) {
                continue;
            }
            let entry = match found {
                Ok(found) if self.is_written(&own, name, &found) => Err(into_itself(&path)),
                Ok(found) => {
                    let entry = self.entry_of(at, &path, name.clone(), &found, next + entries.len() as Id);
                    if let Ok(entry) = &entry
                        && entry.kind == EntryKind::Directory
                    {
                        let branch = branch.inner(name).found(&found);
                        let (below, id) = (join(&below, name), entries.len() as Id);
                        folders.push(Pending { branch, entry: Some(entry.clone()), below, id });
                    }
                    entry
                }
                Err(error) => Err(unreadable(&path, error)),
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
                let (entries, folders) = (std::mem::take(&mut entries), std::mem::take(&mut folders));
                next = take(Listing { place: place.clone(), entries, folders, whole: false })? + count;
            }
        }
        take(Listing { place, entries, folders, whole }).map(drop)
    }
}

/// The path of an entry of a directory.
pub(crate) fn join(below: &[u8], name: &[u8]) -> Vec<u8> {
    if below.is_empty() { name.to_vec() } else { [below, b"/", name].concat() }
}

/// About the length of an entry in a frame.
fn size(entry: &Entry) -> usize {
    let target = if let EntryKind::Link(target) = &entry.kind { target.len() } else { 0 };
    ENTRY + entry.name.len() + target + lengths(&entry.attributes)
}

fn lengths(attributes: &[(Vec<u8>, Vec<u8>)]) -> usize {
    attributes.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// Returns the names of the entries of an open directory, sorted so that each run lists them in the same order.
pub(crate) fn names(fd: OwnedFd) -> Result<(Dir, Vec<Vec<u8>>), Errno> {
    let mut dir = Dir::new(fd)?;
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

/// The flags that read an entry. It may have been replaced by a FIFO since it was listed.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The error of an entry that was found, but cannot be opened.
pub(crate) fn unreadable(path: &Path, error: Errno) -> Error {
    match error {
        Errno::NOENT => Error::new(Kind::Vanished, format!("{} vanished before it was read", escape(path))),
        // It, or a directory above it, has become another one, a link or something else.
        Errno::LOOP | Errno::NOTDIR | Errno::NXIO | Errno::STALE => changed(path),
        error => Error::file("read", path, &error.into()),
    }
}

/// The error of an entry that changed.
pub(crate) fn changed(path: &Path) -> Error {
    Error::new(Kind::Vanished, format!("{} changed while it was read; copy it again", escape(path)))
}

/// Checks that an open entry is the one that was found, and did not change.
fn check_same(path: &Path, fd: impl AsFd, found: &Stat) -> Result<(), Error> {
    let now = rustix::fs::fstat(fd).map_err(|error| Error::file("read", path, &error.into()))?;
    let state = |found: &Stat| (found.st_ino, found.st_mode, facts(found), found.st_ctime, found.st_ctime_nsec);
    if state(&now) == state(found) { Ok(()) } else { Err(changed(path)) }
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
