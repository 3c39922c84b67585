//! The common part of all kinds of completion queues.

use std::any::Any;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_cq, ibv_cq_attr_mask, ibv_cq_ex, ibv_moderate_cq, ibv_modify_cq_attr};

use super::channel::CompletionChannel;
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_errno};
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::protection_domain::ProtectionDomain;
use crate::ibverbs::quirks::Driver;

/// The methods that all kinds of completion queues have in common, except polling.
pub trait CompletionQueue: AsCore {
    /// `ibv_req_notify_cq(cq, solicited_only)` — arms the queue. Its channel then reports one event for the next
    /// completion. With `solicited_only`, the channel reports one event for the next completion that is solicited or
    /// has failed.
    ///
    /// Poll once more after arming, because completions that arrived before the arming raise no event.
    ///
    /// # Errors
    ///
    /// Returns the errno of the driver, or `EINVAL` if the queue was built without a channel.
    ///
    /// # References
    ///
    /// [ibv_req_notify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html)
    #[doc(alias = "ibv_req_notify_cq")]
    fn req_notify(&self, solicited_only: bool) -> Result<(), VerbError> {
        let core = self.core();
        if core.channel.is_none() {
            return Err(VerbError::invalid(
                "ibv_req_notify_cq",
                "the queue has no completion channel; build it with CompletionQueueBuilder::setup_comp_channel",
            ));
        }
        // SAFETY: the CQ is live as long as its core.
        check_errno("ibv_req_notify_cq", unsafe { sys::ibv_req_notify_cq(core.raw(), solicited_only.into()) })
    }

    /// Returns the capacity of the queue, which is at least as large as requested.
    fn cqe(&self) -> u32 {
        self.core().cqe()
    }

    /// `ibv_modify_cq(cq, attr)` — sets the moderation of events.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`, `ENOSYS`: the device does not support moderation.
    /// - `EINVAL`: the count or the period exceeds the device's limits.
    ///
    /// # References
    ///
    /// [ibv_modify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_cq.3.html)
    #[doc(alias = "ibv_modify_cq")]
    fn modify(&self, moderation: CompletionModeration) -> Result<(), VerbError> {
        self.core().modify(moderation)
    }

    /// Returns the number set with [`setup_cq_context`](super::CompletionQueueBuilder::setup_cq_context).
    fn cq_context(&self) -> usize {
        self.core().user_context()
    }

    /// Returns the queue's device.
    fn device_context(&self) -> &Arc<DeviceContext> {
        &self.core().context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not destroy it, do not poll it while another poll is open, and do not
    /// change its `cq_context` or its functions.
    unsafe fn cq(&self) -> NonNull<ibv_cq> {
        self.core().cq
    }
}

/// Gives access to the common part of a queue. Only the queues of this crate implement this trait.
pub trait AsCore {
    #[doc(hidden)]
    fn core(&self) -> &Arc<CompletionQueueCore>;
}

const LOST: &str = "the driver lost the memory of the queue when a resize failed; build another queue";

/// The threads that use a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Any thread may use the queue, so the driver locks it.
    Any,
    /// Only the creating thread uses the queue, so the driver does not lock it.
    Single,
}

/// The C object with all objects that must outlive it. The queue's owner, its queue pairs and its events share it.
#[derive(Debug)]
pub struct CompletionQueueCore {
    cq: NonNull<ibv_cq>,
    /// `None` once the queue is being destroyed.
    handle: Option<Handle<ibv_cq>>,
    target: NonNull<EventTarget>,
    threads: Threads,
    is_lost: AtomicBool,
    channel: Option<Arc<CompletionChannel>>,
    /// Objects that must not be freed while the queue is polled, because a poll may look them up.
    left_behind: Mutex<Vec<Box<dyn Any + Send + Sync>>>,
    /// The queue's parent domain, whose allocator provides its memory.
    domain: Option<Arc<ProtectionDomain>>,
    context: Arc<DeviceContext>,
}

