//! The side that receives files: one thread receives and creates directories, others write.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use super::Outcome;
use super::chain::{self, Next};
use super::options::CopyOptions;
use super::progress::Progress;
use super::target::Target;
use super::writer::{Task, Writers, count, have};
use crate::channel::BlockKind;
use crate::error::{Error, Kind, Result};
use crate::link::{Link, Options, Received, verify};
use crate::proto::{Entry, EntryKind, Frame, Have, Id, ROOT, SMALL, Sink, Totals};
use crate::tree::{Directory, Partial, set_facts};

/// Maximum number of tasks that wait for a thread: blocks of up to 1 MiB.
const AHEAD: usize = 4;
/// Maximum number of open directories.
const OPEN: usize = 128;

/// State of the receiving thread.
struct Receiving<'r> {
    root: Arc<Directory>,
    rename: Option<Vec<u8>>,
    /// Whether the destination itself is the copy of a source.
    is_copy: bool,
    /// Names that may appear in the destination directory; `None` allows all.
    expected: Option<&'r [Vec<u8>]>,
    options: &'r CopyOptions,
    progress: &'r Progress,
    writers: &'r Writers<'r>,
    tasks: Vec<SyncSender<Task>>,
    sink: Sink,
    /// Paths of directories below the destination.
    folders: HashMap<Id, Vec<u8>>,
    open: HashMap<Id, Arc<Directory>>,
    made: Vec<(Id, Box<Entry>)>,
    /// Files that have no blocks yet, and files that may get further hard links.
    files: HashMap<Id, (Id, Box<Entry>)>,
    named: HashMap<Id, (Id, Vec<u8>)>,
    same: Vec<(Id, Id, Entry, Id)>,
    /// Names of each directory's entries at the source, for `--delete`.
    listed: HashMap<Id, HashSet<Vec<u8>>>,
    surplus: Vec<(Id, Vec<u8>)>,
    pack: Option<Vec<(Id, u32)>>,
    /// The next host of a chain; then the files that it has not answered for, and the merged answers.
    next: Option<&'r Next>,
    held: HashMap<Id, Held>,
    merged: mpsc::Receiver<Vec<(Id, Have)>>,
    /// Files that are complete at this host, but not yet at every later host.
    complete: HashSet<Id>,
}

/// A file that the next host has not answered for.
struct Held {
    dir: Id,
    entry: Box<Entry>,
    directory: Option<Arc<Directory>>,
    partial: Option<Partial>,
    is_complete: bool,
}

/// Receives files and directories. `expected` has the requested names, if this side requested them. If the connection breaks, or a host of a
/// chain is lost, the copy continues over the next connection that `connect` returns.
///
/// # Errors
///
/// The copy as a whole failed: the connection broke for good, or the peer's data is malformed or altered.
pub fn receive(
    mut connect: impl FnMut() -> Result<Link>,
    target: &Target,
    expected: Option<&[Vec<u8>]>,
    options: &CopyOptions,
    links: &Options,
    progress: &Progress,
) -> Result<Outcome> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begun = (now.as_secs() as i64, now.subsec_nanos().into());
    let mut link = connect()?;
    loop {
        let failed = match session(link, (target, expected), (options, begun), links, progress) {
            Err(error) if error.kind() == Kind::Broken && matches!(target, Target::Inside(..)) => error,
            done => return done,
        };
        log::info!("{failed}; waiting for another connection");
        link = connect().map_err(|_| failed)?;
        progress.restart();
    }
}

