//! What a trial run does instead of writing: it finds out what a real run would remove or could not replace.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::receiving::Receiving;
use crate::copy::writer::Writers;
use crate::error::Result;
use crate::proto::{Entry, EntryKind, Failure, Folder, Frame, Have, Id, Listed, Special};
use crate::tree::{Directory, GivesWay, join, partial_name};

impl Receiving<'_> {
    /// Takes an entry of a list.
    pub(super) fn pretend(&mut self, id: Id, dir: Id, entry: Entry, answers: &mut Vec<(Id, Have)>) -> Result<()> {
        let directory = self.find_directory(dir);
        let could = directory.as_ref().map_or(Ok(true), |directory| could(self.writers, id, directory, &entry))?;
        match (&entry.kind, self.sink.folder(dir)) {
            (EntryKind::Directory, Some(above)) if could => {
                let path = join(&above.path, &entry.name);
                self.sink.enter(id, Folder { path, ..Folder::default() });
            }
            (EntryKind::File { .. }, _) => self.file(id, dir, entry, directory.as_deref(), answers)?,
            _ => {}
        }
        Ok(())
    }

    /// Takes the end of a file.
    pub(super) fn pretend_close(
        &mut self,
        id: Id,
        listed: Option<Listed>,
        result: std::result::Result<(), Failure>,
    ) -> Result<()> {
        if let Some(Listed { dir, entry }) = listed.filter(|_| self.writers.options.delete) {
            self.temporary.insert((dir, partial_name(&entry.name)));
        }
        self.writers.forward(|| Frame::Close(id, result))
    }
}

/// Reports what is below a directory that would give way to this entry, or that the entry could not take the place of
/// another. Returns whether it could.
fn could(writers: &Writers<'_>, id: Id, directory: &Directory, entry: &Entry) -> Result<bool> {
    let what = match &entry.kind {
        EntryKind::Special { .. } if !writers.options.keep.specials => return Ok(true),
        EntryKind::Special { kind: Special::Character(_) | Special::Block(_), .. } => "make the device node",
        EntryKind::Directory | EntryKind::Special { .. } => "make",
        EntryKind::File { .. } => "write",
        EntryKind::Link(_) | EntryKind::Same(_) => "link",
    };
    let Ok(found) = directory.stat(&entry.name) else { return Ok(true) };
    let is_directory = entry.kind == EntryKind::Directory;
    if FileType::from_raw_mode(found.st_mode).is_dir() == is_directory {
        return Ok(true);
    }
    let names = || directory.of_tree(&entry.name).and_then(|below| below.names());
    let refused = match writers.options.gives_way() {
        GivesWay::Nothing => Some(if is_directory { Errno::NOTDIR } else { Errno::ISDIR }),
        GivesWay::Entry if !is_directory && names().is_ok_and(|names| !names.is_empty()) => Some(Errno::NOTEMPTY),
        GivesWay::Tree if !is_directory => {
            let (top, mut paths) = (directory.path().join(OsStr::from_bytes(&entry.name)), Vec::new());
            // A real run reports what cannot be removed.
            _ = directory.clear(&entry.name, true, &mut |path, removed| {
                if removed.is_ok() && path != top {
                    paths.push(path.to_owned());
                }
            });
            paths.iter().try_for_each(|path| writers.removed(path))?;
            None
        }
        GivesWay::Entry | GivesWay::Tree => None,
    };
    let could = refused.map_or(Ok(()), Err);
    writers.or_fail(id, directory.path(), entry, what, could).map(|could| could.is_some())
}
