//! The threads that write files. All blocks of a file are written by the same thread.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use super::options::CopyOptions;
use crate::channel::Block;
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Payload, Sender, verify};
use crate::proto::{Entry, EntryKind, Failure, Frame, Have, Id, SMALL};
use crate::tree::{Directory, Keep, Partial, set_facts, settle, temporary_name};

/// What failed if the metadata of an entry could not be set.
pub(super) const FACTS: &str = "set the metadata of";

/// A task for a writing thread.
#[derive(Debug)]
pub(super) enum Task {
    /// Opens the partial file of an entry, which has at least the bytes before the offset `from`.
    Open {
        /// The file's number.
        id: Id,
        /// Its directory.
        directory: Arc<Directory>,
        /// Its entry.
        entry: Box<Entry>,
        /// Its length in bytes.
        size: u64,
        /// The first byte that may not be here.
        from: u64,
    },
    /// Writes a block.
    Block(Block, Payload),
    /// Completes a file, or abandons it.
    Close(Id, std::result::Result<(), Failure>),
    /// Writes the files of a pack.
    Pack(Block, Payload, Vec<Packed>),
}

/// A file of a pack: its number, its length, and the path of its directory below the destination with its entry. These
/// are `None` if the file is not written, because it is complete or its directory has failed. A pack may have files of
/// many directories, so these are not kept open.
pub(super) type Packed = (Id, u32, Option<(Arc<[u8]>, Box<Entry>)>);

/// State that the threads share.
#[derive(Debug)]
pub(super) struct Writers<'w> {
    pub(super) sender: &'w Sender,
    /// The next host of a chain. After a thread has written a block on this host, it forwards the block to the next
    /// host.
    pub(super) next: Option<&'w Sender>,
    pub(super) options: &'w CopyOptions,
    pub(super) failures: Mutex<Vec<Error>>,
    /// The files that may get hard links and are complete.
    pub(super) linkable: Mutex<HashSet<Id>>,
    /// Whether forwarding to the next host has failed.
    pub(super) forward_failed: AtomicBool,
    /// The reason why the copy stopped.
    pub(super) broken: Mutex<Option<Error>>,
}

/// Number of threads that write.
pub(super) fn count() -> usize {
    std::thread::available_parallelism().map_or(2, NonZero::get).clamp(2, 4)
}

struct OpenFile {
    directory: Arc<Directory>,
    entry: Box<Entry>,
    partial: Option<Partial>,
}