/// Receives over one connection.
fn session(
    mut link: Link,
    (target, expected): (&Target, Option<&[Vec<u8>]>),
    (options, begun): (&CopyOptions, (i64, i64)),
    links: &Options,
    progress: &Progress,
) -> Result<Outcome> {
    let (options, next) = match link.frame()? {
        Frame::Begin { again, chain } => {
            let options = CopyOptions { begun: again.then_some(begun), ..options.clone() };
            (options, chain::open(&link.sender, again, chain, links)?)
        }
        _ => return Err(Error::protocol("the sender sent an unexpected frame")),
    };
    let (sender, next) = (link.sender.clone(), next.as_ref());
    let writers = Writers {
        sender: &sender,
        next: next.map(|next| &next.sender),
        options: &options,
        failures: Mutex::default(),
        forward_failed: AtomicBool::new(false),
        broken: Mutex::default(),
    };
    let finished = thread::scope(|scope| {
        let (answers, merged) = mpsc::channel();
        let downstream = next.map(|next| scope.spawn(|| next.take_answers(&sender, &{ answers })));
        let received = match target {
            Target::Device(..) if next.is_some() => {
                Err(Error::new(Kind::Usage, "a device is the last host of a chain only"))
            }
            Target::Device(fd, path) => to_device(&mut link, (fd, path), &options, progress),
            Target::Inside(root, rename, is_copy) => thread::scope(|scope| {
                let tasks = (0..count())
                    .map(|_| {
                        let (tasks, taken) = mpsc::sync_channel(AHEAD);
                        let writers = &writers;
                        scope.spawn(move || writers.run(taken));
                        tasks
                    })
                    .collect();
                let mut receiving = Receiving {
                    root: Arc::clone(root),
                    rename: rename.clone(),
                    is_copy: *is_copy,
                    expected,
                    options: &options,
                    progress,
                    writers: &writers,
                    tasks,
                    sink: Sink::new(options.asks()),
                    folders: HashMap::from([(ROOT, Vec::new())]),
                    open: HashMap::new(),
                    made: Vec::new(),
                    files: HashMap::new(),
                    named: HashMap::new(),
                    same: Vec::new(),
                    listed: HashMap::new(),
                    surplus: Vec::new(),
                    pack: None,
                    next,
                    held: HashMap::new(),
                    merged,
                    complete: HashSet::new(),
                };
                let ended = receiving.run(&mut link);
                receiving.tasks.clear();
                // The remaining steps must run after the threads have ended.
                ended.map(|totals| (totals, receiving.rest()))
            }),
        };
        let finished = received.and_then(|(totals, rest)| {
            if let Some(error) = writers.broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(error);
            }
            if let Some(next) = next {
                writers.forwarded(next.sender.frame(&Frame::End(totals)))?;
            }
            if let Some(rest) = rest {
                rest.finish(&writers, totals.failed == 0)?;
            }
            Ok(totals)
        });
        let (Some(next), Some(downstream)) = (next, downstream) else { return finished };
        if finished.is_err() && !writers.forward_failed.load(Relaxed) {
            next.end();
        }
        let theirs = downstream.join().unwrap_or_else(|_| Err(Error::protocol("the receiving thread panicked")));
        let (ours, theirs) = (finished?, theirs?);
        if (ours.entries, ours.files, ours.bytes) != (theirs.entries, theirs.files, theirs.bytes) {
            return Err(Error::protocol("the next host of the chain received other files or bytes; start again"));
        }
        Ok(Totals { failed: theirs.failed, ..ours })
    });
    match finished {
        Ok(mut totals) => {
            let failures = std::mem::take(&mut *writers.failures.lock().unwrap_or_else(PoisonError::into_inner));
            totals.failed += failures.len() as u64;
            link.sender.frame(&Frame::Report(totals))?;
            link.wait_for_close();
            Ok(Outcome { totals, carried: totals.bytes, failures })
        }
        Err(error) => {
            // After a loss the source connects again.
            if error.kind() != Kind::Broken {
                link.sender.abort(&error);
                link.sender.flush();
            }
            Err(error)
        }
    }
}

/// Runs the steps that follow after all files are written.
struct Rest {
    root: Arc<Directory>,
    folders: HashMap<Id, Vec<u8>>,
    made: Vec<(Id, Box<Entry>)>,
    named: HashMap<Id, (Id, Vec<u8>)>,
    same: Vec<(Id, Id, Entry, Id)>,
    surplus: Vec<(Id, Vec<u8>)>,
    dry_run: bool,
}

impl Rest {
    fn directory(&self, id: Id) -> std::result::Result<Arc<Directory>, Errno> {
        match self.folders.get(&id) {
            Some(path) if path.is_empty() => Ok(Arc::clone(&self.root)),
            Some(path) => self.root.beneath(path).map(Arc::new),
            None => Err(Errno::NOENT),
        }
    }

