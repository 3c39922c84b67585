//! Queues without locks, which stay with the thread that made them.
//!
//! Drivers lock completion queues and queue pairs, and the lock costs time also where nobody contends for it. They leave it
//! out on completion queues made with `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, and on queue pairs in a thread domain, which
//! moreover share a doorbell among themselves. Then it is up to the program that one thread at a time uses them, and here the
//! types see to it: none of them is `Send` or `Sync`.
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
//! What touches such a queue without its lock is not polling and posting alone. A queue pair that is destroyed, or modified to
//! `Reset`, takes its completions out of its completion queues; a completion event asks its queue for the next one. So queue
//! pairs on such a completion queue are of this module too, its events are left out (there is no channel), and nothing here
//! gives out what is inside: not the queues of a pair, nor the domain. A queue pair that is dropped while one of its completion
//! queues is being polled is destroyed at the end of the poll.
//!
//! Memory is registered, and address handles are made, in the plain domain
//! ([`SingleThreadedDomain::protection_domain`]), and may be shared as ever.

mod completion_queue;
mod poller;
mod queue_pair;

use std::marker::PhantomData;
use std::sync::Arc;

pub use self::completion_queue::{SingleThreadedCompletionQueue, SingleThreadedCompletionQueueBuilder};
pub use self::poller::SingleThreadedPoller;
pub use self::queue_pair::{SingleThreadedQueuePair, SingleThreadedQueuePairBuilder};
use super::device_context::DeviceContext;
use super::protection_domain::ProtectionDomain;
use super::queue_pair::Datagram;

/// A domain whose queues stay with the thread that made it.
#[derive(Debug)]
pub struct SingleThreadedDomain {
    /// With a thread domain in it, it may not be seen outside: queue pairs of a safe builder could leave the thread.
    domain: Arc<ProtectionDomain>,
    has_allocator: bool,
    thread: SingleThread,
}

/// Neither `Send` nor `Sync`.
type SingleThread = PhantomData<*mut ()>;

impl SingleThreadedDomain {
    /// A domain without a thread domain, for drivers that have none: completion queues cost no lock, and queue pairs the one
    /// that they always do.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self { domain: Arc::clone(pd), has_allocator: false, thread: PhantomData }
    }

    /// Takes a parent domain over.
    ///
    /// # Safety
    ///
    /// It is nobody else's, and its thread domain is used by the calling thread alone.
    pub(super) unsafe fn adopt(domain: Arc<ProtectionDomain>, has_allocator: bool) -> Self {
        Self { domain, has_allocator, thread: PhantomData }
    }

    /// A builder of completion queues in this domain.
    pub fn create_cq_builder(&self) -> SingleThreadedCompletionQueueBuilder {
        SingleThreadedCompletionQueueBuilder::new(self)
    }

    /// A builder of queue pairs in this domain: with one peer each, or of raw packets.
    pub fn create_qp_builder(&self) -> SingleThreadedQueuePairBuilder {
        SingleThreadedQueuePairBuilder::new(self)
    }

    /// A builder of queue pairs for datagrams (UD) in this domain.
    pub fn create_ud_qp_builder(&self) -> SingleThreadedQueuePairBuilder<Datagram> {
        SingleThreadedQueuePairBuilder::new_ud(self)
    }

    /// The plain domain, in which memory is registered.
    pub fn protection_domain(&self) -> &Arc<ProtectionDomain> {
        self.domain.plain()
    }

    /// The device that the domain is of.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        self.domain.device_context()
    }
}
