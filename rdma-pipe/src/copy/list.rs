//! Lists the operands, and the entries below them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::source::Shared;
use super::written;
use crate::error::{Error, Kind, Result, escape};
use crate::proto::{Entry, EntryKind, Frame, Id, ROOT};
use crate::tree::{Listing, Place, Walk, base_name, is_contents};

/// Lists the operands, then the entries below them.
pub(super) fn list(shared: &Shared<'_>, paths: &[PathBuf]) -> Result<()> {
    let options = shared.options;
    let mut walk = Walk::new(shared.origin, options.filter.clone(), options.keep, options.recursive, options.checksum);
    walk.into = paths.iter().flat_map(|path| written(path, options)).collect();
    if let Some(selected) = &options.files_from {
        return list_selected(shared, &mut walk, paths, selected);
    }
    let mut folders = Vec::new();
    // The destination gets the metadata of the first directory whose entries are copied; those of others have no place.
    let is_top = |path: &&PathBuf| is_contents(path.as_os_str().as_bytes(), options.sync);
    if let Some(path) = paths.iter().find(is_top).filter(|_| options.recursive) {
        send_top(shared, &mut walk, path)?;
    }
    for path in paths {
        let Some(name) = base_name(path).filter(|_| !is_contents(path.as_os_str().as_bytes(), options.sync)) else {
            if options.recursive {
                walk_folder(shared, &mut walk, path, b"", ROOT, &mut folders)?;
            } else {
                shared.fail(Error::new(Kind::File, format!("{} is a directory; copy it with -r", escape(path))));
            }
            continue;
        };
        let id = shared.next_id();
        let entry = walk.entry(path, name.clone(), (id, Some(&name)), options.follows());
        match entry.and_then(|entry| check_named(shared, path, entry)) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                let is_directory = entry.kind == EntryKind::Directory;
                let parent = path.parent().unwrap_or(Path::new(""));
                let place =
                    Place { directory: parent.to_owned().into(), below: Vec::new().into(), follows: options.follows() };
                let id = shared.list(ROOT, Listing { place, entries: vec![entry], whole: false })?;
                if is_directory {
                    folders.push((path.clone(), name, id));
                }
            }
            Err(error) => shared.fail(error),
        }
    }
    // Takes the last directory first, because directories that were listed together are close to each other on the
    // disk.
    while let Some((path, below, id)) = folders.pop() {
        walk_folder(shared, &mut walk, &path, &below, id, &mut folders)?;
    }
    Ok(())
}

/// Rejects a special file that the command names, unless the options select it. A walk skips such a file, but a copy of
/// what the command names must not succeed without it.
fn check_named(shared: &Shared<'_>, path: &Path, entry: Option<Entry>) -> Result<Option<Entry>> {
    let is_special = entry.as_ref().is_some_and(|entry| matches!(entry.kind, EntryKind::Special { .. }));
    if !is_special || shared.options.keep.specials {
        return Ok(entry);
    }
    let path = escape(path);
    let text =
        format!("cannot copy {path}: not a regular file; -D copies the node itself, rdpipe what is read from it");
    Err(Error::new(Kind::File, text))
}

/// Sends the metadata of a directory whose entries are copied.
fn send_top(shared: &Shared<'_>, walk: &mut Walk<'_>, path: &Path) -> Result<()> {
    match walk.entry(path, b".".to_vec(), (ROOT, None), true) {
        Ok(Some(entry)) if entry.kind == EntryKind::Directory => shared.sender.frame(&Frame::Top(entry)),
        // The list of its entries reports that it is no directory.
        Ok(_) => Ok(()),
        Err(error) => {
            shared.fail(error);
            Ok(())
        }
    }
}

type Folders = Vec<(PathBuf, Vec<u8>, Id)>;

fn walk_folder(
    shared: &Shared<'_>,
    walk: &mut Walk<'_>,
    path: &Path,
    below: &[u8],
    id: Id,
    folders: &mut Folders,
) -> Result<()> {
    let next = shared.next_id();
    let take = |listing: Listing| {
        let found: Vec<_> = (0..)
            .zip(&listing.entries)
            .filter(|(_, entry)| entry.kind == EntryKind::Directory)
            .map(|(index, entry)| {
                let below = if below.is_empty() { entry.name.clone() } else { [below, b"/", &entry.name].concat() };
                (listing.place.path(&entry.name), below, index)
            })
            .collect();
        let first = shared.list(id, listing)?;
        folders.extend(found.into_iter().rev().map(|(path, below, index)| (path, below, first + index)));
        Ok(first)
    };
    walk.list(path, below, next, take, |error| shared.fail(error))
}

