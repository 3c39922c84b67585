//! The side that receives files. Accepts only frames and blocks that match the listed entries.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::frame::{Entry, EntryKind, Have, Id, ROOT, Sum, Totals};
use super::names::Names;
use super::source::is_asked;
use crate::channel::BLOCK;
use crate::error::{Error, Kind, Result};

/// Maximum number of entries of a transfer. Each entry needs 24 bytes of memory.
const MOST: usize = 1 << 30;
const _: () = assert!(size_of::<Node>() == 24);
/// How many bytes an entry uses in all tables of the sink, with its name.
const ENTRY: usize = 512;

/// The listed entries, and how much of them has arrived.
#[derive(Debug)]
pub struct Sink {
    asks: bool,
    /// The entries, indexed by number; the first one is the destination itself.
    nodes: Vec<Node>,
    /// The names of directories whose lists are incomplete, or that have names that are alike.
    names: HashMap<Id, Names>,
    open: u64,
    totals: Totals,
}

/// An entry.
#[derive(Debug)]
enum Node {
    /// A directory, once it was made or found, and whether all its entries are listed.
    Directory { folder: Option<Arc<Folder>>, is_whole: bool },
    /// A link, or another name of a file.
    Name,
    /// A regular file that is complete, or has failed, or a special file. It may have other names.
    File,
    /// A file for which the sink has not answered yet.
    Asked(u64),
    /// A file of which no block has arrived.
    Held(Listed),
    /// A file that is being received. Its blocks may arrive, beginning at the offset `at`.
    Open { at: u64, size: u64 },
    /// A file that was complete already. Its blocks arrive nevertheless if an earlier host of a chain does not have it.
    Kept { at: u64, size: u64 },
}

/// A directory of the destination.
#[derive(Debug, Default)]
pub struct Folder {
    /// Its path, relative to the destination.
    pub path: Vec<u8>,
    /// Whether it has failed, so that nothing is written into it.
    pub is_lost: bool,
    /// Whether this copy has made it, over this connection.
    pub is_new: bool,
    /// The metadata that it gets at the end.
    pub entry: Option<Entry>,
    /// Its permissions, if they are other than those that it has meanwhile.
    pub permissions: Option<u16>,
}

/// A listed file.
#[derive(Clone, Debug)]
pub struct Listed {
    /// The directory.
    pub dir: Id,
    /// The entry.
    pub entry: Box<Entry>,
}

/// A file of a pack.
#[derive(Debug)]
pub struct Packed {
    /// The file.
    pub id: Id,
    /// Its length, in bytes.
    pub length: u32,
    /// Its directory and its entry; `None` if the file is complete already.
    pub place: Option<(Arc<Folder>, Box<Entry>)>,
}

impl Node {
    /// Takes the entry of a file of which the first block arrives.
    fn begin(&mut self) -> Option<Listed> {
        let Node::Held(held) = self else { return None };
        let size = held.entry.size();
        match std::mem::replace(self, Node::Open { at: 0, size }) {
            Node::Held(held) => Some(held),
            _ => None,
        }
    }
}

impl Sink {
    /// Creates the state before the first list.
    pub fn new(asks: bool) -> Sink {
        Sink {
            asks,
            nodes: vec![Node::Directory { folder: Some(Arc::default()), is_whole: false }],
            names: HashMap::new(),
            open: 0,
            totals: Totals::default(),
        }
    }

    /// Adds entries that the source has listed for a directory. Returns the number of the first entry.
    ///
    /// # Errors
    ///
    /// The directory was not listed or is complete, or an entry is malformed.
    pub fn list(&mut self, dir: Id, entries: &[Entry], whole: bool) -> Result<Id> {
        // The list of the destination itself never counts as complete, because other sources may follow.
        match self.nodes.get_mut(dir as usize) {
            Some(Node::Directory { is_whole, .. }) if !*is_whole || dir == ROOT => *is_whole |= whole,
            _ => return Err(Error::protocol("the sender listed entries of something that is not a directory")),
        }
        if self.nodes.len() + entries.len() > MOST {
            return Err(Error::protocol("the sender listed too many entries"));
        }
        self.make_room(entries.len())?;
        let first = self.nodes.len() as Id;
        let names = self.names.entry(dir).or_default();
        for entry in entries {
            check_name(&entry.name)?;
            if !names.add(&entry.name) {
                let name = crate::error::escape(String::from_utf8_lossy(&entry.name).as_ref().as_ref());
                return Err(Error::protocol(format!("the sender listed {name} twice in one directory")));
            }
            let node = match &entry.kind {
                EntryKind::Directory => Node::Directory { folder: None, is_whole: false },
                EntryKind::File { size, .. } if *size > i64::MAX as u64 => {
                    return Err(Error::protocol("the sender listed a file that is longer than any system supports"));
                }
                EntryKind::File { size, .. } => {
                    self.totals.files += 1;
                    self.open += 1;
                    let asked = is_asked(self.asks, *size);
                    if asked { Node::Asked(*size) } else { Node::Open { at: 0, size: *size } }
                }
                EntryKind::Link(target) if target.is_empty() || target.contains(&0) || target.len() > 4095 => {
                    return Err(Error::protocol("the sender listed a malformed link"));
                }
                EntryKind::Link(_) => Node::Name,
                EntryKind::Special { .. } => Node::File,
                EntryKind::Same(id) => match self.nodes.get(*id as usize) {
                    None | Some(Node::Directory { .. } | Node::Name) => {
                        let text = "the sender listed another name of something that is not a file";
                        return Err(Error::protocol(text));
                    }
                    Some(_) => Node::Name,
                },
            };
            self.totals.entries += 1;
            self.nodes.push(node);
        }
        Ok(first)
    }

