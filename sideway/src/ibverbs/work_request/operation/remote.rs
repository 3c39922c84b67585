//! Operations that read or change the peer's memory.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp, ibv_qp_ex, ibv_send_wr, ibv_wr_opcode as raw};

use super::SendOperation;
use crate::ffi::open_enum;
use crate::ibverbs::memory_region::RemoteKey;
use crate::ibverbs::queue_pair::{SendContext, SendOperationFlags};
use crate::ibverbs::work_request::RefusalReason;

/// `ibv_wr_rdma_write`.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    pub(crate) rkey: RemoteKey,
    pub(crate) remote_addr: u64,
}

/// `ibv_wr_rdma_write_imm`.
#[derive(Clone, Copy, Debug)]
pub struct WriteImm {
    pub(crate) rkey: RemoteKey,
    pub(crate) remote_addr: u64,
    /// The immediate data, in host byte order.
    pub(crate) imm_data: u32,
}

/// `ibv_wr_rdma_read`.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub(crate) rkey: RemoteKey,
    pub(crate) remote_addr: u64,
}

/// `ibv_wr_atomic_cmp_swp`.
#[derive(Clone, Copy, Debug)]
pub struct CompareSwap {
    pub(crate) rkey: RemoteKey,
    pub(crate) remote_addr: u64,
    pub(crate) compare: u64,
    pub(crate) swap: u64,
}

/// `ibv_wr_atomic_fetch_add`.
#[derive(Clone, Copy, Debug)]
pub struct FetchAdd {
    pub(crate) rkey: RemoteKey,
    pub(crate) remote_addr: u64,
    pub(crate) add: u64,
}

/// `ibv_wr_atomic_write`.
#[derive(Clone, Copy, Debug)]
pub struct AtomicWrite {
    pub(crate) rkey: RemoteKey,
    pub(crate) remote_addr: u64,
    pub(crate) value: [u8; 8],
}

/// `ibv_wr_flush`.
#[derive(Clone, Copy, Debug)]
pub struct Flush {
    pub(crate) rkey: RemoteKey,
    pub(crate) remote_addr: u64,
    pub(crate) length: usize,
    pub(crate) placement: FlushPlacement,
    pub(crate) level: FlushLevel,
}

bitflags::bitflags! {
    /// `enum ibv_placement_type`: the guarantee of a flush.
    #[doc(alias = "ibv_placement_type")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct FlushPlacement: u8 {
        /// Every observer on the peer sees the data.
        const Global = sys::IBV_FLUSH_GLOBAL;
        /// The data survives a power loss.
        const Persistent = sys::IBV_FLUSH_PERSISTENT;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

open_enum! {
    /// `enum ibv_selectivity_level`: the data that a flush covers.
    #[doc(alias = "ibv_selectivity_level")]
    pub enum FlushLevel {
        /// Only the range that the request names.
        Range = sys::IBV_FLUSH_RANGE,
        /// The whole region of the key. The range in the request is ignored.
        MemoryRegion = sys::IBV_FLUSH_MR,
    }
}

macro_rules! remote_operation {
    ($Operation:ident, $opcode:ident, |$self:ident, $qp:ident| $begin:expr, |$wr:ident| $write:expr) => {
        // SAFETY: the request contains no pointer.
        unsafe impl SendOperation for $Operation {
            const IS_ATOMIC_WRITE: bool = raw::$opcode.0 == raw::IBV_WR_ATOMIC_WRITE.0;

            #[inline]
            unsafe fn begin($self, $qp: *mut ibv_qp_ex) {
                // SAFETY: the caller upholds the contract of this function.
                unsafe { $begin }
            }

            #[inline]
            unsafe fn write($self, $wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
                $wr.opcode = raw::$opcode;
                $write;
                Ok(())
            }
        }
    };
}

remote_operation!(
    Write,
    IBV_WR_RDMA_WRITE,
    |self, qp| sys::ibv_wr_rdma_write(qp, self.rkey.raw(), self.remote_addr),
    |wr| write_remote(wr, self.rkey, self.remote_addr)
);

remote_operation!(
    WriteImm,
    IBV_WR_RDMA_WRITE_WITH_IMM,
    |self, qp| sys::ibv_wr_rdma_write_imm(qp, self.rkey.raw(), self.remote_addr, self.imm_data.to_be()),
    |wr| {
        wr.__bindgen_anon_1.imm_data = self.imm_data.to_be();
        write_remote(wr, self.rkey, self.remote_addr)
    }
);

remote_operation!(
    Read,
    IBV_WR_RDMA_READ,
    |self, qp| sys::ibv_wr_rdma_read(qp, self.rkey.raw(), self.remote_addr),
    |wr| write_remote(wr, self.rkey, self.remote_addr)
);

remote_operation!(
    CompareSwap,
    IBV_WR_ATOMIC_CMP_AND_SWP,
    |self, qp| sys::ibv_wr_atomic_cmp_swp(qp, self.rkey.raw(), self.remote_addr, self.compare, self.swap),
    |wr| write_atomic(wr, self.rkey, self.remote_addr, self.compare, self.swap)
);

remote_operation!(
    FetchAdd,
    IBV_WR_ATOMIC_FETCH_AND_ADD,
    |self, qp| sys::ibv_wr_atomic_fetch_add(qp, self.rkey.raw(), self.remote_addr, self.add),
    |wr| write_atomic(wr, self.rkey, self.remote_addr, self.add, 0)
);

remote_operation!(
    AtomicWrite,
    IBV_WR_ATOMIC_WRITE,
    |self, qp| SendContext::atomic_write(qp, self.rkey.raw(), self.remote_addr, &self.value),
    |wr| write_remote(wr, self.rkey, self.remote_addr)
);

// SAFETY: the request contains no pointer.
unsafe impl SendOperation for Flush {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // A level that does not fit becomes 255. This value has no meaning either, so the peer rejects it.
        let (placement, level) = (self.placement.bits(), u8::try_from(self.level.raw()).unwrap_or(u8::MAX));
        // SAFETY: the caller upholds the contract of this function.
        unsafe { SendContext::flush(qp, self.rkey.raw(), self.remote_addr, self.length, placement, level) }
    }

    /// A basic queue pair cannot post a flush, because `struct ibv_send_wr` has no fields for it.
    #[inline]
    unsafe fn write(self, _wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::ExtendedOnly(SendOperationFlags::Flush))
    }
}

#[inline]
fn write_remote(wr: &mut ibv_send_wr, rkey: RemoteKey, remote_addr: u64) {
    wr.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey: rkey.raw() };
}

#[inline]
fn write_atomic(wr: &mut ibv_send_wr, rkey: RemoteKey, remote_addr: u64, compare_add: u64, swap: u64) {
    wr.wr.atomic = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey: rkey.raw() };
}
