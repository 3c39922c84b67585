//! The objects of the calls, one of each kind, at fixed addresses.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::LazyLock;

use rdma_mummy_sys::bindings::efadv::efadv_cq;
use rdma_mummy_sys::bindings::mlx5dv::mlx5dv_qp_ex;
use rdma_mummy_sys::*;

use super::record::record;

/// The bytes before a call, except the pointers between objects. No two sequences of them are equal, so a copy is
/// visible.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..size_of::<World>()).map(|at| ((at as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8).collect());

#[repr(C, align(64))]
pub(crate) struct World {
    /// Space for arguments, in and out.
    pub(crate) scratch: [u8; 4096],
    pub(crate) device: ibv_device,
    pub(crate) verbs: verbs_context,
    pub(crate) channel: ibv_comp_channel,
    pub(crate) pd: ibv_pd,
    pub(crate) other_pd: ibv_pd,
    pub(crate) mr: ibv_mr,
    pub(crate) mw: ibv_mw,
    pub(crate) dm: ibv_dm,
    pub(crate) cq: ibv_cq_ex,
    pub(crate) qp: ibv_qp_ex,
    pub(crate) srq: ibv_srq,
    pub(crate) wq: ibv_wq,
    pub(crate) table: ibv_rwq_ind_table,
    pub(crate) td: ibv_td,
    pub(crate) xrcd: ibv_xrcd,
    pub(crate) flow: ibv_flow,
    pub(crate) action: ibv_flow_action,
    pub(crate) counters: ibv_counters,
    pub(crate) id: rdma_cm_id,
    pub(crate) mlx5_qp: mlx5dv_qp_ex,
    pub(crate) efa_cq: efadv_cq,
}

/// A world on the heap whose bytes, padding included, all have a value.
pub(crate) struct Owned(*mut World);

impl Owned {
    pub(crate) fn new() -> Self {
        let layout = Layout::new::<World>();
        // SAFETY: the size is not zero.
        let world = unsafe { alloc(layout) }.cast::<World>();
        if world.is_null() {
            handle_alloc_error(layout);
        }
        let mut owned = Owned(world);
        owned.reset();
        owned
    }

    /// The address of the whole world.
    pub(crate) fn at(&self) -> *mut World {
        self.0
    }

    /// Every byte has the pattern, every object is alive, and every operation is set.
    pub(crate) fn reset(&mut self) {
        // SAFETY: the memory has this size. Integers and raw pointers may have any bytes; function pointers that are
        // not set below are neither read nor called.
        unsafe { self.0.cast::<u8>().copy_from_nonoverlapping(PATTERN.as_ptr(), PATTERN.len()) };
        self.link();
        self.fill();
    }

    /// The contents of the memory.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: every byte was written by `reset`, and calls only write more.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), size_of::<World>()) }.to_vec()
    }

    /// Makes the objects point to each other.
    fn link(&mut self) {
        let at = self.0;
        // SAFETY: the address is inside the allocation.
        let context = unsafe { &raw mut (*at).verbs.context };
        // SAFETY: the address is inside the allocation.
        let (pd, channel) = unsafe { (&raw mut (*at).pd, &raw mut (*at).channel) };
        // SAFETY: the address is inside the allocation.
        let (cq, qp, srq) = unsafe { ((&raw mut (*at).cq).cast(), &raw mut (*at).qp.qp_base, &raw mut (*at).srq) };
        // SAFETY: the address is inside the allocation.
        let device = unsafe { &raw mut (*at).device };
        let world = &mut **self;
        // A device of the system, which no provider of this process has marked.
        (world.device._ops._dummy1, world.device._ops._dummy2) = (None, None);
        world.verbs.context.device = device;
        world.channel.context = context;
        world.verbs.context.abi_compat = null_mut::<core::ffi::c_void>().wrapping_byte_sub(1);
        world.verbs.sz = size_of::<verbs_context>();
        for pd in [&mut world.pd, &mut world.other_pd] {
            pd.context = context;
        }
        (world.mr.context, world.mr.pd) = (context, pd);
        (world.mr.addr, world.mr.length, world.mr.lkey) = (world.scratch.as_mut_ptr().cast(), 4096, 0x1b1b_1b1b);
        (world.mw.context, world.mw.pd, world.mw.type_) = (context, pd, ibv_mw_type::IBV_MW_TYPE_1);
        world.dm.context = context;
        world.cq.context = context;
        world.qp.qp_base.context = context;
        world.srq.context = context;
        world.wq.context = context;
        world.table.context = context;
        world.td.context = context;
        world.xrcd.context = context;
        world.flow.context = context;
        world.action.context = context;
        world.counters.context = context;
        (world.id.verbs, world.id.pd, world.id.qp) = (context, pd, qp);
        (world.id.send_cq, world.id.recv_cq, world.id.srq) = (cq, cq, srq);
        (world.id.send_cq_channel, world.id.recv_cq_channel) = (channel, channel);
    }

    /// Gives every operation of every table a recorder.
    fn fill(&mut self) {
        let world = &mut **self;
        record!(world.verbs;
            query_port advise_mr alloc_null_mr read_counters attach_counters_point_flow create_counters destroy_counters
            reg_dm_mr alloc_dm free_dm modify_flow_action_esp destroy_flow_action create_flow_action_esp
            modify_qp_rate_limit alloc_parent_domain dealloc_td alloc_td modify_cq post_srq_ops destroy_rwq_ind_table
            create_rwq_ind_table destroy_wq modify_wq create_wq query_rt_values create_cq_ex query_device_ex
            ibv_destroy_flow ibv_create_flow open_qp create_qp_ex get_srq_num create_srq_ex open_xrcd close_xrcd);
        record!(world.verbs.context.ops;
            alloc_mw bind_mw dealloc_mw poll_cq req_notify_cq post_srq_recv post_send post_recv);
        record!(world.qp;
            wr_atomic_cmp_swp wr_atomic_fetch_add wr_bind_mw wr_local_inv wr_rdma_read wr_rdma_write wr_rdma_write_imm
            wr_send wr_send_imm wr_send_inv wr_send_tso wr_set_ud_addr wr_set_xrc_srqn wr_set_inline_data
            wr_set_inline_data_list wr_set_sge wr_set_sge_list wr_start wr_complete wr_abort wr_atomic_write);
        record!(world.cq;
            start_poll next_poll end_poll read_opcode read_vendor_err read_byte_len read_imm_data read_qp_num read_src_qp
            read_wc_flags read_slid read_sl read_dlid_path_bits read_completion_ts read_cvlan read_flow_tag read_tm_info
            read_completion_wallclock_ns);
        record!(world.dm; memcpy_to_dm memcpy_from_dm);
        record!(world.wq; post_recv);
        record!(world.mlx5_qp;
            wr_set_dc_addr wr_mr_interleaved wr_mr_list wr_mkey_configure wr_set_mkey_access_flags
            wr_set_mkey_layout_list wr_set_mkey_layout_interleaved wr_set_mkey_sig_block wr_raw_wqe
            wr_set_dc_addr_stream wr_memcpy wr_set_mkey_crypto);
        record!(world.efa_cq; wc_read_sgid);
    }
}

impl Deref for Owned {
    type Target = World;

    fn deref(&self) -> &World {
        // SAFETY: the memory is allocated and initialised, and has no other reference while this one lives.
        unsafe { &*self.0 }
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut World {
        // SAFETY: the memory is allocated and initialised, and has no other reference while this one lives.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout.
        unsafe { dealloc(self.0.cast(), Layout::new::<World>()) };
    }
}