// SAFETY: the handle is `Send` and `Sync` (see `Handle`). The target is written once, through a OnceLock. After that it
// is only read, until the last owner of the core frees it.
unsafe impl Send for CompletionQueueCore {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for CompletionQueueCore {}

impl CompletionQueueCore {
    /// Takes ownership of a new queue.
    ///
    /// # Safety
    ///
    /// - `cq` was just created in `context`, with `channel` and `domain`, and no other code owns it.
    /// - Its `cq_context` is `target`, which [`EventTarget::allocate`] returned and which is bound to no other queue.
    /// - If the queue is single-threaded, it has no channel, and the result stays on its thread.
    pub(super) unsafe fn adopt(
        cq: NonNull<ibv_cq>,
        target: NonNull<EventTarget>,
        channel: Option<Arc<CompletionChannel>>,
        domain: Option<Arc<ProtectionDomain>>,
        context: Arc<DeviceContext>,
        threads: Threads,
    ) -> Arc<Self> {
        // SAFETY: the contract of this function states that the queue is new and not shared. ibv_destroy_cq destroys
        // it.
        let handle = Some(unsafe { Handle::new(cq, sys::ibv_destroy_cq, "ibv_destroy_cq") });
        let is_lost = AtomicBool::new(false);
        let core = Arc::new(Self {
            cq,
            handle,
            target,
            threads,
            is_lost,
            channel,
            left_behind: Mutex::default(),
            domain,
            context,
        });
        // Any thread can take events, so an event must not give access to a queue that is confined to one thread.
        if threads == Threads::Any {
            // SAFETY: the target lives until the core is dropped.
            unsafe { target.as_ref() }.bind(Arc::downgrade(&core));
            core.context.objects().insert(cq, &core);
        }
        core
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    /// Returns the object as an extended queue; valid only if `ibv_create_cq_ex` created it.
    #[inline]
    pub(crate) fn as_non_null_ex(&self) -> NonNull<ibv_cq_ex> {
        self.cq.cast()
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns which threads use the queue.
    pub(crate) fn threads(&self) -> Threads {
        self.threads
    }

    pub(crate) fn cqe(&self) -> u32 {
        // SAFETY: the CQ is live as long as its core. The field is an aligned word. Only a resize writes it, in C code
        // and possibly on another thread, so an atomic load returns either the old or the new number.
        let cqe = unsafe { AtomicI32::from_ptr(&raw mut (*self.raw()).cqe) };
        u32::try_from(cqe.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn modify(&self, moderation: CompletionModeration) -> Result<(), VerbError> {
        // SAFETY: the CQ is live as long as its core, and belongs to this context.
        unsafe { modify(self.raw(), &self.context, moderation) }
    }

    /// Resizes the queue.
    ///
    /// # Safety
    ///
    /// No thread polls or resizes the queue at the same time.
    pub(super) unsafe fn resize(&self, cqe: u32) -> Result<(), VerbError> {
        const VERB: &str = "ibv_resize_cq";
        let entries = match c_int::try_from(cqe) {
            Ok(entries) if entries > 0 => entries,
            _ => return Err(VerbError::invalid(VERB, format!("cqe is {cqe}; use 1 to {}", c_int::MAX))),
        };
        let driver = Driver::of(&self.context);
        if let Some(reason) = driver.refuses_resize() {
            return Err(VerbError::new(VERB, Errno::from_raw(libc::EOPNOTSUPP)).with_hint(reason));
        }
        if self.is_lost() {
            return Err(VerbError::new(VERB, Errno::from_raw(libc::EIO)).with_hint(LOST));
        }
        // SAFETY: the CQ is live as long as its core, and not polled. The driver's lock protects against other
        // accesses, such as the destruction of a queue pair on another thread.
        let ret = unsafe { sys::ibv_resize_cq(self.raw(), entries) };
        check_errno(VERB, ret).map_err(|error| {
            if driver.loses_queue(error.errno()) {
                self.is_lost.store(true, Ordering::Relaxed);
            }
            self.explain_resize(error, cqe)
        })
    }

    /// Whether the driver has lost the queue's memory. Such a queue must not be polled.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    #[cold]
    fn explain_resize(&self, error: VerbError, cqe: u32) -> VerbError {
        if self.is_lost() {
            return error.with_hint(LOST);
        }
        match (error.errno().raw(), self.context.query_device()) {
            (libc::EOPNOTSUPP | libc::ENOSYS, _) => error.with_hint(
                "the device or its driver cannot resize queues; \
                build another queue",
            ),
            (libc::EINVAL, Ok(device)) if cqe > device.max_cqe() => {
                error.with_hint(format!("cqe is {cqe}; the device supports at most {}", device.max_cqe()))
            }
            (libc::EINVAL, _) if cqe < self.cqe() => {
                error.with_hint("the queue may hold more completions than that; poll it empty first")
            }
            _ => error,
        }
    }

    pub(crate) fn user_context(&self) -> usize {
        // SAFETY: the target lives until the core is dropped.
        unsafe { self.target.as_ref() }.user_context
    }

    /// Destroys the queue and returns the error of the verb. If other objects reference the queue, returns `EBUSY`, and
    /// the last of these objects destroys it.
    pub(crate) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_cq", Errno::EBUSY)
                .with_hint("queue pairs or events reference the queue; the last of them destroys it")),
        }
    }

    /// Keeps an object alive until the queue is no longer polled.
    pub(crate) fn leave_behind(&self, object: Box<dyn Any + Send + Sync>) {
        self.left_behind.lock().unwrap_or_else(PoisonError::into_inner).push(object);
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        // From here on, the queue is no longer polled. The C objects that were left behind reference the queue, so they
        // are freed before it.
        self.left_behind.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // If the verb fails, the queue continues to exist. Its events may then read the target, and the device may
        // write to the allocator's memory. So the target and this memory are leaked together with the queue.
        if let Err(error) = handle.close() {
            mem::forget(self.domain.take());
            return Err(error);
        }
        self.context.objects().remove(self.cq);
        // SAFETY: the queue is destroyed, and all of its events were acknowledged before. So no code reads the target
        // any more.
        unsafe { EventTarget::free(self.target) };
        Ok(())
    }
}

impl Drop for CompletionQueueCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            rdma_mummy_sys::log!(warn, "{error}; the completion queue is leaked");
        }
    }
}

