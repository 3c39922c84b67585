//! Building shared receive queues.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{
    ibv_context, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_srq_init_attr_mask as mask,
    ibv_srq_type, ibv_tm_cap,
};

use super::core::Parents;
use super::tag_matching::TagOperations;
use super::{SharedReceiveQueue, SharedReceiveQueueCore, SharedReceiveQueueType};
use crate::error::VerbError;
use crate::ffi::{Attachment, check_pointer};
use crate::ibverbs::completion::{CompletionQueue, CompletionQueueCore};
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::work_request::MOST_REQUESTS;
use crate::ibverbs::xrc_domain::XrcDomain;

/// Builds shared receive queues. By default, a queue is a basic one, with 16 receives of 1 entry each.
#[doc(alias = "ibv_srq_init_attr_ex")]
#[derive(Debug)]
pub struct SharedReceiveQueueBuilder {
    pd: Arc<ProtectionDomain>,
    attr: ibv_srq_attr,
    srq_context: usize,
    service: Service,
}

/// The attributes of one type of queue.
#[derive(Debug)]
enum Service {
    Basic,
    Xrc { xrcd: Arc<XrcDomain>, cq: Arc<CompletionQueueCore> },
    TagMatching { cq: Arc<CompletionQueueCore>, cap: ibv_tm_cap },
}

impl ProtectionDomain {
    /// Creates a builder of shared receive queues in this domain.
    pub fn create_srq_builder(self: &Arc<Self>) -> SharedReceiveQueueBuilder {
        SharedReceiveQueueBuilder::new(self)
    }
}

impl SharedReceiveQueueBuilder {
    /// Creates a builder in this domain.
    pub fn new(pd: &Arc<ProtectionDomain>) -> Self {
        Self {
            pd: Arc::clone(pd),
            attr: ibv_srq_attr { max_wr: 16, max_sge: 1, srq_limit: 0 },
            srq_context: 0,
            service: Service::Basic,
        }
    }

    /// Sets the maximum number of outstanding receives. The device may increase it.
    pub fn setup_max_wr(&mut self, max_wr: u32) -> &mut Self {
        self.attr.max_wr = max_wr;
        self
    }

    /// Sets the maximum number of entries of a receive's scatter list. The device may increase it.
    pub fn setup_max_sge(&mut self, max_sge: u32) -> &mut Self {
        self.attr.max_sge = max_sge;
        self
    }

    /// Sets the number of receives below which an event is raised. Most drivers ignore this value when a queue is
    /// created, as the manual page permits. Calling [`arm_limit`](SharedReceiveQueue::arm_limit) after receives were
    /// posted works with all drivers.
    pub fn setup_limit(&mut self, limit: u32) -> &mut Self {
        self.attr.srq_limit = limit;
        self
    }

    /// Sets a number chosen by the program, which identifies the queue.
    pub fn setup_srq_context(&mut self, srq_context: usize) -> &mut Self {
        self.srq_context = srq_context;
        self
    }

    /// Sets that an XRC queue is built. Any XRC receive queue pair of the XRC domain `xrcd` consumes its receives if
    /// the sender of a message names the queue by its number. The completions go to `cq`. The queue keeps `xrcd` and
    /// `cq` alive.
    pub fn setup_xrc(&mut self, xrcd: &Arc<XrcDomain>, cq: &impl CompletionQueue) -> &mut Self {
        self.service = Service::Xrc { xrcd: Arc::clone(xrcd), cq: Arc::clone(cq.core()) };
        self
    }

    /// Sets that a queue with tag matching is built. Its list holds up to `max_num_tags` tags, and up to `max_ops`
    /// operations on the list can be outstanding. The completions of operations and of matched receives go to `cq`,
    /// which the queue keeps alive. [`DeviceAttr::tm_caps`](crate::ibverbs::device_context::DeviceAttr::tm_caps)
    /// returns the limits of the device.
    #[doc(alias = "ibv_tm_cap")]
    pub fn setup_tag_matching(&mut self, cq: &impl CompletionQueue, max_num_tags: u32, max_ops: u32) -> &mut Self {
        self.service = Service::TagMatching { cq: Arc::clone(cq.core()), cap: ibv_tm_cap { max_num_tags, max_ops } };
        self
    }

    /// `ibv_create_srq(pd, srq_init_attr)` — builds a basic queue.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: a value exceeds the device's limit or the memory limit, or the limit for events exceeds the number
    ///   of receives. Or the queue uses XRC or tag matching, which require [`build_ex`](Self::build_ex).
    /// - `ENOMEM`: out of resources.
    /// - `EOPNOTSUPP`, `ENOSYS`: the device or its driver does not support shared receive queues.
    ///
    /// # References
    ///
    /// [ibv_create_srq(3)](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html)
    #[doc(alias = "ibv_create_srq")]
    pub fn build(&self) -> Result<SharedReceiveQueue, VerbError> {
        const VERB: &str = "ibv_create_srq";
        if !matches!(self.service, Service::Basic) {
            return Err(VerbError::invalid(VERB, "XRC and tag matching are not supported here; call build_ex"));
        }
        self.check(VERB)?;
        let mut init = ibv_srq_init_attr { srq_context: self.raw_context(), attr: self.attr };
        // SAFETY: the domain is live, and the attributes can be read and written.
        let srq = unsafe { sys::ibv_create_srq(self.pd.raw(), &mut init) };
        let srq = check_pointer(VERB, srq).map_err(|error| self.explain(error))?;
        // SAFETY: the queue was just created in this domain, and from no other object.
        unsafe { self.adopt(VERB, srq, init.attr, None) }
    }

