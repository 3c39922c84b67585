//! The one type that bindgen cannot express: packed, yet aligned to four bytes.

/// `struct mlx5_wqe_ctrl_seg` of mlx5dv.h: the control segment that begins a work queue entry. All fields big-endian.
#[repr(C, align(4))]
#[derive(Debug, Copy, Clone)]
pub struct mlx5_wqe_ctrl_seg {
    pub opmod_idx_opcode: u32,
    pub qpn_ds: u32,
    pub signature: u8,
    /// A `__be16` at an odd offset.
    pub dci_stream_channel_id: [u8; 2],
    pub fm_ce_se: u8,
    pub imm: u32,
}

const _: () = assert!(size_of::<mlx5_wqe_ctrl_seg>() == 16 && align_of::<mlx5_wqe_ctrl_seg>() == 4);
const _: () = assert!(core::mem::offset_of!(mlx5_wqe_ctrl_seg, dci_stream_channel_id) == 9);
const _: () = assert!(core::mem::offset_of!(mlx5_wqe_ctrl_seg, imm) == 12);
