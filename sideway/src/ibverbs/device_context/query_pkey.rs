//! The P_Key table: the partitions that a port is in.

use libc::c_int;
use rdma_mummy_sys as sys;

use super::DeviceContext;
use crate::error::{Errno, VerbError};
use crate::ffi::{check_errno, clear_errno};

impl DeviceContext {
    /// `ibv_query_pkey(context, port_num, index, pkey)` — reads an entry of the P_Key table of a port, in host order.
    ///
    /// The uppermost bit tells a full member of the partition from a limited one. The default partition is `0xffff`.
    ///
    /// # Errors
    ///
    /// The errno of the library, where the port or the index does not exist: rdma-core looks for a file of the
    /// kernel's, and leaves `ENOENT`. The error says which ports and entries there are.
    ///
    /// # References
    ///
    /// [ibv_query_pkey(3)](https://man7.org/linux/man-pages/man3/ibv_query_pkey.3.html)
    #[doc(alias = "ibv_query_pkey")]
    pub fn query_pkey(&self, port_num: u8, index: u16) -> Result<u16, VerbError> {
        let mut pkey = 0;
        // SAFETY: the context is open as long as `self`, and `pkey` may be written.
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
                error.with_hint(format!("the table of port {port_num} has {length} entries"))
            }
            _ => error,
        })
    }

    /// `ibv_get_pkey_index(context, port_num, pkey)` — finds a P_Key, in host order, in the table of a port.
    ///
    /// # Errors
    ///
    /// `ENOENT` where the port is not in that partition, and what [`query_pkey`](Self::query_pkey) gives.
    ///
    /// # References
    ///
    /// [ibv_get_pkey_index(3)](https://man7.org/linux/man-pages/man3/ibv_get_pkey_index.3.html)
    #[doc(alias = "ibv_get_pkey_index")]
    pub fn get_pkey_index(&self, port_num: u8, pkey: u16) -> Result<u16, VerbError> {
        // SAFETY: the context is open as long as `self`.
        let index = unsafe { sys::ibv_get_pkey_index(self.raw(), port_num, pkey.to_be()) };
        if let Ok(index) = u16::try_from(index) {
            return Ok(index);
        }
        // The library reads until an entry cannot be read, and so cannot tell an absent P_Key from an absent port.
        let error = VerbError::new("ibv_get_pkey_index", Errno::from_raw(libc::ENOENT));
        let error = self.explain_port(error, port_num);
        let absent = format!("port {port_num} has no P_Key {pkey:#06x}");
        Err(if error.hint().is_some() { error } else { error.with_hint(absent) })
    }
}

/// Calls a verb that looks an entry of a table up in files, and leaves errno as it was when a file has other text than
/// it should.
pub(super) fn look_up(verb: &'static str, call: impl FnOnce() -> c_int) -> Result<(), VerbError> {
    clear_errno();
    check_errno(verb, call())
}
