//! Lists the operands, and the entries below them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::shared::Shared;
use super::written;
use crate::error::{Error, Kind, Result, escape};
use crate::proto::{Entry, EntryKind, Frame, Id, ROOT};
use crate::tree::{Branch, Listing, Pending, Place, Walk, base_name, is_contents};

/// Lists the operands, then the entries below them.
pub(super) fn list(shared: &Shared<'_>, paths: &[PathBuf]) -> Result<()> {
    let options = shared.options;
    let mut walk = Walk::new(shared.origin, options.filter.clone(), options.keep, options.recursive, options.checksum);
    walk.into = paths.iter().flat_map(|path| written(path, options)).collect();
    if let Some(selected) = &options.files_from {
        return list_selected(shared, &mut walk, paths, selected);
    }
    let mut folders = Vec::new();
    let mut top = None;
    // The destination gets the metadata of the first directory whose entries are copied; those of others have no place.
    let is_top = |path: &&PathBuf| is_contents(path.as_os_str().as_bytes(), options.sync);
    if let Some(path) = paths.iter().find(is_top).filter(|_| options.recursive) {
        top = send_top(shared, &mut walk, path)?;
    }
    for path in paths {
        let Some(name) = base_name(path).filter(|_| !is_contents(path.as_os_str().as_bytes(), options.sync)) else {
            if options.recursive {
                let root = Pending { branch: Branch::operand(path), entry: top.take(), below: Vec::new(), id: ROOT };
                walk_folder(shared, &mut walk, root, &mut folders)?;
            } else {
                shared.fail(Error::new(Kind::File, format!("{} is a directory; copy it with -r", escape(path))));
            }
            continue;
        };
        let id = shared.next_id();
        let entry = walk.operand(path, name.clone(), id, Some(&name), options.follows());
        match entry.and_then(|entry| check_named(shared, path, entry)) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                let folder = (entry.kind == EntryKind::Directory).then(|| entry.clone());
                let parent = Branch::operand(path.parent().unwrap_or(Path::new("")));
                let place = Place { directory: parent.into(), follows: options.follows() };
                let id = shared.list(ROOT, Listing::of(place, vec![entry]))?;
                if folder.is_some() {
                    folders.push(Pending { branch: Branch::operand(path), entry: folder, below: name, id });
                }
            }
            Err(error) => shared.fail(error),
        }
    }
    // Takes the last directory first, because directories that were listed together are close to each other on the
    // disk.
    while let Some(folder) = folders.pop() {
        walk_folder(shared, &mut walk, folder, &mut folders)?;
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

/// Sends the metadata of a directory whose entries are copied. Also returns it.
fn send_top(shared: &Shared<'_>, walk: &mut Walk<'_>, path: &Path) -> Result<Option<Entry>> {
    match walk.operand(path, b".".to_vec(), ROOT, None, true) {
        Ok(Some(entry)) if entry.kind == EntryKind::Directory => {
            shared.sender.frame(&Frame::Top(entry.clone())).map(|()| Some(entry))
        }
        // The list of its entries reports that it is no directory.
        Ok(_) => Ok(None),
        Err(error) => {
            shared.fail(error);
            Ok(None)
        }
    }
}

fn walk_folder(shared: &Shared<'_>, walk: &mut Walk<'_>, folder: Pending, folders: &mut Vec<Pending>) -> Result<()> {
    let next = shared.next_id();
    let id = folder.id;
    let take = |mut listing: Listing| {
        let found = std::mem::take(&mut listing.folders);
        let first = shared.list(id, listing)?;
        folders.extend(found.into_iter().rev().map(|folder| Pending { id: first + folder.id, ..folder }));
        Ok(first)
    };
    walk.list(folder, next, take, |error| shared.fail(error))
}

/// Lists the paths of `--files-from`, together with the directories that contain them.
fn list_selected(shared: &Shared<'_>, walk: &mut Walk<'_>, paths: &[PathBuf], selected: &[Vec<u8>]) -> Result<()> {
    let [operand] = paths else {
        return Err(Error::new(
            Kind::Usage,
            "--files-from requires exactly one source: the directory that contains the listed paths",
        ));
    };
    // A link to the directory is followed.
    let base = &operand.join("");
    let branch = Branch::operand(base);
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
                shared.fail(Error::new(Kind::File, format!("{} is a directory; copy it with -r", escape(operand))));
                continue;
            }
            let entry = if shared.has_listed_nothing() { send_top(shared, walk, base)? } else { None };
            let root = Pending { branch: branch.clone(), entry, below: Vec::new(), id: ROOT };
            walk_folder(shared, &mut *walk, root, &mut folders)?;
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
            let parent = match count {
                1 => branch.clone(),
                _ => branch.inner(&parts[..count - 1].join(&b'/')),
            };
            let name = parts[count - 1].clone();
            let place = Place { directory: parent.into(), follows: false };
            let next = shared.next_id();
            // As in rsync, the directories above a listed path are copied in any case.
            let filtered = if count == parts.len() { Some(below.as_slice()) } else { None };
            let full = place.path(&name);
            let entry = walk.entry(&place, name, next, filtered);
            match entry.and_then(|entry| if filtered.is_some() { check_named(shared, &full, entry) } else { Ok(entry) })
            {
                Ok(None) => break,
                Ok(Some(entry)) => {
                    let folder = (entry.kind == EntryKind::Directory).then(|| entry.clone());
                    let id = shared.list(dir, Listing::of(place, vec![entry]))?;
                    known.insert(below.clone(), folder.is_some().then_some(id));
                    if folder.is_none() && count < parts.len() {
                        shared.fail(Error::new(Kind::File, format!("cannot read {}: not a directory", escape(&full))));
                        break;
                    }
                    if folder.is_some() && count == parts.len() && shared.options.recursive {
                        folders.push(Pending { branch: branch.inner(&below), entry: folder, below, id });
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
    while let Some(folder) = folders.pop() {
        walk_folder(shared, walk, folder, &mut folders)?;
    }
    Ok(())
}