    /// `ibv_create_srq_ex(context, srq_init_attr_ex)` — builds a queue of any type.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the XRC domain or the completion queue belongs to another device, or the device does not support that
    ///   many tags or operations.
    /// - `EOPNOTSUPP`, `ENOSYS`: the device or its driver does not support queues of this type.
    /// - Otherwise the errors of [`build`](Self::build).
    ///
    /// # References
    ///
    /// [ibv_create_srq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html)
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn build_ex(&self) -> Result<SharedReceiveQueue, VerbError> {
        // SAFETY: the context is open, and the attributes are initialised.
        let create = |context, init: &mut ibv_srq_init_attr_ex| unsafe { sys::ibv_create_srq_ex(context, init) };
        // SAFETY: `create` calls the verb, and no other object stores the queue's address.
        unsafe { self.build_ex_by("ibv_create_srq_ex", create, None) }
    }

    /// Builds a queue with another function.
    ///
    /// # Safety
    ///
    /// - `create` behaves like `ibv_create_srq_ex`. In return, this function passes attributes that are initialised
    ///   according to their mask and that name objects of one device.
    /// - If another C object then stores the queue's address, that object is the `attachment`.
    pub(crate) unsafe fn build_ex_by(
        &self,
        verb: &'static str,
        create: impl FnOnce(*mut ibv_context, &mut ibv_srq_init_attr_ex) -> *mut ibv_srq,
        attachment: Option<Arc<dyn Attachment<ibv_srq>>>,
    ) -> Result<SharedReceiveQueue, VerbError> {
        self.check(verb)?;
        let mut init = ibv_srq_init_attr_ex {
            srq_context: self.raw_context(),
            attr: self.attr,
            comp_mask: mask::IBV_SRQ_INIT_ATTR_TYPE.0 | mask::IBV_SRQ_INIT_ATTR_PD.0,
            srq_type: ibv_srq_type(self.srq_type().raw()),
            pd: self.pd.raw(),
            xrcd: ptr::null_mut(),
            cq: ptr::null_mut(),
            tm_cap: ibv_tm_cap { max_num_tags: 0, max_ops: 0 },
        };
        match &self.service {
            Service::Basic => {}
            Service::Xrc { xrcd, cq } => {
                init.comp_mask |= mask::IBV_SRQ_INIT_ATTR_XRCD.0 | mask::IBV_SRQ_INIT_ATTR_CQ.0;
                init.xrcd = xrcd.raw();
                init.cq = cq.raw();
            }
            Service::TagMatching { cq, cap } => {
                init.comp_mask |= mask::IBV_SRQ_INIT_ATTR_CQ.0 | mask::IBV_SRQ_INIT_ATTR_TM.0;
                init.cq = cq.raw();
                init.tm_cap = *cap;
            }
        }
        // The objects that the attributes name are live and belong to one device (`check`).
        let srq = create(self.context().raw(), &mut init);
        let srq = check_pointer(verb, srq).map_err(|error| self.explain(error))?;
        // SAFETY: the queue was just created in this domain, from the objects that `service` names.
        unsafe { self.adopt(verb, srq, init.attr, attachment) }
    }

    /// Takes ownership of a new queue. `actual` contains the values that the driver chose for the attributes.
    ///
    /// # Safety
    ///
    /// `srq` was just created in this domain from the objects that `service` names, and has no other owner. Only the
    /// `attachment` stores its address.
    unsafe fn adopt(
        &self,
        verb: &'static str,
        srq: NonNull<ibv_srq>,
        actual: ibv_srq_attr,
        attachment: Option<Arc<dyn Attachment<ibv_srq>>>,
    ) -> Result<SharedReceiveQueue, VerbError> {
        let (xrcd, cq) = match &self.service {
            Service::Basic => (None, None),
            Service::Xrc { xrcd, cq } => (Some(Arc::clone(xrcd)), Some(Arc::clone(cq))),
            Service::TagMatching { cq, .. } => (None, Some(Arc::clone(cq))),
        };
        let parents = Parents { attachment, cq, xrcd, pd: Arc::clone(&self.pd) };
        // SAFETY: the caller upholds the contract of this function.
        let core = unsafe { SharedReceiveQueueCore::adopt(srq, self.srq_type(), self.srq_context, parents) };
        let tags = match &self.service {
            Service::TagMatching { cap, .. } => {
                let entries = self.context().query_device().map_or(1, |device| device.tm_caps().max_sge());
                TagOperations::new(verb, cap.max_ops, entries.clamp(1, MOST_TAG_ENTRIES))?
            }
            _ => TagOperations::none(verb)?,
        };
        SharedReceiveQueue::new(verb, core, actual.max_wr, actual.max_sge, tags)
    }

