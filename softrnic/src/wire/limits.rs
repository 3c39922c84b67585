//! The limits that `ibv_query_device` reports and that softrnic enforces.

pub(crate) const MAX_QP: u32 = 1 << 16;
pub(crate) const MAX_QP_WR: u32 = 1 << 15;
pub(crate) const MAX_SGE: u32 = 32;
pub(crate) const MAX_INLINE: u32 = 1024;
/// The inline data that every queue pair allows. Programs written for hardware rely on it without requesting it.
pub(crate) const MIN_INLINE: u32 = 64;
pub(crate) const MAX_CQ: u32 = 1 << 16;
pub(crate) const MAX_CQE: u32 = (1 << 22) - 1;
pub(crate) const MAX_MR: u32 = 1 << 20;
pub(crate) const MAX_MR_SIZE: u64 = u64::MAX;
pub(crate) const MAX_PD: u32 = 1 << 16;
pub(crate) const MAX_RD_ATOMIC: u32 = 128;
pub(crate) const MAX_MW: u32 = 1 << 20;
pub(crate) const MAX_AH: u32 = 1 << 16;
pub(crate) const MAX_SRQ: u32 = 1 << 16;
pub(crate) const MAX_SRQ_WR: u32 = 1 << 15;
pub(crate) const MAX_MCAST_GRP: u32 = 1 << 13;
pub(crate) const MAX_MCAST_QP_ATTACH: u32 = 1 << 10;
/// The size of the largest message. It is 2 GiB, which is the limit of the InfiniBand specification.
pub(crate) const MAX_MSG_SIZE: u32 = 1 << 31;
pub(crate) const COMP_VECTORS: u32 = 8;
/// The MTU of the port in bytes (`IBV_MTU_4096`).
pub(crate) const MTU: u32 = 4096;
/// The size of the largest device memory (`ibv_alloc_dm`).
pub(crate) const MAX_DM_SIZE: u64 = 1 << 26;
