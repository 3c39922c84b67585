//! The receiving thread of a tree: processes lists, sends answers, and passes tasks to the writing threads.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;

use super::alike::Alike;
use super::only_last;
use super::opened::Opened;
use super::rest::{Rest, Surplus};
use super::trial::pretend;
use crate::channel::BlockKind;
use crate::copy::chain::Next;
use crate::copy::options::CopyOptions;
use crate::copy::progress::Progress;
use crate::copy::target::{Folder, Name, Top};
use crate::copy::writer::{FACTS, Task, Writers, have};
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Link, Received};
use crate::proto::{Entry, EntryKind, Frame, Have, Id, ROOT, Sink, Special, Totals};
use crate::tree::{Directory, join, partial_name};

/// Maximum number of open directories.
const OPEN: usize = 128;

/// State of the receiving thread.
pub(super) struct Receiving<'r> {
    root: Arc<Directory>,
    rename: Option<Name>,
    /// The name of the source, if the destination has another.
    renamed: Option<Vec<u8>>,
    /// Whether the destination directory itself becomes the copy of a source, instead of containing it.
    top: Option<Top>,
    /// Whether the source has listed all entries of such a copy.
    is_whole: bool,
    /// Names that the source may list in the destination directory; `None` allows all.
    expected: Option<&'r [Vec<u8>]>,
    options: &'r CopyOptions,
    progress: &'r Progress,
    writers: &'r Writers<'r>,
    pub(super) tasks: Vec<SyncSender<Task>>,
    sink: Sink,
    /// The received directories.
    folders: HashMap<Id, Folder>,
    /// The paths of directories that have failed, for messages.
    lost: HashMap<Id, Arc<[u8]>>,
    open: HashMap<Id, Arc<Directory>>,
    opened: &'r Opened,
    /// The directories, each with its permissions if they are other than those that it has meanwhile.
    made: Vec<(Id, Box<Entry>, Option<u16>)>,
    /// Files for which no block has arrived yet, with their directory.
    files: HashMap<Id, (Id, Box<Entry>)>,
    /// Files that may still get hard links.
    named: HashMap<Id, (Id, Vec<u8>)>,
    same: Vec<(Id, Id, Entry, Id)>,
    /// For `--delete`: the names of each directory's entries at the source.
    listed: HashMap<Id, HashSet<Vec<u8>>>,
    surplus: Vec<Surplus>,
    alike: Alike,
    /// For a trial run with `--delete`: the names under which a real run would first write the files that are sent.
    temporary: HashSet<(Id, Vec<u8>)>,
    pack: Option<Vec<(Id, u32)>>,
    /// The next host of a chain.
    next: Option<&'r Next>,
}