    /// Checks the arguments before calling the library.
    fn check(&self, verb: &'static str) -> Result<(), VerbError> {
        self.context()
            .require_operations(verb, &[("post_srq_recv", |operations| operations.post_srq_recv.is_some())])?;
        let ibv_srq_attr { max_wr, max_sge, srq_limit } = self.attr;
        let most = MOST_REQUESTS;
        if max_wr > most || max_sge > most {
            return Err(VerbError::invalid(
                verb,
                format!("{max_wr} receives of {max_sge} entries exceed the memory limit; use at most {most} of each"),
            ));
        }
        if srq_limit > max_wr {
            return Err(VerbError::invalid(
                verb,
                format!("the limit {srq_limit} exceeds the queue's {max_wr} receives; use a smaller limit"),
            ));
        }
        let there = self.context().raw();
        let (xrcd, cq) = match &self.service {
            Service::Basic => return Ok(()),
            Service::Xrc { xrcd, cq } => (Some(xrcd), cq),
            Service::TagMatching { cq, .. } => (None, cq),
        };
        if xrcd.is_some_and(|xrcd| xrcd.device_context().raw() != there) {
            return Err(VerbError::invalid(
                verb,
                "the XRC domain belongs to another device context than the domain; \
                open it on the same",
            ));
        }
        if cq.context().raw() != there {
            return Err(VerbError::invalid(
                verb,
                "the completion queue belongs to another device context than the domain; build both from one",
            ));
        }
        if let Service::TagMatching { cap, .. } = &self.service
            && cap.max_ops > most
        {
            return Err(VerbError::invalid(
                verb,
                format!("{} operations exceed the limit; use at most {most}", cap.max_ops),
            ));
        }
        Ok(())
    }

    fn srq_type(&self) -> SharedReceiveQueueType {
        match self.service {
            Service::Basic => SharedReceiveQueueType::Basic,
            Service::Xrc { .. } => SharedReceiveQueueType::ReliableConnectionExtended,
            Service::TagMatching { .. } => SharedReceiveQueueType::TagMatching,
        }
    }

    /// Returns the domain's device.
    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        self.pd.device_context()
    }

    /// Returns the program's number in the form of C's context pointer, which no code dereferences.
    fn raw_context(&self) -> *mut libc::c_void {
        ptr::without_provenance_mut(self.srq_context)
    }

    #[cold]
    fn explain(&self, error: VerbError) -> VerbError {
        let errno = error.errno().raw();
        match (errno, &self.service) {
            (libc::EOPNOTSUPP | libc::ENOSYS, Service::Basic) => {
                return error.with_hint("the device or its driver does not support shared receive queues");
            }
            (libc::EOPNOTSUPP | libc::ENOSYS, Service::Xrc { .. }) => {
                return error.with_hint("the device or its driver does not support XRC");
            }
            (libc::EOPNOTSUPP | libc::ENOSYS, Service::TagMatching { .. }) => {
                return error.with_hint("the device or its driver does not support tag matching");
            }
            (libc::EINVAL | libc::ENOMEM, _) => {}
            _ => return error,
        }
        let Ok(device) = self.context().query_device() else { return error };
        let ibv_srq_attr { max_wr, max_sge, .. } = self.attr;
        if device.max_srq() == 0 {
            return error.with_hint("the device does not support shared receive queues");
        }
        if max_wr > device.max_srq_wr() {
            return error.with_hint(format!(
                "{max_wr} receives exceed the device's limit of {}; request less",
                device.max_srq_wr()
            ));
        }
        if max_sge > device.max_srq_sge() {
            return error.with_hint(format!(
                "{max_sge} entries exceed the device's limit of {}; request less",
                device.max_srq_sge()
            ));
        }
        if let Service::TagMatching { cap, .. } = &self.service {
            let caps = device.tm_caps();
            if cap.max_num_tags > caps.max_num_tags() {
                return error.with_hint(format!(
                    "{} tags exceed the device's limit of {}; request less",
                    cap.max_num_tags,
                    caps.max_num_tags()
                ));
            }
            if cap.max_ops > caps.max_ops() {
                return error.with_hint(format!(
                    "{} operations exceed the device's limit of {}; request less",
                    cap.max_ops,
                    caps.max_ops()
                ));
            }
        }
        if max_wr == 0 && errno == libc::EINVAL {
            return error.with_hint("no receives are requested; use at least 1");
        }
        error
    }
}

/// A limit that exceeds the number of scatter entries of a tagged receive on any device.
const MOST_TAG_ENTRIES: u32 = 1 << 10;
