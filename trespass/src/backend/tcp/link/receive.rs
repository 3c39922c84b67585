//! What arrives on a link: the records, and their messages.

use std::collections::VecDeque;
use std::io::{IoSliceMut, Read};

use super::super::record::{self, Head, Record, SHORTEST, WINDOW};
use super::super::{is_again, now as now_ns};
use super::{Keyed, Outstanding, Progress, TcpLink, invalid};
use crate::backend::Ended;
use crate::memory::{Buf, Pool, has_last, no_memory};

/// Replaces `STAGING` while long messages arrive, because bytes read beyond a message are copied once more.
const AHEAD: usize = 4 << 10;

/// How long an answer may wait for memory, in nanoseconds.
const STALL: u64 = 10_000_000_000;

/// The memory into which a link receives.
pub(in super::super) struct Intake<'t> {
    pub(in super::super) staging: &'t mut [u8],
    pub(in super::super) receives: &'t mut VecDeque<Buf>,
    pub(in super::super) pool: &'t Pool,
}

/// A record of which the first `filled` bytes have arrived.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) of: Of,
    pub(super) message: Buf,
    pub(super) filled: usize,
}

impl Partial {
    fn rest(&mut self) -> &mut [u8] {
        &mut self.message[self.filled..]
    }
}

/// An answer that the worker has not requested yet, and the bytes that have arrived after its head.
#[derive(Debug)]
pub(super) struct Stalled {
    pub(super) key: u32,
    pub(super) length: usize,
    bytes: Vec<u8>,
    /// When the link stalled.
    since: u64,
}

/// The contents of a record.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Send,
    /// The answer to the READ with this token.
    Read(u32),
    /// The answer with this key, which the worker has not requested yet.
    Push(u32),
}

impl TcpLink {
    pub(in super::super) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Whether the link is stalled, and the worker has given memory for the answer.
    pub(in super::super) fn can_resume(&self) -> bool {
        self.stalled.is_some() && self.partial.is_some()
    }