impl<'r> Receiving<'r> {
    pub(super) fn new(
        (root, rename, top): (Arc<Directory>, Option<&Name>, Option<Top>),
        expected: Option<&'r [Vec<u8>]>,
        (options, progress, opened): (&'r CopyOptions, &'r Progress, &'r Opened),
        (writers, tasks): (&'r Writers<'r>, Vec<SyncSender<Task>>),
        next: Option<&'r Next>,
    ) -> Self {
        Self {
            root,
            rename: rename.cloned(),
            renamed: None,
            top,
            is_whole: false,
            expected,
            options,
            progress,
            writers,
            tasks,
            sink: Sink::new(options.asks()),
            folders: HashMap::from([(ROOT, Folder::default())]),
            lost: HashMap::new(),
            open: HashMap::new(),
            opened,
            made: Vec::new(),
            files: HashMap::new(),
            named: HashMap::new(),
            same: Vec::new(),
            listed: HashMap::new(),
            surplus: Vec::new(),
            alike: Alike::default(),
            temporary: HashSet::new(),
            pack: None,
            next,
        }
    }

    pub(super) fn run(&mut self, link: &mut Link) -> Result<Totals> {
        loop {
            // If a writing thread has failed, its error is more precise.
            if let Some(error) = self.writers.broken.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                return Err(error);
            }
            // The lists of one message are answered in one message.
            if link.receiver.is_empty() {
                if let Some(next) = self.next {
                    self.writers.forwarded(next.sender.send_waiting())?;
                }
                link.sender.send_waiting()?;
            }
            let received = link.receiver.receive()?;
            match received {
                Received::Block(block, payload) => match (block.kind, self.pack.take()) {
                    (BlockKind::Data, None) => {
                        self.sink.block(block.file, block.offset, payload.len())?;
                        self.progress.bytes(payload.len() as u64);
                        self.open_file(block.file)?;
                        self.task(block.file, Task::Block(block, payload))?;
                    }
                    (BlockKind::Pack, Some(list)) => {
                        self.sink.pack(&list, payload.len())?;
                        self.progress.bytes(payload.len() as u64);
                        let mut files = Vec::with_capacity(list.len());
                        for (id, length) in list {
                            let place = self.files.remove(&id).and_then(|(dir, entry)| {
                                self.note_file(&entry);
                                Some((self.folders.get(&dir)?.clone(), entry))
                            });
                            files.push((id, length, place));
                        }
                        self.task(block.file, Task::Pack(block, payload, files))?;
                    }
                    _ => return Err(Error::protocol("the sender sent a pack without its list")),
                },
                Received::Frame(Frame::List { dir, entries, whole }) => self.list(dir, entries, whole, link)?,
                Received::Frame(Frame::Top(entry)) => self.enter_top(entry)?,
                Received::Frame(Frame::Sums { id, sums, last }) => {
                    self.sink.sums(id, &sums)?;
                    // This host has the whole file if its entry is no longer here.
                    let (place, otherwise) = match self.files.get(&id).cloned() {
                        // If the directory cannot be opened, this is reported when the file is written.
                        Some((dir, entry)) => {
                            (self.find_directory(dir).map(|directory| (directory, entry)), Have::Until(0))
                        }
                        None => (None, Have::All),
                    };
                    self.task(id, Task::Sums { id, sums, last, place, otherwise })?;
                }
                Received::Frame(Frame::Pack(list)) if self.pack.is_none() => self.pack = Some(list),
                Received::Frame(Frame::Close(id, result)) => {
                    self.sink.close(id)?;
                    if self.options.dry_run {
                        if let Some((dir, entry)) = self.files.remove(&id).filter(|_| self.options.delete) {
                            self.temporary.insert((dir, partial_name(&entry.name)));
                        }
                        if let Some(next) = self.next {
                            self.writers.forwarded(next.sender.frame(&Frame::Close(id, result)))?;
                        }
                        continue;
                    }
                    if result.is_ok() {
                        self.open_file(id)?;
                    }
                    self.files.remove(&id);
                    self.task(id, Task::Close(id, result))?;
                }
                Received::Frame(Frame::End(totals)) => {
                    self.sink.end(&totals)?;
                    if self.is_whole {
                        self.find_surplus(ROOT)?;
                    }
                    return Ok(Totals { failed: totals.failed, ..self.sink.totals() });
                }
                Received::Frame(_) => return Err(Error::protocol("the sender sent an unexpected frame")),
            }
        }
    }

    /// Prepares the destination to become the copy of a directory. If this copy has created it, it is as private as the
    /// source from now on.
    fn enter_top(&mut self, entry: Entry) -> Result<()> {
        let Some(Top { is_new }) = self.top else {
            return Err(Error::protocol("the sender sent the metadata of a directory that it does not copy"));
        };
        if entry.kind != EntryKind::Directory || self.sink.totals().entries != 0 || !self.made.is_empty() {
            return Err(Error::protocol("the sender sent the metadata of the destination at a wrong time"));
        }
        if let Some(next) = self.next {
            self.writers.forwarded(next.sender.frame(&Frame::Top(entry.clone())))?;
        }
        if self.options.dry_run {
            return Ok(());
        }
        let mut permissions = None;
        let set = self.root.with(self.options.gives_way()).and_then(Directory::open_up).and_then(|(root, had)| {
            self.root = Arc::new(root);
            permissions = had;
            if is_new {
                let found = rustix::fs::fstat(&*self.root)?;
                let mode = found.st_mode & 0o7000 | found.st_mode & u32::from(entry.mode) & 0o777;
                permissions = Some(mode as u16);
                rustix::fs::fchmod(&*self.root, Mode::from_raw_mode(mode | 0o700))?;
            }
            _ = self.root.narrow(&entry, self.options.keep);
            Ok(())
        });
        if let Err(error) = set {
            self.writers.fail(ROOT, Error::file(FACTS, self.root.path(), &error.into()))?;
        }
        let permissions = self.opened.note(&Arc::default(), permissions);
        self.made.push((ROOT, Box::new(entry), permissions));
        Ok(())
    }

