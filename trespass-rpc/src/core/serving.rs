//! The calls that the peer makes.

use std::collections::{VecDeque, hash_map};

use super::flow::Flow;
use super::{IdMap, Limits, Violation};

/// The requests of the peer that this side has not answered, and the peer's credit for further requests.
#[derive(Debug)]
pub(super) struct Serving {
    /// The requests by call number. Credit limits the number of entries. A large call number needs no more memory than
    /// a small one.
    table: IdMap<Entry>,
    /// The number of requests that the peer may still send, and the total length of its unanswered requests.
    available: u32,
    bytes: u64,
    most_bytes: u64,
    /// Answers that have not been sent yet: the offset in the output at which the answer ends, the credit that it
    /// returns, and the length of its request. The credit counts only when the answer has been sent, so a peer that
    /// reads nothing gets no credit.
    leaving: VecDeque<(u64, u32, u64)>,
    /// Number of answered calls whose credit is withheld.
    withheld: u32,
    is_withholding: bool,
    /// A lower bound: no request has a deadline before this time.
    earliest: u64,
}

#[derive(Debug)]
struct Entry {
    cost: u64,
    deadline: u64,
    flow: Flow,
}

impl Serving {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            table: IdMap::default(),
            available: limits.calls,
            bytes: 0,
            most_bytes: limits.bytes.into(),
            leaving: VecDeque::new(),
            withheld: 0,
            is_withholding: false,
            earliest: u64::MAX,
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.table.len() as u32
    }

    /// Returns the number of entries for which the table has allocated memory.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.table.capacity()
    }

    pub(super) fn begin(
        &mut self,
        id: u32,
        cost: u64,
        deadline: Option<u64>,
        windows: (u32, u32),
    ) -> Result<(), Violation> {
        if self.available == 0 {
            return Err(Violation::Credit("calls"));
        }
        let is_idle = self.table.is_empty() && self.leaving.is_empty();
        if !is_idle && self.bytes + cost > self.most_bytes {
            return Err(Violation::Credit("bytes of requests"));
        }
        let hash_map::Entry::Vacant(vacant) = self.table.entry(id) else {
            return Err(Violation::Unexpected("a request with the number of an unanswered one"));
        };
        let deadline = deadline.unwrap_or(u64::MAX);
        vacant.insert(Entry { cost, deadline, flow: Flow::new(windows) });
        self.available -= 1;
        self.bytes += cost;
        self.earliest = self.earliest.min(deadline);
        Ok(())
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Flow> {
        self.table.get_mut(&id).map(|entry| &mut entry.flow)
    }

    /// Ends a request, and returns the credit that its answer must contain.
    pub(super) fn end(&mut self, id: u32) -> Option<u32> {
        let entry = self.table.remove(&id)?;
        // The peer always has credit for at least one call, so that it can make progress.
        let is_granted = || self.available + self.count() > 0 || self.leaving.iter().any(|(_, credit, _)| *credit != 0);
        let credit = u32::from(!self.is_withholding || !is_granted());
        self.withheld += 1 - credit;
        // This offset is a placeholder until the caller reports where the answer ends.
        self.leaving.push_back((u64::MAX, credit, entry.cost));
        Some(credit)
    }

    /// Sets the offset in the output at which the last answer ends.
    pub(super) fn answered(&mut self, end: u64) {
        if let Some(last) = self.leaving.back_mut() {
            last.0 = end;
        }
    }

    /// Records that the output up to this offset was sent.
    pub(super) fn transmitted(&mut self, end: u64) {
        while let Some(&(_, credit, cost)) = self.leaving.front().filter(|answer| answer.0 <= end) {
            self.leaving.pop_front();
            self.available += credit;
            self.bytes -= cost;
        }
    }

    /// Starts or stops withholding the credit of answers. Returns for how many calls the caller must now grant withheld
    /// credit.
    pub(super) fn withhold(&mut self, withhold: bool) -> u32 {
        self.is_withholding = withhold;
        let calls = if withhold { 0 } else { std::mem::take(&mut self.withheld) };
        self.available += calls;
        calls
    }

    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.leaving.clear();
        (self.bytes, self.earliest) = (0, u64::MAX);
    }

    pub(super) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Collects the requests whose deadline has passed.
    pub(super) fn expire(&mut self, now: u64, expired: &mut Vec<u32>) {
        if now < self.earliest {
            return;
        }
        self.earliest = u64::MAX;
        for (&id, entry) in &mut self.table {
            if entry.deadline <= now {
                entry.deadline = u64::MAX;
                expired.push(id);
            }
            self.earliest = self.earliest.min(entry.deadline);
        }
    }
}
