//! Completions with the sender of a message.

use std::ptr::NonNull;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys::efadv::{self as sys, efadv_cq, efadv_cq_init_attr};
use rdma_mummy_sys::{ibv_cq_ex, ibv_gid};

use super::device::explain;
use crate::error::{Errno, VerbError};
use crate::ibverbs::address::Gid;
use crate::ibverbs::completion::{
    AsCore, CompletionQueue, CompletionQueueBuilder, CompletionQueueCore, ExtendedCompletionQueue,
    ExtendedWorkCompletion,
};

const VERB: &str = "efadv_create_cq";

impl CompletionQueueBuilder {
    /// `efadv_create_cq(context, attr_ex, {EFADV_WC_EX_WITH_SGID}, inlen)` — creates an extended queue whose
    /// completions contain the sender's GID, and returns it with a reader of this field.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device is not an EFA device, libefa is not installed (the hint reports which), or the device
    ///   does not support the field
    ///   ([`CompletionWithSourceGid`](super::EfaDeviceCapabilityFlags::CompletionWithSourceGid)).
    /// - Otherwise the errors of [`build_ex`](Self::build_ex).
    ///
    /// # References
    ///
    /// [efadv_create_cq(3)](https://man7.org/linux/man-pages/man3/efadv_create_cq.3.html)
    #[doc(alias = "efadv_create_cq")]
    pub fn build_efa_with_source_gid(&self) -> Result<(ExtendedCompletionQueue, SourceGidReader), VerbError> {
        let size = size_of::<efadv_cq_init_attr>() as u32;
        // SAFETY: the library creates an extended queue from the attributes, or returns null. The call passes the size
        // of the library's struct.
        let built = unsafe {
            self.build_ex_with(VERB, |context, attr_ex| {
                let mut attr = efadv_cq_init_attr { comp_mask: 0, wc_flags: sys::EFADV_WC_EX_WITH_SGID.into() };
                sys::efadv_create_cq(context, attr_ex, &mut attr, size)
            })
        };
        let queue = built.map_err(|error| explain(error, self.device_context()))?;
        // SAFETY: the reader keeps the queue alive along with the pointer.
        let cq: NonNull<ibv_cq_ex> = unsafe { queue.cq() }.cast();
        // SAFETY: the queue is live, and libefa created it.
        let efa = NonNull::new(unsafe { sys::efadv_cq_from_ibv_cq_ex(cq.as_ptr()) });
        let efa = efa.ok_or_else(|| missing("efadv_cq_from_ibv_cq_ex"))?;
        // SAFETY: `efa` is a part of the live queue, which was created with this field.
        let read = unsafe { (*efa.as_ptr()).wc_read_sgid }.ok_or_else(|| missing("wc_read_sgid"))?;
        let reader = SourceGidReader { cq, efa, read, _queue: Arc::clone(queue.core()) };
        Ok((queue, reader))
    }
}

#[cold]
fn missing(function: &str) -> VerbError {
    VerbError::new(VERB, Errno::EOPNOTSUPP).with_hint(format!(
        "libefa created the queue without the function \
        {function}; upgrade rdma-core"
    ))
}

/// Reads the sender's GID from the completions of one queue. The reader keeps the queue's C object alive.
#[derive(Clone, Debug)]
pub struct SourceGidReader {
    cq: NonNull<ibv_cq_ex>,
    efa: NonNull<efadv_cq>,
    read: unsafe extern "C" fn(*mut efadv_cq, *mut ibv_gid) -> c_int,
    _queue: Arc<CompletionQueueCore>,
}

// SAFETY: the reader only reads the queue. It needs a current completion to do so, and a completion stays on the
// polling thread.
unsafe impl Send for SourceGidReader {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for SourceGidReader {}

impl SourceGidReader {
    /// `efadv_wc_read_sgid(efadv_cq, sgid)` — returns the GID of a message's sender. Returns `None` if the device
    /// already has an address handle for the sender; [`slid`](ExtendedWorkCompletion::slid) then returns the number of
    /// that handle. Also returns `None` if the completion is not that of a receive, or belongs to another queue.
    #[doc(alias = "efadv_wc_read_sgid")]
    #[inline]
    pub fn read(&self, completion: &ExtendedWorkCompletion<'_>) -> Option<Gid> {
        // SAFETY: the pointer is only compared.
        if unsafe { completion.cq_ex() } != self.cq {
            return None;
        }
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the queue is live, its cursor is on the completion, and the queue was created with this reader
        // function.
        let ret = unsafe { (self.read)(self.efa.as_ptr(), &mut gid) };
        // SAFETY: all bytes are initialised, because they were zeroed before the call.
        let raw = unsafe { gid.raw };
        (ret == 0).then_some(Gid { raw })
    }
}
