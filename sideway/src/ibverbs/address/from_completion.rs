//! The return path to the sender of a datagram.

use std::ptr;
use std::sync::Arc;

use rdma_mummy_sys as sys;

use super::{AddressHandle, AddressHandleAttribute, GlobalRoutingHeader, RoutingHeaderForm};
use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::completion::{WorkCompletionFlags, WorkCompletionSource};
use crate::ibverbs::device_context::DeviceContext;
use crate::ibverbs::protection_domain::ProtectionDomain;

const VERB: &str = "ibv_init_ah_from_wc";

impl DeviceContext {
    /// `ibv_init_ah_from_wc(context, port_num, wc, grh, ah_attr)` — returns the path to the sender of a datagram
    /// received on this port (counted from 1). `header`, the first 40 bytes of the receive, is used only if the
    /// completion has the flag
    /// [`GlobalRoutingHeader`](crate::ibverbs::completion::WorkCompletionFlags::GlobalRoutingHeader), which is always
    /// set on Ethernet.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the completion has a header, and `header` is `None`.
    /// - `EPROTONOSUPPORT`: the header has an unknown format.
    /// - Another errno: the destination of the datagram is not a GID of the port.
    ///
    /// # References
    ///
    /// [ibv_create_ah_from_wc(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah_from_wc.3.html)
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn init_ah_from_wc(
        &self,
        port_num: u8,
        source: &WorkCompletionSource,
        header: Option<&GlobalRoutingHeader>,
    ) -> Result<AddressHandleAttribute, VerbError> {
        let has_header = source.wc_flags.contains(WorkCompletionFlags::GlobalRoutingHeader);
        if has_header && header.is_none() {
            return Err(VerbError::invalid(
                VERB,
                "the completion has a global routing header; pass the first 40 bytes of the buffer",
            ));
        }
        let Some(mut wc) = source.to_raw() else {
            return Err(VerbError::invalid(VERB, format!("the LID {:#x} has more than 16 bits", source.slid)));
        };
        let mut grh = header.map(|header| header.to_raw());
        let grh = grh.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let mut attr = *AddressHandleAttribute::new().as_raw();
        // SAFETY: the context is open, and the completion and the attributes are live. The header is live if the
        // library reads it.
        let ret = unsafe { sys::ibv_init_ah_from_wc(self.raw(), port_num, &mut wc, grh, &mut attr) };
        check_errno(VERB, ret).map_err(|error| self.explain_header(error, port_num, header))?;
        Ok(AddressHandleAttribute::from_raw(attr))
    }

    #[cold]
    fn explain_header(&self, error: VerbError, port_num: u8, header: Option<&GlobalRoutingHeader>) -> VerbError {
        let error = self.explain_port(error, port_num);
        match header {
            _ if error.hint().is_some() => error,
            Some(header) if header.form() == RoutingHeaderForm::Unknown => error.with_hint(
                "the header is neither a global routing header nor IPv4; pass the first 40 bytes of the receive",
            ),
            Some(header) => error.with_hint(format!(
                "port {port_num} probably has no GID {}, the datagram's destination; pass the receiving port",
                header.dest_gid()
            )),
            None => error,
        }
    }
}

impl ProtectionDomain {
    /// `ibv_create_ah_from_wc(pd, wc, grh, port_num)` — creates an address handle to the sender of a datagram:
    /// [`init_ah_from_wc`](DeviceContext::init_ah_from_wc), then [`create_ah`](Self::create_ah).
    ///
    /// # Errors
    ///
    /// The errors of `init_ah_from_wc` and of `create_ah`.
    ///
    /// # References
    ///
    /// [ibv_create_ah_from_wc(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah_from_wc.3.html)
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn create_ah_from_wc(
        self: &Arc<Self>,
        port_num: u8,
        source: &WorkCompletionSource,
        header: Option<&GlobalRoutingHeader>,
    ) -> Result<Arc<AddressHandle>, VerbError> {
        self.create_ah(&self.device_context().init_ah_from_wc(port_num, source, header)?)
    }
}
