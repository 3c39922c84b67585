//! Reads files and sends their blocks.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use trespass::Buf;

use super::shared::Shared;
use crate::channel::{BLOCK, Block, BlockKind};
use crate::error::{Error, Kind, Result, escape};
use crate::proto::{Entry, EntryKind, Frame, Id, Job, Sum};
use crate::tree::{Keep, Place, changed, facts, unreadable};

/// Maximum number of hashes in a frame: those of 128 MiB.
const SUMS: usize = 256;

/// Runs a job. `files` contains the locations of the job's files.
pub(super) fn run(shared: &Shared<'_>, job: &Job, files: &[(Place, Entry)]) -> Result<()> {
    match job {
        Job::Pack(ids) => pack(shared, ids, files),
        Job::File { id, size, from } => match files.first() {
            Some((place, entry)) => file(shared, *id, *from..*size, place, entry),
            None => Err(Error::protocol("a file was sent twice")),
        },
        Job::Check { id, until } => match files.first() {
            Some((place, entry)) => check(shared, *id, *until, place, entry),
            None => Err(Error::protocol("a file was sent twice")),
        },
    }
}

/// Sends the hashes of the first bytes of a file, until the sink needs no more. The file stays open until it is sent, so
/// that a change meanwhile is noticed. An error is not reported, because it occurs again when the file is sent.
fn check(shared: &Shared<'_>, id: Id, until: u64, place: &Place, entry: &Entry) -> Result<()> {
    let path = &place.path(&entry.name);
    let mut sums = Vec::new();
    if let Ok((fd, before)) = open(shared, place, &entry.name) {
        let read = blocks(shared, 0..until, path, &fd, |part| {
            let Part::Block(offset, buffer, length) = part else { return Ok(true) };
            let hash = Block::of(BlockKind::Data, id, offset, &buffer[..length]).hash;
            sums.push(Sum { offset, length: length as u32, hash });
            if sums.len() == SUMS {
                shared.sender.frame(&Frame::Sums { id, sums: std::mem::take(&mut sums), last: false })?;
            }
            Ok(shared.is_checking(id))
        });
        if read?.is_ok() {
            shared.keep_open(id, (fd, before));
        }
    }
    shared.sender.frame(&Frame::Sums { id, sums, last: true })?;
    shared.checked(id);
    Ok(())
}

fn pack(shared: &Shared<'_>, ids: &[(Id, u32)], files: &[(Place, Entry)]) -> Result<()> {
    if shared.options.dry_run {
        for ((id, _), (place, entry)) in ids.iter().zip(files) {
            done(shared, &place.path(&entry.name));
            shared.sender.frame(&Frame::Close(*id, Ok(())))?;
        }
        return Ok(());
    }
    let most = ids.iter().map(|(_, length)| *length as usize).sum();
    let mut buffer = shared.sender.buffer(most);
    let (mut list, mut length) = (Vec::with_capacity(ids.len()), 0);
    let mut folder: Option<(&Place, OwnedFd)> = None;
    for (index, (&(id, size), (place, entry))) in ids.iter().zip(files).enumerate() {
        let path = place.path(&entry.name);
        let is_same = |other: &Place| !place.follows && Arc::ptr_eq(&other.directory, &place.directory);
        // The directory is worth being opened if another file follows. If it cannot be opened, neither can the file.
        folder = match folder.take().filter(|(other, _)| is_same(other)) {
            None if files.get(index + 1).is_some_and(|(next, _)| is_same(next)) => {
                shared.origin.folder(&place.directory, LOOK).ok().map(|fd| (place, fd))
            }
            folder => folder,
        };
        let opened = match &folder {
            Some((_, folder)) => checked(&path, rustix::fs::openat(folder, entry.name.as_slice(), READ, Mode::empty())),
            None => open(shared, place, &entry.name),
        };
        let into = &mut buffer[length..length + size as usize];
        match opened.and_then(|(fd, before)| small(&path, &fd, &before, entry, shared.options.keep, into)) {
            Ok(()) => {
                list.push((id, size));
                length += size as usize;
                done(shared, &path);
            }
            Err(error) => shared.close(id, Err(error))?,
        }
    }
    if list.is_empty() {
        return Ok(());
    }
    let block = Block::of(BlockKind::Pack, list[0].0, 0, &buffer[..length]);
    shared.limiter.take(length);
    shared.sent(length as u64);
    shared.sender.pack(&Frame::Pack(list), &block, buffer, length)
}

/// Reads a small file completely.
fn small(path: &Path, fd: &OwnedFd, before: &Stat, entry: &Entry, keep: Keep, into: &mut [u8]) -> Result<()> {
    let mut length = 0;
    // The check of size and time below detects a file that has grown.
    while length < into.len() {
        match rustix::io::read(fd, &mut into[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::file("read", path, &error.into())),
        }
    }
    // Files of /proc have the length 0, although they have contents.
    if into.is_empty() && before.st_size == 0 && rustix::io::read(fd, &mut [0; 1]).is_ok_and(|count| count > 0) {
        return Err(wrong_length(path));
    }
    unchanged(path, entry, keep, fd, before, length == into.len())
}

