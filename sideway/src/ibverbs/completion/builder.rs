//! Building completion queues.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_cq_init_attr_mask, ibv_create_cq_attr_flags,
};

use super::CreateCompletionQueueWorkCompletionFlags as Fields;
use super::channel::CompletionChannel;
use super::queue::{CompletionQueueCore, EventTarget, Threads};
use super::{BasicCompletionQueue, ExtendedCompletionQueue, GenericCompletionQueue};
use crate::error::{Errno, VerbError};
use crate::ffi::check_pointer;
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::quirks::{self, Driver};

/// The default number of entries.
const DEFAULT_CQE: u32 = 128;

const EX: &str = "ibv_create_cq_ex";

/// The fields that only InfiniBand sets, in three groups. If a driver rejects the fields of a queue, the groups are
/// left out one after the other.
const DISPENSABLE: [Fields; 3] = {
    let lids = Fields::SourceLocalIdentifier.union(Fields::DestinationLocalIdentifierPathBits);
    [Fields::empty(), lids, lids.union(Fields::SourceQueuePair).union(Fields::ServiceLevel)]
};

/// Builds completion queues.
#[derive(Debug)]
pub struct CompletionQueueBuilder {
    context: Arc<DeviceContext>,
    cqe: u32,
    cq_context: usize,
    channel: Option<Arc<CompletionChannel>>,
    comp_vector: u32,
    fields: Fields,
    ignore_overrun: bool,
    domain: Option<Arc<ProtectionDomain>>,
}

impl DeviceContext {
    /// Creates a builder of completion queues of this device.
    pub fn create_cq_builder(self: &Arc<Self>) -> CompletionQueueBuilder {
        CompletionQueueBuilder::new(self)
    }
}

impl CompletionQueueBuilder {
    /// Creates a builder with 128 entries, no channel and the standard fields.
    pub fn new(context: &Arc<DeviceContext>) -> Self {
        Self {
            context: Arc::clone(context),
            cqe: DEFAULT_CQE,
            cq_context: 0,
            channel: None,
            comp_vector: 0,
            fields: Fields::StandardFlags,
            ignore_overrun: false,
            domain: None,
        }
    }

    /// Returns the device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Sets the minimum capacity. An overrun breaks the queue permanently, so the queue needs an entry for each request
    /// that can be outstanding on all its queue pairs.
    pub fn setup_cqe(&mut self, cqe: u32) -> &mut Self {
        self.cqe = cqe;
        self
    }

    /// Sets a number chosen by the program, which identifies the queue in an event.
    pub fn setup_cq_context(&mut self, cq_context: usize) -> &mut Self {
        self.cq_context = cq_context;
        self
    }

    /// Sets the channel for the queue's events, and the completion vector (0 to `num_comp_vectors` − 1) whose interrupt
    /// raises them.
    pub fn setup_comp_channel(&mut self, channel: &Arc<CompletionChannel>, comp_vector: u32) -> &mut Self {
        self.channel = Some(Arc::clone(channel));
        self.comp_vector = comp_vector;
        self
    }

    /// Sets which fields the completions of an extended queue have in addition to the standard ones. A device may lack
    /// the standard fields that are meaningful only on InfiniBand (LIDs, service level, source queue pair). On such a
    /// device these fields read as 0, and the queue's [`wc_flags`](ExtendedCompletionQueue::wc_flags) do not contain
    /// them.
    pub fn setup_wc_flags(&mut self, fields: Fields) -> &mut Self {
        self.fields = fields | Fields::StandardFlags;
        self
    }