    fn list(&mut self, dir: Id, mut entries: Vec<Entry>, whole: bool, link: &Link) -> Result<()> {
        let forwarded = self.next.map(|next| (next, Frame::List { dir, entries: entries.clone(), whole }));
        if dir == ROOT {
            if let Some(expected) = self.expected
                && let Some(other) = entries.iter().find(|entry| !expected.contains(&entry.name))
            {
                let name = escape(String::from_utf8_lossy(&other.name).as_ref().as_ref());
                return Err(Error::protocol(format!("the sender listed {name}, which was not requested")));
            }
            if let Some(Name { name, is_directory }) = &self.rename {
                match entries.as_mut_slice() {
                    [entry] if self.sink.totals().entries == 0 => {
                        let is_other = |found: Stat| !FileType::from_raw_mode(found.st_mode).is_dir();
                        let path = self.root.path().join(OsStr::from_bytes(name));
                        if entry.kind != EntryKind::Directory && *is_directory {
                            return Err(Error::file("write a file to", &path.join(""), &Errno::NOTDIR.into()));
                        }
                        if entry.kind == EntryKind::Directory && self.root.stat(name).is_ok_and(is_other) {
                            return Err(Error::file("write a tree to", &path, &Errno::NOTDIR.into()));
                        }
                        let is_special = |found: Stat| {
                            !matches!(
                                FileType::from_raw_mode(found.st_mode),
                                FileType::RegularFile | FileType::Directory | FileType::Symlink
                            )
                        };
                        let is_file = matches!(entry.kind, EntryKind::File { .. });
                        let is_link = |found: Stat| FileType::from_raw_mode(found.st_mode).is_symlink();
                        // A link to a file would be resolved already. Below --root, no link is.
                        let keeps_link = is_file && !self.options.sync && !self.options.alone;
                        if keeps_link && self.root.stat(name).is_ok_and(is_link) {
                            let path = escape(&path);
                            let text =
                                format!("cannot write to {path}: it is a link to a missing file; remove the link");
                            return Err(Error::new(Kind::File, text));
                        }
                        if is_file && self.next.is_some() && self.root.stat(name).is_ok_and(is_special) {
                            return Err(only_last(&path));
                        }
                        self.renamed = Some(std::mem::replace(&mut entry.name, name.clone()));
                    }
                    _ => return Err(Error::protocol("the sender listed several entries, but one was requested")),
                }
            }
        }
        let first = self.sink.list(dir, &entries, whole)?;
        self.alike.take(dir, &entries, whole);
        if self.options.delete && (dir != ROOT || self.top.is_some()) {
            self.listed.entry(dir).or_default().extend(entries.iter().map(|entry| entry.name.clone()));
            match dir {
                // Other sources may follow.
                ROOT => self.is_whole |= whole,
                _ if whole => self.find_surplus(dir)?,
                _ => {}
            }
        }
        let mut answers = Vec::new();
        (first..).zip(entries).try_for_each(|(id, entry)| self.entry(id, dir, entry, &mut answers))?;
        match forwarded {
            Some((next, frame)) => {
                next.keep(answers);
                self.writers.forwarded(next.sender.later(&frame.emit()))
            }
            None if answers.is_empty() => Ok(()),
            None => link.sender.later(&Frame::Have(answers).emit()),
        }
    }

