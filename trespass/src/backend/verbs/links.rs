//! The links of a worker, and their completions.

use std::io;

use sideway::ibverbs::completion::{
    BasicPoller, CompletionRecord, ExtendedPoller, PollCompletionQueueError, WorkCompletionStatus,
};

use super::link::{self, Retired, State, VerbsLink};
use super::manager;
use super::number_map::NumberMap;
use super::receives::Receives;
use crate::backend::{Ended, Events, LinkId};
use crate::memory::Buf;

/// The state that processing a completion changes. The order of the fields is the order in which they are dropped:
/// queue pairs, then the shared queue with its buffers.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) list: Vec<Option<VerbsLink>>,
    pub(super) by_number: NumberMap,
    /// Links that are being established or ended.
    pub(super) unsettled: Vec<u32>,
    pub(super) receives: Receives,
    /// The number of completion queue entries that are still free: they are neither reserved by a request nor lent to a
    /// link.
    pub(super) room: usize,
    /// Number of turns until the next turn that also checks descriptors and deadlines; at least 1.
    pub(super) quiet: u32,
}

/// Processes at most `budget` completions of a poller. For a basic queue, `budget` must not limit them, because all of
/// them have already been polled.
macro_rules! take_all {
    ($name:ident, $Poller:ident, $inline:ident) => {
        #[inline($inline)]
        pub(super) fn $name(
            &mut self,
            mut poller: $Poller<'_>,
            budget: u32,
            events: &mut impl Events,
            spare: &mut Vec<Buf>,
        ) -> u32 {
            let mut count = 0;
            loop {
                match poller.next() {
                    Ok(Some(wc)) => self.take(wc.wr_id(), wc.status(), wc.byte_len(), wc.qp_num(), events, spare),
                    Ok(None) => return count,
                    Err(error) => return count + broken(&error),
                }
                count += 1;
                if count == budget {
                    return count;
                }
            }
        }
    };
}

impl Links {
    pub(super) fn new(receives: Receives, room: usize) -> Self {
        Self { list: Vec::new(), by_number: NumberMap::default(), unsettled: Vec::new(), receives, room, quiet: 1 }
    }

    #[inline]
    pub(super) fn get(&mut self, id: LinkId) -> Option<&mut VerbsLink> {
        self.list.get_mut(id.index as usize)?.as_mut().filter(|link| link.id == id)
    }

    /// Whether a link is over and will be destroyed in one of the next turns.
    pub(super) fn has_over(&self) -> bool {
        self.unsettled.iter().any(|&index| {
            let link = self.list.get(index as usize).and_then(Option::as_ref);
            link.is_some_and(|link| {
                use State::Draining;
                matches!(
                    link.state,
                    Draining { turns: 1.., .. } | Draining { is_flushed: true, is_disconnected: true, .. }
                )
            })
        })
    }

    /// Stores a link that is being established.
    pub(super) fn enter(&mut self, link: VerbsLink) {
        let index = link.id.index as usize;
        if self.list.len() <= index {
            self.list.resize_with(index + 1, || None);
        }
        self.unsettle(link.id.index);
        self.list[index] = Some(link);
    }

    /// Marks a link so that each turn checks it until it is established or has ended.
    pub(super) fn unsettle(&mut self, index: u32) {
        if !self.unsettled.contains(&index) {
            self.unsettled.push(index);
        }
        self.quiet = 1;
    }

    /// Takes back the completion queue entries that are lent to all links, because none is left.
    #[cold]
    pub(super) fn take_back_all(&mut self) {
        self.room += self.list.iter_mut().flatten().map(VerbsLink::take_back).sum::<usize>();
    }

    take_all!(complete_basic, BasicPoller, never);
    take_all!(complete_extended, ExtendedPoller, always);

    /// Processes the completions that were polled while the worker prepared to sleep.
    pub(super) fn complete_stash(
        &mut self,
        stash: &mut Vec<CompletionRecord>,
        events: &mut impl Events,
        spare: &mut Vec<Buf>,
    ) -> u32 {
        let count = stash.len() as u32;
        for record in stash.drain(..) {
            self.take(record.wr_id, record.status, record.byte_len, record.qp_num, events, spare);
        }
        count
    }

