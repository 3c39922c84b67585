//! The operations of requests, and how they are posted.

use sideway::ibverbs::queue_pair::{
    Connected, GenericQueuePair, GenericSendQueue, PostSendGuard, SendQueue, SetInlineData, SetScatterGatherEntry,
    WorkRequestFlags,
};
use sideway::ibverbs::work_request::PostSendError;

use crate::memory::{Buf, Target};

/// The operation of a request that moves a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Send,
    SendImm(u32),
    Write(Target),
    WriteImm(Target, u32),
    Read(Target),
}

/// The operation of a request that changes 8 bytes of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atomic {
    CompareSwap { target: Target, expected: u64, new: u64 },
    FetchAdd { target: Target, add: u64 },
}

/// A request of a batch.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    pub(crate) buf: Buf,
}

/// What is posted at once, with its buffers. The device has the buffers until it has completed the requests.
#[derive(Debug)]
pub(crate) enum Held {
    One(Request),
    Atomic(Atomic, Buf),
    Many(Vec<Request>),
}

impl Held {
    /// The number of requests.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::One(_) | Self::Atomic(..) => 1,
            // A batch fits into the send queue.
            Self::Many(requests) => requests.len() as u32,
        }
    }

    /// The buffer of a single request.
    #[inline]
    pub(crate) fn one(self) -> Buf {
        match self {
            Self::One(Request { buf, .. }) | Self::Atomic(_, buf) => buf,
            Self::Many(_) => unreachable!("a single request holds one buffer"),
        }
    }

    /// The requests of a batch.
    pub(crate) fn many(self) -> Vec<Request> {
        match self {
            Self::Many(requests) => requests,
            Self::One(_) | Self::Atomic(..) => Vec::new(),
        }
    }
}

/// What a request is known by in its completion: the place in the table and its generation, or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// The bit of receives. Their index is the slot of the buffer.
const RECEIVE: u64 = 1 << 63;
/// The bit of the requests of a batch before the last. They complete only if they fail.
const EARLIER: u64 = 1 << 62;
/// The bits of a generation.
const GENERATION: u32 = (1 << 30) - 1;

/// A completion's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Receive(u32),
    /// The last request, or the only one.
    Last(Key),
    Earlier(Key),
}

impl Key {
    /// The generation that follows.
    #[inline]
    pub(crate) fn next(generation: u32) -> u32 {
        generation.wrapping_add(1) & GENERATION
    }

    #[inline]
    fn number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

impl Number {
    #[inline]
    pub(crate) fn of(wr_id: u64) -> Self {
        let index = wr_id as u32;
        if wr_id & RECEIVE != 0 {
            return Self::Receive(index);
        }
        let key = Key { index, generation: (wr_id >> 32) as u32 & GENERATION };
        if wr_id & EARLIER == 0 { Self::Last(key) } else { Self::Earlier(key) }
    }

    #[inline]
    pub(crate) fn wr_id(self) -> u64 {
        match self {
            Self::Receive(slot) => RECEIVE | u64::from(slot),
            Self::Last(key) => key.number(),
            Self::Earlier(key) => key.number() | EARLIER,
        }
    }
}

/// Why requests were not posted.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A buffer belongs to another core. No request was posted.
    OtherCore,
    Post(PostSendError),
}

/// Posts requests with one doorbell; only the last is signaled.
///
/// # Safety
///
/// The buffers stay as they are until the completion of `key` or the end of the queue pair, and until the end of the
/// queue pair if posting fails and the error does not state that no request was posted.
#[inline]
pub(crate) unsafe fn post(
    qp: &mut GenericQueuePair,
    key: Key,
    core: u64,
    inline: usize,
    held: &Held,
) -> Result<(), Refused> {
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        match qp.queues().0 {
            GenericSendQueue::Basic(queue) => post_to(queue, key, core, inline, held),
            GenericSendQueue::Extended(queue) => post_to(queue, key, core, inline, held),
        }
    }
}

