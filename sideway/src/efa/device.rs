//! What an EFA device reports beyond the verbs.

use std::mem;

use rdma_mummy_sys::efadv::{self as sys, efadv_ah_attr, efadv_device_attr};
use rdma_mummy_sys::load;

use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::address::AddressHandle;
use crate::ibverbs::device::DeviceInfo;
use crate::ibverbs::device_context::DeviceContext;

bitflags::bitflags! {
    /// `EFADV_DEVICE_ATTR_CAPS_…`: what a device has.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EfaDeviceCapabilityFlags: u32 {
        /// Reads.
        const Read = sys::EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
        /// A queue pair can be told how often to try again where the peer has posted no receive.
        const ResponderNotReadyRetry = sys::EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
        /// Completions tell the GID of a sender who is not known.
        const CompletionWithSourceGid = sys::EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
        /// Writes.
        const Write = 1 << 3;
        /// A write with immediate data takes no receive, where the queue pair is made so.
        const UnsolicitedWriteReceive = 1 << 4;
        // Later rdma-core versions' flags pass through.
        const _ = !0;
    }
}

/// `struct efadv_device_attr`: what an EFA device says of itself beyond the verbs.
#[doc(alias = "efadv_device_attr")]
#[derive(Clone, Copy, Debug)]
pub struct EfaDeviceAttr {
    raw: efadv_device_attr,
}

impl EfaDeviceAttr {
    /// Send requests that a queue pair can have outstanding.
    pub fn max_sq_wr(&self) -> u32 {
        self.raw.max_sq_wr
    }

    /// Receive requests that a queue pair can have outstanding.
    pub fn max_rq_wr(&self) -> u32 {
        self.raw.max_rq_wr
    }

    /// Entries of a send request's gather list.
    pub fn max_sq_sge(&self) -> u16 {
        self.raw.max_sq_sge
    }

    /// Entries of a receive request's scatter list.
    pub fn max_rq_sge(&self) -> u16 {
        self.raw.max_rq_sge
    }

    /// Bytes that a send request can carry in itself.
    pub fn inline_buf_size(&self) -> u16 {
        self.raw.inline_buf_size
    }

    /// What the device has.
    pub fn device_caps(&self) -> EfaDeviceCapabilityFlags {
        EfaDeviceCapabilityFlags::from_bits_retain(self.raw.device_caps)
    }

    /// Bytes of a read or write.
    pub fn max_rdma_size(&self) -> u32 {
        self.raw.max_rdma_size
    }
}

impl DeviceContext {
    /// `efadv_query_device(ibvctx, attr, inlen)` — asks an EFA device what it has beyond the verbs. What the library does not
    /// know reads as 0.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the device is not one of EFA, or libefa is not installed: the hint tells which.
    ///
    /// # References
    ///
    /// [efadv_query_device(3)](https://man7.org/linux/man-pages/man3/efadv_query_device.3.html)
    #[doc(alias = "efadv_query_device")]
    pub fn query_efa_device(&self) -> Result<EfaDeviceAttr, VerbError> {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut raw: efadv_device_attr = unsafe { mem::zeroed() };
        let size = size_of::<efadv_device_attr>() as u32;
        // SAFETY: the context is open as long as `self`; the library is told the size of the struct.
        let ret = unsafe { sys::efadv_query_device(self.raw(), &mut raw, size) };
        check_errno("efadv_query_device", ret).map_err(|error| explain(error, self))?;
        Ok(EfaDeviceAttr { raw })
    }
}

/// Says why libefa does not have a function for a device.
#[cold]
pub(super) fn explain(error: VerbError, context: &DeviceContext) -> VerbError {
    if error.errno().raw() != libc::EOPNOTSUPP || error.hint().is_some() {
        return error;
    }
    match load::efa::library() {
        Err(missing) => error.with_hint(missing.to_string()),
        Ok(_) => error.with_hint(format!(
            "{} is not an EFA device, or it, its kernel driver or libefa is too old for this",
            context.name()
        )),
    }
}

impl AddressHandle {
    /// `efadv_query_ah(ibvah, attr, inlen)` — the number by which the device knows the way (AHN): completions of receives have
    /// that of their sender in place of a LID ([`slid`](crate::ibverbs::completion::ExtendedWorkCompletion::slid)).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the device is not one of EFA, or libefa is not installed: the hint tells which.
    ///
    /// # References
    ///
    /// [efadv_query_ah(3)](https://man7.org/linux/man-pages/man3/efadv_query_ah.3.html)
    #[doc(alias = "efadv_query_ah")]
    pub fn efa_ahn(&self) -> Result<u16, VerbError> {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut attr: efadv_ah_attr = unsafe { mem::zeroed() };
        let size = size_of::<efadv_ah_attr>() as u32;
        // SAFETY: the handle is live as long as `self`; the library is told the size of the struct.
        let ret = unsafe { sys::efadv_query_ah(self.raw(), &mut attr, size) };
        check_errno("efadv_query_ah", ret)
            .map_err(|error| explain(error, self.protection_domain().device_context()))?;
        Ok(attr.ahn)
    }
}
