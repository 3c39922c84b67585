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
    /// The first bytes of a file, whose hashes are sent.
    Check {
        /// The file's number.
        id: Id,
        /// The number of bytes.
        until: u64,
    },
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
    asked: HashMap<Id, Asked>,
    ready: VecDeque<Job>,
    pack: Vec<(Id, u32)>,
    packed: u64,
    totals: Totals,
}

/// A file for which the source has asked.
#[derive(Debug)]
struct Asked {
    size: u64,
    stage: Stage,
}

/// What the source waits for.
#[derive(Debug)]
enum Stage {
    /// The sink's first answer.
    Listed,
    /// The end of the job that sends hashes. The sink may already have answered again.
    Checking(Option<u64>),
    /// The sink's second answer.
    Checked,
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
                    self.asked.insert(id, Asked { size, stage: Stage::Listed });
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
    /// The source has not asked for this file, the answer exceeds the size of the file, or it was not proved.
    pub fn have(&mut self, answers: &[(Id, Have)]) -> Result<()> {
        for &(id, have) in answers {
            let Some(Asked { size, stage }) = self.asked.get_mut(&id) else {
                return Err(Error::protocol("the receiver answered for a file for which it was not asked"));
            };
            match (have, &mut *stage) {
                (Have::Until(at) | Have::Check(at), _) if at > *size => {
                    return Err(Error::protocol("the receiver reports more bytes of a file than the file has"));
                }
                (Have::All, Stage::Listed) => _ = self.asked.remove(&id),
                (Have::Check(until), Stage::Listed) => {
                    *stage = Stage::Checking(None);
                    self.ready.push_back(Job::Check { id, until });
                }
                (Have::Until(from), Stage::Checking(answer @ None)) => *answer = Some(from),
                (Have::Until(0), Stage::Listed) => self.start(id, 0, false),
                (Have::Until(from), Stage::Checked) => self.start(id, from, true),
                _ => return Err(Error::protocol("the receiver answered for a file at a wrong time")),
            }
        }
        self.close_last_pack();
        Ok(())
    }

    /// Whether the sink still needs hashes of this file.
    pub fn is_checking(&self, id: Id) -> bool {
        matches!(self.asked.get(&id), Some(Asked { stage: Stage::Checking(None), .. }))
    }

    /// Records that all hashes of a file were sent, or enough of them.
    pub fn checked(&mut self, id: Id) {
        if let Some(Asked { stage, .. }) = self.asked.get_mut(&id)
            && let Stage::Checking(answer) = *stage
        {
            *stage = Stage::Checked;
            if let Some(from) = answer {
                self.start(id, from, true);
            }
        }
        self.close_last_pack();
    }

    /// Makes a file ready, of which the sink has the bytes before an offset. A file that was checked is open on both sides,
    /// so it is sent before others are checked.
    fn start(&mut self, id: Id, from: u64, is_checked: bool) {
        let Some(Asked { size, .. }) = self.asked.remove(&id) else { return };
        let job = Job::File { id, size, from };
        match (from, is_checked) {
            (0, _) if size <= SMALL => self.pack_up(id, size),
            (_, true) => self.ready.push_front(job),
            (_, false) => self.ready.push_back(job),
        }
    }

    /// Whether a job is ready.
    pub fn has_job(&self) -> bool {
        !self.ready.is_empty()
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

    fn close_last_pack(&mut self) {
        if self.asks && self.asked.is_empty() {
            self.close_pack();
        }
    }

    fn close_pack(&mut self) {
        if !self.pack.is_empty() {
            self.ready.push_back(Job::Pack(std::mem::take(&mut self.pack)));
            self.packed = 0;
        }
    }
}
