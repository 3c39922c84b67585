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
use crate::ibverbs::queue_pair::control::control_methods;
use crate::ibverbs::queue_pair::{Kept, Kind, Parents, QueuePairCore, QueuePairType, standard_transition};

const RECEIVE: QueuePairType = QueuePairType::ReliableConnectionExtendedRecv;

/// A receiving XRC queue pair. It has no queues, because the shared receive queue that the sender names receives a
/// message. Connect the queue pair with [`modify`](Self::modify), like any other queue pair.
#[doc(alias = "IBV_QPT_XRC_RECV")]
#[derive(Debug)]
pub struct XrcReceiveQueuePair {
    core: Arc<QueuePairCore>,
}

impl XrcDomain {
    /// `ibv_create_qp_ex(context, {IBV_QPT_XRC_RECV, xrcd})` — creates a receiving queue pair in the domain.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` or `ENOSYS` if the device or its driver does not support XRC; otherwise the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_recv_qp(self: &Arc<Self>) -> Result<XrcReceiveQueuePair, VerbError> {
        // SAFETY: all zeros are a valid value, because the struct has only integers and pointers.
        let mut attr: ibv_qp_init_attr_ex = unsafe { mem::zeroed() };
        attr.qp_type = ibv_qp_type(RECEIVE.raw());
        attr.comp_mask = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_XRCD.0;
        attr.xrcd = self.raw();
        // SAFETY: the domain and its context are live, and a queue pair of this type needs no other object.
        let qp = unsafe { sys::ibv_create_qp_ex(self.device_context().raw(), &mut attr) };
        let qp = check_pointer("ibv_create_qp_ex", qp).map_err(|error| match error.errno().raw() {
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(
                "the device or its driver does not support XRC queue \
                pairs",
            ),
            _ => error,
        })?;
        // SAFETY: the queue pair was just created in this domain.
        Ok(unsafe { self.adopt(qp) })
    }

    /// `ibv_open_qp(context, {qp_num, xrcd, IBV_QPT_XRC_RECV})` — opens the receiving queue pair with this number,
    /// which this process or another one has created in the same domain. The queue pair exists until every process has
    /// closed it.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the domain has no such queue pair.
    /// - `EOPNOTSUPP`, `ENOSYS`: the device or its driver does not support sharing.
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
        // SAFETY: the domain and its context are live, and the attributes are initialised according to their mask.
        let qp = unsafe { sys::ibv_open_qp(self.device_context().raw(), &mut attr) };
        let qp = check_pointer(VERB, qp).map_err(|error| match error.errno().raw() {
            libc::EINVAL | libc::ENOENT => error.with_hint(format!(
                "this domain may have no receiving XRC queue pair of number {qp_num}; check \
                    the number"
            )),
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(
                "the device or its driver does not support sharing \
                queue pairs",
            ),
            _ => error,
        })?;
        // SAFETY: the queue pair was just opened in this domain.
        Ok(unsafe { self.adopt(qp) })
    }

    /// Takes ownership of a queue pair.
    ///
    /// # Safety
    ///
    /// `qp` is a receiving queue pair that was just created or opened in this domain, and has no other owner.
    unsafe fn adopt(self: &Arc<Self>, qp: NonNull<ibv_qp>) -> XrcReceiveQueuePair {
        let origin: Kept = Arc::<Self>::clone(self);
        let parents = Parents { origin: Some(origin), ..Parents::default() };
        // SAFETY: by the contract of this function. The queue pair has no context.
        let core = unsafe {
            QueuePairCore::adopt(
                qp,
                Kind { qp_type: RECEIVE, transitions: standard_transition, holds_sends: false },
                None,
                parents,
                Arc::clone(self.device_context()),
            )
        };
        XrcReceiveQueuePair { core }
    }
}

control_methods!(XrcReceiveQueuePair; modify);

impl XrcReceiveQueuePair {
    /// `ibv_destroy_qp(qp)` — closes the queue pair. This method returns an error of the verb, whereas drop only logs
    /// it.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if an event still references the queue pair. It is then destroyed when the event is dropped.
    /// Otherwise returns the driver's errno, and the queue pair is leaked.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn close(self) -> Result<(), VerbError> {
        self.core.close()
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives. Do not destroy it, and do not post to it.
    pub unsafe fn qp(&self) -> NonNull<ibv_qp> {
        self.core.as_non_null()
    }

    pub(crate) fn core(&self) -> &Arc<QueuePairCore> {
        &self.core
    }
}
