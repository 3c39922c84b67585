//! What all kinds of completion queue share.

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

/// What every kind of completion queue can do beside being polled.
pub trait CompletionQueue: AsCore {
    /// `ibv_req_notify_cq(cq, solicited_only)` — asks for one event on the queue's channel when the next completion is
    /// added: the next at all, or the next that is solicited or an error.
    ///
    /// Poll once more after asking: a completion that came in between raises no event.
    ///
    /// # Errors
    ///
    /// The errno of the driver; `EINVAL` where the queue was built without a channel.
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
                "the queue has no completion channel: give it one with CompletionQueueBuilder::setup_comp_channel",
            ));
        }
        // SAFETY: the CQ is live as long as its core.
        check_errno("ibv_req_notify_cq", unsafe { sys::ibv_req_notify_cq(core.raw(), solicited_only.into()) })
    }

    /// Entries that the queue holds, at least what was asked for.
    fn cqe(&self) -> u32 {
        self.core().cqe()
    }

    /// `ibv_modify_cq(cq, attr)` — sets how events are held back.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`, `ENOSYS`: the device does not hold events back.
    /// - `EINVAL`: for more completions, or longer, than the device does.
    ///
    /// # References
    ///
    /// [ibv_modify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_cq.3.html)
    #[doc(alias = "ibv_modify_cq")]
    fn modify(&self, moderation: CompletionModeration) -> Result<(), VerbError> {
        self.core().modify(moderation)
    }

    /// The number given with [`setup_cq_context`](super::CompletionQueueBuilder::setup_cq_context).
    fn cq_context(&self) -> usize {
        self.core().user_context()
    }

    /// The device that the queue is of.
    fn device_context(&self) -> &Arc<DeviceContext> {
        &self.core().context
    }

    /// Keeps the C object alive, and at its address, as long as this lives: for what reads fields that a vendor adds. Closing the
    /// queue is refused until then.
    fn keep_alive(&self) -> Arc<dyn Any + Send + Sync> {
        let core: Arc<CompletionQueueCore> = Arc::clone(self.core());
        core
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, not destroyed, and not polled while a poller is out; its `cq_context` and its
    /// functions stay as they are.
    unsafe fn cq(&self) -> NonNull<ibv_cq> {
        self.core().cq
    }
}

/// Access to the shared part; only this crate's queues have it.
pub trait AsCore {
    #[doc(hidden)]
    fn core(&self) -> &Arc<CompletionQueueCore>;
}

const LOST: &str = "the driver lost the memory of the queue when a resize failed: build another queue";

/// From which threads a queue is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// From any: the driver locks.
    Any,
    /// From the one that made it: the driver does not lock.
    Single,
}

/// The C object with everything that must outlive it. The queue's owner, its queue pairs and its events share it.
#[derive(Debug)]
pub struct CompletionQueueCore {
    cq: NonNull<ibv_cq>,
    /// Taken by who destroys the queue.
    handle: Option<Handle<ibv_cq>>,
    target: NonNull<EventTarget>,
    threads: Threads,
    is_lost: AtomicBool,
    channel: Option<Arc<CompletionChannel>>,
    /// What goes when the queue goes and not before: a poll may look it up.
    left_behind: Mutex<Vec<Box<dyn Any + Send + Sync>>>,
    /// The parent domain that the queue was made in, whose allocator its memory is from.
    domain: Option<Arc<ProtectionDomain>>,
    context: Arc<DeviceContext>,
}

// SAFETY: the handle may move and be shared (see there); the target is written once, through a OnceLock, and otherwise
// only read until the last owner of the core frees it.
unsafe impl Send for CompletionQueueCore {}
// SAFETY: as for Send.
unsafe impl Sync for CompletionQueueCore {}

