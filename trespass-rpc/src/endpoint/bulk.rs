//! Transfers attachments and targets: grants keys to this side's memory, makes RDMA requests, and sends bytes in
//! frames.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::oneshot;
use trespass::RegionKey;

use crate::core::{BulkFrame, BulkOperation, Violation};
use crate::error::{Certainty, RpcError, Status};
use crate::memory::Memory;

use super::parts::{Expecting, Job, Keys, Parts};
use super::state::State;
use super::{Command, Link, Reply, Turns};

/// An RDMA request of a handler.
#[derive(Debug)]
pub(crate) struct Transferring {
    /// The turns to read, if the request reads, and the number of bytes.
    reads: Option<Arc<Turns>>,
    length: usize,
    done: oneshot::Receiver<io::Result<()>>,
}

impl Transferring {
    /// Waits until the request has completed.
    pub(crate) async fn end(self) -> io::Result<()> {
        let outcome = self.done.await.unwrap_or_else(|_| Err(gone()));
        if let Some(reads) = self.reads {
            reads.advance(self.length);
        }
        outcome
    }
}

/// A read of a handler. Dropping it ends the wait.
struct Pull<'l> {
    link: &'l Link,
    id: u32,
    number: u64,
}

impl Drop for Pull<'_> {
    fn drop(&mut self) {
        if self.link.shared.is_inherited() {
            return;
        }
        let removed = self.link.with(|state| {
            let reads = &mut state.serving.get_mut(&self.id)?.expected;
            match reads.find(self.number) {
                // The peer still sends these bytes.
                Some(expected) if expected.state == Expecting::Now => {
                    expected.is_dropped = true;
                    None
                }
                _ => reads.remove(self.number),
            }
        });
        drop(removed);
    }
}

impl Link {
    /// Requests keys to memory.
    pub(crate) async fn open(self: &Arc<Self>, parts: Parts) -> Option<Keys> {
        let (reply, keys) = Reply::channel();
        self.shared.command(Command::Open { link: Arc::clone(self), parts, reply });
        keys.await.ok()
    }

    /// Begins to transfer bytes between registered memory and the peer's memory.
    pub(crate) fn transfer(
        self: &Arc<Self>,
        id: u32,
        is_put: bool,
        (memory, range): (&Memory, Range<usize>),
        remote: (RegionKey, u64),
    ) -> io::Result<Transferring> {
        if !self.begin_transfer(id) {
            return Err(gone());
        }
        let (reply, done) = Reply::channel();
        let length = range.len();
        let memory = (memory.clone(), range);
        self.shared.command(Command::Transfer { link: Arc::clone(self), id, is_put, memory, remote, reply });
        Ok(Transferring { reads: (!is_put).then(|| Arc::clone(&self.reads)), length, done })
    }

    /// Requests bytes of a caller's attachment after the earlier reads of the call, and waits for them.
    pub(crate) async fn pull(
        &self,
        id: u32,
        index: usize,
        from: u64,
        memory: &Memory,
        part: Range<usize>,
    ) -> io::Result<()> {
        self.shared.process.check()?;
        let number = self.with(|state| {
            let serving = state.serving.get_mut(&id).ok_or_else(gone)?;
            let number = serving.expected.add(index, from, memory, part);
            state.request_bytes(id);
            Ok::<_, io::Error>(number)
        })?;
        let pull = Pull { link: self, id, number };
        std::future::poll_fn(|task| {
            self.shared.process.check()?;
            let mut waker = Some(task.waker().clone());
            pull.link.with(|state| {
                let State { serving, later, .. } = state;
                let expected = serving.get_mut(&id).and_then(|serving| serving.expected.find(number));
                match expected {
                    Some(expected) if expected.state == Expecting::Arrived => {
                        Poll::Ready(expected.failed.take().map_or(Ok(()), Err))
                    }
                    Some(expected) if expected.state != Expecting::Gone => {
                        later.replace(&mut expected.waker, &mut waker);
                        Poll::Pending
                    }
                    _ => Poll::Ready(Err(gone())),
                }
            })
        })
        .await
    }

    /// Sends a few bytes to a caller's target, in one frame.
    pub(crate) fn push(&self, id: u32, index: usize, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.shared.process.check()?;
        self.with(|state| match state.core.failure() {
            Some(_) => Err(gone()),
            None => {
                state.core.bulk(id, index, BulkOperation::Data, at, bytes);
                Ok(())
            }
        })
    }

