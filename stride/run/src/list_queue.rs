//! Lists of requests. A list is built once and posted many times.

use std::convert::Infallible;
use std::fmt::Debug;

use anyhow::Result;
use sideway::ibverbs::queue_pair::{
    BasicSendQueue, ExtendedSendQueue, GenericSendQueue, PostSendGuard, PreparedSends, SendQueue, Service,
};
use sideway::ibverbs::work_request::WorkRequestFlags;

use crate::request::{Memory, Request, Slot};

/// A send queue that may be able to keep a list of requests.
pub(crate) trait ListQueue: SendQueue {
    /// A list of requests that may borrow data for the lifetime `'r`.
    type List<'r>: Debug;

    /// Builds a list with one request per slot, all of which have the same `wr_id`. Returns `None` if the queue does
    /// not support lists.
    ///
    /// # Safety
    ///
    /// The requirements of [`Request::build`] apply from each post of the list until its requests complete. Inline data
    /// is copied during this call.
    unsafe fn keep<'r, R>(
        &self,
        request: &'r R,
        memory: &Memory,
        slots: impl ExactSizeIterator<Item = Slot>,
        wr_id: u64,
    ) -> Result<Option<Self::List<'r>>>
    where
        R: Request<Service = Self::Service>;

    /// Changes the slot that each request uses.
    ///
    /// # Safety
    ///
    /// The requirements of [`keep`](Self::keep) apply. `keep` must have built the list for the operation `R`.
    unsafe fn move_list<R: Request>(list: &mut Self::List<'_>, next: impl FnMut() -> Slot) -> Result<()>;

    /// Posts the list as often as `room` has space for it, but only if the last request of the list is the only
    /// signaled one. Returns the number of requests posted.
    ///
    /// # Safety
    ///
    /// The requirements of [`keep`](Self::keep) apply.
    unsafe fn post_lists(&mut self, list: &mut Self::List<'_>, signals: Signals, room: u64) -> Result<u64>;

    /// Posts a list whose signaled requests are those in `signals`. Returns the number that the next signaled request
    /// has in the next list.
    ///
    /// # Safety
    ///
    /// The requirements of [`keep`](Self::keep) apply.
    unsafe fn post_list(&mut self, list: &mut Self::List<'_>, signals: Signals) -> Result<u32>;
}

/// Which requests of a list are signaled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals {
    /// Number of the first signaled request in the list, counted from 1. A number above the length of the list means
    /// that no request is signaled.
    pub(crate) first: u32,
    /// Number of requests from each signaled request to the next one.
    pub(crate) every: u32,
    /// The `wr_id` of the request before the list. Only signaled requests get a `wr_id` of their own, because no loop
    /// reads the `wr_id` of other requests.
    pub(crate) before: u64,
}

impl Signals {
    /// Returns the `wr_id` of the request with this number in the list. The upper half of each `wr_id` is the number of
    /// the queue pair.
    #[inline]
    fn wr_id(self, number: u32) -> u64 {
        self.before & !u64::from(u32::MAX) | u64::from((self.before as u32).wrapping_add(number))
    }
}

/// A list of a send queue with the basic interface.
#[derive(Debug)]
pub(crate) struct Kept<'r, T> {
    list: PreparedSends<'r, T>,
    length: u32,
    /// Number of the first request that is currently signaled.
    first: u32,
}

impl<T: Service> Kept<'_, T> {
    /// Sets the `wr_id` of the request with this number.
    #[inline]
    fn number(&mut self, number: u32, signals: Signals) {
        if let Some(mut request) = self.list.request(number as usize - 1) {
            request.set_wr_id(signals.wr_id(number));
        }
    }

    /// Signals the request with the number `first`, and one in `every` requests after it.
    #[cold]
    fn signal(&mut self, Signals { first, every, .. }: Signals) {
        self.first = first;
        for (number, mut request) in (1..).zip(self.list.requests()) {
            request.set_signaled(number >= first && (number - first).is_multiple_of(every));
        }
    }
}

impl<T: Service> ListQueue for BasicSendQueue<T> {
    type List<'r> = Kept<'r, T>;

    unsafe fn keep<'r, R>(
        &self,
        request: &'r R,
        memory: &Memory,
        slots: impl ExactSizeIterator<Item = Slot>,
        wr_id: u64,
    ) -> Result<Option<Kept<'r, T>>>
    where
        R: Request<Service = T>,
    {
        let length = slots.len();
        let mut list = self.prepare(length)?;
        let mut guard = list.build();
        for slot in slots {
            let handle = guard.construct_wr(wr_id, WorkRequestFlags::empty());
            // SAFETY: this function has the same contract, which the caller fulfils.
            unsafe { request.build(handle, memory, slot) };
        }
        guard.finish()?;
        let length = u32::try_from(length)?;
        Ok(Some(Kept { list, length, first: length + 1 }))
    }

    #[inline(always)]
    unsafe fn move_list<R: Request>(kept: &mut Kept<'_, T>, mut next: impl FnMut() -> Slot) -> Result<()> {
        for mut request in kept.list.requests() {
            let slot = next();
            // SAFETY: `keep` built the request with a scatter/gather entry, and the caller guarantees the memory.
            unsafe { request.set_local_addr(slot.local) };
            if R::HAS_REMOTE_ADDRESS {
                request.set_remote_addr(slot.remote)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn post_lists(&mut self, kept: &mut Kept<'_, T>, mut signals: Signals, room: u64) -> Result<u64> {
        let length = kept.length;
        if (kept.first, signals.first, signals.every) != (length, length, length) {
            return Ok(0);
        }
        let mut left = room;
        while left >= u64::from(length) {
            kept.number(length, signals);
            signals.before = signals.wr_id(length);
            // SAFETY: this function has the same contract, which the caller fulfils.
            unsafe { self.post_prepared(&kept.list)? };
            left -= u64::from(length);
        }
        Ok(room - left)
    }

    #[inline(always)]
    unsafe fn post_list(&mut self, kept: &mut Kept<'_, T>, signals: Signals) -> Result<u32> {
        let length = kept.length;
        let mut number = signals.first;
        let first = number.min(length + 1);
        if kept.first != first {
            kept.signal(Signals { first, ..signals });
        }
        while number <= length {
            kept.number(number, signals);
            number += signals.every;
        }
        // SAFETY: this function has the same contract, which the caller fulfils.
        unsafe { self.post_prepared(&kept.list)? };
        Ok(number - length)
    }
}

/// Implements the trait for queues that do not support lists.
macro_rules! no_lists {
    ($($Queue:ident),*) => {$(
        impl<T: Service> ListQueue for $Queue<T> {
            type List<'r> = Infallible;

            unsafe fn keep<R>(
                &self,
                _: &R,
                _: &Memory,
                _: impl ExactSizeIterator<Item = Slot>,
                _: u64,
            ) -> Result<Option<Infallible>>
            where
                R: Request<Service = T>,
            {
                Ok(None)
            }

            unsafe fn move_list<R: Request>(list: &mut Infallible, _: impl FnMut() -> Slot) -> Result<()> {
                match *list {}
            }

            unsafe fn post_lists(&mut self, list: &mut Infallible, _: Signals, _: u64) -> Result<u64> {
                match *list {}
            }

            unsafe fn post_list(&mut self, list: &mut Infallible, _: Signals) -> Result<u32> {
                match *list {}
            }
        }
    )*};
}

no_lists!(ExtendedSendQueue, GenericSendQueue);