    pub(super) fn receive(
        &mut self,
        Intake { staging, receives, pool }: Intake<'_>,
        hangup: bool,
        mut report: impl FnMut(Progress<'_>) -> bool,
    ) -> Result<(), Ended> {
        if !self.resume(&mut report, receives, pool)? {
            return self.check_stall();
        }
        loop {
            let rest = self.partial.as_mut().map_or(&mut [][..], Partial::rest);
            let staged = if self.is_bulk { AHEAD } else { staging.len() };
            let (direct, most) = (rest.len(), rest.len() + staged);
            let mut slices = [IoSliceMut::new(rest), IoSliceMut::new(&mut staging[..staged])];
            let count = match self.socket.read_vectored(&mut slices) {
                Ok(0) => return Err(Ended::PeerClosed),
                Ok(count) => count,
                Err(error) if is_again(&error) => return Ok(()),
                Err(error) => return Err(Ended::Failed(error)),
            };
            if let Some(partial) = &mut self.partial {
                partial.filled += count.min(direct);
            }
            self.is_bulk &= count < most;
            if !self.take(&staging[..count.saturating_sub(direct)], receives, pool, &mut report)? {
                return Ok(());
            }
            // After a short read, the socket contains no further data, or only the end of the stream.
            if count < most && !hangup {
                return Ok(());
            }
        }
    }

    /// Ends a link that has been stalled for too long: what arrives after the answer waits too, such as the credits for
    /// which a call may wait, and the end of the peer.
    fn check_stall(&self) -> Result<(), Ended> {
        match &self.stalled {
            Some(stalled) if now_ns() >= stalled.since + STALL => Err(Ended::Failed(no_memory(stalled.length))),
            _ => Ok(()),
        }
    }

    /// Processes bytes that have arrived. Returns false if they stall the link.
    fn take(
        &mut self,
        mut bytes: &[u8],
        receives: &mut VecDeque<Buf>,
        pool: &Pool,
        report: &mut impl FnMut(Progress<'_>) -> bool,
    ) -> Result<bool, Ended> {
        loop {
            if let Some(Partial { of, message, .. }) = self.partial.take_if(|partial| partial.rest().is_empty()) {
                let is_sound = match of {
                    Of::Send => report(Progress::Received(message)),
                    Of::Read(token) => report(Progress::Read(token, message)),
                    Of::Push(key) => {
                        self.arrived.push(Keyed { key, message });
                        true
                    }
                };
                if !is_sound {
                    return Err(Ended::Closed);
                }
            }
            if let Some(stalled) = &mut self.stalled {
                let is_kept =
                    bytes.is_empty() || has_last(bytes.len()) && stalled.bytes.try_reserve_exact(bytes.len()).is_ok();
                if !is_kept {
                    return Err(Ended::Failed(no_memory(bytes.len())));
                }
                stalled.bytes.extend_from_slice(bytes);
                return Ok(false);
            }
            if bytes.is_empty() {
                return Ok(true);
            }
            bytes = match &mut self.partial {
                Some(partial) => {
                    let (now, later) = bytes.split_at(bytes.len().min(partial.rest().len()));
                    partial.rest()[..now.len()].copy_from_slice(now);
                    partial.filled += now.len();
                    later
                }
                None => self.begin(bytes, receives, pool)?,
            };
        }
    }

    /// Continues a stalled link if its answer has memory: the worker's, or the pool's. Returns false if the link stays
    /// stalled.
    fn resume(
        &mut self,
        report: &mut impl FnMut(Progress<'_>) -> bool,
        receives: &mut VecDeque<Buf>,
        pool: &Pool,
    ) -> Result<bool, Ended> {
        let Some(stalled) = self.stalled.take() else { return Ok(true) };
        if self.partial.is_none() {
            let Some(message) = pool.alloc_announced(stalled.length) else {
                self.stalled = Some(stalled);
                return Ok(false);
            };
            self.partial = Some(Partial { of: Of::Push(stalled.key), message, filled: 0 });
        }
        self.take(&stalled.bytes, receives, pool, report)
    }

    /// Takes the bytes that belong to the head of the next record, and returns the remaining bytes.
    fn begin<'b>(&mut self, bytes: &'b [u8], receives: &mut VecDeque<Buf>, pool: &Pool) -> Result<&'b [u8], Ended> {
        let whole = record::head_length(&self.head);
        let (now, later) = bytes.split_at(bytes.len().min(whole - self.head.len()));
        self.head.extend_from_slice(now);
        let Some(head) = Head::parse(&self.head) else { return Ok(later) };
        self.head.clear();
        match head {
            Head::Send(length) => {
                // If no receive is left, some peer has sent without a credit, not necessarily this one; the worker
                // determines which.
                let mut message = receives
                    .pop_front()
                    .or_else(|| pool.segment())
                    .unwrap_or_else(|| Buf::on_heap(pool.segment_length()));
                if length == 0 || length > message.len() {
                    receives.push_front(message);
                    return Err(invalid("the peer sent more than a segment"));
                }
                message.truncate(length);
                self.partial = Some(Partial { of: Of::Send, message, filled: 0 });
            }
            Head::Read(key) => match self.exposed.iter().position(|exposed| exposed.key == key) {
                Some(at) => self.queue.push_back(Record::answer(key, self.exposed.swap_remove(at).message)),
                None => return Err(invalid("the peer reads a message that was not announced")),
            },
            Head::Answer(key, length) => {
                self.is_bulk = true;
                let partial = match self.reads.iter().position(|read| read.key == key) {
                    Some(at) if self.reads[at].into.len() == length => {
                        let Outstanding { token, into, .. } = self.reads.remove(at);
                        Partial { of: Of::Read(token), message: into, filled: 0 }
                    }
                    None if length >= SHORTEST
                        && self.arrived.iter().map(|arrived| arrived.message.len()).sum::<usize>() + length
                            <= WINDOW =>
                    {
                        let Some(message) = pool.alloc_announced(length) else {
                            self.stalled = Some(Stalled { key, length, bytes: Vec::new(), since: now_ns() });
                            return Ok(later);
                        };
                        Partial { of: Of::Push(key), message, filled: 0 }
                    }
                    _ => return Err(invalid("the peer sent a message that was not read")),
                };
                self.partial = Some(partial);
            }
        }
        Ok(later)
    }
}
