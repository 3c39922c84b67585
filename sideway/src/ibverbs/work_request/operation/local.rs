//! Operations on local keys, which involve no peer.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_wr_opcode as raw};

use super::{SendOperation, check_device};
use crate::ibverbs::memory_region::RemoteKey;
use crate::ibverbs::memory_window::{BindInformation, MemoryWindow, MemoryWindowType};
use crate::ibverbs::queue_pair::refuse;
use crate::ibverbs::work_request::RefusalReason;

/// `ibv_wr_local_inv`.
#[derive(Clone, Copy, Debug)]
pub struct LocalInvalidate {
    pub(crate) rkey: RemoteKey,
}

/// `ibv_wr_bind_mw`.
#[derive(Clone, Copy, Debug)]
pub struct BindMemoryWindow<'a> {
    /// The program borrows the window exclusively, because drivers write to the C object.
    pub(crate) window: &'a MemoryWindow,
    pub(crate) rkey: RemoteKey,
    pub(crate) bind: BindInformation<'a>,
}

// SAFETY: the request contains no pointer.
unsafe impl SendOperation for LocalInvalidate {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_wr_local_inv(qp, self.rkey.raw()) }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        wr.opcode = raw::IBV_WR_LOCAL_INV;
        wr.__bindgen_anon_1.invalidate_rkey = self.rkey.raw();
        Ok(())
    }
}

// SAFETY: the window and the region live as long as the lifetime in the type. `check` has verified that the window
// belongs to the queue pair's device, and the region to the window's domain.
unsafe impl SendOperation for BindMemoryWindow<'_> {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the queue pair is live, and a batch is open.
        unsafe {
            match self.check(&raw mut (*qp).qp_base) {
                Ok(()) => sys::ibv_wr_bind_mw(qp, self.window.raw(), self.rkey.raw(), &self.bind.raw()),
                Err(reason) => refuse(qp, reason),
            }
        }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.check(qp)? };
        wr.opcode = raw::IBV_WR_BIND_MW;
        // The soft-RoCE driver rejects a bind if this field contains immediate data, even if that data is left from an
        // earlier request.
        wr.__bindgen_anon_1.imm_data = 0;
        wr.__bindgen_anon_2.bind_mw = sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw: self.window.raw(),
            rkey: self.rkey.raw(),
            bind_info: self.bind.raw(),
        };
        Ok(())
    }
}

impl BindMemoryWindow<'_> {
    /// # Safety
    ///
    /// `qp` is live.
    unsafe fn check(&self, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // SAFETY: by the contract of this function. The window lives while it is borrowed.
        unsafe {
            check_device((*self.window.raw()).context, qp)?;
        }
        if self.window.window_type() != MemoryWindowType::Type2 {
            return Err(RefusalReason::InvalidBind("the window is of type 1; bind it with MemoryWindow::bind_mw"));
        }
        if self.bind.is_unbind() {
            return Err(RefusalReason::InvalidBind("the window is of type 2; invalidate its key to unbind it"));
        }
        self.bind.check(self.window).map_err(RefusalReason::InvalidBind)
    }
}
