//! The receiving thread of a tree: processes lists, sends answers, and passes tasks to the writing threads.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use super::only_last;
use super::opened::Opened;
use crate::channel::BlockKind;
use crate::copy::target::{Inside, Name, Top};
use crate::copy::writer::{FACTS, Task, Writers};
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Link, Received, Sender};
use crate::proto::{Entry, EntryKind, Folder, Frame, Have, Id, Listed, ROOT, Sink, Special, Totals};
use crate::tree::{Directory, join};

/// Maximum number of open directories.
const OPEN: usize = 128;

/// Another name (hard link) of a file.
pub(super) struct Same {
    pub(super) id: Id,
    pub(super) dir: Id,
    pub(super) entry: Entry,
    /// The file.
    pub(super) other: Id,
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

/// State of the receiving thread.
pub(super) struct Receiving<'r> {
    pub(super) into: Inside,
    /// Names that the source may list in the destination directory; `None` allows all.
    expected: Option<&'r [Vec<u8>]>,
    /// The name of the source, if the destination has another.
    renamed: Option<Vec<u8>>,
    opened: &'r Opened,
    pub(super) writers: &'r Writers<'r>,
    pub(super) tasks: Vec<SyncSender<Task>>,
    pub(super) sink: Sink,
    /// The directories that are open.
    pub(super) open: HashMap<Id, Arc<Directory>>,
    /// Files that may still get hard links, each with its directory and name.
    pub(super) named: HashMap<Id, (Id, Vec<u8>)>,
    pub(super) same: Vec<Same>,
    /// Files with other names (hard links) whose metadata differs from the source's.
    pub(super) shared: Vec<(Id, Listed)>,
    pub(super) surplus: Vec<Surplus>,
    /// For a trial run with `--delete`: the names under which a real run would first write the files that are sent.
    pub(super) temporary: HashSet<(Id, Vec<u8>)>,
    pack: Option<Vec<(Id, u32)>>,
}

