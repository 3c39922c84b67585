//! Completions that tell who sent what was received.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys::efadv::{self as sys, efadv_cq, efadv_cq_init_attr};
use rdma_mummy_sys::{ibv_cq_ex, ibv_gid};

use super::device::explain;
use crate::error::{Errno, VerbError};
use crate::ibverbs::address::Gid;
use crate::ibverbs::completion::{
    CompletionQueue, CompletionQueueBuilder, ExtendedCompletionQueue, ExtendedWorkCompletion,
};

const VERB: &str = "efadv_create_cq";

impl CompletionQueueBuilder {
    /// `efadv_create_cq(context, attr_ex, {EFADV_WC_EX_WITH_SGID}, inlen)` — makes an extended queue whose completions tell the
    /// GID of a sender, and what reads it.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device is not one of EFA, libefa is not installed (the hint tells which), or the device does not tell
    ///   ([`CompletionWithSourceGid`](super::EfaDeviceCapabilityFlags::CompletionWithSourceGid)).
    /// - else as [`build_ex`](Self::build_ex).
    ///
    /// # References
    ///
    /// [efadv_create_cq(3)](https://man7.org/linux/man-pages/man3/efadv_create_cq.3.html)
    #[doc(alias = "efadv_create_cq")]
    pub fn build_efa_with_source_gid(&self) -> Result<(ExtendedCompletionQueue, SourceGidReader), VerbError> {
        let size = size_of::<efadv_cq_init_attr>() as u32;
        // SAFETY: the library makes an extended queue of the attributes, or gives null. It is told the size of its struct.
        let built = unsafe {
            self.build_ex_with(VERB, |context, attr_ex| {
                let mut attr = efadv_cq_init_attr { comp_mask: 0, wc_flags: sys::EFADV_WC_EX_WITH_SGID.into() };
                sys::efadv_create_cq(context, attr_ex, &mut attr, size)
            })
        };
        let queue = built.map_err(|error| explain(error, self.device_context()))?;
        // SAFETY: the queue is kept alive beside the pointer.
        let cq: NonNull<ibv_cq_ex> = unsafe { queue.cq() }.cast();
        // SAFETY: a live queue that libefa has made.
        let efa = NonNull::new(unsafe { sys::efadv_cq_from_ibv_cq_ex(cq.as_ptr()) });
        let efa = efa.ok_or_else(|| missing("efadv_cq_from_ibv_cq_ex"))?;
        // SAFETY: a part of the queue, made with this field.
        let read = unsafe { (*efa.as_ptr()).wc_read_sgid }.ok_or_else(|| missing("wc_read_sgid"))?;
        let reader = SourceGidReader { cq, efa, read, _queue: queue.keep_alive() };
        Ok((queue, reader))
    }
}

#[cold]
fn missing(function: &str) -> VerbError {
    VerbError::new(VERB, Errno::EOPNOTSUPP).with_hint(format!("libefa made the queue without the function {function}"))
}

/// Reads the GID of a sender from completions of one queue, whose C object it keeps alive.
#[derive(Clone, Debug)]
pub struct SourceGidReader {
    cq: NonNull<ibv_cq_ex>,
    efa: NonNull<efadv_cq>,
    read: unsafe extern "C" fn(*mut efadv_cq, *mut ibv_gid) -> c_int,
    _queue: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the queue is only read through it, with a completion at hand, which does not leave the thread that polls.
unsafe impl Send for SourceGidReader {}
// SAFETY: as for Send.
unsafe impl Sync for SourceGidReader {}

impl SourceGidReader {
    /// `efadv_wc_read_sgid(efadv_cq, sgid)` — the GID of the sender of a message; `None` where the device knows the sender
    /// ([`slid`](ExtendedWorkCompletion::slid) has the number of its address handle then), where nothing was received, and for
    /// completions of other queues.
    #[doc(alias = "efadv_wc_read_sgid")]
    #[inline]
    pub fn read(&self, completion: &ExtendedWorkCompletion<'_>) -> Option<Gid> {
        // SAFETY: the pointer is compared alone.
        if unsafe { completion.cq_ex() } != self.cq {
            return None;
        }
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the queue is live, its cursor is on the completion, and the function was there when the queue was made.
        let ret = unsafe { (self.read)(self.efa.as_ptr(), &mut gid) };
        // SAFETY: all bytes are set: they were zero before.
        let raw = unsafe { gid.raw };
        (ret == 0).then_some(Gid { raw })
    }
}
