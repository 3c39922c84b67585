//! What all kinds of completion queue share.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_cq, ibv_cq_ex};

use super::channel::CompletionChannel;
use super::event_target::EventTarget;
use crate::error::{Errno, VerbError};
use crate::ffi::{Handle, check_errno};
use crate::ibverbs::device_context::DeviceContext;

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
        // SAFETY: the CQ is live as long as its core, and the field is written only by resizing.
        u32::try_from(unsafe { (*self.core().raw()).cqe }).unwrap_or(0)
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

/// The C object with everything that must outlive it. The queue's owner, its queue pairs and its events share it.
#[derive(Debug)]
pub struct CompletionQueueCore {
    cq: NonNull<ibv_cq>,
    /// Taken by who destroys the queue.
    handle: Option<Handle<ibv_cq>>,
    target: NonNull<EventTarget>,
    channel: Option<Arc<CompletionChannel>>,
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
    /// - `cq` was just made in `context`, with `channel`, and is nobody else's;
    /// - its `cq_context` is `target`, which came from [`EventTarget::allocate`] and is bound to no other queue.
    pub(crate) unsafe fn adopt(
        cq: NonNull<ibv_cq>,
        target: NonNull<EventTarget>,
        channel: Option<Arc<CompletionChannel>>,
        context: Arc<DeviceContext>,
    ) -> Arc<Self> {
        // SAFETY: the caller's promise; ibv_destroy_cq is the verb for it.
        let handle = Some(unsafe { Handle::new(cq, sys::ibv_destroy_cq, "ibv_destroy_cq") });
        let core = Arc::new(Self { cq, handle, target, channel, context });
        // SAFETY: the target lives until the core is dropped.
        unsafe { target.as_ref() }.bind(Arc::downgrade(&core));
        core.context.objects().completion_queues.insert(cq, &core);
        core
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    /// The same object seen as extended; legal to use only where `ibv_create_cq_ex` made it.
    #[inline]
    pub(crate) fn raw_ex(&self) -> *mut ibv_cq_ex {
        self.raw().cast()
    }

    pub(crate) fn context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    pub(crate) fn user_context(&self) -> usize {
        // SAFETY: the target lives until the core is dropped.
        unsafe { self.target.as_ref() }.user_context
    }

    /// Destroys the queue and reports. Where others hold it, it lives on, and is destroyed by the last of them.
    pub(crate) fn close(self: Arc<Self>) -> Result<(), VerbError> {
        match Arc::into_inner(self) {
            Some(mut core) => core.destroy(),
            None => Err(VerbError::new("ibv_destroy_cq", Errno::from_raw(libc::EBUSY))
                .with_hint("queue pairs or events hold the queue: it goes with the last of them")),
        }
    }

    fn destroy(&mut self) -> Result<(), VerbError> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        self.context.objects().completion_queues.remove(self.cq);
        // Where it fails, the queue lives on, and its events would find the target: that is leaked with it.
        handle.close()?;
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
