//! The operations: how each is begun on an extended queue pair, and written into a request for a basic one.

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_qp_ex, ibv_send_wr, ibv_wr_opcode as raw};

use crate::ffi::open_enum;
use crate::ibverbs::memory_region::RemoteKey;

open_enum! {
    /// `enum ibv_wr_opcode`: the operation of a send request.
    #[doc(alias = "ibv_wr_opcode")]
    pub enum WorkRequestOperationType {
        /// Write.
        RdmaWrite = raw::IBV_WR_RDMA_WRITE.0,
        /// Write with immediate data.
        RdmaWriteWithImmediate = raw::IBV_WR_RDMA_WRITE_WITH_IMM.0,
        /// Send.
        Send = raw::IBV_WR_SEND.0,
        /// Send with immediate data.
        SendWithImmediate = raw::IBV_WR_SEND_WITH_IMM.0,
        /// Read.
        RdmaRead = raw::IBV_WR_RDMA_READ.0,
        /// Atomic compare-and-swap.
        AtomicCompareAndSwap = raw::IBV_WR_ATOMIC_CMP_AND_SWP.0,
        /// Atomic fetch-and-add.
        AtomicFetchAndAdd = raw::IBV_WR_ATOMIC_FETCH_AND_ADD.0,
        /// Invalidation of a key of this side.
        LocalInvalidate = raw::IBV_WR_LOCAL_INV.0,
        /// Bind of a memory window.
        BindMemoryWindow = raw::IBV_WR_BIND_MW.0,
        /// Send that invalidates a key of the peer.
        SendWithInvalidate = raw::IBV_WR_SEND_WITH_INV.0,
        /// Segmented send.
        TcpSegmentationOffload = raw::IBV_WR_TSO.0,
        /// The vendor's own.
        Driver1 = raw::IBV_WR_DRIVER1.0,
        /// Flush.
        Flush = 14,
        /// Atomic write of 8 bytes.
        AtomicWrite = raw::IBV_WR_ATOMIC_WRITE.0,
    }
}

/// One operation with its parameters.
pub trait SendOperation: Copy {
    /// Begins the request: the data is given next.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair between `wr_start` and `wr_complete`, with `wr_id` and `wr_flags` set, and its
    /// function for the operation is not null.
    unsafe fn begin(self, qp: *mut ibv_qp_ex);

    /// Writes the opcode and the parameters.
    fn write(self, wr: &mut ibv_send_wr);
}

/// `ibv_wr_send`.
#[derive(Clone, Copy, Debug)]
pub struct Send;

/// `ibv_wr_send_imm`.
#[derive(Clone, Copy, Debug)]
pub struct SendImm {
    /// In host byte order.
    pub(crate) imm_data: u32,
}

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
    /// In host byte order.
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

impl SendOperation for Send {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { sys::ibv_wr_send(qp) }
    }

    #[inline]
    fn write(self, wr: &mut ibv_send_wr) {
        wr.opcode = raw::IBV_WR_SEND;
    }
}

impl SendOperation for SendImm {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { sys::ibv_wr_send_imm(qp, self.imm_data.to_be()) }
    }

    #[inline]
    fn write(self, wr: &mut ibv_send_wr) {
        wr.opcode = raw::IBV_WR_SEND_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = self.imm_data.to_be();
    }
}

impl SendOperation for Write {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { sys::ibv_wr_rdma_write(qp, self.rkey.raw(), self.remote_addr) }
    }

    #[inline]
    fn write(self, wr: &mut ibv_send_wr) {
        wr.opcode = raw::IBV_WR_RDMA_WRITE;
        write_remote(wr, self.rkey, self.remote_addr);
    }
}

impl SendOperation for WriteImm {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { sys::ibv_wr_rdma_write_imm(qp, self.rkey.raw(), self.remote_addr, self.imm_data.to_be()) }
    }

    #[inline]
    fn write(self, wr: &mut ibv_send_wr) {
        wr.opcode = raw::IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = self.imm_data.to_be();
        write_remote(wr, self.rkey, self.remote_addr);
    }
}

impl SendOperation for Read {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { sys::ibv_wr_rdma_read(qp, self.rkey.raw(), self.remote_addr) }
    }

    #[inline]
    fn write(self, wr: &mut ibv_send_wr) {
        wr.opcode = raw::IBV_WR_RDMA_READ;
        write_remote(wr, self.rkey, self.remote_addr);
    }
}

impl SendOperation for CompareSwap {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { sys::ibv_wr_atomic_cmp_swp(qp, self.rkey.raw(), self.remote_addr, self.compare, self.swap) }
    }

    #[inline]
    fn write(self, wr: &mut ibv_send_wr) {
        wr.opcode = raw::IBV_WR_ATOMIC_CMP_AND_SWP;
        wr.wr.atomic = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr: self.remote_addr,
            compare_add: self.compare,
            swap: self.swap,
            rkey: self.rkey.raw(),
        };
    }
}

impl SendOperation for FetchAdd {
    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller's promise.
        unsafe { sys::ibv_wr_atomic_fetch_add(qp, self.rkey.raw(), self.remote_addr, self.add) }
    }

    #[inline]
    fn write(self, wr: &mut ibv_send_wr) {
        wr.opcode = raw::IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
            remote_addr: self.remote_addr,
            compare_add: self.add,
            swap: 0,
            rkey: self.rkey.raw(),
        };
    }
}

#[inline]
fn write_remote(wr: &mut ibv_send_wr, rkey: RemoteKey, remote_addr: u64) {
    wr.wr.rdma = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey: rkey.raw() };
}
