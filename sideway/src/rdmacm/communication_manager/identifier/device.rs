//! The device that an identifier is on.

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

/// Bits of the kernel's own that it gives for RoCE, and refuses.
const KERNEL_ONLY: u32 = 0b1111 << 21;

impl Identifier {
    /// `id->verbs` — the device that the identifier is on, open: everything for the connection's queue pair is made in it. The
    /// context is librdmacm's; identifiers on one device have one. `None` before the address is resolved, or the identifier bound to
    /// an address of a device.
    ///
    /// It lives as long as what is made in it, whatever becomes of the identifier. (Where librdmacm gives no list of its devices,
    /// because one of several cannot be opened, the context keeps the first identifier that it was asked of.)
    pub fn get_device_context(self: &Arc<Self>) -> Option<Arc<DeviceContext>> {
        // SAFETY: the identifier is live, and nobody else uses it.
        let context = self.with(|id| unsafe { verbs(id) })?;
        // SAFETY: the library keeps the context open as long as the identifier is on the device, from which it does not go.
        Some(unsafe { lent_context::lend(context, self) })
    }

    /// `id->port_num` — the port of the device, from 1; `None` before the identifier is on one.
    pub fn port_num(&self) -> Option<u8> {
        // SAFETY: the identifier is live, and nobody else uses it.
        let port = self.with(|id| unsafe { (*id).port_num });
        (port > 0).then_some(port)
    }

    /// `rdma_init_qp_attr(id, qp_attr, qp_attr_mask)` — what the connection's queue pair is to be told on its way to `state`:
    /// [`Init`](QueuePairState::Init), [`ReadyToReceive`](QueuePairState::ReadyToReceive) or
    /// [`ReadyToSend`](QueuePairState::ReadyToSend). For queue pairs of the program's own; those that are made through the
    /// identifier are moved by the library.
    ///
    /// Attributes that the mask does not name are zero.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier is on no device, or not so far; of a connect request also: the peer has given up.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_init_qp_attr(3)](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn get_qp_attr(&self, state: QueuePairState) -> Result<QueuePairAttribute, VerbError> {
        const VERB: &str = "rdma_init_qp_attr";
        // SAFETY: all-zero is legal: the struct has integers alone. The library does not write all of it.
        let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
        attr.qp_state = ibv_qp_state(state.raw());
        let mut mask: c_int = 0;
        // SAFETY: the identifier is live and on a device, and both are there to be written.
        self.call_on_device(VERB, |id| unsafe { sys::rdma_init_qp_attr(id, &mut attr, &mut mask) }).map_err(
            |error| match error.errno().raw() {
                libc::EINVAL if error.hint().is_none() => {
                    let gone = if self.is_request() { ", or the peer has given up" } else { "" };
                    let hint = format!("the connection is not so far that a queue pair can go to {state:?}{gone}");
                    error.with_hint(hint)
                }
                _ => error,
            },
        )?;
        let mask = QueuePairAttributeMask::from_bits_retain(mask as u32 & !KERNEL_ONLY);
        Ok(QueuePairAttribute::from_raw(attr, mask))
    }

    /// Asks the device something, where there is one.
    pub(super) fn with_device<R>(&self, ask: impl FnOnce(&DeviceContext) -> Option<R>) -> Option<R> {
        // SAFETY: the identifier is live, and nobody else uses it.
        let context = self.with(|id| unsafe { verbs(id) })?;
        // SAFETY: the library keeps the context open as long as the identifier, which outlives what is asked here: nothing is made.
        ask(&unsafe { DeviceContext::lent(context, Arc::new(())) })
    }
}

/// The hint for those who need a device before there is one.
pub(super) fn require_device(
    verb: &'static str,
    context: Option<Arc<DeviceContext>>,
) -> Result<Arc<DeviceContext>, VerbError> {
    context.ok_or_else(|| not_on_a_device(verb))
}
