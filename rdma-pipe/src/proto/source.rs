//! The side that sends files. Numbers the entries, and decides which files to send and when.

use std::collections::{HashMap, VecDeque};

use super::frame::{Entry, EntryKind, Have, Id, Totals};
use crate::channel::BLOCK;
use crate::error::{Error, Result};

/// Files up to this length are sent in packs.
pub const SMALL: u64 = 64 << 10;
/// Maximum number of files in a pack.
const PACKED: usize = 512;

/// A job, which consists of one or more files to read and send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Several small files, which are sent as a pack; each with its length.
    Pack(Vec<(Id, u32)>),
    /// A single file, which is sent from an offset to its end.
    File {
        /// The file's number.
        id: Id,
        /// The file's length in bytes.
        size: u64,
        /// The number of bytes that the sink already has.
        from: u64,
    },
}

/// The listed entries, and the remaining work.
#[derive(Debug)]
pub struct Source {
    /// Whether the source asks the sink also for small files, because the sink may already have them.
    asks: bool,
    next: Id,
    asked: HashMap<Id, u64>,
    ready: VecDeque<Job>,
    pack: Vec<(Id, u32)>,
    packed: u64,
    totals: Totals,
}

/// Whether the source waits for the sink's answer before it sends a file of this size. Both sides compute the same
/// result.
pub(super) fn is_asked(asks: bool, size: u64) -> bool {
    asks || size > SMALL
}

impl Source {
    /// Creates the state before the first list.
    pub fn new(asks: bool) -> Source {
        let (asked, ready) = (HashMap::new(), VecDeque::new());
        Source { asks, next: 1, asked, ready, pack: Vec::new(), packed: 0, totals: Totals::default() }
    }

    /// Assigns numbers to the entries of a list; returns the first number.
    pub fn list(&mut self, entries: &[Entry]) -> Id {
        let first = self.next;
        for entry in entries {
            let id = self.next;
            self.next += 1;
            self.totals.entries += 1;
            if let EntryKind::File { size, .. } = entry.kind {
                self.totals.files += 1;
                if is_asked(self.asks, size) {
                    self.asked.insert(id, size);
                } else {
                    self.pack_up(id, size);
                }
            }
        }
        first
    }

    /// Returns the number of the next entry.
    pub fn next_id(&self) -> Id {
        self.next
    }

    /// Records that all entries were listed. A pack that is not full then becomes ready.
    pub fn listed(&mut self) {
        self.close_pack();
    }

    /// Records the answer of the sink.
    ///
    /// # Errors
    ///
    /// The source has not asked for this file, or the answer exceeds the size of the file.
    pub fn have(&mut self, answers: &[(Id, Have)]) -> Result<()> {
        for &(id, have) in answers {
            let size = self
                .asked
                .remove(&id)
                .ok_or_else(|| Error::protocol("the receiver answered for a file for which it was not asked"))?;
            match have {
                Have::All => {}
                Have::Until(from) if from > size => {
                    return Err(Error::protocol("the receiver reports more bytes of a file than the file has"));
                }
                Have::Until(0) if size <= SMALL => self.pack_up(id, size),
                Have::Until(from) => self.ready.push_back(Job::File { id, size, from }),
            }
        }
        if self.asks && self.asked.is_empty() {
            self.close_pack();
        }
        Ok(())
    }

    /// Returns the next job, if one is ready.
    pub fn next_job(&mut self) -> Option<Job> {
        self.ready.pop_front()
    }

    /// Returns the number of listed files that were not taken yet.
    pub fn waiting(&self) -> usize {
        self.asked.len() + self.ready.len() + self.pack.len()
    }

    /// Adds file data that was sent to the totals.
    pub fn sent(&mut self, bytes: u64) {
        self.totals.bytes += bytes;
    }

    /// Records an entry that could not be read.
    pub fn failed(&mut self) {
        self.totals.failed += 1;
    }

    /// Returns the totals of the listed and sent data.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn pack_up(&mut self, id: Id, size: u64) {
        if self.packed + size > BLOCK as u64 || self.pack.len() == PACKED {
            self.close_pack();
        }
        self.pack.push((id, size as u32));
        self.packed += size;
    }

    fn close_pack(&mut self) {
        if !self.pack.is_empty() {
            self.ready.push_back(Job::Pack(std::mem::take(&mut self.pack)));
            self.packed = 0;
        }
    }
}
