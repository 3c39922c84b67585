//! The table of requests that the device has, or whose futures have not taken their results.

use std::rc::Rc;
use std::task::Waker;

use crate::Error;
use crate::link::Link;
use crate::request::{Held, Key};

#[derive(Debug)]
enum Phase {
    Free,
    /// The device has it, and a future waits for it.
    Posted(Option<Waker>),
    /// The device has it, and its future was dropped.
    Abandoned,
    Done,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    /// The number of requests.
    count: u32,
    phase: Phase,
    held: Option<Held>,
    link: Option<Rc<Link>>,
    failure: Option<Error>,
}

/// The requests, by the index in their keys. A generation distinguishes the requests that had the same index.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// What the table has for a future.
pub(crate) enum Taken {
    Done(Held),
    Failed(Error, Option<Held>),
    /// The device has the request.
    Waiting,
    /// As before, and the table has another waker or none.
    Unknown,
}

/// The consequences of a completion, for code outside of the poll.
#[derive(Debug, Default)]
pub(crate) struct Consequences {
    pub(crate) wakers: Vec<Waker>,
    /// The buffers of requests whose futures were dropped.
    pub(crate) released: Vec<Held>,
    pub(crate) failed: Vec<(Rc<Link>, Error)>,
}

impl Consequences {
    /// The waker, if there is nothing else.
    #[inline]
    pub(crate) fn only(&mut self) -> Option<Option<Waker>> {
        let is_usual = self.wakers.len() <= 1 && self.released.is_empty() && self.failed.is_empty();
        is_usual.then(|| self.wakers.pop())
    }
}

impl Table {
    /// Finds a place for a request of `count` requests.
    #[inline]
    pub(crate) fn reserve(&mut self, link: &Rc<Link>, count: u32) -> Key {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        let entry = &mut self.entries[index as usize];
        entry.generation = Key::next(entry.generation);
        (entry.count, entry.failure) = (count, None);
        entry.phase = Phase::Posted(None);
        entry.link = Some(Rc::clone(link));
        Key { index, generation: entry.generation }
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let entry = Entry { generation: 0, count: 0, phase: Phase::Free, held: None, link: None, failure: None };
        self.entries.push(entry);
        // The requests of all connections are limited, by a number below 2^32.
        self.entries.len() as u32 - 1
    }

    /// Hands the buffers to a posted request, and the waker of its future.
    #[inline]
    pub(crate) fn hold(&mut self, key: Key, held: Held, waker: Option<Waker>) {
        if let Some(entry) = self.get(key) {
            entry.held = Some(held);
            entry.phase = Phase::Posted(waker);
        }
    }

    #[inline]
    fn get(&mut self, key: Key) -> Option<&mut Entry> {
        self.entries.get_mut(key.index as usize).filter(|entry| entry.generation == key.generation)
    }

    /// Takes a result: the buffers, or the failure.
    #[inline]
    pub(crate) fn take(&mut self, key: Key, waker: &Waker) -> Taken {
        let Some(entry) = self.get(key) else { return Taken::Waiting };
        match &mut entry.phase {
            Phase::Done => {}
            Phase::Posted(Some(known)) if known.will_wake(waker) => return Taken::Waiting,
            Phase::Posted(_) => return Taken::Unknown,
            Phase::Free | Phase::Abandoned => return Taken::Waiting,
        }
        let held = entry.held.take();
        if let Some(failure) = entry.failure.take() {
            self.vacate(key.index);
            return Taken::Failed(failure, held);
        }
        self.vacate(key.index);
        held.map_or(Taken::Waiting, Taken::Done)
    }

    /// Sets the waker of a request. Returns the earlier one, for the caller to drop.
    pub(crate) fn set_waker(&mut self, key: Key, waker: Waker) -> Option<Waker> {
        match &mut self.get(key)?.phase {
            Phase::Posted(old) => old.replace(waker),
            _ => Some(waker),
        }
    }

    /// Leaves a request to the device. Returns the waker and what the request held, if it has completed, for the caller
    /// to drop.
    pub(crate) fn abandon(&mut self, key: Key) -> (Option<Waker>, Option<Held>) {
        let Some(entry) = self.get(key) else { return (None, None) };
        match &mut entry.phase {
            Phase::Posted(waker) => {
                let waker = waker.take();
                entry.phase = Phase::Abandoned;
                (waker, None)
            }
            Phase::Done => {
                let held = entry.held.take();
                entry.failure = None;
                self.vacate(key.index);
                (None, held)
            }
            Phase::Free | Phase::Abandoned => (None, None),
        }
    }

    /// Gives the place of a request back that was not posted.
    pub(crate) fn cancel(&mut self, key: Key) {
        if self.get(key).is_some() {
            self.vacate(key.index);
        }
    }

    #[inline]
    fn vacate(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        entry.phase = Phase::Free;
        entry.link = None;
        self.free.push(index);
    }

    /// Notes the completion of a request, or of a batch by its last request.
    #[inline]
    pub(crate) fn complete(&mut self, key: Key, failure: Option<Error>, then: &mut Consequences) {
        let Some(entry) = self.get(key) else { return };
        let Some(link) = entry.link.take() else { return };
        if let Some(waker) = link.release(entry.count) {
            then.wakers.push(waker);
        }
        // The failure of an earlier request of the batch came first.
        if failure.is_some() || entry.failure.is_some() {
            let Some(failure) = entry.failure.take().or(failure) else { return };
            then.failed.push((link, failure.clone()));
            entry.failure = Some(failure);
        }
        match &mut entry.phase {
            Phase::Posted(waker) => {
                if let Some(waker) = waker.take() {
                    then.wakers.push(waker);
                }
                entry.phase = Phase::Done;
            }
            Phase::Abandoned => {
                then.released.extend(entry.held.take());
                entry.failure = None;
                self.vacate(key.index);
            }
            Phase::Free | Phase::Done => {}
        }
    }

    /// Notes the failure of a request of a batch before the last. The last one follows, because a failed queue pair
    /// completes all of its requests.
    pub(crate) fn fail_earlier(&mut self, key: Key, failure: Error, then: &mut Consequences) {
        let Some(entry) = self.get(key) else { return };
        // A completion of a queue pair that has been destroyed concerns no request.
        let Some(link) = &entry.link else { return };
        then.failed.push((Rc::clone(link), failure.clone()));
        entry.failure.get_or_insert(failure);
    }

    /// The wakers of all requests of a connection, which has ended.
    pub(crate) fn wake_all(&mut self, of: &Rc<Link>, wakers: &mut Vec<Waker>) {
        for entry in &mut self.entries {
            if let Phase::Posted(waker) = &mut entry.phase
                && entry.link.as_ref().is_some_and(|link| Rc::ptr_eq(link, of))
            {
                wakers.extend(waker.take());
            }
        }
    }

    /// Releases the requests of a connection whose queue pair has been destroyed. All of their futures were dropped.
    pub(crate) fn release_all(&mut self, of: &Rc<Link>) -> Vec<Held> {
        let mut released = Vec::new();
        for index in 0..self.entries.len() {
            let entry = &mut self.entries[index];
            if entry.link.as_ref().is_some_and(|link| Rc::ptr_eq(link, of)) {
                released.extend(entry.held.take());
                entry.failure = None;
                self.vacate(index as u32);
            }
        }
        released
    }
}