    fn entry(&mut self, id: Id, dir: Id, entry: Entry, answers: &mut Vec<(Id, Have)>) -> Result<()> {
        let is_refused = self.options.dry_run
            && match self.find_directory(dir) {
                Some(directory) => !pretend(self.writers, id, &directory, &entry)?,
                None => false,
            };
        match &entry.kind {
            EntryKind::Directory => {
                let above = self.folders.get(&dir).map(|folder| &folder.path).or_else(|| self.lost.get(&dir));
                let Some(above) = above else { return Ok(()) };
                let path: Arc<[u8]> = join(above, &entry.name).into();
                if self.options.dry_run {
                    if !is_refused {
                        self.folders.insert(id, Folder { path, is_new: false });
                    }
                    return Ok(());
                }
                let Some(above) = self.directory(dir, id, &entry)? else {
                    self.lost.insert(id, path);
                    return Ok(());
                };
                if let Some((directory, permissions)) =
                    self.writers.or_fail(id, (above.path(), &entry), "make", above.enter(&entry.name, entry.mode))?
                {
                    let permissions = self.opened.note(&path, permissions);
                    // If this fails, so does setting the metadata at the end.
                    _ = directory.narrow(&entry, self.options.keep);
                    self.folders.insert(id, Folder { path, is_new: directory.is_new() });
                    self.hold(id, Arc::new(directory));
                    self.made.push((id, Box::new(entry), permissions));
                } else {
                    self.lost.insert(id, path);
                }
            }
            EntryKind::File { size, has_links, sum, .. } => {
                let (size, sum) = (*size, *sum);
                self.progress.listed(size);
                if *has_links {
                    self.named.insert(id, (dir, entry.name.clone()));
                }
                if self.sink.is_asked(id) {
                    let directory = if self.options.dry_run && dir != ROOT {
                        self.folders.get(&dir).and_then(|folder| folder.open(&self.root).ok()).map(Arc::new)
                    } else {
                        self.directory(dir, id, &entry)?
                    };
                    let answer = match &directory {
                        Some(directory) => have(self.writers, (id, dir), (directory, &entry), (size, sum))?,
                        None => Have::Until(0),
                    };
                    answers.push((id, answer));
                    self.sink.answer(id, answer);
                    if answer == Have::All {
                        self.writers.is_whole(id, &entry);
                        self.progress.bytes(size);
                        self.progress.skipped();
                        return Ok(());
                    }
                }
                self.files.insert(id, (dir, Box::new(entry)));
            }
            EntryKind::Link(target) => {
                if self.options.dry_run {
                    return Ok(());
                }
                let Some(directory) = self.directory(dir, id, &entry)? else { return Ok(()) };
                let linked = directory.link(&entry, target, self.options.keep);
                let at = (directory.path(), &entry);
                if let Some(facts) = self.writers.or_fail(id, at, "link", linked)? {
                    self.writers.or_fail(id, at, FACTS, facts)?;
                }
            }
            EntryKind::Special { kind, has_links } => {
                if self.options.dry_run || !self.options.keep.specials {
                    return Ok(());
                }
                let Some(directory) = self.directory(dir, id, &entry)? else { return Ok(()) };
                if *has_links {
                    self.named.insert(id, (dir, entry.name.clone()));
                }
                let at = (directory.path(), &entry);
                // Users of the host could reach its devices through such a node.
                let is_device = matches!(kind, Special::Character(_) | Special::Block(_));
                if is_device && self.options.alone {
                    let path = escape(&directory.path().join(OsStr::from_bytes(&entry.name)));
                    let text = format!("cannot make the device node {path}: a server with --root makes none");
                    return self.writers.fail(id, Error::new(Kind::File, text));
                }
                let what = if is_device { "make the device node" } else { "make" };
                let made = directory.special(&entry, *kind, self.options.keep);
                if let Some(facts) = self.writers.or_fail(id, at, what, made)? {
                    self.writers.or_fail(id, at, FACTS, facts)?;
                    self.writers.is_whole(id, &entry);
                }
            }
            EntryKind::Same(other) => {
                let other = *other;
                self.same.push((id, dir, entry, other));
            }
        }
        Ok(())
    }