impl CompletionQueueCore {
    /// Takes a new queue over.
    ///
    /// # Safety
    ///
    /// - `cq` was just made in `context`, with `channel` and `domain`, and is nobody else's;
    /// - its `cq_context` is `target`, which came from [`EventTarget::allocate`] and is bound to no other queue;
    /// - where the queue was made single-threaded, it has no channel, and what comes of this does not leave the thread.
    pub(super) unsafe fn adopt(
        cq: NonNull<ibv_cq>,
        target: NonNull<EventTarget>,
        channel: Option<Arc<CompletionChannel>>,
        domain: Option<Arc<ProtectionDomain>>,
        context: Arc<DeviceContext>,
        threads: Threads,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise; ibv_destroy_cq is the verb for it.
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
        // Events find a queue from any thread, and so must not find one that is bound to its own.
        if threads == Threads::Any {
            // SAFETY: the target lives until the core is dropped.
            unsafe { target.as_ref() }.bind(Arc::downgrade(&core));
            core.context.objects().completion_queues.insert(cq, &core);
        }
        core
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    /// The same object seen as extended; legal to use only where `ibv_create_cq_ex` made it.
    #[inline]
    pub(crate) fn as_non_null_ex(&self) -> NonNull<ibv_cq_ex> {
        self.cq.cast()
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// From which threads it is used.
    pub(crate) fn threads(&self) -> Threads {
        self.threads
    }

    pub(crate) fn cqe(&self) -> u32 {
        // SAFETY: the CQ is live as long as its core, and the field is an aligned word, which resizing alone writes, in C
        // and perhaps on another thread meanwhile: an atomic load gives the old number or the new one.
        let cqe = unsafe { AtomicI32::from_ptr(&raw mut (*self.raw()).cqe) };
        u32::try_from(cqe.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn modify(&self, moderation: CompletionModeration) -> Result<(), VerbError> {
        // SAFETY: the CQ is live as long as its core, and of this context.
        unsafe { modify(self.raw(), &self.context, moderation) }
    }

    /// Resizes the queue.
    ///
    /// # Safety
    ///
    /// Nobody polls or resizes the queue meanwhile, on any thread.
    pub(super) unsafe fn resize(&self, cqe: u32) -> Result<(), VerbError> {
        const VERB: &str = "ibv_resize_cq";
        let entries = match c_int::try_from(cqe) {
            Ok(entries) if entries > 0 => entries,
            _ => return Err(VerbError::invalid(VERB, format!("cqe is {cqe}: it must be 1 to {}", c_int::MAX))),
        };
        let driver = Driver::of(&self.context);
        if let Some(reason) = driver.refuses_resize() {
            return Err(VerbError::new(VERB, Errno::from_raw(libc::EOPNOTSUPP)).with_hint(reason));
        }
        if self.is_lost() {
            return Err(VerbError::new(VERB, Errno::from_raw(libc::EIO)).with_hint(LOST));
        }
        // SAFETY: the CQ is live as long as its core, and not polled; what else may touch it, such as the end of a queue
        // pair on another thread, the driver orders by the queue's lock.
        let ret = unsafe { sys::ibv_resize_cq(self.raw(), entries) };
        check_errno(VERB, ret).map_err(|error| {
            if driver.loses_queue(error.errno()) {
                self.is_lost.store(true, Ordering::Relaxed);
            }
            self.explain_resize(error, cqe)
        })
    }

    /// Whether the driver has no memory of the queue any more: it polls the queue no more.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    #[cold]
    fn explain_resize(&self, error: VerbError, cqe: u32) -> VerbError {
        if self.is_lost() {
            return error.with_hint(LOST);
        }
        match (error.errno().raw(), self.context.query_device()) {
            (libc::EOPNOTSUPP | libc::ENOSYS, _) => error.with_hint("the device or its driver cannot resize queues"),
            (libc::EINVAL, Ok(device)) if cqe > device.max_cqe() => {
                error.with_hint(format!("{cqe} entries are asked for and the device has {}", device.max_cqe()))
            }
            (libc::EINVAL, _) if cqe < self.cqe() => {
                error.with_hint("perhaps more completions than that are in the queue: poll it empty first")
            }
            _ => error,
        }
    }

    pub(crate) fn user_context(&self) -> usize {
        // SAFETY: the target lives until the core is dropped.
        unsafe { self.target.as_ref() }.user_context
    }

    /// Destroys the queue and reports. Where others hold it, it lives on, and is destroyed by the last of them.
    pub(crate) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_cq", Errno::EBUSY)
                .with_hint("queue pairs or events hold the queue: it goes with the last of them")),
        }
    }

    /// Leaves an object until the queue goes, which is destroyed behind it.
    pub(crate) fn leave_behind(&self, object: Box<dyn Any + Send + Sync>) {
        self.left_behind.lock().unwrap_or_else(PoisonError::into_inner).push(object);
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        // Nobody polls any more; and these hold the queue in C.
        self.left_behind.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        // Where it fails, the queue lives on: its events would find the target, and the device may write to memory of the
        // domain's allocator. Both are leaked with it.
        if let Err(error) = handle.close() {
            mem::forget(self.domain.take());
            return Err(error);
        }
        self.context.objects().completion_queues.remove(self.cq);
        // SAFETY: the queue is gone and, with it, every unacknowledged event: nobody reads the target any more.
        unsafe { EventTarget::free(self.target) };
        Ok(())
    }
}

impl Drop for CompletionQueueCore {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!("{error}; the completion queue is leaked");
        }
    }
}