impl Writers<'_> {
    /// Runs tasks until no task is left. `root` is the destination.
    pub(super) fn run(&self, tasks: Receiver<Task>, root: &Arc<Directory>) {
        let mut files: HashMap<Id, OpenFile> = HashMap::new();
        for task in tasks {
            if let Err(error) = self.task(task, &mut files, root) {
                self.broken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
        // The remaining files are incomplete, because the transfer has ended. Those with a journal are kept for the
        // next run.
        for (_, file) in files.drain() {
            if let Some(partial) = file.partial {
                partial.abandon(&file.directory);
            }
        }
    }

    fn task(&self, task: Task, files: &mut HashMap<Id, OpenFile>, root: &Arc<Directory>) -> Result<()> {
        match task {
            Task::Open { id, directory, entry, size, from } => {
                let mode = first_mode(&directory, &entry, self.options.keep);
                let opened = Partial::open(&directory, &entry, size, mode).and_then(|(partial, have)| {
                    // Another process has written the file since this side has answered.
                    if have < from {
                        return Err(Errno::WOULDBLOCK);
                    }
                    // What follows was not verified, and a hole of the source would keep it.
                    let cut = rustix::fs::ftruncate(&partial.fd, have);
                    match cut.and_then(|()| rustix::fs::ftruncate(&partial.fd, size)) {
                        Ok(()) => Ok(partial),
                        Err(error) => {
                            partial.discard(&directory);
                            Err(error)
                        }
                    }
                });
                let partial = self.or_fail(id, (directory.path(), &entry), "create", opened)?;
                files.insert(id, OpenFile { directory, entry, partial });
            }
            Task::Block(block, payload) => {
                verify(&block, &payload)?;
                if let Some(file) = files.get_mut(&block.file)
                    && let Some(partial) = &mut file.partial
                {
                    let written = partial.write(block.offset, block.hash, &payload);
                    let is_full = matches!(written, Err(Errno::NOSPC | Errno::DQUOT));
                    if self.or_fail(block.file, (file.directory.path(), &file.entry), "write", written)?.is_none()
                        && let Some(partial) = file.partial.take()
                    {
                        // As with rsync, what does not fit does not keep the disk full.
                        if is_full { partial.discard(&file.directory) } else { partial.abandon(&file.directory) }
                    }
                }
                if let Some(next) = self.next() {
                    self.forwarded(next.forward(None, &block, payload))?;
                }
            }
            Task::Close(id, result) => {
                if let Some(next) = self.next() {
                    self.forwarded(next.frame(&Frame::Close(id, result.clone())))?;
                }
                let Some(OpenFile { directory, entry, partial: Some(partial) }) = files.remove(&id) else {
                    return Ok(());
                };
                match result {
                    Ok(()) => {
                        let keep = self.options.keep;
                        let permissions = if keep.mode { None } else { directory.permissions(&entry.name) };
                        let facts = set_file_facts(&partial.fd, &entry, keep, permissions);
                        let finished = partial.finish(&directory, &entry.name);
                        let at = (directory.path(), &*entry);
                        if self.or_fail(id, at, "complete", finished)?.is_some() {
                            self.is_whole(id, &entry);
                            self.or_fail(id, at, FACTS, facts)?;
                        }
                    }
                    // The sender reports the failure, and the received bytes are not a valid version of the file.
                    Err(_) => {
                        partial.discard(&directory);
                    }
                }
            }
            Task::Pack(block, payload, list) => {
                verify(&block, &payload)?;
                self.pack(&list, &payload, root)?;
                if let Some(next) = self.next() {
                    let list = list.iter().map(|(id, length, ..)| (*id, *length)).collect();
                    self.forwarded(next.forward(Some(&Frame::Pack(list)), &block, payload))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the files of a pack. Those of one directory mostly follow each other.
    fn pack(&self, list: &[Packed], mut bytes: &[u8], root: &Arc<Directory>) -> Result<()> {
        type Opened<'p> = (&'p Arc<[u8]>, std::result::Result<Arc<Directory>, Errno>);
        let mut last: Option<Opened<'_>> = None;
        for (id, length, place) in list {
            let Some((file, rest)) = bytes.split_at_checked(*length as usize) else { break };
            bytes = rest;
            let Some((path, entry)) = place else { continue };
            let (_, directory) = match last.take() {
                Some(same) if Arc::ptr_eq(same.0, path) => last.insert(same),
                _ if path.is_empty() => last.insert((path, Ok(Arc::clone(root)))),
                _ => last.insert((path, root.of_tree(path).map(Arc::new))),
            };
            let written = match directory {
                Ok(directory) => write_small(directory, entry, file, self.options),
                Err(error) => Err(*error),
            };
            let folder = root.path().join(OsStr::from_bytes(path));
            if let Some(facts) = self.or_fail(*id, (&folder, entry), "write", written)? {
                self.is_whole(*id, entry);
                self.or_fail(*id, (&folder, entry), FACTS, facts)?;
            }
        }
        Ok(())
    }

    /// Records that a file is complete.
    pub(super) fn is_whole(&self, id: Id, entry: &Entry) {
        if matches!(entry.kind, EntryKind::File { has_links: true, .. }) {
            self.linkable.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        }
    }

    /// The next host, unless forwarding to it has failed: to try again would only wait as long again.
    fn next(&self) -> Option<&Sender> {
        self.next.filter(|_| !self.forward_failed.load(Relaxed))
    }

    /// Records that forwarding to the next host failed. The thread that receives from that host determines the reason.
    pub(super) fn forwarded(&self, result: Result<()>) -> Result<()> {
        result.map_err(|_| {
            self.forward_failed.store(true, Relaxed);
            Error::new(Kind::Broken, "a host of the chain is lost")
        })
    }

    /// Reports the failure of an entry of this folder to the sender.
    pub(super) fn or_fail<T>(
        &self,
        id: Id,
        (folder, entry): (&Path, &Entry),
        what: &str,
        result: std::result::Result<T, Errno>,
    ) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let path = folder.join(OsStr::from_bytes(&entry.name));
                let name = escape(&path);
                let error = match error {
                    Errno::WOULDBLOCK => {
                        Error::new(Kind::File, format!("another transfer writes {name}; wait until it has ended"))
                    }
                    Errno::XDEV => {
                        Error::new(Kind::File, format!("cannot {what} {name}: a link leads out of the destination"))
                    }
                    error => Error::file(what, &path, &error.into()),
                };
                self.fail(id, error).map(|()| None)
            }
        }
    }

    /// Records a failure, and reports it to the sender.
    pub(super) fn fail(&self, id: Id, error: Error) -> Result<()> {
        let failure = Failure::from(&error);
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        self.sender.frame(&Frame::Result(id, Err(failure)))
    }
}

/// Writes a small file under its temporary name, and renames it. Returns whether its metadata could be set.
fn write_small(
    directory: &Directory,
    entry: &Entry,
    mut bytes: &[u8],
    options: &CopyOptions,
) -> std::result::Result<std::result::Result<(), Errno>, Errno> {
    let temporary = temporary_name(&entry.name, b"small");
    let permissions = if options.keep.mode { None } else { directory.permissions(&entry.name) };
    let fd = directory.claim(&temporary, first_mode(directory, entry, options.keep))?;
    let mut write = || {
        while !bytes.is_empty() {
            match rustix::io::write(&fd, bytes) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        let facts = set_file_facts(&fd, entry, options.keep, permissions);
        settle(&fd).map(|()| facts)
    };
    match write() {
        Ok(facts) => directory.publish(&fd, &temporary, &entry.name).map(|()| facts),
        Err(error) => {
            directory.remove_stale(&temporary);
            Err(error)
        }
    }
}

/// The mode of a file while it is written: its owner can continue it later. With `-p`, no other user may read it until it
/// gets the source's owner and mode.
fn first_mode(directory: &Directory, entry: &Entry, keep: Keep) -> u16 {
    0o600 | if keep.mode { 0 } else { directory.permissions(&entry.name).unwrap_or(entry.mode & 0o777) }
}

/// Sets the metadata of a file that is complete. `permissions` are those of the file that it replaces, if they are kept.
fn set_file_facts(fd: &OwnedFd, entry: &Entry, keep: Keep, permissions: Option<u16>) -> std::result::Result<(), Errno> {
    let set = match permissions {
        Some(mode) => rustix::fs::fchmod(fd, Mode::from_raw_mode(mode.into())),
        // The umask has limited the mode, and the owner got more than the source has.
        None if !keep.mode && entry.mode & 0o600 != 0o600 => rustix::fs::fstat(fd).and_then(|found| {
            let mode = found.st_mode & 0o777 & !(0o600 & !u32::from(entry.mode));
            rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))
        }),
        None => Ok(()),
    };
    // The rest is set even if this fails.
    let facts = set_facts(fd, entry, keep);
    set.and(facts)
}