    /// `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`: sets whether an overrun only loses completions, instead of breaking the
    /// queue permanently. Only extended queues support this.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub fn setup_ignore_overrun(&mut self, ignore_overrun: bool) -> &mut Self {
        self.ignore_overrun = ignore_overrun;
        self
    }

    /// `IBV_CQ_INIT_ATTR_MASK_PD`: sets the parent domain whose allocator provides the queue's memory; see
    /// [`ParentDomainBuilder`](crate::ibverbs::parent_domain::ParentDomainBuilder). Only extended queues support this.
    #[doc(alias = "IBV_CQ_INIT_ATTR_MASK_PD")]
    pub fn setup_parent_domain(&mut self, domain: &Arc<ProtectionDomain>) -> &mut Self {
        self.domain = Some(Arc::clone(domain));
        self
    }

    /// `ibv_create_cq(context, cqe, cq_context, channel, comp_vector)` — builds a basic queue.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: more entries than the device supports, or an invalid completion vector.
    /// - `ENOMEM`: out of resources.
    ///
    /// # References
    ///
    /// [ibv_create_cq(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html)
    #[doc(alias = "ibv_create_cq")]
    pub fn build(&self) -> Result<BasicCompletionQueue, VerbError> {
        const VERB: &str = "ibv_create_cq";
        let arguments = self.arguments(VERB)?;
        if self.ignore_overrun || self.domain.is_some() {
            return Err(VerbError::invalid(
                VERB,
                "setup_ignore_overrun and setup_parent_domain need an extended queue; call build_ex",
            ));
        }
        let target = EventTarget::allocate(self.cq_context);
        // SAFETY: the context and the channel are live. The library only stores the pointer to the target.
        let cq = unsafe {
            sys::ibv_create_cq(
                self.context.raw(),
                arguments.cqe,
                target.as_ptr().cast(),
                self.raw_channel(),
                arguments.comp_vector,
            )
        };
        Ok(BasicCompletionQueue::new(self.adopt(VERB, cq, target, Threads::Any)?))
    }

    /// `ibv_create_cq_ex(context, attr)` — builds an extended queue.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`, `ENOSYS`: the device does not support extended queues, or these fields.
    /// - Otherwise the errors of [`build`](Self::build).
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn build_ex(&self) -> Result<ExtendedCompletionQueue, VerbError> {
        self.build_extended(Threads::Any).map(|(cq, _mended)| cq)
    }

    /// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`: builds an extended queue whose driver takes no lock.
    ///
    /// # Safety
    ///
    /// Only one thread at a time may use or drop the queue, its core and all objects created with the queue.
    pub(in crate::ibverbs) unsafe fn build_single_threaded(&self) -> Result<ExtendedCompletionQueue, VerbError> {
        if self.channel.is_some() {
            return Err(VerbError::invalid(
                EX,
                "a single-threaded queue cannot have a channel, because any thread \
                may take its events; remove setup_comp_channel",
            ));
        }
        self.build_extended(Threads::Single).map(|(cq, _mended)| cq)
    }

    /// Builds an extended queue. Also returns whether the queue needed a workaround for a driver fault.
    fn build_extended(&self, threads: Threads) -> Result<(ExtendedCompletionQueue, bool), VerbError> {
        // SAFETY: the context, the channel and the domain are live and belong to one device. The attributes are
        // initialised according to their mask.
        self.build_extended_by(EX, threads, |context, attr| unsafe { sys::ibv_create_cq_ex(context, attr) })
            .map_err(|error| self.explain_extended(error, threads))
    }

    /// Builds an extended queue with `create`. If `create` returns `EOPNOTSUPP`, it is called again with fewer fields.
    fn build_extended_by(
        &self,
        verb: &'static str,
        threads: Threads,
        create: impl Fn(*mut ibv_context, &mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
    ) -> Result<(ExtendedCompletionQueue, bool), VerbError> {
        let mut refused = None;
        for without in DISPENSABLE {
            match self.create_extended(verb, self.fields.difference(without), threads, &create) {
                Err(error) if error.errno().raw() == libc::EOPNOTSUPP => refused = refused.or(Some(error)),
                result => return result,
            }
        }
        Err(refused.unwrap_or_else(|| VerbError::new(verb, Errno::EOPNOTSUPP)))
    }

    /// Builds an extended queue with a vendor's function instead of `ibv_create_cq_ex`, such as `efadv_create_cq` with
    /// the vendor's attributes. `verb` is the function's name for errors. If the function returns `EOPNOTSUPP`, it is
    /// called again without fields that are meaningful only on InfiniBand.
    ///
    /// # Errors
    ///
    /// Returns the errno value if `create` returns null. The other errors are those of [`build_ex`](Self::build_ex).
    ///
    /// # Safety
    ///
    /// `create` behaves like `ibv_create_cq_ex` with the given attributes, and may change those that its documentation
    /// names, except `cq_context` and the channel. It returns null or a new extended queue that no other code owns.
    #[cfg(feature = "efa")]
    pub(crate) unsafe fn build_ex_with(
        &self,
        verb: &'static str,
        create: impl Fn(*mut ibv_context, &mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
    ) -> Result<ExtendedCompletionQueue, VerbError> {
        self.build_extended_by(verb, Threads::Any, create).map(|(cq, _mended)| cq)
    }

    fn create_extended(
        &self,
        verb: &'static str,
        fields: Fields,
        threads: Threads,
        create: impl FnOnce(*mut ibv_context, &mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
    ) -> Result<(ExtendedCompletionQueue, bool), VerbError> {
        let arguments = self.arguments(verb)?;
        let target = EventTarget::allocate(self.cq_context);
        let flags = self.flags(threads);
        let mut comp_mask = 0;
        if flags != 0 {
            comp_mask |= ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
        }
        if self.domain.is_some() {
            comp_mask |= ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_PD.0;
        }
        let mut attr = ibv_cq_init_attr_ex {
            cqe: self.cqe,
            cq_context: target.as_ptr().cast(),
            channel: self.raw_channel(),
            comp_vector: arguments.comp_vector as u32,
            wc_flags: fields.bits(),
            comp_mask,
            flags,
            parent_domain: self.domain.as_ref().map_or(ptr::null_mut(), |domain| domain.raw()),
        };
        let cq = create(self.context.raw(), &mut attr);
        let core = self.adopt(verb, cq.cast(), target, threads)?;
        // SAFETY: the queue was just created as an extended queue, and was not polled yet.
        unsafe {
            let mended = quirks::mend_completion_queue(Driver::of(&self.context), cq);
            fill_in_readers(cq, fields);
            check_functions(verb, cq, fields)?;
            Ok((ExtendedCompletionQueue::new(core, fields), mended))
        }
    }

    /// Builds an extended queue with the requested fields if the device supports such a queue and its driver has no
    /// known faults. Otherwise builds a basic queue.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`build`](Self::build).
    pub fn build_generic(&self) -> Result<GenericCompletionQueue, VerbError> {
        // Do not silently drop features of extended queues.
        let extended_only = self.ignore_overrun || self.domain.is_some();
        match self.build_extended(Threads::Any) {
            Ok((cq, mended)) if !mended || extended_only => Ok(cq.into()),
            Ok(_) => Ok(self.build()?.into()),
            Err(error) if !extended_only && matches!(error.errno().raw(), libc::EOPNOTSUPP | libc::ENOSYS) => {
                Ok(self.build()?.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Checks the arguments before calling the library.
    fn arguments(&self, verb: &'static str) -> Result<Arguments, VerbError> {
        self.context.require_operations(
            verb,
            &[
                ("poll_cq", |operations| operations.poll_cq.is_some()),
                ("req_notify_cq", |operations| operations.req_notify_cq.is_some()),
            ],
        )?;
        if let Some(channel) = &self.channel
            && channel.device_context().raw() != self.context.raw()
        {
            return Err(VerbError::invalid(
                verb,
                "the completion channel belongs to another device context; create it with create_comp_channel of \
                this one",
            ));
        }
        if let Some(domain) = &self.domain {
            if domain.device_context().raw() != self.context.raw() {
                return Err(VerbError::invalid(
                    verb,
                    "the parent domain belongs to another device context; build it \
                    from this one",
                ));
            }
            if !domain.is_parent_domain() {
                return Err(VerbError::invalid(
                    verb,
                    "setup_parent_domain needs a domain from ParentDomainBuilder, not a plain protection domain",
                ));
            }
        }
        let cqe = match c_int::try_from(self.cqe) {
            Ok(cqe) if cqe > 0 => cqe,
            _ => return Err(VerbError::invalid(verb, format!("cqe is {}; use 1 to {}", self.cqe, c_int::MAX))),
        };
        let comp_vector = c_int::try_from(self.comp_vector).map_err(|_| {
            VerbError::invalid(
                verb,
                format!(
                    "completion vector {} is out of range; use one below \
                num_comp_vectors",
                    self.comp_vector
                ),
            )
        })?;
        Ok(Arguments { cqe, comp_vector })
    }

    fn flags(&self, threads: Threads) -> u32 {
        let mut flags = 0;
        if self.ignore_overrun {
            flags |= ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
        }
        if threads == Threads::Single {
            flags |= ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0;
        }
        flags
    }

    fn raw_channel(&self) -> *mut sys::ibv_comp_channel {
        self.channel.as_ref().map_or(ptr::null_mut(), |channel| channel.raw())
    }

    /// Takes ownership of the new queue. If there is no queue, frees the event target.
    fn adopt(
        &self,
        verb: &'static str,
        cq: *mut ibv_cq,
        target: NonNull<EventTarget>,
        threads: Threads,
    ) -> Result<Arc<CompletionQueueCore>, VerbError> {
        match check_pointer(verb, cq) {
            Ok(cq) => {
                let (channel, domain) = (self.channel.clone(), self.domain.clone());
                // SAFETY: the queue was just created with this context, channel, domain and target. The contract of
                // `build_single_threaded` confines single-threaded objects to one thread at a time.
                Ok(unsafe {
                    CompletionQueueCore::adopt(cq, target, channel, domain, Arc::clone(&self.context), threads)
                })
            }
            Err(error) => {
                // SAFETY: no queue was created that could point to it.
                unsafe { EventTarget::free(target) };
                Err(self.explain(error))
            }
        }
    }

    #[cold]
    fn explain(&self, error: VerbError) -> VerbError {
        if error.errno().raw() != libc::EINVAL {
            return error;
        }
        match self.context.query_device() {
            Ok(device) if self.cqe > device.max_cqe() => {
                error.with_hint(format!("cqe is {}; the device supports at most {}", self.cqe, device.max_cqe()))
            }
            _ if self.comp_vector >= self.context.num_comp_vectors() => error.with_hint(format!(
                "completion vector {} does not exist; the device has {}",
                self.comp_vector,
                self.context.num_comp_vectors()
            )),
            _ => error,
        }
    }

    #[cold]
    fn explain_extended(&self, error: VerbError, threads: Threads) -> VerbError {
        if !matches!(error.errno().raw(), libc::EOPNOTSUPP | libc::ENOSYS) || error.hint().is_some() {
            return error;
        }
        let mut further = Vec::new();
        let fields = self.fields.difference(Fields::StandardFlags);
        if !fields.is_empty() {
            further.push(format!("the fields {fields:?}"));
        }
        if self.ignore_overrun {
            further.push("ignoring an overrun".to_owned());
        }
        if self.domain.is_some() {
            further.push("a parent domain".to_owned());
        }
        if threads == Threads::Single {
            further.push("single-threaded queues".to_owned());
        }
        if further.is_empty() {
            error.with_hint("the device or its driver does not support extended queues; use build or build_generic")
        } else {
            error.with_hint(format!(
                "the device or its driver does not support extended queues, or {}; use build or \
                build_generic",
                further.join(", or ")
            ))
        }
    }
}

struct Arguments {
    cqe: c_int,
    comp_vector: c_int,
}

/// For each standard field that the queue was created without, sets a reader function that returns 0.
///
/// # Safety
///
/// `cq` is a live extended queue created with `fields`, and not polled.
unsafe fn fill_in_readers(cq: *mut ibv_cq_ex, fields: Fields) {
    unsafe extern "C" fn zero_u32(_: *mut ibv_cq_ex) -> u32 {
        0
    }
    unsafe extern "C" fn zero_u8(_: *mut ibv_cq_ex) -> u8 {
        0
    }
    // SAFETY: the queue is live and not polled, so its functions may be replaced.
    unsafe {
        if !fields.contains(Fields::SourceQueuePair) {
            (*cq).read_src_qp = Some(zero_u32);
        }
        if !fields.contains(Fields::SourceLocalIdentifier) {
            (*cq).read_slid = Some(zero_u32);
        }
        if !fields.contains(Fields::ServiceLevel) {
            (*cq).read_sl = Some(zero_u8);
        }
        if !fields.contains(Fields::DestinationLocalIdentifierPathBits) {
            (*cq).read_dlid_path_bits = Some(zero_u8);
        }
    }
}

/// Checks that all readers used by safe code are present.
///
/// # Safety
///
/// `cq` is a live extended queue created with `fields`.
unsafe fn check_functions(verb: &'static str, cq: *const ibv_cq_ex, fields: Fields) -> Result<(), VerbError> {
    // SAFETY: the queue is live. Later versions of the library added the members after `read_flow_tag`. Such a member
    // is read only if the library accepted its flag, and a library without the member does not accept the flag.
    let missing = unsafe {
        [
            ("start_poll", (*cq).start_poll.is_none()),
            ("next_poll", (*cq).next_poll.is_none()),
            ("end_poll", (*cq).end_poll.is_none()),
            ("read_opcode", (*cq).read_opcode.is_none()),
            ("read_vendor_err", (*cq).read_vendor_err.is_none()),
            ("read_wc_flags", (*cq).read_wc_flags.is_none()),
            ("read_byte_len", (*cq).read_byte_len.is_none()),
            ("read_imm_data", (*cq).read_imm_data.is_none()),
            ("read_qp_num", (*cq).read_qp_num.is_none()),
            ("read_src_qp", (*cq).read_src_qp.is_none()),
            ("read_slid", (*cq).read_slid.is_none()),
            ("read_sl", (*cq).read_sl.is_none()),
            ("read_dlid_path_bits", (*cq).read_dlid_path_bits.is_none()),
            ("read_completion_ts", fields.contains(Fields::CompletionTimestamp) && (*cq).read_completion_ts.is_none()),
            ("read_cvlan", fields.contains(Fields::CustomerVlan) && (*cq).read_cvlan.is_none()),
            ("read_tm_info", fields.contains(Fields::TagMatchingInformation) && (*cq).read_tm_info.is_none()),
            ("read_flow_tag", fields.contains(Fields::FlowTag) && (*cq).read_flow_tag.is_none()),
            (
                "read_completion_wallclock_ns",
                fields.contains(Fields::CompletionTimestampWallclock) && (*cq).read_completion_wallclock_ns.is_none(),
            ),
        ]
    };
    match missing.iter().find(|(_, missing)| *missing) {
        None => Ok(()),
        Some((name, _)) => Err(VerbError::new(verb, Errno::EOPNOTSUPP).with_hint(format!(
            "the driver created the queue without the function {name}; use build or build_generic"
        ))),
    }
}