    /// The names of a directory that were listed, until [`Sink::complete`].
    pub fn names(&self, dir: Id) -> Option<&Names> {
        self.names.get(&dir)
    }

    /// Forgets the names of a directory of which all entries are listed, except those that are alike.
    pub fn complete(&mut self, dir: Id) {
        if let Some(names) = self.names.get_mut(&dir) {
            names.complete();
            if names.alike().is_empty() {
                self.names.remove(&dir);
            }
        }
    }

    /// The directories, each with its names that are alike.
    pub fn alike(&self) -> impl Iterator<Item = (Id, &BTreeSet<Vec<u8>>)> {
        self.names.iter().map(|(dir, names)| (*dir, names.alike()))
    }

    /// Whether all entries of a directory are listed.
    pub fn is_whole(&self, dir: Id) -> bool {
        matches!(self.nodes.get(dir as usize), Some(Node::Directory { is_whole: true, .. }))
    }

    /// Records that a directory was made or found, or that it has failed.
    pub fn enter(&mut self, id: Id, entered: Folder) {
        if let Some(Node::Directory { folder, .. }) = self.nodes.get_mut(id as usize) {
            *folder = Some(Arc::new(entered));
        }
    }

    /// The directory with this number, if [`Sink::enter`] has recorded it.
    pub fn folder(&self, id: Id) -> Option<&Arc<Folder>> {
        match self.nodes.get(id as usize) {
            Some(Node::Directory { folder, .. }) => folder.as_ref(),
            _ => None,
        }
    }

    /// The directories that were recorded, each after that in which it is.
    pub fn folders(&self) -> impl DoubleEndedIterator<Item = (Id, &Folder)> {
        (0..self.nodes.len() as Id).filter_map(|id| Some((id, &**self.folder(id)?)))
    }

    /// Makes room for more entries. Before the number of entries doubles, checks that there is memory for all of them:
    /// most of it is allocated in small parts, and the process ends if one of these allocations fails.
    fn make_room(&mut self, more: usize) -> Result<()> {
        if self.nodes.capacity() - self.nodes.len() >= more {
            return Ok(());
        }
        let bytes = more.max(self.nodes.len()) * ENTRY;
        let has_memory = Vec::<u8>::new().try_reserve_exact(bytes).and_then(|()| self.nodes.try_reserve(more)).is_ok();
        let text =
            "no memory is left for the list of files; free memory, or raise the limit of the address space (ulimit -v)";
        if has_memory { Ok(()) } else { Err(Error::new(Kind::File, text)) }
    }

    /// Whether an entry is a file that still needs [`Sink::answer`].
    pub fn is_asked(&self, id: Id) -> bool {
        matches!(self.nodes.get(id as usize), Some(Node::Asked(_)))
    }

    /// Records that the sink has answered for a file. The answer is not where the blocks begin, because an earlier host of
    /// a chain may have less.
    pub fn answer(&mut self, id: Id, have: Have) {
        if let Some(node) = self.nodes.get_mut(id as usize)
            && let Node::Asked(size) = *node
        {
            *node = match have {
                Have::All => {
                    self.open -= 1;
                    Node::Kept { at: 0, size }
                }
                // Without hashes, the blocks begin at the start, because another host of a chain has nothing.
                Have::Check(_) | Have::Until(_) => Node::Open { at: 0, size },
            };
        }
    }

    /// Keeps the entry of a file until its first block arrives.
    pub fn hold(&mut self, id: Id, listed: Listed) {
        if let Some(node @ Node::Open { at: 0, .. }) = self.nodes.get_mut(id as usize) {
            *node = Node::Held(listed);
        }
    }

