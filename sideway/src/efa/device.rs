//! The attributes of EFA devices that the verbs do not report.

use std::mem;

use rdma_mummy_sys::efadv::{self as sys, efadv_ah_attr, efadv_device_attr};
use rdma_mummy_sys::load;

use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::address::AddressHandle;
use crate::ibverbs::device::DeviceInfo;
use crate::ibverbs::device_context::DeviceContext;

bitflags::bitflags! {
    /// `EFADV_DEVICE_ATTR_CAPS_…`: the features of a device.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EfaDeviceCapabilityFlags: u32 {
        /// The device supports RDMA reads.
        const Read = sys::EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
        /// A queue pair can set how often it retries a send to a peer that has no posted receive.
        const ResponderNotReadyRetry = sys::EFADV_DEVICE_ATTR_CAPS_RNR_RETRY;
        /// Completions can contain the GID of a sender that has no address handle.
        const CompletionWithSourceGid = sys::EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
        /// The device supports RDMA writes.
        const Write = 1 << 3;
        /// A queue pair can be created so that writes with immediate data consume no receive on it.
        const UnsolicitedWriteReceive = 1 << 4;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// `struct efadv_device_attr`: the attributes of an EFA device that the verbs do not report.
#[doc(alias = "efadv_device_attr")]
#[derive(Clone, Copy, Debug)]
pub struct EfaDeviceAttr {
    raw: efadv_device_attr,
}

impl EfaDeviceAttr {
    /// Returns the maximum number of outstanding send requests of a queue pair.
    pub fn max_sq_wr(&self) -> u32 {
        self.raw.max_sq_wr
    }

    /// Returns the maximum number of outstanding receive requests of a queue pair.
    pub fn max_rq_wr(&self) -> u32 {
        self.raw.max_rq_wr
    }

    /// Returns the maximum number of entries in a send request's gather list.
    pub fn max_sq_sge(&self) -> u16 {
        self.raw.max_sq_sge
    }

    /// Returns the maximum number of entries in a receive request's scatter list.
    pub fn max_rq_sge(&self) -> u16 {
        self.raw.max_rq_sge
    }

    /// Returns the maximum length of inline data in a send request.
    pub fn inline_buf_size(&self) -> u16 {
        self.raw.inline_buf_size
    }

    /// Returns the device's features.
    pub fn device_caps(&self) -> EfaDeviceCapabilityFlags {
        EfaDeviceCapabilityFlags::from_bits_retain(self.raw.device_caps)
    }

    /// Returns the maximum length of a read or write.
    pub fn max_rdma_size(&self) -> u32 {
        self.raw.max_rdma_size
    }
}

impl DeviceContext {
    /// `efadv_query_device(ibvctx, attr, inlen)` — queries the attributes of an EFA device that the verbs do not
    /// report. Attributes that the library does not support are 0.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device is not an EFA device, or libefa is not installed; the hint reports which.
    ///
    /// # References
    ///
    /// [efadv_query_device(3)](https://man7.org/linux/man-pages/man3/efadv_query_device.3.html)
    #[doc(alias = "efadv_query_device")]
    pub fn query_efa_device(&self) -> Result<EfaDeviceAttr, VerbError> {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut raw: efadv_device_attr = unsafe { mem::zeroed() };
        let size = size_of::<efadv_device_attr>() as u32;
        // SAFETY: the context is open as long as `self` lives; the library receives the size of the struct.
        let ret = unsafe { sys::efadv_query_device(self.raw(), &mut raw, size) };
        check_errno("efadv_query_device", ret).map_err(|error| explain(error, self))?;
        Ok(EfaDeviceAttr { raw })
    }
}

/// Adds the reason why libefa does not support a function on a device.
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
    /// `efadv_query_ah(ibvah, attr, inlen)` — returns the number that the device assigned to the address handle (AHN).
    /// The completion of a receive contains the number of the sender's handle instead of a LID
    /// ([`slid`](crate::ibverbs::completion::ExtendedWorkCompletion::slid)).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device is not an EFA device, or libefa is not installed; the hint reports which.
    ///
    /// # References
    ///
    /// [efadv_query_ah(3)](https://man7.org/linux/man-pages/man3/efadv_query_ah.3.html)
    #[doc(alias = "efadv_query_ah")]
    pub fn efa_ahn(&self) -> Result<u16, VerbError> {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut attr: efadv_ah_attr = unsafe { mem::zeroed() };
        let size = size_of::<efadv_ah_attr>() as u32;
        // SAFETY: the handle is live as long as `self` lives; the library receives the size of the struct.
        let ret = unsafe { sys::efadv_query_ah(self.raw(), &mut attr, size) };
        check_errno("efadv_query_ah", ret)
            .map_err(|error| explain(error, self.protection_domain().device_context()))?;
        Ok(attr.ahn)
    }
}