    fn finish(self, writers: &Writers<'_>, all_sent: bool) -> Result<()> {
        if self.dry_run {
            return Ok(());
        }
        for (id, dir, entry, other) in &self.same {
            let linked = match self.named.get(other) {
                Some((other_dir, name)) => {
                    self.directory(*dir).and_then(|to| to.same(&entry.name, &*self.directory(*other_dir)?, name))
                }
                None => Err(Errno::NOENT),
            };
            writers.or_fail(*id, entry, "link", linked)?;
        }
        let failed = writers.failures.lock().unwrap_or_else(PoisonError::into_inner).len();
        if !self.surplus.is_empty() && (!all_sent || failed != 0) {
            log::warn!("nothing was deleted, as some entries failed");
        } else {
            for (dir, name) in &self.surplus {
                let removed = self.directory(*dir).and_then(|directory| directory.remove(name));
                if let Err(error) = removed {
                    let error = Error::file("remove", String::from_utf8_lossy(name).as_ref().as_ref(), &error.into());
                    writers.failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                }
            }
        }
        // The deepest directories first, because writing to a directory changes its time.
        for (id, entry) in self.made.iter().rev() {
            let set = self.directory(*id).and_then(|directory| set_facts(&*directory, entry, writers.options.keep));
            writers.or_fail(*id, entry, "set times of", set)?;
        }
        if writers.options.fsync {
            rustix::fs::syncfs(&*self.root)
                .map_err(|error| Error::file("sync", Path::new("the destination"), &error.into()))?;
        }
        Ok(())
    }
}