/// Determines how much of a file this side already has.
pub(super) fn have(
    writers: &Writers<'_>,
    (id, directory, entry): (Id, &Directory, &Entry),
    (size, sum): (u64, Option<u128>),
) -> Result<Have> {
    let options = writers.options;
    if (options.sync || options.begun.is_some())
        && let Ok(found) = directory.stat(&entry.name)
        && FileType::from_raw_mode(found.st_mode).is_file()
    {
        let (length, modified) = crate::tree::facts(&found);
        // Without --sync, an existing file is kept only if this copy has written it.
        let is_ours = options.begun.is_some_and(|begun| (found.st_ctime, found.st_ctime_nsec as i64) >= begun);
        let same = length == size
            && (options.sync || is_ours)
            && match sum {
                Some(sum) => directory.open_file(&entry.name, false).is_ok_and(|(fd, _)| {
                    crate::tree::sum_of(&mut std::fs::File::from(fd)).is_ok_and(|ours| ours == sum)
                }),
                None => modified == entry.modified,
            };
        if same {
            // A file with the same contents may have different metadata.
            if options.keep.differs(&found, entry) && !options.dry_run {
                let opened = directory.open_file(&entry.name, false);
                let set = opened.and_then(|(fd, _)| set_facts(fd, entry, options.keep));
                writers.or_fail(id, (directory.path(), entry), FACTS, set)?;
            }
            return Ok(Have::All);
        }
    }
    // Small files are written at once, without a partial file that a later run could continue.
    if options.dry_run || size <= SMALL {
        return Ok(Have::Until(0));
    }
    // The writing thread opens the file again, and reports what is wrong with it. Until then it is closed, because many
    // files may wait.
    Ok(Have::Until(Partial::have(directory, entry, size, first_mode(directory, entry, options.keep)).unwrap_or(0)))
}
