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

use rustix::fs::Mode;
use rustix::io::Errno;

use super::chain::{Next, Side};
use super::options::CopyOptions;
use super::progress::Progress;
use crate::channel::Block;
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Payload, Sender, verify};
use crate::proto::{Entry, EntryKind, Failure, Folder, Frame, Have, Id, Packed, Sum};
use crate::tree::{Directory, Keep, Partial, Written, keep_facts, leftover, partial_name, set_facts};

/// What failed if the metadata of an entry could not be set.
pub(super) const FACTS: &str = "set the metadata of";

/// A task for a writing thread.
#[derive(Debug)]
pub(super) enum Task {
    /// Compares the first blocks of a file with the source's hashes.
    Sums {
        /// The file's number.
        id: Id,
        /// The hashes.
        sums: Vec<Sum>,
        /// Whether no more follow.
        last: bool,
        /// The file's directory and entry, unless the file is not written.
        place: Option<Place>,
        /// The answer if there is nothing to compare.
        otherwise: Have,
    },
    /// Opens the partial file of an entry for writing after the bytes that were proved.
    Open(Id, Arc<Directory>, Box<Entry>),
    /// Writes a block.
    Block(Block, Payload),
    /// Completes a file, or abandons it.
    Close(Id, std::result::Result<(), Failure>),
    /// Writes the files of a pack. It may have files of many directories, so these are not kept open.
    Pack(Block, Payload, Vec<Packed>),
}

/// State that the threads share.
pub(super) struct Writers<'w> {
    pub(super) sender: &'w Sender,
    /// The next host of a chain. After a thread has written a block on this host, it forwards the block to the next
    /// host.
    pub(super) next: Option<&'w Next>,
    pub(super) options: &'w CopyOptions,
    pub(super) progress: &'w Progress,
    pub(super) failures: Mutex<Vec<Error>>,
    pub(super) written: &'w Written,
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

/// Where a file is written: its directory and its entry.
pub(super) type Place = (Arc<Directory>, Box<Entry>);