    #[inline(always)]
    pub(super) fn take(
        &mut self,
        wr_id: u64,
        status: WorkCompletionStatus,
        bytes: u32,
        qp_number: u32,
        events: &mut impl Events,
        spare: &mut Vec<Buf>,
    ) {
        let is_well = status == WorkCompletionStatus::Success;
        if Receives::is_receive(wr_id) {
            return if is_well { self.receive(wr_id, bytes, qp_number, events) } else { self.release(wr_id, events) };
        }
        let Some(Some(link)) = self.list.get_mut(link::index_of(wr_id)) else { return };
        if !link::is_of(wr_id, link.id) {
            return;
        }
        let id = link.id;
        self.room += link.retire(wr_id as u32, status, spare, |retired| report(id, retired, events));
        if !is_well && matches!(link.state, State::Established | State::Connecting) {
            fail(link, status);
            self.unsettle(id.index);
        }
    }

    /// Processes a message that has arrived. This is a function of its own, so that it and the loop use few registers.
    #[inline(never)]
    fn receive(&mut self, wr_id: u64, bytes: u32, qp_number: u32, events: &mut impl Events) {
        let Some(link) = self.by_number.recent(qp_number) else {
            return self.receive_first(wr_id, bytes, qp_number, events);
        };
        if let Some(buf) = self.receives.take(wr_id) {
            events.received(link, buf, bytes as usize);
        }
    }

    /// Processes a message of a link that is not among the recent ones.
    #[inline(never)]
    fn receive_first(&mut self, wr_id: u64, bytes: u32, qp_number: u32, events: &mut impl Events) {
        match self.find(qp_number, events) {
            Some(_) => self.receive(wr_id, bytes, qp_number, events),
            None => self.release(wr_id, events),
        }
    }

    /// Returns a receive that was flushed, or whose link has ended.
    #[inline(never)]
    fn release(&mut self, wr_id: u64, events: &mut impl Events) {
        if let Some(buf) = self.receives.take(wr_id) {
            events.returned(buf);
        }
    }

    /// Finds the link of a received message, and makes it one of the recent links.
    fn find(&mut self, number: u32, events: &mut impl Events) -> Option<LinkId> {
        let id = self.by_number.get(number)?;
        let link = self.get(id)?;
        if matches!(link.state, State::Connecting) {
            // The first message arrived before the connection manager's event.
            link.state = State::Established;
            events.established(id, manager::describe(&link.identifier), &[]);
        }
        self.by_number.keep(number, id);
        Some(id)
    }
}

pub(super) fn report(id: LinkId, retired: Retired, events: &mut impl Events) {
    match retired {
        Retired::Sent(count) => events.sent(id, count),
        Retired::Read { token, into, whole } => events.read(id, token, into, whole),
        Retired::Wrote(bytes) => events.wrote(id, bytes),
        Retired::Landed { token, message } => events.landed(id, token, message),
        Retired::Moved => events.moved(id),
        Retired::Probed => events.probed(id),
    }
}

/// Ends the link of a failed request.
#[cold]
fn fail(link: &mut VerbsLink, status: WorkCompletionStatus) {
    let kind = match status {
        WorkCompletionStatus::RetryCounterExceededError | WorkCompletionStatus::ResponseTimeoutError => {
            io::ErrorKind::TimedOut
        }
        WorkCompletionStatus::FatalError => io::ErrorKind::NetworkDown,
        _ => io::ErrorKind::ConnectionReset,
    };
    if status == WorkCompletionStatus::ResponderNotReadyRetryCounterExceededError {
        // Credits are granted only for posted receives, so one side has counted credits incorrectly.
        rdma_mummy_sys::log!(
            error,
            "the peer has no receive posted for a message: credits were granted for receives that are not posted"
        );
    }
    manager::drain(link, Ended::Failed(io::Error::new(kind, Status(status))), false);
}

#[inline]
pub(super) fn broken(error: &PollCompletionQueueError) -> u32 {
    if !matches!(error, PollCompletionQueueError::CompletionQueueEmpty) {
        report_broken(error);
    }
    0
}

#[cold]
fn report_broken(error: &PollCompletionQueueError) {
    rdma_mummy_sys::log!(error, "the completion queue is broken: {error}");
}

/// The status of a request, which an error contains as its source.
#[derive(Debug)]
struct Status(WorkCompletionStatus);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RDMA request failed: {}", self.0)
    }
}

impl std::error::Error for Status {}
