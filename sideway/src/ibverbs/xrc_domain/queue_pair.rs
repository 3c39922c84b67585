//! The receiving side of an XRC connection.

use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{
    ibv_qp, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_qp_open_attr, ibv_qp_open_attr_mask as open_mask,
    ibv_qp_type,
};

use super::XrcDomain;
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::ibverbs::queue_pair::{Parents, QueuePairCore, QueuePairType, standard_transition};

const RECEIVE: QueuePairType = QueuePairType::ReliableConnectionExtendedRecv;

/// A receiving XRC queue pair. It has no queues of its own: a message goes to the shared receive queue that its sender names,
/// and nothing is posted here. It is connected as any other, by [`modify`](Self::modify).
#[doc(alias = "IBV_QPT_XRC_RECV")]
#[derive(Debug)]
pub struct XrcReceiveQueuePair {
    core: Arc<QueuePairCore>,
}

impl XrcDomain {
    /// `ibv_create_qp_ex(context, {IBV_QPT_XRC_RECV, xrcd})` — makes a receiving queue pair in the domain.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` or `ENOSYS` where the device or its driver has none; else the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_recv_qp(self: &Arc<Self>) -> Result<XrcReceiveQueuePair, VerbError> {
        // SAFETY: all-zero is legal: the struct has integers and pointers alone.
        let mut attr: ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
        attr.qp_type = ibv_qp_type(RECEIVE.raw());
        attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0;
        attr.xrcd = self.raw();
        // SAFETY: the domain and its context are live, and a queue pair of this type is made of nothing else.
        let qp = unsafe { sys::ibv_create_qp_ex(self.device_context().raw(), &mut attr) };
        let qp = check_pointer("ibv_create_qp_ex", qp).map_err(|error| match error.errno().raw() {
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint("the device or its driver has no XRC queue pairs"),
            _ => error,
        })?;
        // SAFETY: just made in this domain.
        Ok(unsafe { self.adopt(qp) })
    }

    /// `ibv_open_qp(context, {qp_num, xrcd, IBV_QPT_XRC_RECV})` — opens the receiving queue pair with this number, which
    /// another process, or this one, has made in the same domain. It lives on until everybody has closed it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: no such queue pair in the domain.
    /// - `EOPNOTSUPP`, `ENOSYS`: the device or its driver shares none.
    ///
    /// # References
    ///
    /// [ibv_open_qp(3)](https://man7.org/linux/man-pages/man3/ibv_open_qp.3.html)
    #[doc(alias = "ibv_open_qp")]
    pub fn open_qp(self: &Arc<Self>, qp_num: u32) -> Result<XrcReceiveQueuePair, VerbError> {
        const VERB: &str = "ibv_open_qp";
        let mut attr = ibv_qp_open_attr {
            comp_mask: open_mask::IBV_QP_OPEN_ATTR_NUM.0
                | open_mask::IBV_QP_OPEN_ATTR_XRCD.0
                | open_mask::IBV_QP_OPEN_ATTR_TYPE.0,
            qp_num,
            xrcd: self.raw(),
            qp_context: std::ptr::null_mut(),
            qp_type: ibv_qp_type(RECEIVE.raw()),
        };
        // SAFETY: the domain and its context are live, and the attributes are complete for their mask.
        let qp = unsafe { sys::ibv_open_qp(self.device_context().raw(), &mut attr) };
        let qp = check_pointer(VERB, qp).map_err(|error| match error.errno().raw() {
            libc::EINVAL | libc::ENOENT => {
                error.with_hint(format!("is there a receiving XRC queue pair of number {qp_num} in this domain?"))
            }
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint("the device or its driver shares no queue pairs"),
            _ => error,
        })?;
        // SAFETY: just opened in this domain.
        Ok(unsafe { self.adopt(qp) })
    }

    /// Takes a queue pair over.
    ///
    /// # Safety
    ///
    /// `qp` was just made or opened in this domain, as a receiving one, and is nobody else's.
    unsafe fn adopt(self: &Arc<Self>, qp: NonNull<ibv_qp>) -> XrcReceiveQueuePair {
        let parents = Parents { xrcd: Some(Arc::clone(self)), ..Parents::default() };
        // SAFETY: the caller's promise; it has no context.
        let core = unsafe {
            QueuePairCore::adopt(
                qp,
                (RECEIVE, standard_transition, false),
                None,
                parents,
                Arc::clone(self.device_context()),
            )
        };
        XrcReceiveQueuePair { core }
    }
}

impl XrcReceiveQueuePair {
    /// `ibv_destroy_qp(qp)` — closes the queue pair and reports, where dropping only logs.
    ///
    /// # Errors
    ///
    /// The driver's errno; the queue pair is leaked then. One that an event holds goes with the event.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// The C object.
    ///
    /// # Safety
    ///
    /// It is used only while `self` lives, not destroyed, and not posted to.
    pub unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core.as_non_null()
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}