struct OpenFile {
    directory: Arc<Directory>,
    entry: Box<Entry>,
    partial: Option<Partial>,
    /// The number of bytes that hashes of the source have proved, and whether more of them may follow.
    proved: u64,
    is_checked: bool,
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
        // The remaining files are incomplete, because the transfer has ended. Long ones are kept for the next
        // run.
        for (_, file) in files.drain() {
            if let Some(partial) = file.partial {
                partial.abandon(&file.directory, file.entry.size());
            }
        }
    }

    fn task(&self, task: Task, files: &mut HashMap<Id, OpenFile>, root: &Arc<Directory>) -> Result<()> {
        match task {
            Task::Sums { id, sums, last, place, otherwise } => {
                if let Some(next) = self.next {
                    next.expect(id);
                }
                self.check(id, &sums, last, place, otherwise, files)?;
                self.forward(|| Frame::Sums { id, sums, last })?;
            }
            Task::Open(id, directory, entry) => {
                let opened = match files.remove(&id) {
                    // What follows was not proved, and a hole of the source would keep it.
                    Some(OpenFile { partial: Some(partial), proved, .. }) => partial.resize(proved).map(|()| partial),
                    _ => {
                        let permissions = existing(&directory, &entry, self.options.keep);
                        Partial::create(&directory, &entry.name, first_mode(permissions, &entry, self.options.keep))
                    }
                };
                let partial = self.or_fail(id, directory.path(), &entry, "create", opened)?;
                files.insert(id, OpenFile { directory, entry, partial, proved: 0, is_checked: true });
            }
            Task::Block(block, payload) => {
                verify(&block, &payload)?;
                if let Some(file) = files.get_mut(&block.file)
                    && let Some(partial) = &mut file.partial
                {
                    let written = partial.write(block.offset, &payload);
                    let failed = written.is_err().then(|| file.partial.take()).flatten();
                    match failed {
                        // As with rsync, what does not fit does not keep the disk full.
                        Some(partial) if matches!(written, Err(Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                            partial.discard(&file.directory);
                        }
                        Some(partial) => partial.abandon(&file.directory, file.entry.size()),
                        None => {}
                    }
                    self.or_fail(block.file, file.directory.path(), &file.entry, "write", written)?;
                }
                if let Some(next) = self.next() {
                    self.forwarded(next.forward(None, &block, payload))?;
                }
            }
            Task::Close(id, result) => {
                self.forward(|| Frame::Close(id, result.clone()))?;
                let Some(OpenFile { directory, entry, partial: Some(partial), .. }) = files.remove(&id) else {
                    return Ok(());
                };
                match result {
                    Ok(()) => {
                        let keep = self.options.keep;
                        let permissions = existing(&directory, &entry, keep);
                        // A hole may follow the last block.
                        let sized = partial.resize(entry.size());
                        let facts = set_file_facts(&directory, &partial.fd, &entry, keep, permissions);
                        let finished = match sized {
                            Ok(()) => partial.finish(&directory, &entry.name),
                            Err(error) => {
                                partial.discard(&directory);
                                Err(error)
                            }
                        };
                        if let Some(fd) = self.or_fail(id, directory.path(), &entry, "complete", finished)? {
                            let facts = facts.and_then(|()| keep_facts(&directory, &fd, &entry, keep));
                            self.written.note(&fd);
                            self.is_whole(id, &entry);
                            self.or_fail(id, directory.path(), &entry, FACTS, facts)?;
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
                    let list = list.iter().map(|file| (file.id, file.length)).collect();
                    self.forwarded(next.forward(Some(&Frame::Pack(list)), &block, payload))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the files of a pack. Those of one directory mostly follow each other.
    fn pack(&self, list: &[Packed], mut bytes: &[u8], root: &Arc<Directory>) -> Result<()> {
        let mut last: Option<(&Arc<Folder>, _)> = None;
        for Packed { id, length, place } in list {
            let Some((file, rest)) = bytes.split_at_checked(*length as usize) else { break };
            bytes = rest;
            // A directory that has failed was reported already.
            let Some((place, entry)) = place.as_ref().filter(|(folder, _)| !folder.is_lost) else { continue };
            let (_, directory) = match last.take() {
                Some(same) if Arc::ptr_eq(same.0, place) => last.insert(same),
                _ => last.insert((place, place.open(root))),
            };
            let written = match directory {
                Ok(directory) => write_small(directory, entry, file, self.options).map(|(fd, facts)| {
                    self.written.note(&fd);
                    facts
                }),
                Err(error) => Err(*error),
            };
            let folder = root.path().join(OsStr::from_bytes(&place.path));
            if self.made_or_fail(*id, &folder, entry, "write", written)? {
                self.is_whole(*id, entry);
            }
        }
        Ok(())
    }

    /// Records that a file is complete.
    pub(super) fn is_whole(&self, id: Id, entry: &Entry) {
        if matches!(entry.kind, EntryKind::File { has_links: true, .. } | EntryKind::Special { has_links: true, .. }) {
            self.linkable.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        }
    }

    /// The next host, unless forwarding to it has failed: to try again would only wait as long again.
    fn next(&self) -> Option<&Sender> {
        self.next.map(|next| &next.sender).filter(|_| !self.forward_failed.load(Relaxed))
    }

    /// Compares the first blocks of a file with the source's hashes. Answers as soon as the result is known.
    fn check(
        &self,
        id: Id,
        sums: &[Sum],
        last: bool,
        place: Option<Place>,
        otherwise: Have,
        files: &mut HashMap<Id, OpenFile>,
    ) -> Result<()> {
        if !files.contains_key(&id)
            && let Some((directory, entry)) = place
        {
            // What cannot be continued is replaced when the blocks arrive.
            let keep = self.options.keep;
            let mode = first_mode(existing(&directory, &entry, keep), &entry, keep);
            if let Ok(partial) = Partial::earlier(&directory, &entry.name, mode) {
                let partial = Some(partial);
                files.insert(id, OpenFile { directory, entry, partial, proved: 0, is_checked: false });
            }
        }
        let have = match files.get_mut(&id) {
            Some(OpenFile { is_checked: true, .. }) => return Ok(()),
            Some(OpenFile { partial: Some(partial), proved, is_checked, .. }) => {
                let equal = sums.iter().take_while(|sum| {
                    let is_equal = partial.has(*proved, sum);
                    if is_equal {
                        *proved = sum.offset + u64::from(sum.length);
                    }
                    is_equal
                });
                *is_checked = equal.count() < sums.len() || last;
                if !*is_checked {
                    return Ok(());
                }
                Have::Until(*proved)
            }
            _ if last => otherwise,
            _ => return Ok(()),
        };
        // In a chain, the source gets the answer when the later hosts have answered too.
        let answers = match self.next {
            Some(next) => next.merge(vec![(id, have)], Side::This).unwrap_or_default(),
            None => vec![(id, have)],
        };
        if answers.is_empty() { Ok(()) } else { self.sender.frame(&Frame::Have(answers)) }
    }

    /// Passes a frame to the next host.
    pub(super) fn forward(&self, frame: impl FnOnce() -> Frame) -> Result<()> {
        self.next().map_or(Ok(()), |next| self.forwarded(next.frame(&frame())))
    }

    /// Records that forwarding to the next host failed. The thread that receives from that host determines the reason.
    pub(super) fn forwarded(&self, result: Result<()>) -> Result<()> {
        result.map_err(|_| {
            self.forward_failed.store(true, Relaxed);
            Error::new(Kind::Broken, "a host of the chain is lost")
        })
    }

    /// Reports the failure of an entry of this folder to the sender. Names what is left of the entry: a long file that the
    /// next run continues, or what cannot be removed, because the file system has become read-only.
    pub(super) fn or_fail<T>(
        &self,
        id: Id,
        folder: &Path,
        entry: &Entry,
        what: &str,
        result: std::result::Result<T, Errno>,
    ) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                let left = if error == Errno::WOULDBLOCK { None } else { leftover(folder, &entry.name) };
                let mut error = error_of(what, &folder.join(OsStr::from_bytes(&entry.name)), error);
                if let Some(left) = left {
                    error = Error::new(error.kind(), format!("{error}; an incomplete copy is in {}", escape(&left)));
                }
                self.fail(id, error).map(|()| None)
            }
        }
    }

    /// As [`Self::or_fail`], for an entry and its metadata. Returns whether the entry was made.
    pub(super) fn made_or_fail(
        &self,
        id: Id,
        folder: &Path,
        entry: &Entry,
        what: &str,
        made: std::result::Result<std::result::Result<(), Errno>, Errno>,
    ) -> Result<bool> {
        let Some(facts) = self.or_fail(id, folder, entry, what, made)? else { return Ok(false) };
        self.or_fail(id, folder, entry, FACTS, facts).map(|_| true)
    }

    /// Reports that an entry was removed.
    pub(super) fn removed(&self, path: &Path) -> Result<()> {
        let path = escape(path);
        self.progress.line(|| format!("deleting {path}"));
        self.sender.frame(&Frame::Removed { host: String::new(), path })
    }

    /// Records a failure, and reports it to the sender.
    pub(super) fn fail(&self, id: Id, error: Error) -> Result<()> {
        let failure = Failure::from(&error);
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
        self.sender.frame(&Frame::Result(id, Err(failure)))
    }
}

/// The error of an entry with this path.
pub(super) fn error_of(what: &str, path: &Path, error: Errno) -> Error {
    let name = escape(path);
    let text = match error {
        Errno::WOULDBLOCK => format!("another transfer writes {name}; wait until it has ended"),
        Errno::XDEV => format!("cannot {what} {name}: a link leads out of the destination"),
        Errno::OVERFLOW if what == FACTS => format!("cannot {what} {name}: the file system cannot store the time"),
        Errno::OPNOTSUPP if what == FACTS => {
            format!("cannot {what} {name}: the file system does not store it; omit -a, -p, -o or -X")
        }
        error => return Error::file(what, path, &error.into()),
    };
    Error::new(Kind::File, text)
}

/// Writes a small file under its temporary name, and renames it, so that programs that watch the directory see a file
/// that was moved there, as with rsync. Returns it, and whether its metadata could be set.
fn write_small(
    directory: &Directory,
    entry: &Entry,
    mut bytes: &[u8],
    options: &CopyOptions,
) -> std::result::Result<(OwnedFd, std::result::Result<(), Errno>), Errno> {
    let temporary = partial_name(&entry.name);
    let permissions = existing(directory, entry, options.keep);
    let fd = directory.claim(&temporary, first_mode(permissions, entry, options.keep))?;
    let mut write = || {
        while !bytes.is_empty() {
            match rustix::io::write(&fd, bytes) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        let facts = set_file_facts(directory, &fd, entry, options.keep, permissions);
        directory.settle(&fd).map(|()| facts)
    };
    match write() {
        Ok(facts) => directory.publish(&fd, &temporary, &entry.name).map(|()| {
            let facts = facts.and_then(|()| keep_facts(directory, &fd, entry, options.keep));
            (fd, facts)
        }),
        Err(error) => {
            directory.remove_stale(&temporary);
            Err(error)
        }
    }
}

/// The permissions of the file that this one replaces, if it keeps them.
fn existing(directory: &Directory, entry: &Entry, keep: Keep) -> Option<u16> {
    if keep.mode { None } else { directory.permissions(&entry.name) }
}

/// The mode of a file while it is written: its owner can continue it later. With `-p`, no other user may read it until it
/// gets the source's owner and mode.
fn first_mode(permissions: Option<u16>, entry: &Entry, keep: Keep) -> u16 {
    0o600 | if keep.mode { 0 } else { permissions.unwrap_or(entry.mode & 0o777) }
}

/// Sets the metadata of a file that is complete. `permissions` are those of the file that it replaces, if they are kept.
fn set_file_facts(
    directory: &Directory,
    fd: &OwnedFd,
    entry: &Entry,
    keep: Keep,
    permissions: Option<u16>,
) -> std::result::Result<(), Errno> {
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
    let facts = set_facts(directory, fd, entry, keep);
    set.and(facts)
}