    /// Checks hashes of the first blocks of a file. Returns its entry, unless the file is complete already.
    ///
    /// # Errors
    ///
    /// Blocks of the file have arrived already, or the hashes are not in order, or outside of the file.
    pub fn sums(&self, id: Id, sums: &[Sum]) -> Result<Option<&Listed>> {
        let (size, held) = match self.nodes.get(id as usize) {
            Some(Node::Held(held)) => (held.entry.size(), Some(held)),
            Some(Node::Open { at: 0, size } | Node::Kept { at: 0, size }) => (*size, None),
            _ => return Err(Error::protocol("the sender sent hashes of a file that needs none")),
        };
        let mut at = 0;
        for sum in sums {
            let end = sum.offset.saturating_add(sum.length.into());
            if sum.offset < at || end > size || sum.length as usize > BLOCK {
                return Err(Error::protocol("the sender sent hashes of blocks that the file does not have"));
            }
            at = end;
        }
        Ok(held)
    }

    /// Records a received block of a file. Returns the entry of the file if the block is the first.
    ///
    /// # Errors
    ///
    /// The file accepts no blocks, or does not expect this block.
    pub fn block(&mut self, id: Id, offset: u64, length: usize) -> Result<Option<Listed>> {
        let end = offset.checked_add(length as u64);
        let mut node = self.nodes.get_mut(id as usize);
        let held = node.as_mut().and_then(|node| node.begin());
        match (node, end) {
            (Some(Node::Open { at, size } | Node::Kept { at, size }), Some(end))
                if offset >= *at && end <= *size && length <= BLOCK =>
            {
                *at = end;
                self.totals.bytes += length as u64;
                Ok(held)
            }
            _ => Err(Error::protocol("the sender sent a block at an unexpected offset")),
        }
    }

    /// Records a received pack of files, which completes each of them. Returns where they are written.
    ///
    /// # Errors
    ///
    /// The files do not match the pack, or their lengths differ from the list.
    pub fn pack(&mut self, files: &[(Id, u32)], length: usize) -> Result<Vec<Packed>> {
        let mut left = length as u64;
        let mut packed = Vec::with_capacity(files.len());
        for &(id, length) in files {
            let bytes = u64::from(length);
            let mut node = self.nodes.get_mut(id as usize);
            let held = node.as_mut().and_then(|node| node.begin());
            match node {
                Some(node)
                    if matches!(*node, Node::Open { at: 0, size } | Node::Kept { at: 0, size } if size == bytes)
                        && bytes <= left =>
                {
                    self.open -= u64::from(matches!(node, Node::Open { .. }));
                    *node = Node::File;
                    left -= bytes;
                    self.totals.bytes += bytes;
                }
                _ => return Err(Error::protocol("the sender sent a pack that does not fit its files")),
            }
            let place = held.and_then(|Listed { dir, entry }| Some((Arc::clone(self.folder(dir)?), entry)));
            packed.push(Packed { id, length, place });
        }
        match left {
            0 => Ok(packed),
            _ => Err(Error::protocol("the sender sent a pack that is longer than its files")),
        }
    }

    /// Ends a file: no further blocks will arrive, whether it is complete or has failed. Returns its entry if no block has
    /// arrived.
    ///
    /// # Errors
    ///
    /// The file accepts no blocks.
    pub fn close(&mut self, id: Id) -> Result<Option<Listed>> {
        let mut node = self.nodes.get_mut(id as usize);
        let held = node.as_mut().and_then(|node| node.begin());
        match node {
            Some(node @ (Node::Open { .. } | Node::Asked(_) | Node::Kept { .. })) => {
                self.open -= u64::from(!matches!(node, Node::Kept { .. }));
                *node = Node::File;
                Ok(held)
            }
            _ => Err(Error::protocol("the sender closed a file twice")),
        }
    }

    /// Checks the totals at the end of the transfer.
    ///
    /// # Errors
    ///
    /// The totals of the sender differ from those of this side, or files are incomplete.
    pub fn end(&self, sent: &Totals) -> Result<()> {
        let ours = self.totals;
        if self.open != 0 || (ours.entries, ours.files, ours.bytes) != (sent.entries, sent.files, sent.bytes) {
            let text = format!(
                "{} of {} files and {} of {} bytes arrived; start again",
                ours.files - self.open,
                sent.files,
                ours.bytes,
                sent.bytes
            );
            return Err(Error::protocol(text));
        }
        Ok(())
    }

    /// Returns the totals of the listed and received data.
    pub fn totals(&self) -> Totals {
        self.totals
    }
}

/// Whether a name is a single component, other than `.` and `..`.
fn check_name(name: &[u8]) -> Result<()> {
    let malformed = name.is_empty() || name == b"." || name == b".." || name.len() > 255;
    if malformed || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        let name = crate::error::escape(String::from_utf8_lossy(name).as_ref().as_ref());
        return Err(Error::protocol(format!("the sender listed an entry with a forbidden name: {name:?}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
