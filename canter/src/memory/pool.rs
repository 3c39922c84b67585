//! A pool of buffers of equal size.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{LocalKey, OwnedMemoryRegion};
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::Buf;
use crate::Error;
use crate::error::shape;
use crate::fifo::{self, Fifo, Ticket};
use crate::ready::Rouser;

/// A pool of registered buffers of equal size. Clones share the buffers. The memory is freed when the last clone and the
/// last buffer have been dropped.
///
/// Over iWARP, a peer that serves a read learns a key with which it can also write to the buffers of other reads of the
/// pool until they have completed. So use pools of their own for peers that do not trust each other.
///
/// ```
/// # fn main() -> Result<(), canter::Error> {
/// # let core = canter::Core::builder("soft0").build()?;
/// let pool = core.pool(4096, 16)?; // 16 buffers of 4 KiB
/// core.run(async {
///     let mut buf = pool.get().await; // waits while all are in use
///     buf.fill(b"hello")?;
///     assert_eq!(&*buf, b"hello");
///     Ok::<_, canter::Error>(())
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    memory: Rc<Memory>,
}

/// The memory of a pool.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Peers have no access to it.
    pub(super) region: OwnedMemoryRegion,
    /// Where reads land over iWARP: the peer answers a read with a write, so that memory must be open to writes of
    /// peers. No reference to its bytes exists.
    pub(super) landing: Option<OwnedMemoryRegion>,
    /// The key and the first byte of the region, and those of the landing or else again of the region.
    pub(super) own: (LocalKey, u64),
    pub(super) landed: (LocalKey, u64),
    /// The bytes of a buffer.
    pub(super) size: usize,
    /// The distance of two buffers.
    pub(super) stride: usize,
    /// The core whose protection domain has the memory.
    pub(super) core: u64,
    /// A core that posts free buffers, and may sleep while the program drops them.
    rouser: Option<Arc<Rouser>>,
    free: RefCell<Vec<u32>>,
    waiting: RefCell<Fifo>,
}

/// What each pool of a core has in common.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) pd: Arc<ProtectionDomain>,
    pub(crate) core: u64,
    pub(crate) is_iwarp: bool,
}

impl Pool {
    pub(crate) fn new(origin: &Origin, size: usize, count: u32) -> Result<Self, Error> {
        Self::with(origin, size, count, None)
    }

    /// A pool that ends the sleep of a core when a buffer becomes free.
    pub(crate) fn rousing(origin: &Origin, size: usize, count: u32, rouser: &Arc<Rouser>) -> Result<Self, Error> {
        Self::with(origin, size, count, Some(Arc::clone(rouser)))
    }

    fn with(origin: &Origin, size: usize, count: u32, rouser: Option<Arc<Rouser>>) -> Result<Self, Error> {
        // The highest bit of an entry's length has a meaning of its own to drivers.
        if size == 0 || size >= 1 << 31 || count == 0 {
            return Err(shape(format!(
                "a pool of {count} buffers of {size} bytes: both must be at least 1, and the size below 2 GiB"
            )));
        }
        let stride = if size < 64 { size.next_multiple_of(8) } else { size.next_multiple_of(64) };
        let bytes = stride.checked_mul(count as usize);
        let bytes = bytes.ok_or_else(|| shape(format!("{count} buffers of {size} bytes exceed the address space")))?;
        let region = origin.pd.reg_owned_mr(bytes, AccessFlags::LocalWrite)?;
        let landing = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
        let landing = origin.is_iwarp.then(|| origin.pd.reg_owned_mr(bytes, landing)).transpose()?;
        let place = |region: &OwnedMemoryRegion| (region.lkey(), region.addr());
        let memory = Memory {
            own: place(&region),
            landed: place(landing.as_ref().unwrap_or(&region)),
            region,
            landing,
            size,
            stride,
            core: origin.core,
            rouser,
            free: RefCell::new((0..count).rev().collect()),
            waiting: RefCell::default(),
        };
        Ok(Self { memory: Rc::new(memory) })
    }

    /// Returns a buffer, or `None` if all are in use, or if others wait for one. Its length is its capacity, and it has
    /// the bytes of its last use; at first they are zero.
    #[inline]
    pub fn try_get(&self) -> Option<Buf> {
        if !self.memory.waiting.borrow().is_first(None) {
            return None;
        }
        self.memory.take()
    }

    /// Returns a buffer, and waits while all are in use. The futures get buffers in the order in which they began to wait.
    pub fn get(&self) -> Get<'_> {
        Get { pool: self, ticket: None }
    }

    /// Returns the bytes of a buffer.
    pub fn size(&self) -> usize {
        self.memory.size
    }

    /// Returns the number of buffers that are not in use.
    pub fn free(&self) -> usize {
        self.memory.free.borrow().len()
    }
}

impl Memory {
    #[inline]
    fn take(self: &Rc<Self>) -> Option<Buf> {
        let slot = self.free.borrow_mut().pop()?;
        // The slot was free, so no other buffer is in it.
        Some(Buf::new(Rc::clone(self), slot))
    }

    /// Takes a buffer's slot back.
    #[inline]
    pub(super) fn put(&self, slot: u32) {
        self.free.borrow_mut().push(slot);
        let waker = self.waiting.borrow_mut().first();
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(rouser) = &self.rouser {
            rouser.rouse();
        }
    }
}

/// The future of [`Pool::get`].
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Get<'p> {
    pool: &'p Pool,
    ticket: Option<Ticket>,
}

impl Future for Get<'_> {
    type Output = Buf;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Buf> {
        let memory = &self.pool.memory;
        let is_first = memory.waiting.borrow().is_first(self.ticket);
        if let Some(buf) = is_first.then(|| memory.take()).flatten() {
            self.leave();
            return Poll::Ready(buf);
        }
        let waker = context.waker().clone();
        let earlier = self.pool.memory.waiting.borrow_mut().wait(&mut self.ticket, waker);
        drop(earlier);
        Poll::Pending
    }
}

impl Get<'_> {
    fn leave(&mut self) {
        fifo::leave(&self.pool.memory.waiting, &mut self.ticket);
    }
}

impl Drop for Get<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
