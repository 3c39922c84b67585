//! `ibv_create_wq`: building work queues.

use std::ptr;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_wq_init_attr, ibv_wq_init_attr_mask, ibv_wq_type};

use super::WorkQueueFlags;
use super::queue::{WorkQueue, WorkQueueCore};
use crate::error::{Errno, VerbError};
use crate::ffi::check_pointer;
use crate::ibverbs::completion::{CompletionQueue, CompletionQueueCore};
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::work_request::{MOST_REQUESTS, Requests};

const VERB: &str = "ibv_create_wq";

/// Builds work queues. By default, a queue has 16 requests with 1 entry each, and no flags.
#[derive(Debug)]
pub struct WorkQueueBuilder {
    pd: Arc<ProtectionDomain>,
    cq: Option<Arc<CompletionQueueCore>>,
    max_wr: u32,
    max_sge: u32,
    flags: WorkQueueFlags,
}

impl ProtectionDomain {
    /// Creates a builder of work queues in this domain.
    pub fn create_wq_builder(self: &Arc<Self>) -> WorkQueueBuilder {
        WorkQueueBuilder::new(self)
    }
}

impl WorkQueueBuilder {
    /// Creates a builder in this domain.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self { pd: Arc::clone(pd), cq: None, max_wr: 16, max_sge: 1, flags: WorkQueueFlags::empty() }
    }

    /// Sets the completion queue. The work queue keeps the C object of the completion queue alive.
    pub fn setup_cq(&mut self, cq: &impl CompletionQueue) -> &mut Self {
        self.cq = Some(Arc::clone(cq.core()));
        self
    }

    /// Sets the maximum number of outstanding receives.
    pub fn setup_max_wr(&mut self, max_wr: u32) -> &mut Self {
        self.max_wr = max_wr;
        self
    }

    /// Sets the maximum number of entries of a receive's scatter list.
    pub fn setup_max_sge(&mut self, max_sge: u32) -> &mut Self {
        self.max_sge = max_sge;
        self
    }

    /// Sets how the queue processes packets.
    pub fn setup_create_flags(&mut self, flags: WorkQueueFlags) -> &mut Self {
        self.flags = flags;
        self
    }

    /// `ibv_create_wq(context, attr)` — builds a receive work queue (`IBV_WQT_RQ`), in the state Reset.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device does not support work queues, or these flags.
    /// - `EINVAL`: the completion queue is missing or belongs to another device context, or a value exceeds the
    ///   device's limit.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [ibv_create_wq(3)](https://man7.org/linux/man-pages/man3/ibv_create_wq.3.html)
    #[doc(alias = "ibv_create_wq")]
    pub fn build(&self) -> Result<WorkQueue, VerbError> {
        let context = self.pd.device_context();
        let cq = match &self.cq {
            None => return Err(VerbError::invalid(VERB, "no completion queue is set; call setup_cq")),
            Some(cq) if cq.context().raw() != context.raw() => {
                return Err(VerbError::invalid(
                    VERB,
                    "the completion queue given to setup_cq belongs to another device context than the domain; \
                    build both from one",
                ));
            }
            Some(cq) => Arc::clone(cq),
        };
        let limit = MOST_REQUESTS;
        if self.max_wr > limit || self.max_sge > limit {
            return Err(VerbError::invalid(
                VERB,
                format!(
                    "{} requests of {} entries exceed the limit; use at most {limit} of each",
                    self.max_wr, self.max_sge
                ),
            ));
        }
        let requests = Requests::new(VERB, self.max_wr, self.max_sge)?;
        let comp_mask = if self.flags.is_empty() { 0 } else { ibv_wq_init_attr_mask::IBV_WQ_INIT_ATTR_FLAGS.0 };
        let mut attr = ibv_wq_init_attr {
            wq_context: ptr::null_mut(),
            wq_type: ibv_wq_type::IBV_WQT_RQ,
            max_wr: self.max_wr,
            max_sge: self.max_sge,
            pd: self.pd.raw(),
            cq: cq.raw(),
            comp_mask,
            create_flags: self.flags.bits(),
        };
        // SAFETY: the domain and the completion queue are live and belong to this context. The attributes are
        // initialised according to their mask.
        let wq = unsafe { sys::ibv_create_wq(context.raw(), &mut attr) };
        let wq = check_pointer(VERB, wq).map_err(|error| self.explain(error))?;
        // SAFETY: the work queue was just created from this domain and queue, and is not shared.
        let core = unsafe { WorkQueueCore::adopt(wq, Arc::clone(&self.pd), cq) };
        // SAFETY: the queue is live as long as the core, and its driver filled the struct before it returned the queue.
        if unsafe { (*core.raw()).post_recv }.is_none() {
            return Err(VerbError::new(VERB, Errno::EOPNOTSUPP)
                .with_hint("the driver created the work queue without the function post_recv"));
        }
        Ok(WorkQueue::new(requests, core))
    }

    #[cold]
    fn explain(&self, error: VerbError) -> VerbError {
        match error.errno().raw() {
            libc::EOPNOTSUPP | libc::ENOSYS if self.flags.is_empty() => {
                error.with_hint("the device or its driver does not support work queues")
            }
            libc::EOPNOTSUPP | libc::ENOSYS => {
                error.with_hint(format!("the device or its driver does not support work queues, or {:?}", self.flags))
            }
            libc::EINVAL if self.max_wr == 0 || self.max_sge == 0 => {
                error.with_hint("the driver may not support an empty work queue; set at least one request of one entry")
            }
            _ => error,
        }
    }
}