/// Lists the paths of `--files-from`, together with the directories that contain them.
fn list_selected(shared: &Shared<'_>, walk: &mut Walk<'_>, paths: &[PathBuf], selected: &[Vec<u8>]) -> Result<()> {
    let [base] = paths else {
        return Err(Error::new(
            Kind::Usage,
            "--files-from requires exactly one source: the directory that contains the listed paths",
        ));
    };
    // The directories that are listed, and other entries without a number.
    let mut known: HashMap<Vec<u8>, Option<Id>> = HashMap::new();
    let mut folders = Vec::new();
    walk.recursive = true;
    let parts_of = |path: &'_ [u8]| -> Vec<Vec<u8>> {
        let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        parts.map(<[u8]>::to_vec).collect()
    };
    let options = shared.options;
    let all: HashSet<Vec<u8>> = selected.iter().map(|path| parts_of(path).join(&b'/')).collect();
    let is_all = |below: &[u8]| all.contains(below) && (below.is_empty() || options.filter.allows(below, true));
    let mut seen = HashSet::new();
    for path in selected {
        let parts = parts_of(path);
        if !seen.insert(parts.join(&b'/')) {
            continue;
        }
        if parts.is_empty() {
            if !options.recursive {
                shared.fail(Error::new(Kind::File, format!("{} is a directory; copy it with -r", escape(base))));
                continue;
            }
            if shared.has_listed_nothing() {
                send_top(shared, walk, base)?;
            }
            walk_folder(shared, &mut *walk, base, b"", ROOT, &mut folders)?;
            continue;
        }
        // What is below another selected directory is listed with that directory.
        let above = |count: usize| parts[..count].join(&b'/');
        if options.recursive
            && let Some(first) = (0..parts.len()).find(|count| is_all(&above(*count)))
        {
            let full = base.join(OsStr::from_bytes(&parts.join(&b'/')));
            // No directory is entered through a link.
            let leads_on = |count: usize| {
                let above = base.join(OsStr::from_bytes(&above(count)));
                let found = shared.origin.stat(&above, false)?;
                let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
                if is_directory || count == parts.len() { Ok(()) } else { Err(Errno::NOTDIR) }
            };
            if let Err(error) = (first..=parts.len()).try_for_each(leads_on) {
                shared.fail(Error::file("read", &full, &error.into()));
            }
            if let Some(excluded) = (first + 1..parts.len()).find(|count| !options.filter.allows(&above(*count), true))
            {
                let excluded = base.join(OsStr::from_bytes(&above(excluded)));
                let text = format!("cannot copy {}: a pattern excludes {}", escape(&full), escape(&excluded));
                shared.fail(Error::new(Kind::File, text));
            }
            continue;
        }
        let mut dir = ROOT;
        for count in 1..=parts.len() {
            let below = parts[..count].join(&b'/');
            match known.get(&below) {
                Some(None) if count < parts.len() => {
                    let full = base.join(OsStr::from_bytes(&below));
                    shared.fail(Error::file("read", &full, &Errno::NOTDIR.into()));
                    break;
                }
                Some(None) => break,
                Some(Some(id)) => {
                    dir = *id;
                    continue;
                }
                None => {}
            }
            let parent = base.join(OsStr::from_bytes(&parts[..count - 1].join(&b'/')));
            let name = parts[count - 1].clone();
            let place =
                Place { directory: parent.into(), below: parts[..count - 1].join(&b'/').into(), follows: false };
            let next = shared.next_id();
            // As in rsync, the directories above a listed path are copied in any case.
            let filtered = if count == parts.len() { Some(below.as_slice()) } else { None };
            let full = place.path(&name);
            let entry = walk.entry(&full, name, (next, filtered), false);
            match entry.and_then(|entry| if filtered.is_some() { check_named(shared, &full, entry) } else { Ok(entry) })
            {
                Ok(None) => break,
                Ok(Some(entry)) => {
                    let is_directory = entry.kind == EntryKind::Directory;
                    let id = shared.list(dir, Listing { place, entries: vec![entry], whole: false })?;
                    known.insert(below.clone(), is_directory.then_some(id));
                    if !is_directory && count < parts.len() {
                        shared.fail(Error::new(Kind::File, format!("cannot read {}: not a directory", escape(&full))));
                        break;
                    }
                    if is_directory && count == parts.len() && shared.options.recursive {
                        folders.push((full, below, id));
                    }
                    dir = id;
                }
                Err(error) => {
                    shared.fail(error);
                    break;
                }
            }
        }
    }
    while let Some((path, below, id)) = folders.pop() {
        walk_folder(shared, walk, &path, &below, id, &mut folders)?;
    }
    Ok(())
}
