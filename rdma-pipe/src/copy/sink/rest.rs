//! Completes a received tree: hard links, deletion, and the times of directories.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use rustix::fs::Stat;
use rustix::io::Errno;

use super::alike::{Alike, is_other, key};
use crate::copy::target::Folder;
use crate::copy::writer::{FACTS, Writers, error_of};
use crate::error::{Error, Kind, Result, escape};
use crate::proto::{Entry, Id};
use crate::tree::{
    Directory, Keep, Partial, has_access_list, join, keep_facts, set_directory_facts, set_facts, with_own_facts,
};

/// The steps that follow after all files have been written.
pub(super) struct Rest {
    pub(super) root: Arc<Directory>,
    pub(super) folders: HashMap<Id, Folder>,
    pub(super) lost: HashMap<Id, Arc<[u8]>>,
    pub(super) made: Vec<(Id, Box<Entry>, Option<u16>)>,
    pub(super) named: HashMap<Id, (Id, Vec<u8>)>,
    pub(super) same: Vec<(Id, Id, Entry, Id)>,
    pub(super) surplus: Vec<Surplus>,
    pub(super) alike: Alike,
    pub(super) dry_run: bool,
}

/// The device of a directory. Another file system may be mounted below the destination.
fn device(directory: &Directory) -> Option<u64> {
    rustix::fs::fstat(directory).map(|found| found.st_dev).ok()
}

/// An entry that exists here but not at the source.
pub(super) struct Surplus {
    pub(super) dir: Id,
    pub(super) name: Vec<u8>,
    /// A name of the source that may lead to the same entry.
    pub(super) alike: Option<Vec<u8>>,
    /// Its path below the destination, with the name of the source, with which patterns are compared.
    pub(super) path: Vec<u8>,
}

impl Surplus {
    /// Finds those names of a directory, which has a number and a path, that are not listed.
    pub(super) fn find(
        (dir, within): (Id, &[u8]),
        names: Vec<Vec<u8>>,
        listed: HashSet<Vec<u8>>,
    ) -> impl Iterator<Item = Surplus> {
        let surplus: Vec<Vec<u8>> = names.into_iter().filter(|name| !listed.contains(name)).collect();
        let keys = |listed: HashSet<Vec<u8>>| listed.into_iter().map(|name| (key(&name), name)).collect();
        let mut keys: HashMap<Vec<u8>, Vec<u8>> = if surplus.is_empty() { HashMap::new() } else { keys(listed) };
        surplus.into_iter().map(move |name| {
            let path = join(within, &name);
            Surplus { dir, alike: keys.remove(&key(&name)), name, path }
        })
    }
}

impl Rest {
    pub(super) fn directory(&self, id: Id) -> std::result::Result<Arc<Directory>, Errno> {
        match self.folders.get(&id) {
            Some(folder) if folder.path.is_empty() => Ok(Arc::clone(&self.root)),
            Some(folder) => folder.open(&self.root).map(Arc::new),
            None => Err(Errno::NOENT),
        }
    }

    /// The path of a directory, for messages.
    fn path(&self, id: Id) -> PathBuf {
        let path = self.folders.get(&id).map(|folder| &folder.path).or_else(|| self.lost.get(&id));
        self.root.path().join(OsStr::from_bytes(path.map_or(b"", |path| &path[..])))
    }

    /// The path of an entry, for messages.
    pub(super) fn path_of(&self, dir: Id, name: &[u8]) -> PathBuf {
        self.path(dir).join(OsStr::from_bytes(name))
    }

    pub(super) fn finish(self, writers: &Writers<'_>, all_sent: bool) -> Result<()> {
        if self.dry_run {
            return self.remove_surplus(writers, all_sent);
        }
        self.set_shared(writers)?;
        let linkable = std::mem::take(&mut *writers.linkable.lock().unwrap_or_else(PoisonError::into_inner));
        // A directory that has failed was reported already.
        for (id, dir, entry, other) in self.same.iter().filter(|(_, dir, ..)| !self.lost.contains_key(dir)) {
            let linked = match self.named.get(other) {
                // The destination may have an older file, or another, of that name.
                Some((other_dir, name)) if !linkable.contains(other) => {
                    let (path, other) = (self.path(*dir), self.path(*other_dir).join(OsStr::from_bytes(name)));
                    let path = escape(&path.join(OsStr::from_bytes(&entry.name)));
                    let text = format!("cannot link {path}: {} was not copied", escape(&other));
                    writers.fail(*id, Error::new(Kind::File, text))?;
                    continue;
                }
                Some((other_dir, name)) => {
                    self.directory(*dir).and_then(|to| to.same(&entry.name, &*self.directory(*other_dir)?, name))
                }
                None => Err(Errno::NOENT),
            };
            writers.or_fail(*id, (&self.path(*dir), entry), "link", linked)?;
        }
        self.alike.check(&self, writers)?;
        for path in self.root.take_cleared() {
            writers.removed(&path)?;
        }
        self.remove_surplus(writers, all_sent)?;
        let mut devices = HashMap::new();
        if writers.options.fsync {
            devices.insert(device(&self.root), Arc::clone(&self.root));
        }
        // Processes the deepest directories first, because writing to a directory changes its time.
        for (id, entry, permissions) in self.made.iter().rev() {
            let keep = writers.options.keep;
            let set = self.directory(*id).and_then(|directory| {
                if writers.options.fsync {
                    devices.entry(device(&directory)).or_insert_with(|| Arc::clone(&directory));
                }
                let facts = set_directory_facts(&directory, entry, keep);
                // A list of the source has set the owner's permissions, too.
                let is_listed = keep.attributes && facts.is_ok() && has_access_list(entry);
                let permissions =
                    permissions.filter(|_| !keep.mode).map(|own| if is_listed { entry.mode } else { own });
                facts.and(permissions.map_or(Ok(()), |permissions| directory.give_back(permissions)))
            });
            if let Err(error) = set {
                writers.fail(*id, error_of(FACTS, &self.path(*id), error))?;
            }
        }
        for directory in devices.values() {
            directory.sync().map_err(|error| Error::file("sync", directory.path(), &error.into()))?;
        }
        Ok(())
    }

