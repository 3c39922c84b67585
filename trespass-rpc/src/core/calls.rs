//! The calls that this side makes.

use std::collections::VecDeque;

use crate::wire::{Flags, Header, Kind, set_budget, write};

use super::flow::Flow;
use super::{Side, Violation};

/// Maximum number of calls that one side may have at a time. A call's number has 15 bits of index, 16 of generation,
/// and the side in the lowest bit.
pub(super) const MOST: u32 = 1 << 15;

/// The error for a call that cannot be made: its status, and the reason.
pub type Refused = crate::error::RpcError;

/// A call to make.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'c> {
    /// Hash of the method's name.
    pub method: u64,
    /// The flags.
    pub flags: Flags,
    /// The time until which the caller waits.
    pub deadline: Option<u64>,
    /// Metadata.
    pub meta: &'c [u8],
    /// The parts of the body: descriptors, arguments, inline bytes.
    pub parts: &'c [&'c [u8]],
}

impl Outgoing<'_> {
    pub(super) fn length(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// Index of a call in the tables.
pub(super) fn index(id: u32) -> usize {
    (id >> 1 & (MOST - 1)) as usize
}

#[derive(Debug)]
pub(super) struct Calls<C> {
    slots: Vec<Slot<C>>,
    free: Vec<u32>,
    /// The calls that wait for credit, in the order in which they were made. Cancelled calls may remain in this queue,
    /// but the first one is never a cancelled call.
    queue: VecDeque<u32>,
    /// How many calls in the queue still wait. Those that were cancelled do not count.
    waiting: usize,
    /// Calls whose request waited for credit and has now been sent, so that the items of their streams may follow.
    released: Vec<u32>,
    parity: u32,
    /// Credit: number of requests that may still be sent.
    credit: u32,
    /// The total length of the requests that the peer has not answered, and the limit that the peer has set for it.
    bytes: u64,
    most_bytes: u64,
    on_wire: u32,
    earliest: u64,
}

#[derive(Debug)]
struct Slot<C> {
    id: u32,
    /// The driver's data for the call, until the driver removes the call.
    data: Option<C>,
    /// The request, while it waits for credit.
    waiting: Option<Vec<u8>>,
    /// Whether the request was sent and the answer is pending.
    on_wire: bool,
    /// Whether the driver has received the outcome.
    is_over: bool,
    deadline: u64,
    cost: u64,
    has_items: bool,
    flow: Flow,
}

impl<C> Calls<C> {
    pub(super) fn new(side: Side) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            waiting: 0,
            released: Vec::new(),
            parity: u32::from(side == Side::Client),
            credit: 0,
            bytes: 0,
            most_bytes: 0,
            on_wire: 0,
            earliest: u64::MAX,
        }
    }

    pub(super) fn grant(&mut self, calls: u32, bytes: u32) {
        self.credit = calls;
        self.most_bytes = bytes.into();
    }

    pub(super) fn add_credit(&mut self, calls: u32) {
        self.credit = self.credit.saturating_add(calls);
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether calls may wait for credit.
    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(super) fn earliest(&self) -> u64 {
        self.earliest
    }

    /// Adds a call, and returns its number. Returns `None` if this side has the maximum number of calls.
    pub(super) fn start(
        &mut self,
        call: &Outgoing<'_>,
        data: C,
        windows: (u32, u32),
        now: u64,
        checksum: bool,
        out: &mut Vec<u8>,
    ) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MOST as usize => {
                self.slots.push(Slot {
                    id: (self.slots.len() as u32) << 1 | self.parity,
                    data: None,
                    waiting: None,
                    on_wire: false,
                    is_over: false,
                    deadline: u64::MAX,
                    cost: 0,
                    has_items: false,
                    flow: Flow::new((0, 0)),
                });
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let deadline = call.deadline.unwrap_or(u64::MAX);
        let cost = (call.meta.len() + call.length()) as u64;
        let slot = &mut self.slots[index as usize];
        // Advances the generation. Generation 0 is skipped, because 0 is not a valid call number.
        slot.id = slot.id.wrapping_add(MOST << 1);
        if slot.id < MOST << 1 {
            slot.id |= MOST << 1;
        }
        (slot.data, slot.is_over, slot.deadline, slot.cost) = (Some(data), false, deadline, cost);
        slot.has_items = call.flags.has(Flags::STREAM_IN);
        slot.flow = Flow::new(windows);
        let id = slot.id;
        self.earliest = self.earliest.min(deadline);
        let mut header = Header { flags: call.flags, method: call.method, ..Header::new(Kind::Request, id) };
        if checksum {
            header.flags.0 |= Flags::CHECKSUM;
        }
        header.budget = budget(deadline, now);
        if self.queue.is_empty() && self.has_credit(cost) {
            write(out, &header, call.meta, call.parts);
            self.launch(index);
        } else {
            let mut frame = Vec::new();
            write(&mut frame, &header, call.meta, call.parts);
            self.slots[index as usize].waiting = Some(frame);
            self.waiting += 1;
            if self.queue.len() > 2 * self.waiting + 16 {
                let slots = &self.slots;
                self.queue.retain(|&id| is_waiting(slots, id));
            }
            self.queue.push_back(id);
        }
        Some(id)
    }

    fn has_credit(&self, cost: u64) -> bool {
        self.credit > 0 && (self.on_wire == 0 || self.bytes + cost <= self.most_bytes)
    }

    fn launch(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.on_wire = true;
        self.credit -= 1;
        self.bytes += slot.cost;
        self.on_wire += 1;
    }

    /// Sends waiting requests within the available credit.
    pub(super) fn release(&mut self, now: u64, out: &mut Vec<u8>) {
        while let Some(&id) = self.queue.front() {
            // A call in the queue that no longer waits was cancelled or has ended.
            if is_waiting(&self.slots, id) {
                if !self.has_credit(self.slots[index(id)].cost) {
                    return;
                }
                let slot = &mut self.slots[index(id)];
                if let Some(mut frame) = slot.waiting.take() {
                    set_budget(&mut frame, budget(slot.deadline, now));
                    out.extend_from_slice(&frame);
                }
                if slot.has_items {
                    self.released.push(id);
                }
                self.waiting -= 1;
                self.launch(index(id) as u32);
            }
            self.queue.pop_front();
        }
    }

    /// Returns a call whose items may now be sent.
    pub(super) fn take_released(&mut self) -> Option<u32> {
        self.released.pop()
    }

    /// Processes the answer to a call of this side. Returns whether the driver still waits for this answer.
    pub(super) fn answered(&mut self, id: u32, credit: u32) -> Result<bool, Violation> {
        let Some(slot) = self.slot(id).filter(|slot| slot.on_wire) else {
            return Err(Violation::Unexpected("an answer to a call that does not exist"));
        };
        slot.on_wire = false;
        let waits = slot.data.is_some() && !slot.is_over;
        slot.is_over = true;
        let (cost, is_free) = (slot.cost, slot.data.is_none());
        self.on_wire -= 1;
        self.bytes -= cost;
        self.add_credit(credit);
        if is_free {
            self.free.push(index(id) as u32);
        }
        Ok(waits)
    }

    /// Removes a call. Returns the driver's data for it, and whether its request was sent and is still unanswered.
    pub(super) fn forget(&mut self, id: u32) -> Option<(C, bool)> {
        let slot = self.slot(id)?;
        let data = slot.data.take()?;
        let waited = slot.waiting.take().is_some();
        slot.deadline = u64::MAX;
        let (on_wire, is_over) = (slot.on_wire, slot.is_over);
        if !on_wire {
            self.free.push(index(id) as u32);
        }
        self.waiting -= usize::from(waited);
        Some((data, on_wire && !is_over))
    }

    /// Ends all unfinished calls.
    pub(super) fn end_all(&mut self, mut each: impl FnMut(&mut C, bool)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let was_on_wire = std::mem::take(&mut slot.on_wire);
            slot.waiting = None;
            match &mut slot.data {
                Some(data) if !slot.is_over => {
                    slot.is_over = true;
                    each(data, was_on_wire);
                }
                None if was_on_wire => self.free.push(index as u32),
                _ => {}
            }
        }
        self.queue.clear();
        self.waiting = 0;
        (self.on_wire, self.bytes, self.earliest) = (0, 0, u64::MAX);
    }

    /// Ends calls whose deadline has passed.
    pub(super) fn expire(&mut self, now: u64, mut each: impl FnMut(u32, &mut C, bool)) {
        if now < self.earliest {
            return;
        }
        self.earliest = u64::MAX;
        for slot in &mut self.slots {
            let Some(data) = slot.data.as_mut().filter(|_| !slot.is_over) else { continue };
            if slot.deadline <= now {
                slot.is_over = true;
                self.waiting -= usize::from(slot.waiting.take().is_some());
                each(slot.id, data, slot.on_wire);
            } else {
                self.earliest = self.earliest.min(slot.deadline);
            }
        }
    }

    pub(super) fn data(&mut self, id: u32) -> Option<&mut C> {
        self.slot(id)?.data.as_mut()
    }

    pub(super) fn flow(&mut self, id: u32) -> Option<&mut Flow> {
        self.slot(id).filter(|slot| slot.on_wire).map(|slot| &mut slot.flow)
    }

    pub(super) fn is_on_wire(&self, id: u32) -> bool {
        self.slots.get(index(id)).is_some_and(|slot| slot.id == id && slot.on_wire && !slot.is_over)
    }

    pub(super) fn is_unanswered(&self, id: u32) -> bool {
        self.slots.get(index(id)).is_some_and(|slot| slot.id == id && slot.on_wire)
    }

    fn slot(&mut self, id: u32) -> Option<&mut Slot<C>> {
        self.slots.get_mut(index(id)).filter(|slot| slot.id == id)
    }
}

fn is_waiting<C>(slots: &[Slot<C>], id: u32) -> bool {
    slots.get(index(id)).is_some_and(|slot| slot.id == id && slot.waiting.is_some())
}

/// Returns the time until a deadline in microseconds. A value of 0 means that there is no deadline; the largest value
/// stands for about 71 minutes.
fn budget(deadline: u64, now: u64) -> u32 {
    match deadline {
        u64::MAX => 0,
        deadline => u32::try_from(deadline.saturating_sub(now)).unwrap_or(u32::MAX).max(1),
    }
}
