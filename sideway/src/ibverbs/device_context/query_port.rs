//! `ibv_query_port`, with the attributes that came after rdma-core 44.

use std::mem::zeroed;

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_context, ibv_port_attr_since_v44};

use super::{DeviceContext, PortAttr};
use crate::error::VerbError;
use crate::ffi::check_errno;

impl DeviceContext {
    /// `ibv_query_port(context, port_num, port_attr)` — asks a port, counted from 1, for its state, addresses and limits.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the device has no such port; the error says which it has.
    ///
    /// # References
    ///
    /// [ibv_query_port(3)](https://man7.org/linux/man-pages/man3/ibv_query_port.3.html)
    #[doc(alias = "ibv_query_port")]
    #[doc(alias = "ibv_query_port_since_v44")]
    pub fn query_port(&self, port_num: u8) -> Result<PortAttr, VerbError> {
        // SAFETY: the structure consists of integers and newtypes of integers, for which zero is a value.
        let mut raw: ibv_port_attr_since_v44 = unsafe { zeroed() };
        // SAFETY: the context is open as long as `self`, and `raw` may be written.
        let ret = unsafe { query_port(self.raw(), port_num, &mut raw) };
        check_errno("ibv_query_port", ret).map_err(|error| self.explain_port(error, port_num))?;
        Ok(PortAttr::from_raw(raw))
    }

    /// `ibv_query_port_speed(context, port_num, port_speed)` — asks a port, counted from 1, for its effective bandwidth, in units
    /// of 100 Mbit/s: of several links together, where the port is bonded.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the library, the kernel or the driver is too old to know the question;
    /// [`PortAttr::throughput`] tells the speed of the link then.
    #[doc(alias = "ibv_query_port_speed")]
    pub fn query_port_speed(&self, port_num: u8) -> Result<u64, VerbError> {
        let mut speed = 0;
        // SAFETY: the context is open as long as `self`, and `speed` may be written.
        let ret = unsafe { sys::ibv_query_port_speed(self.raw(), port_num.into(), &mut speed) };
        check_errno("ibv_query_port_speed", ret).map_err(|error| self.explain_port(error, port_num))?;
        Ok(speed)
    }

    /// Says which ports there are, where `port_num` is none of them.
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
        1 => Some(format!("there is no port {port_num}; the device has port 1 only")),
        count => Some(format!("there is no port {port_num}; the device has ports 1 to {count}")),
    }
}

/// Asks with room for the fields that came later, and without where the library does not take a size.
///
/// # Safety
///
/// `context` is open.
unsafe fn query_port(context: *mut ibv_context, port_num: u8, raw: &mut ibv_port_attr_since_v44) -> c_int {
    // SAFETY: the context is open by contract, and `raw` may be written.
    let ret = unsafe { sys::ibv_query_port_since_v44(context, port_num, raw) };
    if ret != libc::EOPNOTSUPP {
        return ret;
    }
    // SAFETY: the same.
    unsafe { sys::ibv_query_port(context, port_num, &raw mut raw.attr) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_says_which_ports_there_are() {
        assert_eq!(port_hint(1, 1), None);
        assert_eq!(port_hint(3, 0), None);
        assert_eq!(port_hint(0, 1).as_deref(), Some("there is no port 0; the device has port 1 only"));
        assert_eq!(port_hint(3, 2).as_deref(), Some("there is no port 3; the device has ports 1 to 2"));
    }
}