/// A hold on a completion queue: it can be named and asked for events, not polled, which is its owner's alone.
///
/// It keeps the queue's C object alive. Where it is the last to do so, dropping it destroys the queue.
#[derive(Clone, Debug)]
pub struct CompletionQueueRef {
    queue: Arc<CompletionQueueCore>,
}

impl CompletionQueueRef {
    pub(crate) fn new(queue: Arc<CompletionQueueCore>) -> Self {
        Self { queue }
    }

    /// Whether this is that queue.
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

/// `struct ibv_moderate_cq` — when an event is raised: as soon as one of the two is reached. Both zero is at once.
///
/// The device says how far it goes in
/// [`DeviceAttr::cq_mod_caps`](crate::ibverbs::device_context::DeviceAttr::cq_mod_caps).
#[doc(alias = "ibv_moderate_cq")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CompletionModeration {
    /// `cq_count`: completions for one event.
    pub count: u16,
    /// `cq_period`: microseconds from a completion to its event, at most.
    pub period_us: u16,
}

/// # Safety
///
/// `cq` is live and of `context`.
unsafe fn modify(cq: *mut ibv_cq, context: &DeviceContext, moderation: CompletionModeration) -> Result<(), VerbError> {
    let mut attr = ibv_modify_cq_attr {
        attr_mask: ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
        moderate: ibv_moderate_cq { cq_count: moderation.count, cq_period: moderation.period_us },
    };
    // SAFETY: the queue is live, and the attributes are complete for the mask.
    let ret = unsafe { sys::ibv_modify_cq(cq, &mut attr) };
    check_errno("ibv_modify_cq", ret).map_err(|error| explain(error, context, moderation))
}

#[cold]
fn explain(error: VerbError, context: &DeviceContext, moderation: CompletionModeration) -> VerbError {
    let Ok(device) = context.query_device() else { return error };
    let caps = device.cq_mod_caps();
    let (count, period) = (caps.max_cq_count(), caps.max_cq_period());
    match error.errno().raw() {
        libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint("the device or its driver does not hold events back"),
        libc::EINVAL if moderation.count > count || moderation.period_us > period => error.with_hint(format!(
            "{} completions and {} us are asked for and the device goes up to {count} and {period} us",
            moderation.count, moderation.period_us
        )),
        _ => error,
    }
}

/// What `cq_context` of every queue points to: how an event finds its queue.
///
/// Lives on the heap from before `ibv_create_cq` until after `ibv_destroy_cq` has returned, which waits for every event
/// that was taken from a channel to be acknowledged: whoever holds an unacknowledged event may read it.
#[derive(Debug)]
pub(crate) struct EventTarget {
    /// The number that the program gave the queue.
    pub(crate) user_context: usize,
    queue: OnceLock<Weak<CompletionQueueCore>>,
}

impl EventTarget {
    /// A target on the heap; [`free`](Self::free) takes it back.
    pub(crate) fn allocate(user_context: usize) -> NonNull<Self> {
        NonNull::from(Box::leak(Box::new(Self { user_context, queue: OnceLock::new() })))
    }

    /// Names the queue, once.
    pub(crate) fn bind(&self, queue: Weak<CompletionQueueCore>) {
        let first = self.queue.set(queue).is_ok();
        debug_assert!(first, "a target belongs to one queue");
    }

    /// The queue, or `None` while it is being destroyed.
    pub(crate) fn queue(&self) -> Option<Arc<CompletionQueueCore>> {
        self.queue.get()?.upgrade()
    }

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// `target` came from [`allocate`](Self::allocate), is not used again, and no C object points to it any more.
    pub(crate) unsafe fn free(target: NonNull<Self>) {
        // SAFETY: the caller's promise; `allocate` leaked a box.
        drop(unsafe { Box::from_raw(target.as_ptr()) });
    }
}
