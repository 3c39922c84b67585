//! `ibv_query_device`, `ibv_query_pkey`, and `ibv_query_port` with the attributes added after rdma-core 44.

use std::mem::zeroed;
use std::ptr;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_device_attr_ex, ibv_port_attr_since_v44};

use super::{DeviceAttr, DeviceContext, PortAttr};
use crate::error::{Errno, VerbError};
use crate::ffi::{check_errno, clear_errno};

impl DeviceContext {
    /// `ibv_query_port(context, port_num, port_attr)` — queries the state, addresses and limits of a port. Ports are
    /// counted from 1.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the device has no such port. The error lists the ports of the device.
    ///
    /// # References
    ///
    /// [ibv_query_port(3)](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
    #[doc(alias = "ibv_query_port")]
    #[doc(alias = "ibv_query_port_since_v44")]
    pub fn query_port(&self, port_num: u8) -> Result<PortAttr, VerbError> {
        // SAFETY: the structure consists of integers and newtypes of integers, for which zero is valid.
        let mut raw: ibv_port_attr_since_v44 = unsafe { zeroed() };
        // SAFETY: the context is open as long as `self` lives, and the call may write to `raw`.
        let ret = unsafe { query_port(self.raw(), port_num, &mut raw) };
        check_errno("ibv_query_port", ret).map_err(|error| self.explain_port(error, port_num))?;
        Ok(PortAttr::from_raw(raw))
    }

    /// `ibv_query_port_speed(context, port_num, port_speed)` — queries the effective bandwidth of a port, in units of
    /// 100 Mbit/s. Ports are counted from 1. For a bonded port, the result is the bandwidth of all links together.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the library, the kernel or the driver is too old. [`PortAttr::throughput`] returns the
    /// speed of the link even then.
    #[doc(alias = "ibv_query_port_speed")]
    pub fn query_port_speed(&self, port_num: u8) -> Result<u64, VerbError> {
        let mut speed = 0;
        // SAFETY: the context is open as long as `self` lives, and the call may write to `speed`.
        let ret = unsafe { sys::ibv_query_port_speed(self.raw(), port_num.into(), &mut speed) };
        check_errno("ibv_query_port_speed", ret).map_err(|error| self.explain_port(error, port_num))?;
        Ok(speed)
    }

    /// Adds the list of ports to the error if `port_num` is not one of them.
    #[cold]
    pub(in crate::ibverbs) fn explain_port(&self, error: VerbError, port_num: u8) -> VerbError {
        match self.query_device().map(|attr| attr.phys_port_cnt()) {
            Ok(count) => match port_hint(port_num, count) {
                Some(hint) => error.with_hint(hint),
                None => error,
            },
            Err(_) => error,
        }
    }
}

fn port_hint(port_num: u8, count: u32) -> Option<String> {
    match count {
        0 => None,
        count if (1..=count).contains(&port_num.into()) => None,
        1 => Some(format!("there is no port {port_num}; use port 1")),
        count => Some(format!("there is no port {port_num}; use a port from 1 to {count}")),
    }
}

/// Queries a port including the fields that were added later. If the library has no function that takes the size of the
/// struct, queries the port without these fields.
///
/// # Safety
///
/// `context` is open.
unsafe fn query_port(context: *mut ibv_context, port_num: u8, raw: &mut ibv_port_attr_since_v44) -> c_int {
    // SAFETY: the context is open by contract, and the call may write to `raw`.
    let ret = unsafe { sys::ibv_query_port_since_v44(context, port_num, raw) };
    if ret != libc::EOPNOTSUPP {
        return ret;
    }
    // SAFETY: as above.
    unsafe { sys::ibv_query_port(context, port_num, &raw mut raw.attr) }
}