/// # Safety
///
/// See [`post`].
#[inline]
unsafe fn post_to<Q: SendQueue<Service = Connected>>(
    queue: &mut Q,
    key: Key,
    core: u64,
    inline: usize,
    held: &Held,
) -> Result<(), Refused> {
    let mut guard = queue.start_post_send();
    let (last, signaled) = (Number::Last(key).wr_id(), WorkRequestFlags::Signaled);
    let mut is_foreign = false;
    // SAFETY: the caller upholds the contract of this function.
    unsafe {
        match held {
            Held::One(Request { operation, buf }) => {
                is_foreign = buf.core() != core;
                add(&mut guard, last, signaled, inline, *operation, buf);
            }
            // The buffer is the core's own.
            Held::Atomic(operation, buf) => add_atomic(&mut guard, last, *operation, buf),
            Held::Many(requests) => {
                let (earlier, none) = (Number::Earlier(key).wr_id(), WorkRequestFlags::empty());
                let mut requests = requests.iter();
                let end = requests.next_back();
                for Request { operation, buf } in requests {
                    is_foreign |= buf.core() != core;
                    add(&mut guard, earlier, none, inline, *operation, buf);
                }
                if let Some(Request { operation, buf }) = end {
                    is_foreign |= buf.core() != core;
                    add(&mut guard, last, signaled, inline, *operation, buf);
                }
            }
        }
    }
    if is_foreign {
        return Err(Refused::OtherCore);
    }
    guard.post().map_err(Refused::Post)
}

/// Adds a request to a batch.
///
/// # Safety
///
/// See [`post`].
#[inline(always)]
unsafe fn add<G: PostSendGuard<Service = Connected>>(
    guard: &mut G,
    wr_id: u64,
    flags: WorkRequestFlags,
    inline: usize,
    operation: Operation,
    buf: &Buf,
) {
    let request = guard.construct_wr(wr_id, flags);
    // SAFETY: the caller keeps the buffer, which keeps its region registered.
    unsafe {
        match operation {
            Operation::Send => data(request.setup_send(), inline, buf),
            Operation::SendImm(imm) => data(request.setup_send_imm(imm), inline, buf),
            Operation::Write(at) => data(request.setup_write(at.key, at.address), inline, buf),
            Operation::WriteImm(at, imm) => data(request.setup_write_imm(at.key, at.address, imm), inline, buf),
            Operation::Read(at) => answer(request.setup_read(at.key, at.address), buf),
        }
    }
}

/// Adds an atomic operation, whose result is written to the buffer.
///
/// # Safety
///
/// See [`post`].
unsafe fn add_atomic<G: PostSendGuard<Service = Connected>>(guard: &mut G, wr_id: u64, operation: Atomic, buf: &Buf) {
    let request = guard.construct_wr(wr_id, WorkRequestFlags::Signaled);
    // SAFETY: as in `add`.
    unsafe {
        match operation {
            Atomic::CompareSwap { target, expected, new } => {
                answer(request.setup_atomic_compare_swap(target.key, target.address, expected, new), buf);
            }
            Atomic::FetchAdd { target, add } => {
                answer(request.setup_atomic_fetch_add(target.key, target.address, add), buf);
            }
        }
    }
}

/// Names the bytes that the request sends, or copies them into it if they are few.
///
/// # Safety
///
/// See [`post`].
#[inline]
unsafe fn data(request: impl SetScatterGatherEntry + SetInlineData, inline: usize, buf: &Buf) {
    if buf.len() <= inline {
        return request.setup_inline_data(buf);
    }
    if buf.is_empty() {
        // SAFETY: an empty list names no memory.
        return unsafe { request.setup_sge_list(&[]) };
    }
    let (key, address) = buf.own();
    // SAFETY: the caller keeps the buffer.
    unsafe { request.setup_sge(key, address, buf.length()) }
}

/// Names the bytes that the answer is written to.
///
/// # Safety
///
/// See [`post`].
#[inline]
unsafe fn answer(request: impl SetScatterGatherEntry, buf: &Buf) {
    let (key, address) = buf.landing();
    // SAFETY: the caller keeps the buffer.
    unsafe { request.setup_sge(key, address, buf.length()) }
}

#[cfg(test)]
mod tests {
    use super::{GENERATION, Key, Number};

    #[test]
    fn numbers_are_what_they_were_before_the_device() {
        for number in [
            Number::Receive(u32::MAX),
            Number::Last(Key { index: u32::MAX, generation: GENERATION }),
            Number::Earlier(Key { index: 0, generation: 1 }),
            Number::Last(Key { index: 0, generation: 0 }),
        ] {
            assert_eq!(Number::of(number.wr_id()), number);
        }
        assert_eq!(Key::next(GENERATION), 0);
    }
}
