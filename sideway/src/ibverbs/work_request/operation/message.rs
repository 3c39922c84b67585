//! Messages, which consume a receive of the peer.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_wr_opcode as raw};

use super::SendOperation;
use crate::ibverbs::memory_region::RemoteKey;
use crate::ibverbs::queue_pair::{SendContext, refuse};
use crate::ibverbs::work_request::RefusalReason;

/// `ibv_wr_send`.
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// `ibv_wr_send_imm`.
#[derive(Clone, Copy, Debug)]
pub struct SendImm {
    /// The immediate data, in host byte order.
    pub(crate) imm_data: u32,
}

/// `ibv_wr_send_inv`.
#[derive(Clone, Copy, Debug)]
pub struct SendInv {
    pub(crate) invalidate_rkey: RemoteKey,
}

/// `ibv_wr_send_tso`.
#[derive(Clone, Copy, Debug)]
pub struct SendTso<'a> {
    pub(crate) header: &'a [u8],
    /// The number of bytes of payload in each packet.
    pub(crate) mss: u16,
}

// SAFETY: the request contains no pointer.
unsafe impl SendOperation for Send {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_wr_send(qp) }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        wr.opcode = raw::IBV_WR_SEND;
        Ok(())
    }
}

// SAFETY: the request contains no pointer.
unsafe impl SendOperation for SendImm {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_wr_send_imm(qp, self.imm_data.to_be()) }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        wr.opcode = raw::IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = self.imm_data.to_be();
        Ok(())
    }
}

// SAFETY: the request contains no pointer.
unsafe impl SendOperation for SendInv {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_wr_send_inv(qp, self.invalidate_rkey.raw()) }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        wr.opcode = raw::IBV_WR_SEND_WITH_INV;
        wr.__bindgen_anon_1.invalidate_rkey = self.invalidate_rkey.raw();
        // The siw driver reads the key here.
        wr.wr.rdma.rkey = self.invalidate_rkey.raw();
        Ok(())
    }
}

// SAFETY: the header lives as long as the lifetime in the type, and is only read.
unsafe impl SendOperation for SendTso<'_> {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: by the contract of this function, a batch is open. Drivers read the header before they return.
        unsafe {
            match SendContext::header_length(qp, self.header.len()) {
                Ok(length) => sys::ibv_wr_send_tso(qp, self.header.as_ptr().cast_mut().cast(), length, self.mss),
                Err(reason) => refuse(qp, reason),
            }
        }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // Drivers check the header against the queue pair's limit before they write anything.
        let hdr_sz = u16::try_from(self.header.len())
            .map_err(|_| RefusalReason::HeaderTooLong { given: self.header.len(), limit: u16::MAX.into() })?;
        wr.opcode = raw::IBV_WR_TSO;
        wr.__bindgen_anon_2.tso = sys::ibv_send_wr__bindgen_ty_4__bindgen_ty_2 {
            hdr: self.header.as_ptr().cast_mut().cast(),
            hdr_sz,
            mss: self.mss,
        };
        Ok(())
    }
}