impl<'r> Receiving<'r> {
    pub(super) fn new(
        into: Inside,
        expected: Option<&'r [Vec<u8>]>,
        opened: &'r Opened,
        writers: &'r Writers<'r>,
        tasks: Vec<SyncSender<Task>>,
    ) -> Self {
        Self {
            into,
            expected,
            renamed: None,
            opened,
            writers,
            tasks,
            sink: Sink::new(writers.options.asks()),
            open: HashMap::new(),
            named: HashMap::new(),
            same: Vec::new(),
            shared: Vec::new(),
            surplus: Vec::new(),
            temporary: HashSet::new(),
            pack: None,
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
                if let Some(next) = self.writers.next {
                    self.writers.forwarded(next.sender.send_waiting())?;
                }
                link.sender.send_waiting()?;
            }
            let received = link.receiver.receive()?;
            match received {
                Received::Block(block, payload) => match (block.kind, self.pack.take()) {
                    (BlockKind::Data, None) => {
                        let listed = self.sink.block(block.file, block.offset, payload.len())?;
                        self.writers.progress.bytes(payload.len() as u64);
                        self.open_file(block.file, listed)?;
                        self.task(block.file, Task::Block(block, payload))?;
                    }
                    (BlockKind::Pack, Some(list)) => {
                        let files = self.sink.pack(&list, payload.len())?;
                        self.writers.progress.bytes(payload.len() as u64);
                        files.iter().flat_map(|file| &file.place).for_each(|(_, entry)| self.note_file(entry));
                        self.task(block.file, Task::Pack(block, payload, files))?;
                    }
                    _ => return Err(Error::protocol("the sender sent a pack without its list")),
                },
                Received::Frame(Frame::List { dir, entries, whole }) => self.list(dir, entries, whole, &link.sender)?,
                Received::Frame(Frame::Top(entry)) => self.enter_top(entry)?,
                Received::Frame(Frame::Sums { id, sums, last }) => {
                    let (place, otherwise) = match self.sink.sums(id, &sums)?.cloned() {
                        // If the directory cannot be opened, this is reported when the file is written.
                        Some(Listed { dir, entry }) => {
                            (self.find_directory(dir).map(|directory| (directory, entry)), Have::Until(0))
                        }
                        // This host has the whole file.
                        None => (None, Have::All),
                    };
                    self.task(id, Task::Sums { id, sums, last, place, otherwise })?;
                }
                Received::Frame(Frame::Pack(list)) if self.pack.is_none() => self.pack = Some(list),
                Received::Frame(Frame::Close(id, result)) => {
                    let listed = self.sink.close(id)?;
                    if self.writers.options.dry_run {
                        self.pretend_close(id, listed, result)?;
                        continue;
                    }
                    if result.is_ok() {
                        self.open_file(id, listed)?;
                    }
                    self.task(id, Task::Close(id, result))?;
                }
                Received::Frame(Frame::End(totals)) => {
                    self.sink.end(&totals)?;
                    if self.writers.options.delete && self.into.top.is_some() && self.sink.is_whole(ROOT) {
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
        let Some(Top { is_new }) = self.into.top else {
            return Err(Error::protocol("the sender sent the metadata of a directory that it does not copy"));
        };
        let is_known = self.sink.folder(ROOT).is_some_and(|root| root.entry.is_some());
        if entry.kind != EntryKind::Directory || self.sink.totals().entries != 0 || is_known {
            return Err(Error::protocol("the sender sent the metadata of the destination at a wrong time"));
        }
        self.writers.forward(|| Frame::Top(entry.clone()))?;
        if self.writers.options.dry_run {
            return Ok(());
        }
        let (keep, gives_way) = (self.writers.options.keep, self.writers.options.gives_way());
        let mut permissions = None;
        let set = self.into.root.with(gives_way).and_then(Directory::open_up).and_then(|(root, had)| {
            let root = Arc::new(root);
            self.into.root = Arc::clone(&root);
            permissions = had;
            if is_new {
                let found = rustix::fs::fstat(&*root)?;
                let mode = found.st_mode & 0o7000 | found.st_mode & u32::from(entry.mode) & 0o777;
                permissions = Some(mode as u16);
                rustix::fs::fchmod(&*root, Mode::from_raw_mode(mode | 0o700))?;
            }
            _ = root.narrow(&entry, keep);
            Ok(())
        });
        if let Err(error) = set {
            self.writers.fail(ROOT, Error::file(FACTS, self.into.root.path(), &error.into()))?;
        }
        let permissions = self.opened.note(b"", permissions);
        self.sink.enter(ROOT, Folder { entry: Some(entry), permissions, ..Folder::default() });
        Ok(())
    }

    fn list(&mut self, dir: Id, mut entries: Vec<Entry>, whole: bool, sender: &Sender) -> Result<()> {
        let forwarded = self.writers.next.map(|next| (next, Frame::List { dir, entries: entries.clone(), whole }));
        if dir == ROOT {
            if let Some(expected) = self.expected
                && let Some(other) = entries.iter().find(|entry| !expected.contains(&entry.name))
            {
                let name = escape(String::from_utf8_lossy(&other.name).as_ref().as_ref());
                return Err(Error::protocol(format!("the sender listed {name}, which was not requested")));
            }
            if let Some(name) = &self.into.name {
                match entries.as_mut_slice() {
                    [entry] if self.sink.totals().entries == 0 => {
                        self.check_name(name, entry)?;
                        self.renamed = Some(std::mem::replace(&mut entry.name, name.name.clone()));
                    }
                    _ => return Err(Error::protocol("the sender listed several entries, but one was requested")),
                }
            }
        }
        let first = self.sink.list(dir, &entries, whole)?;
        // Other sources may list other entries of the destination itself.
        if whole && dir != ROOT {
            if self.writers.options.delete {
                self.find_surplus(dir)?;
            }
            self.sink.complete(dir);
        }
        let mut answers = Vec::new();
        (first..).zip(entries).try_for_each(|(id, entry)| match self.writers.options.dry_run {
            true => self.pretend(id, dir, entry, &mut answers),
            false => self.entry(id, dir, entry, &mut answers),
        })?;
        match forwarded {
            Some((next, frame)) => {
                next.keep(answers);
                self.writers.forwarded(next.sender.later(&frame.emit()))
            }
            None if answers.is_empty() => Ok(()),
            None => sender.later(&Frame::Have(answers).emit()),
        }
    }

    /// Checks whether an entry can get the name that the destination has.
    fn check_name(&self, Name { name, is_directory }: &Name, entry: &Entry) -> Result<()> {
        let root = &self.into.root;
        let found = root.stat(name).map(|found| FileType::from_raw_mode(found.st_mode)).ok();
        let path = root.path().join(OsStr::from_bytes(name));
        if entry.kind == EntryKind::Directory {
            return match found {
                Some(other) if !other.is_dir() => Err(Error::file("write a tree to", &path, &Errno::NOTDIR.into())),
                _ => Ok(()),
            };
        }
        if *is_directory {
            return Err(Error::file("write a file to", &path.join(""), &Errno::NOTDIR.into()));
        }
        // A link to a file would be resolved already. Below --root, no link is.
        let options = self.writers.options;
        match found {
            _ if !matches!(entry.kind, EntryKind::File { .. }) => Ok(()),
            Some(FileType::Symlink) if !options.sync && !options.alone => {
                let path = escape(&path);
                let text = format!("cannot write to {path}: it is a link to a missing file; remove the link");
                Err(Error::new(Kind::File, text))
            }
            None | Some(FileType::RegularFile | FileType::Directory | FileType::Symlink) => Ok(()),
            Some(_) if self.writers.next.is_some() => Err(only_last(&path)),
            Some(_) => Ok(()),
        }
    }

    fn entry(&mut self, id: Id, dir: Id, entry: Entry, answers: &mut Vec<(Id, Have)>) -> Result<()> {
        let keep = self.writers.options.keep;
        match &entry.kind {
            EntryKind::Directory => {
                let Some(above) = self.sink.folder(dir) else { return Ok(()) };
                let path = join(&above.path, &entry.name);
                let made = match self.directory(dir, id, &entry)? {
                    Some(above) => {
                        let made = above.enter(&entry.name, entry.mode);
                        self.writers.or_fail(id, above.path(), &entry, "make", made)?
                    }
                    None => None,
                };
                let Some((directory, permissions)) = made else {
                    self.sink.enter(id, Folder { path, is_lost: true, ..Folder::default() });
                    return Ok(());
                };
                let permissions = self.opened.note(&path, permissions);
                // If this fails, so does setting the metadata at the end.
                _ = directory.narrow(&entry, keep);
                let is_new = directory.is_new();
                self.sink.enter(id, Folder { path, is_lost: false, is_new, entry: Some(entry), permissions });
                self.hold(id, Arc::new(directory));
            }
            EntryKind::File { has_links, .. } => {
                if *has_links {
                    self.named.insert(id, (dir, entry.name.clone()));
                }
                let directory = if self.sink.is_asked(id) { self.directory(dir, id, &entry)? } else { None };
                self.file(id, dir, entry, directory.as_deref(), answers)?;
            }
            EntryKind::Link(target) => {
                let Some(directory) = self.directory(dir, id, &entry)? else { return Ok(()) };
                let linked = directory.link(&entry, target, keep);
                self.writers.made_or_fail(id, directory.path(), &entry, "link", linked)?;
            }
            EntryKind::Special { .. } if !keep.specials => {}
            EntryKind::Special { kind, has_links } => {
                let Some(directory) = self.directory(dir, id, &entry)? else { return Ok(()) };
                if *has_links {
                    self.named.insert(id, (dir, entry.name.clone()));
                }
                // Users of the host could reach its devices through such a node.
                let is_device = matches!(kind, Special::Character(_) | Special::Block(_));
                if is_device && self.writers.options.alone {
                    let path = escape(&directory.path().join(OsStr::from_bytes(&entry.name)));
                    let text = format!("cannot make the device node {path}: a server with --root makes none");
                    return self.writers.fail(id, Error::new(Kind::File, text));
                }
                let what = if is_device { "make the device node" } else { "make" };
                let made = directory.special(&entry, *kind, keep);
                if self.writers.made_or_fail(id, directory.path(), &entry, what, made)? {
                    self.writers.is_whole(id, &entry);
                }
            }
            EntryKind::Same(other) => {
                let other = *other;
                self.same.push(Same { id, dir, entry, other });
            }
        }
        Ok(())
    }

    /// Answers for a file of this directory if the source asks, and keeps the entry for the first block.
    pub(super) fn file(
        &mut self,
        id: Id,
        dir: Id,
        entry: Entry,
        directory: Option<&Directory>,
        answers: &mut Vec<(Id, Have)>,
    ) -> Result<()> {
        let progress = self.writers.progress;
        progress.listed(entry.size());
        if self.sink.is_asked(id) {
            let answer = match directory {
                Some(directory) => self.have(id, dir, directory, &entry)?,
                None => Have::Until(0),
            };
            answers.push((id, answer));
            self.sink.answer(id, answer);
            if answer == Have::All {
                self.writers.is_whole(id, &entry);
                progress.bytes(entry.size());
                progress.skipped();
                return Ok(());
            }
        }
        self.sink.hold(id, Listed { dir, entry: Box::new(entry) });
        Ok(())
    }

    /// Passes a file to its writing thread, before the file's first block.
    fn open_file(&mut self, id: Id, listed: Option<Listed>) -> Result<()> {
        let Some(Listed { dir, entry }) = listed else { return Ok(()) };
        self.note_file(&entry);
        match self.directory(dir, id, &entry)? {
            Some(directory) => self.task(id, Task::Open(id, directory, entry)),
            None => Ok(()),
        }
    }

    fn note_file(&self, entry: &Entry) {
        self.writers.progress.file(|| escape(String::from_utf8_lossy(&entry.name).as_ref().as_ref()));
    }

    fn task(&self, id: Id, task: Task) -> Result<()> {
        let sent = self.tasks[id as usize % self.tasks.len()].send(task);
        sent.map_err(|_| Error::protocol("a writing thread has ended"))
    }

    /// Returns the directory of an entry. If it cannot be opened, reports this and returns `None`.
    fn directory(&mut self, dir: Id, id: Id, entry: &Entry) -> Result<Option<Arc<Directory>>> {
        if dir == ROOT {
            return Ok(Some(Arc::clone(&self.into.root)));
        }
        if let Some(directory) = self.open.get(&dir) {
            return Ok(Some(Arc::clone(directory)));
        }
        // A directory that has failed was reported already.
        let Some(folder) = self.sink.folder(dir).filter(|folder| !folder.is_lost) else { return Ok(None) };
        let opened = folder.open(&self.into.root);
        let opened = self.writers.or_fail(id, &self.path(dir), entry, "write", opened)?;
        if let Some(directory) = &opened {
            self.hold(dir, Arc::clone(directory));
        }
        Ok(opened)
    }

    /// Returns the directory with this number, if it can be opened.
    pub(super) fn find_directory(&self, dir: Id) -> Option<Arc<Directory>> {
        let known = self.open.get(&dir).cloned();
        known.or_else(|| self.open_again(dir).ok())
    }

    pub(super) fn open_again(&self, dir: Id) -> std::result::Result<Arc<Directory>, Errno> {
        self.sink.folder(dir).ok_or(Errno::NOENT)?.open(&self.into.root)
    }

    /// The path of a directory, for messages.
    pub(super) fn path(&self, dir: Id) -> PathBuf {
        let path = self.sink.folder(dir).map_or(b"".as_slice(), |folder| &folder.path);
        self.into.root.path().join(OsStr::from_bytes(path))
    }

    fn hold(&mut self, id: Id, directory: Arc<Directory>) {
        if self.open.len() >= OPEN {
            self.open.clear();
        }
        self.open.insert(id, directory);
    }

    /// Finds the entries of a directory that exist here but not at the source.
    fn find_surplus(&mut self, dir: Id) -> Result<()> {
        let (Some(listed), Some(folder)) = (self.sink.names(dir), self.sink.folder(dir)) else { return Ok(()) };
        let path = &folder.path;
        let names = match folder.open(&self.into.root).and_then(|directory| directory.names()) {
            Ok(names) => names,
            // If the directory is missing, nothing can be deleted.
            Err(Errno::NOENT) => return Ok(()),
            // What is not a directory yet has no entries.
            Err(Errno::NOTDIR | Errno::LOOP) if self.writers.options.dry_run => return Ok(()),
            Err(error) => return self.writers.fail(dir, Error::file("list", &self.path(dir), &error.into())),
        };
        // The source compares patterns with its own name.
        let within = match &self.renamed {
            Some(renamed) => {
                let below = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
                [renamed, &path[below..]].concat()
            }
            None => path.clone(),
        };
        self.surplus.extend(names.into_iter().filter(|name| !listed.has(name)).map(|name| Surplus {
            dir,
            alike: listed.like(&name).map(<[u8]>::to_vec),
            path: join(&within, &name),
            name,
        }));
        Ok(())
    }
}