impl Receiving<'_> {
    fn run(&mut self, link: &mut Link) -> Result<Totals> {
        loop {
            // If a writing thread failed, its error is the more precise reason.
            if let Some(error) = self.writers.broken.lock().unwrap_or_else(PoisonError::into_inner).clone() {
                return Err(error);
            }
            let received = link.receiver.receive()?;
            self.settle()?;
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
                            let Some((dir, entry)) = self.files.remove(&id) else { continue };
                            self.note_file(&entry);
                            let is_complete = self.complete.contains(&id);
                            let directory = if is_complete { None } else { self.directory(dir, id, &entry)? };
                            files.push((id, length, directory, entry));
                        }
                        self.task(block.file, Task::Pack(block, payload, files))?;
                    }
                    _ => return Err(Error::protocol("the sender sent a pack without its list")),
                },
                Received::Frame(Frame::List { dir, entries, whole }) => self.list(dir, entries, whole, link)?,
                Received::Frame(Frame::Pack(list)) if self.pack.is_none() => self.pack = Some(list),
                Received::Frame(Frame::Close(id, result)) => {
                    self.sink.close(id, result.is_ok())?;
                    if self.options.dry_run {
                        self.files.remove(&id);
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
                    return Ok(Totals { failed: totals.failed, ..self.sink.totals() });
                }
                Received::Frame(_) => return Err(Error::protocol("the sender sent an unexpected frame")),
            }
        }
    }

    fn list(&mut self, dir: Id, mut entries: Vec<Entry>, whole: bool, link: &Link) -> Result<()> {
        let forwarded = self.next.map(|next| (next, Frame::List { dir, entries: entries.clone(), whole }));
        if dir == ROOT {
            if let Some(expected) = self.expected
                && let Some(other) = entries.iter().find(|entry| !expected.contains(&entry.name))
            {
                let name = crate::error::escape(String::from_utf8_lossy(&other.name).as_ref().as_ref());
                return Err(Error::protocol(format!("the sender listed {name}, which was not asked for")));
            }
            if let Some(name) = &self.rename {
                match entries.as_mut_slice() {
                    [entry] if self.sink.totals().entries == 0 => entry.name.clone_from(name),
                    _ => return Err(Error::protocol("the sender listed several entries where one was asked for")),
                }
            }
        }
        let first = self.sink.list(dir, &entries, whole)?;
        if self.options.delete && (dir != ROOT || self.is_copy) {
            self.listed.entry(dir).or_default().extend(entries.iter().map(|entry| entry.name.clone()));
            if whole {
                self.find_surplus(dir)?;
            }
        }
        let mut answers = Vec::new();
        for (id, entry) in (first..).zip(entries) {
            self.entry(id, dir, entry, &mut answers)?;
        }
        match forwarded {
            Some((next, frame)) => {
                next.keep(answers);
                self.writers.forwarded(next.sender.frame(&frame))
            }
            None if answers.is_empty() => Ok(()),
            None => link.sender.frame(&Frame::Have(answers)),
        }
    }

    fn entry(&mut self, id: Id, dir: Id, entry: Entry, answers: &mut Vec<(Id, Have)>) -> Result<()> {
        match &entry.kind {
            EntryKind::Directory => {
                let path = match self.folders.get(&dir) {
                    Some(above) if above.is_empty() => entry.name.clone(),
                    Some(above) => [above.as_slice(), b"/", &entry.name].concat(),
                    // The directory above failed, and was reported.
                    None => return Ok(()),
                };
                if self.options.dry_run {
                    self.folders.insert(id, path);
                    return Ok(());
                }
                let Some(above) = self.directory(dir, id, &entry)? else { return Ok(()) };
                let made = above.make(&entry.name).and_then(|()| self.root.beneath(&path));
                if let Some(directory) = self.writers.or_fail(id, &entry, "make", made)? {
                    self.folders.insert(id, path);
                    self.hold(id, Arc::new(directory));
                    self.made.push((id, Box::new(entry)));
                }
            }
            EntryKind::File { size, has_links, sum } => {
                let (size, sum) = (*size, *sum);
                self.progress.listed(size);
                if *has_links {
                    self.named.insert(id, (dir, entry.name.clone()));
                }
                if self.sink.is_asked(id) {
                    let directory = if self.options.dry_run {
                        self.folders.get(&dir).and_then(|path| self.root.beneath(path).ok()).map(Arc::new)
                    } else {
                        self.directory(dir, id, &entry)?
                    };
                    let (answer, partial) = match &directory {
                        Some(directory) => have(directory, &entry, (size, sum), self.options),
                        None => (Have::Until(0), None),
                    };
                    answers.push((id, answer));
                    let is_complete = answer == Have::All;
                    let held = Held { dir, entry: Box::new(entry), directory, partial, is_complete };
                    if self.next.is_none() {
                        return self.answered(id, answer, held);
                    }
                    self.held.insert(id, held);
                    return Ok(());
                }
                self.files.insert(id, (dir, Box::new(entry)));
            }
            EntryKind::Link(target) => {
                if self.options.dry_run {
                    return Ok(());
                }
                let Some(directory) = self.directory(dir, id, &entry)? else { return Ok(()) };
                let linked = directory.link(&entry.name, target);
                self.writers.or_fail(id, &entry, "link", linked)?;
            }
            EntryKind::Same(other) => {
                let other = *other;
                self.same.push((id, dir, entry, other));
            }
        }
        Ok(())
    }

    /// Processes the answers of the next host.
    fn settle(&mut self) -> Result<()> {
        while let Ok(answers) = self.merged.try_recv() {
            for (id, answer) in answers {
                if let Some(held) = self.held.remove(&id) {
                    self.answered(id, answer, held)?;
                }
            }
        }
        Ok(())
    }

    /// Prepares a file for the blocks that the source sends.
    fn answered(&mut self, id: Id, answer: Have, held: Held) -> Result<()> {
        let Held { dir, entry, directory, partial, is_complete } = held;
        let EntryKind::File { size, .. } = entry.kind else { return Ok(()) };
        self.sink.answer(id, answer);
        if answer == Have::All {
            self.progress.bytes(size);
            self.progress.skipped();
            return Ok(());
        }
        if is_complete {
            self.complete.insert(id);
        }
        let is_packed = size <= SMALL && answer == Have::Until(0);
        match (directory, partial) {
            (Some(directory), Some(partial)) if !is_packed => {
                self.note_file(&entry);
                self.task(id, Task::Open(id, directory, entry, size, Some(partial)))
            }
            _ => {
                self.files.insert(id, (dir, entry));
                Ok(())
            }
        }
    }

    /// Passes a file to its writing thread before the file's first block.
    fn open_file(&mut self, id: Id) -> Result<()> {
        let Some((dir, entry)) = self.files.remove(&id) else { return Ok(()) };
        let EntryKind::File { size, .. } = entry.kind else { return Ok(()) };
        if self.complete.contains(&id) {
            return Ok(());
        }
        self.note_file(&entry);
        match self.directory(dir, id, &entry)? {
            Some(directory) => self.task(id, Task::Open(id, directory, entry, size, None)),
            None => Ok(()),
        }
    }

    fn note_file(&self, entry: &Entry) {
        self.progress.file(|| crate::error::escape(String::from_utf8_lossy(&entry.name).as_ref().as_ref()));
    }

    fn task(&self, id: Id, task: Task) -> Result<()> {
        let sent = self.tasks[id as usize % self.tasks.len()].send(task);
        sent.map_err(|_| Error::protocol("a writing thread has ended"))
    }

    /// The directory of an entry; if it is missing, reports this and returns `None`.
    fn directory(&mut self, dir: Id, id: Id, entry: &Entry) -> Result<Option<Arc<Directory>>> {
        if dir == ROOT {
            return Ok(Some(Arc::clone(&self.root)));
        }
        if let Some(directory) = self.open.get(&dir) {
            return Ok(Some(Arc::clone(directory)));
        }
        let opened = match self.folders.get(&dir) {
            Some(path) => self.root.beneath(path),
            None => Err(Errno::NOENT),
        };
        let opened = self.writers.or_fail(id, entry, "write", opened)?.map(Arc::new);
        if let Some(directory) = &opened {
            self.hold(dir, Arc::clone(directory));
        }
        Ok(opened)
    }

    fn hold(&mut self, id: Id, directory: Arc<Directory>) {
        if self.open.len() >= OPEN {
            self.open.clear();
        }
        self.open.insert(id, directory);
    }

    /// Finds entries of a directory that exist here but not at the source.
    fn find_surplus(&mut self, dir: Id) -> Result<()> {
        let listed = self.listed.remove(&dir).unwrap_or_default();
        let Some(path) = self.folders.get(&dir) else { return Ok(()) };
        // Without the directory there is nothing to delete.
        let names = if dir == ROOT {
            self.root.names()
        } else {
            self.root.beneath(path).and_then(|directory| directory.names())
        };
        let Ok(names) = names else { return Ok(()) };
        // Patterns are compared with paths below the source.
        let within = if self.is_copy {
            path.as_slice()
        } else {
            path.splitn(2, |&byte| byte == b'/').nth(1).unwrap_or_default()
        };
        for name in names.into_iter().filter(|name| !listed.contains(name)) {
            let below = if within.is_empty() { name.clone() } else { [within, b"/", &name].concat() };
            // Entries that the filter excludes at the source are not deleted here.
            if self.options.filter.allows(&below, false) && self.options.filter.allows(&below, true) {
                self.surplus.push((dir, name));
            }
        }
        Ok(())
    }

    fn rest(self) -> Option<Rest> {
        Some(Rest {
            root: self.root,
            folders: self.folders,
            made: self.made,
            named: self.named,
            same: self.same,
            surplus: self.surplus,
            dry_run: self.options.dry_run,
        })
    }
}

