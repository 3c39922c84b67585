//! The shared receive queue and its buffers.

use std::cell::{Cell, Ref, RefCell};
use std::sync::Arc;

use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;

use super::Inner;
use crate::Error;
use crate::memory::{Buf, Origin, Pool};
use crate::ready::Rouser;
use crate::request::Number;

/// The receives. A message is a buffer of the pool, which is posted again after the program has dropped it.
#[derive(Debug)]
pub(super) struct Receives {
    queue: RefCell<SharedReceiveQueue>,
    /// The buffers that the device has, by their slots. They are dropped after the queue.
    posted: RefCell<Vec<Option<Buf>>>,
    pool: Pool,
    count: Cell<usize>,
    /// The slots of a list of receives, for reuse.
    slots: RefCell<Vec<u32>>,
}

impl Receives {
    pub(super) fn new(origin: &Origin, size: usize, count: u32, rouser: &Arc<Rouser>) -> Result<Self, Error> {
        let pool = Pool::rousing(origin, size, count, rouser)?;
        let queue = origin.pd.create_srq_builder().setup_max_wr(count).setup_max_sge(1).build()?;
        let posted = RefCell::new((0..count).map(|_| None).collect());
        Ok(Self { queue: RefCell::new(queue), posted, pool, count: Cell::new(0), slots: RefCell::default() })
    }

    pub(super) fn queue(&self) -> Ref<'_, SharedReceiveQueue> {
        self.queue.borrow()
    }

    /// The maximum length of a message.
    pub(super) fn size(&self) -> usize {
        self.pool.size()
    }

    /// Takes the buffer of a completed receive.
    #[inline]
    pub(super) fn take(&self, slot: u32) -> Option<Buf> {
        let buf = self.posted.borrow_mut().get_mut(slot as usize)?.take();
        self.count.set(self.count.get() - usize::from(buf.is_some()));
        buf
    }

    /// Whether `count` buffers could be posted.
    #[inline]
    pub(super) fn has_free(&self, count: usize) -> bool {
        self.pool.free() >= count
    }

    /// Whether the device has fewer than half of the receives, and more could be posted.
    #[inline]
    pub(super) fn is_low(&self) -> bool {
        let free = self.pool.free();
        free > 0 && self.count.get() <= free
    }
}

impl Inner {
    /// Posts the buffers that the program has dropped.
    pub(super) fn replenish(&self) -> Result<(), Error> {
        let receives = &self.receives;
        let mut queue = receives.queue.borrow_mut();
        let mut posted = receives.posted.borrow_mut();
        let mut slots = receives.slots.borrow_mut();
        slots.clear();
        let mut guard = queue.start_post_recv();
        while let Some(buf) = receives.pool.try_get() {
            let slot = buf.slot();
            let (key, address) = buf.own();
            let request = guard.construct_wr(Number::Receive(slot).wr_id());
            // SAFETY: the buffer stays in `posted` until its completion or until the queue has been destroyed, unless
            // posting fails and the error states that it was not posted; it keeps its memory registered, and no code
            // accesses the bytes meanwhile.
            unsafe { request.setup_sge(key, address, buf.length()) };
            posted[slot as usize] = Some(buf);
            slots.push(slot);
        }
        let result = guard.post();
        let taken = match &result {
            Ok(()) => slots.len(),
            Err(error) => error.posted().unwrap_or(slots.len()),
        };
        receives.count.set(receives.count.get() + taken);
        drop(posted);
        for &slot in slots.get(taken..).unwrap_or_default() {
            let refused = receives.posted.borrow_mut()[slot as usize].take();
            drop(refused);
        }
        match result {
            // Those that are posted go on; the others are posted later.
            Err(error) if receives.count.get() > 0 => rdma_mummy_sys::log!(warn, "{error}"),
            result => result?,
        }
        Ok(())
    }
}
