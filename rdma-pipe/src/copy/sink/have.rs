//! Finds out how much of a file this side already has.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::receiving::Receiving;
use crate::copy::writer::FACTS;
use crate::error::Result;
use crate::proto::{Entry, EntryKind, Have, Id, Listed};
use crate::tree::{Directory, LEAST, Partial, facts, is_stored_as, partial_name, set_facts, sum_of};

impl Receiving<'_> {
    /// Determines how much of a file this side already has.
    pub(super) fn have(&mut self, id: Id, dir: Id, directory: &Directory, entry: &Entry) -> Result<Have> {
        if let Some(found) = self.find_same(directory, entry) {
            self.keep(id, dir, directory, entry, &found)?;
            return Ok(Have::All);
        }
        if self.writers.options.dry_run || directory.is_new() || entry.size() <= LEAST {
            return Ok(Have::Until(0));
        }
        Ok(match Partial::length(directory, &entry.name).min(entry.size()) {
            0 => Have::Until(0),
            until => Have::Check(until),
        })
    }

    /// Returns the metadata of the file that has the contents of the entry already.
    fn find_same(&self, directory: &Directory, entry: &Entry) -> Option<Stat> {
        let options = self.writers.options;
        if !(options.sync || options.again) || directory.is_new() {
            return None;
        }
        let found =
            directory.stat(&entry.name).ok().filter(|found| FileType::from_raw_mode(found.st_mode).is_file())?;
        let (length, modified) = facts(&found);
        // Without --sync, an existing file is kept only if this copy has written it.
        let is_same = length == entry.size()
            && (options.sync || self.writers.written.has(&found))
            && match entry.kind {
                EntryKind::File { sum: Some(sum), .. } => directory
                    .open_file(&entry.name, false)
                    .is_ok_and(|(fd, _)| sum_of(&mut File::from(fd)).is_ok_and(|ours| ours == sum)),
                _ => modified == entry.modified || is_stored_as(directory, entry, modified, options.dry_run),
            };
        is_same.then_some(found)
    }

    /// Keeps a file that has the contents of the entry. Its metadata may differ.
    fn keep(&mut self, id: Id, dir: Id, directory: &Directory, entry: &Entry, found: &Stat) -> Result<()> {
        let (writers, options) = (self.writers, self.writers.options);
        // With --delete, a trial run finds it among what the source does not have.
        let is_left = entry.size() > LEAST
            && match options.dry_run {
                true => !options.delete && Partial::length(directory, &entry.name) > 0,
                false => Partial::remove_earlier(directory, &entry.name),
            };
        if is_left {
            writers.removed(&directory.path().join(OsStr::from_bytes(&partial_name(&entry.name))))?;
        }
        // A time that is stored in a larger unit is not set again.
        let modified = facts(found).1;
        let has_sum = matches!(entry.kind, EntryKind::File { sum: Some(_), .. });
        let cut;
        let entry = if !has_sum && modified != entry.modified && modified.0.abs_diff(entry.modified.0) < 2 {
            cut = Entry { modified, ..entry.clone() };
            &cut
        } else {
            entry
        };
        let differs = options.keep.differs(found, entry);
        if options.dry_run || !(differs || options.keep.attributes) {
            return Ok(());
        }
        let set = match directory.open_file(&entry.name, false) {
            Ok((fd, found)) if differs || options.keep.attributes_differ(&fd, entry) => {
                if found.st_nlink > 1 {
                    self.shared.push((id, Listed { dir, entry: Box::new(entry.clone()) }));
                    Ok(())
                } else {
                    set_facts(directory, fd, entry, options.keep)
                }
            }
            // A user that may not read the file cannot compare its attributes.
            Err(Errno::ACCESS) if !differs => Ok(()),
            opened => opened.map(drop),
        };
        writers.or_fail(id, directory.path(), entry, FACTS, set).map(drop)
    }
}