/// Writes the one file that is sent to a device or pipe.
fn to_device(
    link: &mut Link,
    (device, path): (&std::fs::File, &Path),
    options: &CopyOptions,
    progress: &Progress,
) -> Result<(Totals, Option<Rest>)> {
    use std::io::Write;
    let mut sink = Sink::new(options.asks());
    let mut pack = None;
    let mut position = 0;
    loop {
        match link.receiver.receive()? {
            Received::Block(block, payload) => {
                match pack.take() {
                    Some(list) => {
                        let list: Vec<(Id, u32)> = list;
                        sink.pack(&list, payload.len())?;
                    }
                    None => sink.block(block.file, block.offset, payload.len())?,
                }
                verify(&block, &payload)?;
                let cannot = |error: std::io::Error| Error::file("write", path, &error);
                if block.offset > position {
                    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), block.offset - position), &mut &*device)
                        .map_err(cannot)?;
                }
                (&*device).write_all(&payload).map_err(cannot)?;
                position = block.offset + payload.len() as u64;
                progress.bytes(payload.len() as u64);
            }
            Received::Frame(Frame::List { dir, entries, whole }) => {
                let first = sink.list(dir, &entries, whole)?;
                let is_file = matches!(entries.as_slice(), [Entry { kind: EntryKind::File { .. }, .. }]);
                if !is_file || first != 1 {
                    return Err(Error::file("write a tree to", path, &std::io::Error::from_raw_os_error(20)));
                }
                if sink.is_asked(first) {
                    sink.answer(first, Have::Until(0));
                    link.sender.frame(&Frame::Have(vec![(first, Have::Until(0))]))?;
                }
            }
            Received::Frame(Frame::Pack(list)) => pack = Some(list),
            Received::Frame(Frame::Close(id, result)) => sink.close(id, result.is_ok())?,
            Received::Frame(Frame::End(totals)) => {
                sink.end(&totals)?;
                return Ok((Totals { failed: totals.failed, ..sink.totals() }, None));
            }
            Received::Frame(_) => return Err(Error::protocol("the sender sent an unexpected frame")),
        }
    }
}
