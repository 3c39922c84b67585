//! `ibv_query_device_ex`.

use std::mem::zeroed;
use std::ptr;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_device_attr_ex;

use super::{DeviceAttr, DeviceContext};
use crate::error::VerbError;
use crate::ffi::check_errno;

impl DeviceContext {
    /// `ibv_query_device_ex(context, NULL, attr)` — asks the device for its limits and capabilities.
    ///
    /// A driver that does not know this verb is asked with `ibv_query_device`; the extended part is zero then.
    ///
    /// # Errors
    ///
    /// The errno of the driver, such as `ENODEV` for a device that has been removed.
    ///
    /// # References
    ///
    /// [ibv_query_device_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html),
    /// [ibv_query_device(3)](https://man7.org/linux/man-pages/man3/ibv_query_device.3.html)
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device(&self) -> Result<DeviceAttr, VerbError> {
        // SAFETY: the structure consists of integers and newtypes of integers, for which zero is a value.
        let mut attr: ibv_device_attr_ex = unsafe { zeroed() };
        // SAFETY: the context is open as long as `self`, no input is allowed, and `attr` may be written.
        check_errno("ibv_query_device_ex", unsafe { sys::ibv_query_device_ex(self.raw(), ptr::null(), &mut attr) })?;
        Ok(DeviceAttr::from_raw(attr))
    }
}
