//! Queues without locks, confined to the thread that created them.
//!
//! Drivers lock completion queues and queue pairs, which takes time even without contention. Drivers omit the lock in
//! two cases: for completion queues created with `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, and for queue pairs in a thread
//! domain. The queue pairs of a thread domain also share a doorbell. The program must use such queues from only one
//! thread at a time. The types of this module ensure this, because none of them is `Send` or `Sync`.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let devices = sideway::ibverbs::device::DeviceList::new()?;
//! # let context = devices.get(0).ok_or("no device")?.open()?;
//! let pd = context.alloc_pd()?;
//! let td = context.alloc_td()?;
//! let domain = pd.create_parent_domain_builder().build_single_threaded(&td)?;
//! let cq = domain.create_cq_builder().setup_cqe(256).build()?;
//! let qp = domain.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_ex()?;
//! # drop(qp);
//! # Ok(())
//! # }
//! ```
//!
//! Polling is not the only access to a completion queue. Destroying a queue pair, or modifying it to `Reset`, removes
//! its completions from the queue, and a completion event can arm the queue again. So a completion queue without a lock
//! can be used only with the queue pairs of this module, and completion events are not available. The inner objects
//! (the halves of a pair, the domain) are not accessible. If a queue pair is dropped while one of its completion queues
//! is being polled, it is destroyed at the end of the poll.
//!
//! Memory regions and address handles belong to the plain domain ([`SingleThreadedDomain::protection_domain`]), and can
//! be shared as usual.

mod completion_queue;
mod poller;
mod queue_pair;

use std::marker::PhantomData;
use std::sync::Arc;

pub use self::completion_queue::{SingleThreadedCompletionQueue, SingleThreadedCompletionQueueBuilder};
pub use self::poller::SingleThreadedPoller;
pub use self::queue_pair::{SingleThreadedQueuePair, SingleThreadedQueuePairBuilder};
use super::device_context::DeviceContext;
use super::parent_domain::ParentDomainBuilder;
use super::protection_domain::ProtectionDomain;
use super::queue_pair::Datagram;
use super::thread_domain::ThreadDomain;
use crate::error::VerbError;

/// A domain whose queues stay on the thread that created it.
#[derive(Debug)]
pub struct SingleThreadedDomain {
    /// If this domain contains a thread domain, it must stay private, because a safe builder could create queue pairs
    /// in it that leave the thread.
    domain: Arc<ProtectionDomain>,
    has_allocator: bool,
    thread: SingleThread,
}

/// Neither `Send` nor `Sync`.
type SingleThread = PhantomData<*mut ()>;

impl ParentDomainBuilder {
    /// `ibv_alloc_parent_domain(context, attr)` with a thread domain — builds a domain whose completion queues and
    /// queue pairs stay on the thread that created `td`. Their operations take no lock.
    ///
    /// # Errors
    ///
    /// The errors are those of [`build`](Self::build). In addition, returns `EINVAL` if `td` belongs to another device
    /// context.
    ///
    /// # References
    ///
    /// [ibv_alloc_parent_domain(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html)
    pub fn build_single_threaded(&self, td: &ThreadDomain) -> Result<SingleThreadedDomain, VerbError> {
        let domain = self.allocate_for(td)?;
        // SAFETY: the domain was just created and is not shared. `td` does not leave its thread, so this code runs on
        // that thread.
        Ok(unsafe { SingleThreadedDomain::adopt(domain, self.has_allocator()) })
    }
}

impl SingleThreadedDomain {
    /// Creates a domain without a thread domain, for drivers that do not support thread domains. The completion queues
    /// then have no lock, but queue pairs have their usual lock.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self { domain: Arc::clone(pd), has_allocator: false, thread: PhantomData }
    }

    /// Takes ownership of a parent domain.
    ///
    /// # Safety
    ///
    /// `domain` has no other owner, and only the calling thread uses its thread domain.
    unsafe fn adopt(domain: Arc<ProtectionDomain>, has_allocator: bool) -> Self {
        Self { domain, has_allocator, thread: PhantomData }
    }

    /// Creates a builder of completion queues in this domain.
    pub fn create_cq_builder(&self) -> SingleThreadedCompletionQueueBuilder {
        SingleThreadedCompletionQueueBuilder::new(self)
    }

    /// Creates a builder of queue pairs in this domain, for connections or raw packets.
    pub fn create_qp_builder(&self) -> SingleThreadedQueuePairBuilder {
        SingleThreadedQueuePairBuilder::new(self)
    }

    /// Creates a builder of queue pairs for datagrams (UD) in this domain.
    pub fn create_ud_qp_builder(&self) -> SingleThreadedQueuePairBuilder<Datagram> {
        SingleThreadedQueuePairBuilder::new_ud(self)
    }

    /// Returns the plain domain, in which memory is registered.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        self.domain.plain()
    }

    /// Returns the domain's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.domain.device_context()
    }
}