    /// Sets the metadata of the files with other names. If one of these is not a name of this copy, it must not get the
    /// metadata of the source too: a new file takes the place of the shared one.
    fn set_shared(&self, writers: &Writers<'_>) -> Result<()> {
        let shared = std::mem::take(&mut *writers.shared.lock().unwrap_or_else(PoisonError::into_inner));
        let mut names: HashMap<Id, HashSet<(Id, &[u8])>> = HashMap::new();
        for (id, dir, entry) in &shared {
            names.insert(*id, HashSet::from([(*dir, entry.name.as_slice())]));
        }
        for (_, dir, entry, other) in &self.same {
            if let Some(names) = names.get_mut(other) {
                names.insert((*dir, &entry.name));
            }
        }
        for (id, dir, entry) in &shared {
            let set = self.directory(*dir).and_then(|directory| {
                let (fd, found) = directory.open_file(&entry.name, false)?;
                let is_same = |(dir, name): &&(Id, &[u8])| {
                    let other = self.directory(*dir).and_then(|directory| directory.stat(name));
                    other.is_ok_and(|other| (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino))
                };
                let count = names.get(id).into_iter().flatten().filter(is_same).count();
                if found.st_nlink > count as u64 {
                    replace(&directory, (fd, &found), entry, writers.options.keep)
                } else {
                    set_facts(&directory, fd, entry, writers.options.keep)
                }
            });
            writers.or_fail(*id, (&self.path(*dir), entry), FACTS, set)?;
        }
        Ok(())
    }

    /// Removes what the source does not have, unless an entry has failed, and reports what was removed; for a trial run,
    /// what would be.
    fn remove_surplus(&self, writers: &Writers<'_>, all_sent: bool) -> Result<()> {
        let failed = writers.failures.lock().unwrap_or_else(PoisonError::into_inner).len();
        if !self.surplus.is_empty() && (!all_sent || failed != 0) {
            log::warn!("nothing was deleted, because some entries failed; repair them and copy again");
            return Ok(());
        }
        let protects = |path: &[u8], is_directory| !writers.options.filter.allows(path, is_directory);
        for Surplus { dir, name, alike, path } in &self.surplus {
            let directory = self.directory(*dir);
            if let (Some(listed), Ok(directory)) = (alike, &directory) {
                // The entry of the source has taken the place of this one.
                if is_other(directory, name) {
                    continue;
                }
                // It is the entry of the source, which has kept its earlier name.
                if is_other(directory, listed) {
                    let (from, to) = (OsStr::from_bytes(name), OsStr::from_bytes(listed));
                    let rename = || rustix::fs::renameat(directory, from, directory, to);
                    let cannot = |error: Errno| Error::file("rename to", &self.path_of(*dir, listed), &error.into());
                    let renamed = if self.dry_run { Ok(()) } else { rename() };
                    renamed.or_else(|error| writers.fail(*dir, cannot(error)))?;
                    continue;
                }
            }
            let mut result = Ok(());
            let of = |below: &[u8]| self.path(*dir).join(OsStr::from_bytes(&[name.as_slice(), below].concat()));
            let mut tell = |below: &[u8], removed: std::result::Result<(), Errno>| {
                if result.is_ok() {
                    result = match removed {
                        Ok(()) => writers.removed(&of(below)),
                        Err(error) => writers.fail(*dir, Error::file("remove", &of(below), &error.into())),
                    };
                }
            };
            let removed = directory.and_then(|dir| dir.remove(name, path, &protects, self.dry_run, &mut tell));
            if let Err(error) = removed {
                tell(b"", Err(error));
            }
            result?;
        }
        Ok(())
    }
}

/// Puts a new file with the same contents in the place of a file. As if that file itself were changed, what the copy does
/// not keep stays as it was.
fn replace(
    directory: &Directory,
    (fd, found): (OwnedFd, &Stat),
    entry: &Entry,
    keep: Keep,
) -> std::result::Result<(), Errno> {
    let old = with_own_facts(&fd, entry)?;
    let partial = Partial::create(directory, &entry.name, 0o600)?;
    let filled = partial.fill(fd, found);
    if let Err(error) = filled.and_then(|()| set_facts(directory, &partial.fd, &old, Keep::ALL)) {
        partial.discard(directory);
        return Err(error);
    }
    let facts = set_facts(directory, &partial.fd, entry, keep);
    let fd = partial.finish(directory, &entry.name)?;
    facts.and_then(|()| keep_facts(directory, fd, entry, keep))
}
