//! Structs of functions added after rdma-core 44. A field governed by a mask is read only if the mask includes it;
//! rdma-core will add fields in this way.

use core::ffi::{c_int, c_void};
use core::marker::{PhantomData, PhantomPinned};

use crate::bindings::verbs::ibv_context;

/// A DMA handle: how the device accesses the memory of regions registered with it. Created by `ibv_alloc_dmah`.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_dmah {
    /// The context that the object belongs to.
    pub context: *mut ibv_context,
    /// The library's struct has further fields.
    _private: (PhantomData<*mut u8>, PhantomPinned),
}

/// Attributes of `ibv_alloc_dmah`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_dmah_init_attr {
    /// Valid fields: `IBV_DMAH_INIT_ATTR_MASK_*`.
    pub comp_mask: u32,
    /// The processor that will read the data.
    pub cpu_id: u32,
    /// The processing hint of PCI Express.
    pub ph: u8,
    /// `IBV_TPH_MEM_TYPE_*`.
    pub tph_mem_type: u8,
}

/// `ibv_dmah_init_attr::cpu_id` is valid.
pub const IBV_DMAH_INIT_ATTR_MASK_CPU_ID: u32 = 1 << 0;
/// `ibv_dmah_init_attr::ph` is valid.
pub const IBV_DMAH_INIT_ATTR_MASK_PH: u32 = 1 << 1;
/// `ibv_dmah_init_attr::tph_mem_type` is valid.
pub const IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE: u32 = 1 << 2;
/// Volatile memory.
pub const IBV_TPH_MEM_TYPE_VM: u8 = 0;
/// Persistent memory.
pub const IBV_TPH_MEM_TYPE_PM: u8 = 1;

/// Attributes of `ibv_reg_mr_ex`, for every kind of memory region.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ibv_mr_init_attr {
    /// The length in bytes.
    pub length: usize,
    /// `IBV_ACCESS_*`.
    pub access: c_int,
    /// Valid optional fields: `IBV_REG_MR_MASK_*`.
    pub comp_mask: u64,
    /// The start of the region in work requests.
    pub iova: u64,
    /// The start in this process; set either this or `fd`.
    pub addr: *mut c_void,
    /// A DMA-BUF descriptor.
    pub fd: c_int,
    /// The start of the region in the DMA-BUF, in bytes.
    pub fd_offset: u64,
    /// A handle with access hints.
    pub dmah: *mut ibv_dmah,
    /// The buffer from `ibv_alloc_buf` that contains `addr`. Releases before 64 have no such field.
    pub buf: *mut ibv_buf,
}

/// `ibv_mr_init_attr::iova` is valid.
pub const IBV_REG_MR_MASK_IOVA: u64 = 1 << 0;
/// `ibv_mr_init_attr::addr` is valid.
pub const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
/// `ibv_mr_init_attr::fd` is valid.
pub const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
/// `ibv_mr_init_attr::fd_offset` is valid.
pub const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
/// `ibv_mr_init_attr::dmah` is valid.
pub const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;
/// `ibv_mr_init_attr::buf` is valid.
pub const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;

/// An opaque buffer allocated by the provider, from `ibv_alloc_buf`.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_buf {
    _private: [u8; 0],
    _marker: (PhantomData<*mut u8>, PhantomPinned),
}

/// A completion counter: the numbers of successful and failed completions, instead of one queue entry each.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_comp_cntr {
    /// The context that the object belongs to.
    pub context: *mut ibv_context,
    /// The counter's number in the kernel.
    pub handle: u32,
}

/// Attributes of `ibv_create_comp_cntr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_comp_cntr_init_attr {
    /// Valid further fields; none exist yet.
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

/// Capabilities of a device's completion counters, from `ibv_query_comp_cntr_caps`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_comp_cntr_caps {
    /// The highest value; the counter then wraps to zero.
    pub max_value: u64,
    /// The maximum number of counters.
    pub max_counters: u32,
    /// Operations that can be counted: `IBV_QP_ATTACH_COMP_CNTR_OP_*`.
    pub supported_qp_attach_ops: u32,
}

/// Operations of a queue pair that a counter counts.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ibv_qp_attach_comp_cntr_attr {
    /// Valid further fields; none exist yet.
    pub comp_mask: u32,
    /// `IBV_QP_ATTACH_COMP_CNTR_OP_*`.
    pub op_mask: u32,
}

/// Local sends.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_SEND: u32 = 1 << 0;
/// Receives.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_RECV: u32 = 1 << 1;
/// Local reads.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ: u32 = 1 << 2;
/// Reads by the peer.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ: u32 = 1 << 3;
/// Local writes.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE: u32 = 1 << 4;
/// Writes by the peer.
pub const IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE: u32 = 1 << 5;
