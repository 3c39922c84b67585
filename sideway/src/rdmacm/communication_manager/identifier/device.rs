//! The device of an identifier.

use std::mem;
use std::sync::Arc;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp_attr, ibv_qp_state};

use super::{Identifier, not_on_a_device, verbs};
use crate::error::VerbError;
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::queue_pair::{QueuePairAttribute, QueuePairAttributeMask, QueuePairState};
use crate::rdmacm::communication_manager::lent_context;

/// The mask bits that the kernel returns for RoCE, but that it rejects if a caller sets them.
const KERNEL_ONLY: u32 = 0b1111 << 21;

impl Identifier {
    /// `id->verbs` — returns the open device of the identifier. Create the connection's queue pair and all its parents
    /// on this device. librdmacm owns the context, and identifiers on one device share it. Returns `None` until the
    /// address is resolved, or until the identifier is bound to the address of a device.
    ///
    /// The context lives as long as the objects on it, independently of the identifier. (If librdmacm cannot open one
    /// of several devices, it returns no device list. In that case, the context keeps the identifier alive that first
    /// returned it.)
    pub fn get_device_context(self: &Arc<Self>) -> Option<Arc<DeviceContext>> {
        // SAFETY: the identifier is live and locked.
        let context = self.with(|id| unsafe { verbs(id) })?;
        // SAFETY: the library keeps the context open while the identifier is on the device. The device of an identifier
        // never changes.
        Some(unsafe { lent_context::lend(context, self) })
    }

    /// `id->port_num` — returns the port of the device, counted from 1, or `None` if the identifier does not have a
    /// port yet.
    pub fn port_num(&self) -> Option<u8> {
        // SAFETY: the identifier is live and locked.
        let port = self.with(|id| unsafe { (*id).port_num });
        (port > 0).then_some(port)
    }

    /// `rdma_init_qp_attr(id, qp_attr, qp_attr_mask)` — returns the attributes that move the connection's queue pair to
    /// `state`: [`Init`](QueuePairState::Init), [`ReadyToReceive`](QueuePairState::ReadyToReceive) or
    /// [`ReadyToSend`](QueuePairState::ReadyToSend). Use it for queue pairs that were not created through the
    /// identifier. The library itself modifies those that were.
    ///
    /// Attributes outside the mask are zero.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier has no device, or the connection has not progressed far enough. For a connect
    ///   request, also if the peer has given up.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_init_qp_attr(3)](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn get_qp_attr(&self, state: QueuePairState) -> Result<QueuePairAttribute, VerbError> {
        const VERB: &str = "rdma_init_qp_attr";
        // SAFETY: all zeros are a valid value, because the struct has only integers. They are needed because the
        // library does not write all fields.
        let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
        attr.qp_state = ibv_qp_state(state.raw());
        let mut mask: c_int = 0;
        // SAFETY: the identifier is live and on a device, and the call may write to both structs.
        self.call_on_device(VERB, |id| unsafe { sys::rdma_init_qp_attr(id, &mut attr, &mut mask) }).map_err(
            |error| match error.errno().raw() {
                libc::EINVAL if error.hint().is_none() => {
                    let gone = if self.is_request() { ", or the peer has given up" } else { "" };
                    let hint = format!("the connection has not progressed far enough for {state:?}{gone}");
                    error.with_hint(hint)
                }
                _ => error,
            },
        )?;
        let mask = QueuePairAttributeMask::from_bits_retain(mask as u32 & !KERNEL_ONLY);
        Ok(QueuePairAttribute::from_raw(attr, mask))
    }

    /// Queries the device, if there is one.
    pub(super) fn with_device<R>(&self, ask: impl FnOnce(&DeviceContext) -> Option<R>) -> Option<R> {
        // SAFETY: the identifier is live and locked.
        let context = self.with(|id| unsafe { verbs(id) })?;
        // SAFETY: the library keeps the context open as long as the identifier lives. The identifier outlives the
        // query, and the query creates no objects.
        ask(&unsafe { DeviceContext::lent(context, Arc::new(())) })
    }
}

/// Adds a hint to errors of calls that need a device.
pub(super) fn require_device(
    verb: &'static str,
    context: Option<Arc<DeviceContext>>,
) -> Result<Arc<DeviceContext>, VerbError> {
    context.ok_or_else(|| not_on_a_device(verb))
}
