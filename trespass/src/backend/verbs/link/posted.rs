//! The requests that were posted, and their completion.

use std::collections::VecDeque;

use sideway::ibverbs::completion::WorkCompletionStatus;

use super::window::bound;
use super::{State, VerbsLink};
use crate::memory::{Buf, Ending, Transfer};

/// The requests that have not completed. Their numbers are those from `first` up to, but excluding, `next`. An inline
/// SEND has no buffer to keep, so it has no entry.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    pub(super) first: u32,
    pub(super) next: u32,
    pub(super) entries: VecDeque<(u32, Posted)>,
    /// Requests of lists that the driver rejected. It may have accepted some of them, so they stay here until the queue pair
    /// is destroyed. None of them counts as done.
    pub(super) rejected: Vec<Posted>,
}

impl Outstanding {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.next.wrapping_sub(self.first) as usize
    }

    /// A SEND without a buffer.
    #[inline]
    pub(super) fn push_inline(&mut self) {
        self.next = self.next.wrapping_add(1);
    }

    /// Notes that the driver rejected the requests from `from` on.
    #[cold]
    pub(super) fn reject(&mut self, from: u32) {
        let accepted = from.wrapping_sub(self.first);
        let kept = self.entries.partition_point(|&(at, _)| at.wrapping_sub(self.first) < accepted);
        self.rejected.extend(self.entries.drain(kept..).map(|(_, posted)| posted));
        // The numbers stay in use, as a later request marks the end.
        let count = self.next.wrapping_sub(from);
        self.entries.extend((0..count).map(|index| (from.wrapping_add(index), Posted::Rejected)));
    }

    #[inline]
    pub(super) fn push(&mut self, posted: Posted) {
        self.entries.push_back((self.next, posted));
        self.next = self.next.wrapping_add(1);
    }
}

/// A request that has not completed.
#[derive(Debug)]
pub(super) enum Posted {
    Send(Buf),
    Write(Buf),
    Read {
        token: u32,
        into: Buf,
    },
    Transfer(Box<Transfer>),
    Probe,
    Bind(usize),
    Invalidate(usize),
    /// The driver rejected the list of the request.
    Rejected,
    /// The request whose completion marks the end of the flush.
    End,
}

/// The results of completed requests.
#[derive(Debug)]
pub(in crate::backend::verbs) enum Retired {
    Sent(u32),
    /// WRITEs of this number of bytes.
    Wrote(usize),
    Read {
        token: u32,
        into: Buf,
        whole: bool,
    },
    /// The peer has written a message.
    Landed {
        token: u32,
        message: Buf,
    },
    Moved,
    Probed,
}

impl VerbsLink {
    /// Completes the requests up to `number`. These requests have succeeded; the last one has this status.
    /// Returns the number of completion queue entries that these requests free, or 0 if no request has this number.
    #[inline]
    pub(in crate::backend::verbs) fn retire(
        &mut self,
        number: u32,
        status: WorkCompletionStatus,
        spare: &mut Vec<Buf>,
        mut report: impl FnMut(Retired),
    ) -> usize {
        let first = self.posted.first;
        let count = number.wrapping_sub(first) as usize + 1;
        if count > self.posted.len() {
            return 0;
        }
        self.posted.first = number.wrapping_add(1);
        // Counts all requests as SENDs, and subtracts the others when they are found.
        let is_well = status == WorkCompletionStatus::Success;
        let (mut sent, mut moved, mut failed) = (count as u32, false, u32::from(!is_well));
        while let Some(&(at, _)) = self.posted.entries.front()
            && (at.wrapping_sub(first) as usize) < count
            && let Some((at, posted)) = self.posted.entries.pop_front()
        {
            let whole = is_well || at != number;
            if !matches!(posted, Posted::Send(_)) {
                sent -= 1;
                failed = if whole { failed } else { 0 };
            }
            match posted {
                Posted::Send(buf) => spare.push(buf),
                Posted::Write(buf) => {
                    report(Retired::Wrote(buf.len()));
                    spare.push(buf);
                }
                Posted::Read { token, into } => report(Retired::Read { token, into, whole }),
                Posted::Transfer(transfer) => {
                    transfer.end(match status {
                        _ if whole => Ending::Done,
                        WorkCompletionStatus::RemoteAccessError => Ending::Refused,
                        _ => Ending::Lost,
                    });
                    moved = true;
                }
                Posted::Probe if whole => report(Retired::Probed),
                Posted::Probe => {}
                Posted::Bind(index) if whole => bound(self.windows.get_mut(index)),
                // The revocation failed, so the key is valid until the queue pair is destroyed.
                Posted::Bind(_) => {}
                Posted::Invalidate(index) if whole => {
                    moved = true;
                    let window = self.windows.get_mut(index);
                    if let Some((token, message)) = window.and_then(|window| window.release(spare)) {
                        report(Retired::Landed { token, message });
                    }
                }
                Posted::Invalidate(_) | Posted::Rejected => {}
                Posted::End => {
                    if let State::Draining { is_flushed, .. } = &mut self.state {
                        *is_flushed = true;
                    }
                }
            }
        }
        sent -= failed;
        if sent > 0 {
            report(Retired::Sent(sent));
        }
        if moved {
            report(Retired::Moved);
        }
        count
    }
}
