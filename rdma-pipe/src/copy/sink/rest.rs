//! Completes a received tree: hard links, deletion, and the times of directories.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use rustix::fs::Stat;
use rustix::io::Errno;

use super::receiving::{Receiving, Same, Surplus};
use crate::copy::writer::{FACTS, error_of};
use crate::error::{Error, Kind, Result, escape};
use crate::proto::{Entry, Id, Listed};
use crate::tree::{
    Directory, Keep, Partial, has_access_list, keep_facts, set_directory_facts, set_facts, with_own_facts,
};

/// The device of a directory. Another file system may be mounted below the destination.
fn device(directory: &Directory) -> Option<u64> {
    rustix::fs::fstat(directory).map(|found| found.st_dev).ok()
}

/// Whether a name leads to an entry that has another name.
fn is_other(directory: &Directory, name: &[u8]) -> bool {
    directory.stat(name).is_ok() && directory.names().is_ok_and(|names| names.iter().all(|other| other != name))
}

/// The steps that follow after all files have been written.
impl Receiving<'_> {
    /// The path of an entry, for messages.
    fn path_of(&self, dir: Id, name: &[u8]) -> PathBuf {
        self.path(dir).join(OsStr::from_bytes(name))
    }

    pub(super) fn finish(mut self, all_sent: bool) -> Result<()> {
        let (root, writers) = (&self.into.root, self.writers);
        // A real run continues or replaces what an earlier one has left of a file that is sent.
        self.surplus.retain(|Surplus { dir, name, .. }| !self.temporary.contains(&(*dir, name.clone())));
        if writers.options.dry_run {
            return self.remove_surplus(all_sent);
        }
        self.set_shared()?;
        let linkable = std::mem::take(&mut *writers.linkable.lock().unwrap_or_else(PoisonError::into_inner));
        for Same { id, dir, entry, other } in &self.same {
            // A directory that has failed was reported already.
            if self.sink.folder(*dir).is_some_and(|folder| folder.is_lost) {
                continue;
            }
            let linked = match self.named.get(other) {
                // The destination may have an older file, or another, of that name.
                Some((other_dir, name)) if !linkable.contains(other) => {
                    let (path, other) = (self.path_of(*dir, &entry.name), self.path_of(*other_dir, name));
                    let text = format!("cannot link {}: {} was not copied", escape(&path), escape(&other));
                    writers.fail(*id, Error::new(Kind::File, text))?;
                    continue;
                }
                Some((other_dir, name)) => {
                    self.open_again(*dir).and_then(|to| to.same(&entry.name, &*self.open_again(*other_dir)?, name))
                }
                None => Err(Errno::NOENT),
            };
            writers.or_fail(*id, &self.path(*dir), entry, "link", linked)?;
        }
        self.check_alike()?;
        for path in root.take_cleared() {
            writers.removed(&path)?;
        }
        self.remove_surplus(all_sent)?;
        let mut devices = HashMap::new();
        if writers.options.fsync {
            devices.insert(device(root), Arc::clone(root));
        }
        // Processes the deepest directories first, because writing to a directory changes its time.
        let made =
            self.sink.folders().rev().filter_map(|(id, folder)| Some((id, folder.permissions, folder.entry.as_ref()?)));
        for (id, permissions, entry) in made {
            let keep = writers.options.keep;
            let set = self.open_again(id).and_then(|directory| {
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
                writers.fail(id, error_of(FACTS, &self.path(id), error))?;
            }
        }
        for directory in devices.values() {
            directory.sync().map_err(|error| Error::file("sync", directory.path(), &error.into()))?;
        }
        Ok(())
    }

    /// Reports the names of entries that were replaced by, or became one with, an entry of another name.
    fn check_alike(&self) -> Result<()> {
        for (dir, names) in self.sink.alike().filter(|(_, names)| !names.is_empty()) {
            // A directory that has failed was reported already.
            let Ok(directory) = self.open_again(dir) else { continue };
            let Ok(present) = directory.names() else { continue };
            let present: HashSet<Vec<u8>> = present.into_iter().collect();
            for name in names.iter().filter(|name| !present.contains(*name) && directory.stat(name).is_ok()) {
                let path = escape(&self.path_of(dir, name));
                let text = format!("cannot keep {path}: the file system takes its name for that of another entry");
                self.writers.fail(dir, Error::new(Kind::File, text))?;
            }
        }
        Ok(())
    }

    /// Sets the metadata of the files with other names. If one of these is not a name of this copy, it must not get the
    /// metadata of the source too: a new file takes the place of the shared one.
    fn set_shared(&self) -> Result<()> {
        let writers = self.writers;
        let mut names: HashMap<Id, HashSet<(Id, &[u8])>> = HashMap::new();
        for (id, Listed { dir, entry }) in &self.shared {
            names.insert(*id, HashSet::from([(*dir, entry.name.as_slice())]));
        }
        for Same { dir, entry, other, .. } in &self.same {
            if let Some(names) = names.get_mut(other) {
                names.insert((*dir, &entry.name));
            }
        }
        for (id, Listed { dir, entry }) in &self.shared {
            let set = self.open_again(*dir).and_then(|directory| {
                let (fd, found) = directory.open_file(&entry.name, false)?;
                let is_same = |(dir, name): &&(Id, &[u8])| {
                    let other = self.open_again(*dir).and_then(|directory| directory.stat(name));
                    other.is_ok_and(|other| (other.st_dev, other.st_ino) == (found.st_dev, found.st_ino))
                };
                let count = names.get(id).into_iter().flatten().filter(is_same).count();
                if found.st_nlink > count as u64 {
                    replace(&directory, fd, &found, entry, writers.options.keep)
                } else {
                    set_facts(&directory, fd, entry, writers.options.keep)
                }
            });
            writers.or_fail(*id, &self.path(*dir), entry, FACTS, set)?;
        }
        Ok(())
    }

    /// Removes what the source does not have, unless an entry has failed, and reports what was removed; for a trial run,
    /// what would be.
    fn remove_surplus(&self, all_sent: bool) -> Result<()> {
        let writers = self.writers;
        let failed = writers.failures.lock().unwrap_or_else(PoisonError::into_inner).len();
        if !self.surplus.is_empty() && (!all_sent || failed != 0) {
            log::warn!("nothing was deleted, because some entries failed; repair them and copy again");
            return Ok(());
        }
        let protects = |path: &[u8], is_directory| !writers.options.filter.allows(path, is_directory);
        for Surplus { dir, name, alike, path } in &self.surplus {
            let directory = self.open_again(*dir);
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
                    let renamed = if writers.options.dry_run { Ok(()) } else { rename() };
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
            let removed =
                directory.and_then(|dir| dir.remove(name, path, &protects, writers.options.dry_run, &mut tell));
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
    fd: OwnedFd,
    found: &Stat,
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