    /// Sends a part of a `Memory` to a caller's target, in frames.
    pub(crate) async fn send_memory(
        &self,
        id: u32,
        index: usize,
        offset: u64,
        memory: &Memory,
        rest: Range<usize>,
    ) -> io::Result<()> {
        self.shared.process.check()?;
        let (done, sent) = Reply::channel();
        let job = Job { id, index, offset, memory: memory.clone(), rest, done: Some(done) };
        self.with(|state| state.jobs.push_back(job));
        sent.await.map_err(|_| gone())
    }
}

impl State {
    /// Processes a `Bulk` frame.
    pub(super) fn on_bulk(&mut self, frame: &BulkFrame<'_>) -> Result<(), Violation> {
        match self.core.call(frame.id).map(|call| &call.bulks) {
            // The frame refers to an attachment or a target of a call that this side makes.
            Some(bulks) => {
                let local = bulks.get(frame.index).and_then(|local| Some((local.memory.as_ref()?, local.is_target)));
                let Some(((memory, range), is_target)) = local else {
                    return Err(Violation::Unexpected("bytes for an attachment or target that the call does not have"));
                };
                let offset = usize::try_from(frame.offset).unwrap_or(usize::MAX);
                let outside = || Violation::Unexpected("an offset that is not within the memory of the call");
                match frame.operation {
                    BulkOperation::Data => {
                        let end = offset.checked_add(frame.body.len()).filter(|end| is_target && *end <= range.len());
                        end.ok_or_else(outside)?;
                        if let Err(error) = memory.write_at(range.start + offset, frame.body) {
                            let text = format!("the target has no memory: {error}");
                            let failed = RpcError::new(Status::INTERNAL, Certainty::Unknown, text);
                            self.on_answer(frame.id, Err(failed));
                        }
                        Ok(())
                    }
                    BulkOperation::Pull => {
                        let length = frame.body.try_into().map(u64::from_le_bytes).unwrap_or(u64::MAX);
                        let length = usize::try_from(length).unwrap_or(usize::MAX);
                        let end = offset.checked_add(length).filter(|end| !is_target && *end <= range.len());
                        let rest = range.start + offset..range.start + end.ok_or_else(outside)?;
                        if self.jobs.iter().any(|job| job.id == frame.id && job.index == frame.index) {
                            return Err(Violation::Unexpected("a second request for an attachment's bytes"));
                        }
                        let memory = memory.clone();
                        let (id, index, offset) = (frame.id, frame.index, frame.offset);
                        self.jobs.push_back(Job { id, index, offset, memory, rest, done: None });
                        Ok(())
                    }
                    BulkOperation::Gone => Ok(()),
                }
            }
            None => self.on_expected(frame),
        }
    }

    /// Processes bytes of a caller's attachment. A request for the bytes of a cancelled call is ignored.
    fn on_expected(&mut self, frame: &BulkFrame<'_>) -> Result<(), Violation> {
        if frame.operation == BulkOperation::Pull {
            self.core.bulk(frame.id, frame.index, BulkOperation::Gone, 0, &[]);
            return Ok(());
        }
        let Some(reads) = self.serving.get_mut(&frame.id).map(|serving| &mut serving.expected) else { return Ok(()) };
        let Some(expected) = reads.current().filter(|expected| expected.index == frame.index) else { return Ok(()) };
        match frame.operation {
            BulkOperation::Data => {
                let end = expected.filled + frame.body.len();
                if frame.offset != expected.from + expected.filled as u64 || end > expected.part.len() {
                    return Err(Violation::Unexpected("bytes that were not requested"));
                }
                if expected.failed.is_none() {
                    let written = expected.memory.write_at(expected.part.start + expected.filled, frame.body);
                    expected.failed = written.err();
                }
                expected.filled = end;
                self.reads.advance(frame.body.len());
                if end < expected.part.len() {
                    return Ok(());
                }
                expected.state = Expecting::Arrived;
            }
            _ => expected.state = Expecting::Gone,
        }
        let (waker, number, is_dropped) = (expected.waker.take(), expected.number, expected.is_dropped);
        if is_dropped {
            // It has no waker.
            drop(reads.remove(number));
        }
        self.wake_later(waker);
        self.request_bytes(frame.id);
        Ok(())
    }

    /// Requests the bytes of the next read of a call, if no other bytes of the call are outstanding.
    fn request_bytes(&mut self, id: u32) {
        let next = self.serving.get_mut(&id).and_then(|serving| serving.expected.begin());
        if let Some((index, from, length)) = next {
            self.core.bulk(id, index, BulkOperation::Pull, from, &length.to_le_bytes());
        }
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the call or its connection has ended")
}