    /// Passes a file to its writing thread, before the file's first block.
    fn open_file(&mut self, id: Id) -> Result<()> {
        let Some((dir, entry)) = self.files.remove(&id) else { return Ok(()) };
        self.note_file(&entry);
        match self.directory(dir, id, &entry)? {
            Some(directory) => self.task(id, Task::Open(id, directory, entry)),
            None => Ok(()),
        }
    }

    fn note_file(&self, entry: &Entry) {
        self.progress.file(|| escape(String::from_utf8_lossy(&entry.name).as_ref().as_ref()));
    }

    fn task(&self, id: Id, task: Task) -> Result<()> {
        let sent = self.tasks[id as usize % self.tasks.len()].send(task);
        sent.map_err(|_| Error::protocol("a writing thread has ended"))
    }

    /// Returns the directory of an entry. If it cannot be opened, reports this and returns `None`.
    fn directory(&mut self, dir: Id, id: Id, entry: &Entry) -> Result<Option<Arc<Directory>>> {
        if dir == ROOT {
            return Ok(Some(Arc::clone(&self.root)));
        }
        if let Some(directory) = self.open.get(&dir) {
            return Ok(Some(Arc::clone(directory)));
        }
        // A directory that has failed was reported already.
        let Some(folder) = self.folders.get(&dir) else { return Ok(None) };
        let opened = folder.open(&self.root);
        let folder = self.root.path().join(OsStr::from_bytes(&folder.path));
        let opened = self.writers.or_fail(id, (&folder, entry), "write", opened)?.map(Arc::new);
        if let Some(directory) = &opened {
            self.hold(dir, Arc::clone(directory));
        }
        Ok(opened)
    }

    /// Returns the directory with this number, if it can be opened.
    fn find_directory(&self, dir: Id) -> Option<Arc<Directory>> {
        if dir == ROOT {
            return Some(Arc::clone(&self.root));
        }
        let known = self.open.get(&dir).cloned();
        known.or_else(|| self.folders.get(&dir)?.open(&self.root).ok().map(Arc::new))
    }

    fn hold(&mut self, id: Id, directory: Arc<Directory>) {
        if self.open.len() >= OPEN {
            self.open.clear();
        }
        self.open.insert(id, directory);
    }

    /// Finds the entries of a directory that exist here but not at the source.
    fn find_surplus(&mut self, dir: Id) -> Result<()> {
        let listed = self.listed.remove(&dir).unwrap_or_default();
        let Some(Folder { path, .. }) = self.folders.get(&dir) else { return Ok(()) };
        // If the directory is missing, nothing can be deleted.
        let names = if dir == ROOT {
            self.root.names()
        } else {
            self.root.of_tree(path).and_then(|directory| directory.names())
        };
        let names = match names {
            Ok(names) => names,
            Err(Errno::NOENT) => return Ok(()),
            // What is not a directory yet has no entries.
            Err(Errno::NOTDIR | Errno::LOOP) if self.options.dry_run => return Ok(()),
            Err(error) => {
                let path = self.root.path().join(OsStr::from_bytes(path));
                return self.writers.fail(dir, Error::file("list", &path, &error.into()));
            }
        };
        // The source compares patterns with its own name.
        let within = match &self.renamed {
            Some(renamed) => {
                let below = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
                [renamed, &path[below..]].concat()
            }
            None => path.to_vec(),
        };
        self.surplus.extend(Surplus::find((dir, &within), names, listed));
        Ok(())
    }

    pub(super) fn rest(mut self) -> Option<Rest> {
        // A real run continues or replaces what an earlier one has left of a file that is sent.
        let temporary = self.temporary;
        self.surplus.retain(|Surplus { dir, name, .. }| !temporary.contains(&(*dir, name.clone())));
        Some(Rest {
            root: self.root,
            folders: self.folders,
            lost: self.lost,
            made: self.made,
            named: self.named,
            same: self.same,
            surplus: self.surplus,
            alike: self.alike,
            dry_run: self.options.dry_run,
        })
    }
}
