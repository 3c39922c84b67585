//! The structs of the functions that came later. A field that a mask governs is read only where the mask says so, which
//! is how rdma-core will add more.

use core::ffi::{c_int, c_void};
use core::marker::{PhantomData, PhantomPinned};

use crate::bindings::verbs::ibv_context;

/// A DMA handle: how the device accesses the memory of the regions registered with it. From `ibv_alloc_dmah`.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_dmah {
    /// Whose it is.
    pub context: *mut ibv_context,
    /// The library has more behind it.
    _private: (PhantomData<*mut u8>, PhantomPinned),
}

/// What `ibv_alloc_dmah` makes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_dmah_init_attr {
    /// Which fields count: `IBV_DMAH_INIT_ATTR_MASK_*`.
    pub comp_mask: u32,
    /// The processor that will read the data.
    pub cpu_id: u32,
    /// The processing hint of PCI Express.
    pub ph: u8,
    /// `IBV_TPH_MEM_TYPE_*`.
    pub tph_mem_type: u8,
}

/// `ibv_dmah_init_attr::cpu_id` counts.
pub const IBV_DMAH_INIT_ATTR_MASK_CPU_ID: u32 = 1 << 0;
/// `ibv_dmah_init_attr::ph` counts.
pub const IBV_DMAH_INIT_ATTR_MASK_PH: u32 = 1 << 1;
/// `ibv_dmah_init_attr::tph_mem_type` counts.
pub const IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE: u32 = 1 << 2;
/// Volatile memory.
pub const IBV_TPH_MEM_TYPE_VM: u8 = 0;
/// Persistent memory.
pub const IBV_TPH_MEM_TYPE_PM: u8 = 1;

/// What `ibv_reg_mr_ex` registers: every kind of memory region in one struct.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ibv_mr_init_attr {
    /// In bytes.
    pub length: usize,
    /// `IBV_ACCESS_*`.
    pub access: c_int,
    /// Which of the following fields count: `IBV_REG_MR_MASK_*`.
    pub comp_mask: u64,
    /// The address that work requests use for the start of the region.
    pub iova: u64,
    /// The start in this process; either this or `fd`.
    pub addr: *mut c_void,
    /// A DMA-BUF.
    pub fd: c_int,
    /// Where the region starts in the DMA-BUF, in bytes.
    pub fd_offset: u64,
    /// A handle that says how to access the memory.
    pub dmah: *mut ibv_dmah,
}

/// `ibv_mr_init_attr::iova` counts.
pub const IBV_REG_MR_MASK_IOVA: u64 = 1 << 0;
/// `ibv_mr_init_attr::addr` counts.
pub const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
/// `ibv_mr_init_attr::fd` counts.
pub const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
/// `ibv_mr_init_attr::fd_offset` counts.
pub const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
/// `ibv_mr_init_attr::dmah` counts.
pub const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;

/// A buffer that the provider allocated in its own way, from `ibv_alloc_buf`. What is in it is the library's affair.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_buf {
    _private: [u8; 0],
    _marker: (PhantomData<*mut u8>, PhantomPinned),
}

/// A completion counter: one number for what completed and one for what failed, in place of one entry each.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_comp_cntr {
    /// Whose it is.
    pub context: *mut ibv_context,
    /// The number by which the kernel knows it.
    pub handle: u32,
}

/// What `ibv_create_comp_cntr` makes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_comp_cntr_init_attr {
    /// Which further fields count; there are none yet.
    pub comp_mask: u32,
    /// `IBV_COMP_CNTR_TYPE_*`.
    pub type_: u32,
    /// Zero.
    pub flags: u32,
}

/// Counts work requests.
pub const IBV_COMP_CNTR_TYPE_WRS: u32 = 0;
/// Counts bytes.
pub const IBV_COMP_CNTR_TYPE_BYTES: u32 = 1;

/// What completion counters of a device can do, from `ibv_query_comp_cntr_caps`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_comp_cntr_caps {
    /// The highest value; the next is zero.
    pub max_value: u64,
    /// How many there can be.
    pub max_counters: u32,
    /// Which operations can be counted: `IBV_QP_ATTACH_COMP_CNTR_OP_*`.
    pub supported_qp_attach_ops: u32,
}

/// Which operations of a queue pair a counter counts.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_qp_attach_comp_cntr_attr {
    /// Which further fields count; there are none yet.
    pub comp_mask: u32,
    /// `IBV_QP_ATTACH_COMP_CNTR_OP_*`.
    pub op_mask: u32,
}

/// Own sends.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_SEND: u32 = 1 << 0;
/// Receives.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_RECV: u32 = 1 << 1;
/// Own reads.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ: u32 = 1 << 2;
/// Reads by the peer.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ: u32 = 1 << 3;
/// Own writes.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE: u32 = 1 << 4;
/// Writes by the peer.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE: u32 = 1 << 5;