impl DeviceContext {
    /// `ibv_query_device_ex(context, NULL, attr)` — queries the device's limits and capabilities.
    ///
    /// If the driver lacks this verb, `ibv_query_device` is used, and the extended part is zero.
    ///
    /// # Errors
    ///
    /// Returns the errno of the driver, such as `ENODEV` for a removed device.
    ///
    /// # References
    ///
    /// [ibv_query_device_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html),
    /// [ibv_query_device(3)](https://man7.org/linux/man-pages/man3/ibv_query_device.3.html)
    #[doc(alias = "ibv_query_device")]
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device(&self) -> Result<DeviceAttr, VerbError> {
        // SAFETY: the structure consists of integers and newtypes of integers, for which zero is valid.
        let mut attr: ibv_device_attr_ex = unsafe { zeroed() };
        // SAFETY: the context is open as long as `self` lives, a null input is permitted, and the call may write to
        // `attr`.
        check_errno("ibv_query_device_ex", unsafe { sys::ibv_query_device_ex(self.raw(), ptr::null(), &mut attr) })?;
        Ok(DeviceAttr::from_raw(attr))
    }
}

impl DeviceContext {
    /// `ibv_query_pkey(context, port_num, index, pkey)` — reads an entry of the P_Key table of a port. The P_Key is in
    /// host order.
    ///
    /// The highest bit distinguishes full members of the partition from limited ones. The default partition is
    /// `0xffff`.
    ///
    /// # Errors
    ///
    /// Returns the errno of the library if the port or the index does not exist. rdma-core reads a file of the kernel,
    /// so it returns `ENOENT` then. The error lists the existing ports and entries.
    ///
    /// # References
    ///
    /// [ibv_query_pkey(3)](https://man7.org/linux/man-pages/man3/ibv_query_pkey.3.html)
    #[doc(alias = "ibv_query_pkey")]
    pub fn query_pkey(&self, port_num: u8, index: u16) -> Result<u16, VerbError> {
        let mut pkey = 0;
        // SAFETY: the context is open as long as `self` lives, and the call may write to `pkey`.
        let ret = look_up("ibv_query_pkey", || unsafe {
            sys::ibv_query_pkey(self.raw(), port_num, c_int::from(index), &mut pkey)
        });
        let Err(error) = ret else { return Ok(u16::from_be(pkey)) };
        let error = self.explain_port(error, port_num);
        if error.hint().is_some() {
            return Err(error);
        }
        Err(match self.query_port(port_num).map(|port| port.pkey_tbl_len()) {
            Ok(length) if index >= length => {
                error.with_hint(format!("port {port_num} has {length} P_Keys; use a lower index"))
            }
            _ => error,
        })
    }

    /// `ibv_get_pkey_index(context, port_num, pkey)` — returns the index of a P_Key, given in host order, in the table
    /// of a port.
    ///
    /// # Errors
    ///
    /// Returns `ENOENT` if the port is not in that partition. The other errors are those of
    /// [`query_pkey`](Self::query_pkey).
    ///
    /// # References
    ///
    /// [ibv_get_pkey_index(3)](https://man7.org/linux/man-pages/man3/ibv_get_pkey_index.3.html)
    #[doc(alias = "ibv_get_pkey_index")]
    pub fn get_pkey_index(&self, port_num: u8, pkey: u16) -> Result<u16, VerbError> {
        // SAFETY: the context is open as long as `self` lives.
        let index = unsafe { sys::ibv_get_pkey_index(self.raw(), port_num, pkey.to_be()) };
        if let Ok(index) = u16::try_from(index) {
            return Ok(index);
        }
        // The library reads entries until one cannot be read. So it does not distinguish an absent P_Key from an absent
        // port.
        let error = VerbError::new("ibv_get_pkey_index", Errno::ENOENT);
        let error = self.explain_port(error, port_num);
        let absent = format!("port {port_num} has no P_Key {pkey:#06x}");
        Err(if error.hint().is_some() { error } else { error.with_hint(absent) })
    }
}

/// Calls a verb that reads a table entry from a file. Such a verb fails without setting errno if the file has
/// unexpected contents.
pub(super) fn look_up(verb: &'static str, call: impl FnOnce() -> c_int) -> Result<(), VerbError> {
    clear_errno();
    check_errno(verb, call())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_hint_lists_ports() {
        assert_eq!(port_hint(1, 1), None);
        assert_eq!(port_hint(3, 0), None);
        assert_eq!(port_hint(0, 1).as_deref(), Some("there is no port 0; use port 1"));
        assert_eq!(port_hint(3, 2).as_deref(), Some("there is no port 3; use a port from 1 to 2"));
    }
}