fn file(shared: &Shared<'_>, id: Id, range: Range<u64>, place: &Place, entry: &Entry) -> Result<()> {
    let path = &place.path(&entry.name);
    if shared.options.dry_run {
        done(shared, path);
        return shared.sender.frame(&Frame::Close(id, Ok(())));
    }
    let opened = match shared.take_open(id) {
        Some(checked) => Ok(checked),
        None if range.start > 0 => Err(changed(path)),
        None => open(shared, place, &entry.name),
    };
    let result = match opened {
        Ok((fd, before)) => {
            _ = rustix::fs::fadvise(&fd, range.start, None, rustix::fs::Advice::Sequential);
            let sent = blocks(shared, range, path, &fd, |part| {
                match part {
                    Part::Hole(length) => shared.progress.bytes(length),
                    Part::Block(offset, buffer, length) => {
                        let block = Block::of(BlockKind::Data, id, offset, &buffer[..length]);
                        shared.limiter.take(length);
                        shared.sent(length as u64);
                        shared.sender.block(&block, buffer, length)?;
                    }
                }
                Ok(true)
            });
            match sent? {
                Ok(whole) => unchanged(path, entry, shared.options.keep, &fd, &before, whole),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    };
    if result.is_ok() {
        done(shared, path);
    }
    shared.close(id, result)
}

/// A part of a file: the length of a hole, or a block with its offset and its length in the buffer.
enum Part {
    Hole(u64),
    Block(u64, Buf, usize),
}

/// Passes the parts of a file to `take`, until that returns false. The outer error is `take`'s, the inner one an error of
/// the file. Returns false if the file is shorter than listed.
fn blocks(
    shared: &Shared<'_>,
    Range { start: mut at, end: size }: Range<u64>,
    path: &Path,
    fd: &OwnedFd,
    mut take: impl FnMut(Part) -> Result<bool>,
) -> Result<Result<bool>> {
    while at < size {
        // On a file system that does not report holes, `seek` returns `at` itself.
        let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(start) => start,
            // The rest of the file is a hole.
            Err(Errno::NXIO) => size,
            Err(_) => at,
        };
        if start > at && !take(Part::Hole(start.min(size) - at))? {
            return Ok(Ok(true));
        }
        if start >= size {
            break;
        }
        let end = rustix::fs::seek(fd, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        at = start;
        while at < end {
            let length = (end - at).min(BLOCK as u64) as usize;
            let mut buffer = shared.sender.buffer(length);
            let mut done = 0;
            while done < length {
                match rustix::io::pread(fd, &mut buffer[done..length], at + done as u64) {
                    Ok(0) => return Ok(Ok(false)),
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(error) => return Ok(Err(Error::file("read", path, &error.into()))),
                }
            }
            if !take(Part::Block(at, buffer, length))? {
                return Ok(Ok(true));
            }
            at += length as u64;
        }
    }
    Ok(Ok(true))
}

/// The flags that open a directory, to resolve the names of its entries.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The flags that open a file. It may have been replaced by a FIFO or a link since it was listed.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn open(shared: &Shared<'_>, place: &Place, name: &[u8]) -> Result<(OwnedFd, Stat)> {
    let path = place.path(name);
    let opened = match place.follows {
        // Only operands are followed.
        true => shared.origin.open(&path, READ.difference(OFlags::NOFOLLOW), true),
        false => shared.origin.entry(&place.directory, name, READ),
    };
    checked(&path, opened)
}

/// Checks that a file that was opened is a regular one.
fn checked(path: &Path, opened: std::result::Result<OwnedFd, Errno>) -> Result<(OwnedFd, Stat)> {
    match opened.and_then(|fd| Ok((rustix::fs::fstat(&fd)?, fd))) {
        // What is read from a device, for example, may have no end.
        Ok((found, _)) if !FileType::from_raw_mode(found.st_mode).is_file() => Err(changed(path)),
        Ok((found, fd)) => Ok((fd, found)),
        Err(error) => Err(unreadable(path, error)),
    }
}

/// Checks that the file did not change while it was read; otherwise the copy may mix old and new contents. A file that
/// has replaced the listed one has other metadata.
fn unchanged(path: &Path, entry: &Entry, keep: Keep, fd: &OwnedFd, before: &Stat, whole: bool) -> Result<()> {
    let is_listed = keep.has(fd, before, entry);
    let after = rustix::fs::fstat(fd).map_err(|error| Error::file("read", path, &io::Error::from(error)))?;
    let listed = match entry.kind {
        EntryKind::File { size, .. } => (size, entry.modified),
        _ => facts(before),
    };
    let same = (after.st_ctime, after.st_ctime_nsec) == (before.st_ctime, before.st_ctime_nsec);
    if whole && same && is_listed && facts(&after) == listed {
        return Ok(());
    }
    if !whole && same && facts(&after) == listed {
        return Err(wrong_length(path));
    }
    Err(changed(path))
}

/// The error for a file whose length its file system does not report.
fn wrong_length(path: &Path) -> Error {
    let path = escape(path);
    let text =
        format!("{path} is not as long as its metadata states, as in /proc and /sys; copy it with cat and rdsend");
    Error::new(Kind::File, text)
}

fn done(shared: &Shared<'_>, path: &Path) {
    shared.progress.file(|| escape(path));
}