/// A reference to a completion queue, which can arm the queue but not poll it. Only the owner of the queue can poll it.
///
/// The reference keeps the queue's C object alive. Dropping the last reference destroys the queue.
#[derive(Clone, Debug)]
pub struct CompletionQueueRef {
    queue: Arc<CompletionQueueCore>,
}

impl CompletionQueueRef {
    pub(crate) fn new(queue: Arc<CompletionQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this references the given queue.
    pub fn is_of(&self, cq: &impl CompletionQueue) -> bool {
        Arc::ptr_eq(&self.queue, cq.core())
    }
}

impl AsCore for CompletionQueueRef {
    fn core(&self) -> &Arc<CompletionQueueCore> {
        &self.queue
    }
}

impl CompletionQueue for CompletionQueueRef {}

/// `struct ibv_moderate_cq` — event moderation: the device raises an event when one of two limits is reached. If both
/// limits are zero, it raises events immediately.
///
/// [`DeviceAttr::cq_mod_caps`](crate::ibverbs::device_context::DeviceAttr::cq_mod_caps) returns the limits of the
/// device.
#[doc(alias = "ibv_moderate_cq")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompletionModeration {
    /// `cq_count`: the number of completions per event.
    pub count: u16,
    /// `cq_period`: the maximum delay of an event, in microseconds.
    pub period_us: u16,
}

/// # Safety
///
/// `cq` is live and belongs to `context`.
unsafe fn modify(cq: *mut ibv_cq, context: &DeviceContext, moderation: CompletionModeration) -> Result<(), VerbError> {
    let mut attr = ibv_modify_cq_attr {
        attr_mask: ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
        moderate: ibv_moderate_cq { cq_count: moderation.count, cq_period: moderation.period_us },
    };
    // SAFETY: the queue is live, and the attributes are initialised according to their mask.
    let ret = unsafe { sys::ibv_modify_cq(cq, &mut attr) };
    check_errno("ibv_modify_cq", ret).map_err(|error| explain(error, context, moderation))
}

#[cold]
fn explain(error: VerbError, context: &DeviceContext, moderation: CompletionModeration) -> VerbError {
    let Ok(device) = context.query_device() else { return error };
    let caps = device.cq_mod_caps();
    let (count, period) = (caps.max_cq_count(), caps.max_cq_period());
    match error.errno().raw() {
        libc::EOPNOTSUPP | libc::ENOSYS => {
            error.with_hint("the device or its driver does not support event moderation")
        }
        libc::EINVAL if moderation.count > count || moderation.period_us > period => error.with_hint(format!(
            "{} completions and {} us exceed the device's limits; use at most {count} and {period} us",
            moderation.count, moderation.period_us
        )),
        _ => error,
    }
}

/// The `cq_context` of every queue, through which an event finds its queue.
///
/// The target is allocated on the heap before the call of `ibv_create_cq`, and is freed after `ibv_destroy_cq` has
/// returned. `ibv_destroy_cq` waits until all taken events are acknowledged. So code that has taken an event may read
/// the target until it acknowledges the event.
#[derive(Debug)]
pub(crate) struct EventTarget {
    /// The number set by the program.
    pub(crate) user_context: usize,
    queue: OnceLock<Weak<CompletionQueueCore>>,
}

impl EventTarget {
    /// Allocates a target on the heap. [`free`](Self::free) frees it.
    pub(crate) fn allocate(user_context: usize) -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self { user_context, queue: OnceLock::new() })))
    }

    /// Sets the queue of the target. It can be set only once.
    pub(crate) fn bind(&self, queue: Weak<CompletionQueueCore>) {
        let first = self.queue.set(queue).is_ok();
        debug_assert!(first, "a target belongs to one queue");
    }

    /// Returns the queue, or `None` while it is being destroyed.
    pub(crate) fn queue(&self) -> Option<Arc<CompletionQueueCore>> {
        self.queue.get()?.upgrade()
    }

    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// `target` was returned by [`allocate`](Self::allocate) and is not used after this call. No C object points to it
    /// any more.
    pub(crate) unsafe fn free(target: NonNull<Self>) {
        // SAFETY: by the contract of this function, the pointer is the box that `allocate` leaked, and nothing else
        // uses it.
        drop(unsafe { Box::from_raw(target.as_ptr()) });
    }
}
