//! Runs a turn, which processes completions. At intervals, a turn also checks descriptors and deadlines.

use std::time::Duration;

use sideway::ibverbs::completion::GenericCompletionQueue;

use super::device;
use super::link::{State, VerbsLink};
use super::links::{broken, report};
use super::{BATCH, Verbs, now};
use crate::backend::{Ended, Events, turns_until_look};
use crate::memory::Buf;

/// The number of turns for which a link that is over stays. A message may arrive in the turn after that in which it was
/// found to be over, and its requests follow at the end of that turn.
const SETTLING: u8 = 2;
/// Interval between checks of the descriptors while the program polls and no link is being established or ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Verbs {
    /// Whether this turn must also check descriptors and deadlines, with [`Verbs::turn_all`]. Each turn calls this once.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.links.quiet -= 1;
        self.links.quiet == 0
    }

    /// Makes the next turn check descriptors and deadlines.
    pub(crate) fn look_next(&mut self) {
        self.links.quiet = 1;
    }

    /// Processes completions. A turn without completions is the most frequent case and must be cheap, so all other work
    /// is in separate functions.
    #[inline]
    pub(crate) fn poll_quickly(&mut self, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize {
        self.complete(BATCH, events, spare) as usize
    }

    #[inline]
    fn complete(&mut self, budget: u32, events: &mut impl Events, spare: &mut Vec<Buf>) -> u32 {
        match &mut self.cq {
            GenericCompletionQueue::Basic(cq) => match cq.start_poll() {
                // A basic poller has already taken its completions from the queue, so all of them are processed.
                Ok(poller) => self.links.complete_basic(poller, u32::MAX, events, spare),
                Err(error) => broken(&error),
            },
            GenericCompletionQueue::Extended(cq) => match cq.start_poll() {
                Ok(poller) => self.links.complete_extended(poller, budget, events, spare),
                Err(error) => broken(&error),
            },
        }
    }

    /// Runs a turn that also checks descriptors and deadlines.
    #[inline(never)]
    pub(super) fn turn_all(&mut self, budget: u32, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize {
        let count = self.links.complete_stash(&mut self.stash, events, spare);
        let found = self.complete(budget, events, spare);
        let count = count + found;
        let looked = self.look(count == 0, found < budget, events, spare);
        // While a link is being established or ended, each turn checks it.
        if !self.links.unsettled.is_empty() || !self.ended.is_empty() || !self.stash.is_empty() {
            self.links.quiet = 1;
        }
        count as usize + looked
    }

    /// Checks the descriptors and deadlines if a sleeping thread was woken, a link is changing, or the last check was
    /// some time ago.
    fn look(&mut self, is_idle: bool, is_empty: bool, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize {
        let is_changing = is_idle && !self.links.unsettled.is_empty() || !self.ended.is_empty();
        let now = now();
        let passed = Duration::from_nanos(now.saturating_sub(self.looked));
        self.links.quiet = turns_until_look(passed);
        if !is_changing && passed < LOOK_EVERY {
            return 0;
        }
        self.looked = now;
        let mut count = self.manage(events, spare);
        // A queue pair may be destroyed only after its completions were processed. They were, because the completion
        // queue was empty just now.
        if is_empty {
            count += self.finish(events, spare);
        }
        for (link, why) in std::mem::take(&mut self.ended) {
            events.ended(link, why);
            count += 1;
        }
        count
    }

    /// Destroys the queue pairs of links that are flushed, or whose deadline has passed.
    fn finish(&mut self, events: &mut impl Events, spare: &mut Vec<Buf>) -> usize {
        let now = now();
        let mut index = 0;
        let mut count = 0;
        while let Some(&number) = self.links.unsettled.get(index) {
            let mut slot = self.links.list.get_mut(number as usize);
            let is_over = match slot.as_deref_mut().and_then(Option::as_mut).map(|link| &mut link.state) {
                Some(State::Draining { is_flushed, is_disconnected, deadline, turns, .. }) => {
                    let is_over = *is_flushed && *is_disconnected || *deadline <= now;
                    *turns = if is_over { turns.saturating_add(1) } else { 0 };
                    *turns > SETTLING
                }
                Some(State::Established) | None => {
                    self.links.unsettled.swap_remove(index);
                    continue;
                }
                Some(_) => false,
            };
            let Some(link) = slot.filter(|_| is_over).and_then(Option::take) else {
                index += 1;
                continue;
            };
            self.links.unsettled.swap_remove(index);
            self.bury(link, events, spare);
            count += 1;
        }
        count
    }

    /// Ends a link whose queue pair has no pending flush.
    fn bury(&mut self, link: VerbsLink, events: &mut impl Events, spare: &mut Vec<Buf>) {
        let id = link.id;
        self.links.by_number.remove(link.qp_number);
        self.links.room += link.entries();
        let ended = link.end(spare, |retired| report(id, retired, events));
        let why = ended.unwrap_or_else(|error| {
            rdma_mummy_sys::log!(
                error,
                "{error}: the link's buffers are leaked now, and all receives are leaked when the worker ends"
            );
            self.links.receives.leak();
            Ended::Failed(device::verb(error))
        });
        events.ended(id, why);
    }
}
