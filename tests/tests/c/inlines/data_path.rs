//! Posting and polling: calls straight through a pointer in an object.

use std::mem::offset_of;

use rdma_mummy_sys::inline::efadv::efadv_wc_read_sgid;
use rdma_mummy_sys::*;

use super::bench::{Bench, both};
use super::world::World;

const KEY: u32 = 0x8765_4321;
const ADDRESS: u64 = 0xfedc_ba98_7654_3210;
const IMMEDIATE: u32 = 0xa1b2_c3d4;

pub(crate) fn compare(bench: &mut Bench) {
    bench.given("every operation there", |_| ());
    send_wr(bench);
    completion(bench);
    lists(bench);
    pure(bench);
}

/// An address among the arguments.
pub(crate) fn scratch<T>(bench: &Bench, offset: usize) -> *mut T {
    assert!(offset < 4096);
    bench.at().wrapping_byte_add(offset_of!(World, scratch) + offset).cast()
}

fn send_wr(bench: &mut Bench) {
    let qp = bench.at().wrapping_byte_add(offset_of!(World, qp)).cast::<ibv_qp_ex>();
    let mw = bench.at().wrapping_byte_add(offset_of!(World, mw)).cast::<ibv_mw>();
    let (one, two) = (scratch(bench, 64), scratch(bench, 128));
    both!(bench, ibv_wr_atomic_cmp_swp(qp, KEY, ADDRESS, !ADDRESS, 7));
    both!(bench, ibv_wr_atomic_fetch_add(qp, KEY, ADDRESS, u64::MAX));
    both!(bench, ibv_wr_bind_mw(qp, mw, KEY, scratch(bench, 64)));
    both!(bench, ibv_wr_local_inv(qp, KEY));
    both!(bench, ibv_wr_rdma_read(qp, KEY, ADDRESS));
    both!(bench, ibv_wr_rdma_write(qp, KEY, ADDRESS));
    both!(bench, ibv_wr_rdma_write_imm(qp, KEY, ADDRESS, IMMEDIATE));
    both!(bench, ibv_wr_send(qp));
    both!(bench, ibv_wr_send_imm(qp, IMMEDIATE));
    both!(bench, ibv_wr_send_inv(qp, KEY));
    both!(bench, ibv_wr_send_tso(qp, one, 0xfedc, 0x89ab));
    both!(bench, ibv_wr_set_ud_addr(qp, scratch(bench, 64), 0x00ff_ee11, 0x8001_0203));
    both!(bench, ibv_wr_set_xrc_srqn(qp, 0x00ff_ee11));
    both!(bench, ibv_wr_set_inline_data(qp, two, usize::MAX));
    both!(bench, ibv_wr_set_inline_data_list(qp, 0x1_0000_0003, scratch(bench, 64)));
    both!(bench, ibv_wr_set_sge(qp, KEY, ADDRESS, u32::MAX));
    both!(bench, ibv_wr_set_sge_list(qp, 0x1_0000_0003, scratch(bench, 64)));
    both!(bench, ibv_wr_start(qp));
    both!(bench, ibv_wr_complete(qp));
    both!(bench, ibv_wr_abort(qp));
    both!(bench, ibv_wr_atomic_write(qp, KEY, ADDRESS, one));
    assert!(bench.called());
}

fn completion(bench: &mut Bench) {
    let cq = bench.at().wrapping_byte_add(offset_of!(World, cq)).cast::<ibv_cq_ex>();
    both!(bench, ibv_cq_ex_to_cq(cq));
    both!(bench, ibv_start_poll(cq, scratch(bench, 64)));
    both!(bench, ibv_next_poll(cq));
    both!(bench, ibv_end_poll(cq));
    both!(bench, ibv_wc_read_opcode(cq));
    both!(bench, ibv_wc_read_vendor_err(cq));
    both!(bench, ibv_wc_read_byte_len(cq));
    both!(bench, ibv_wc_read_imm_data(cq));
    both!(bench, ibv_wc_read_invalidated_rkey(cq));
    both!(bench, ibv_wc_read_qp_num(cq));
    both!(bench, ibv_wc_read_src_qp(cq));
    both!(bench, ibv_wc_read_wc_flags(cq));
    both!(bench, ibv_wc_read_slid(cq));
    both!(bench, ibv_wc_read_sl(cq));
    both!(bench, ibv_wc_read_dlid_path_bits(cq));
    both!(bench, ibv_wc_read_completion_ts(cq));
    both!(bench, ibv_wc_read_completion_wallclock_ns(cq));
    both!(bench, ibv_wc_read_cvlan(cq));
    both!(bench, ibv_wc_read_flow_tag(cq));
    both!(bench, ibv_wc_read_tm_info(cq, scratch(bench, 64)));
    let efa = bench.at().wrapping_byte_add(offset_of!(World, efa_cq)).cast();
    both!(bench, efadv_wc_read_sgid(efa, scratch(bench, 64)));
    assert!(bench.called());
}

/// The calls that take lists.
fn lists(bench: &mut Bench) {
    let at = bench.at();
    let qp = at.wrapping_byte_add(offset_of!(World, qp)).cast::<ibv_qp>();
    let cq = at.wrapping_byte_add(offset_of!(World, cq)).cast::<ibv_cq>();
    let srq = at.wrapping_byte_add(offset_of!(World, srq)).cast::<ibv_srq>();
    let wq = at.wrapping_byte_add(offset_of!(World, wq)).cast::<ibv_wq>();
    both!(bench, ibv_post_wq_recv(wq, scratch(bench, 64), scratch(bench, 128)));
    both!(bench, ibv_poll_cq(cq, -3, scratch(bench, 64)));
    both!(bench, ibv_req_notify_cq(cq, -1));
    both!(bench, ibv_post_srq_recv(srq, scratch(bench, 64), scratch(bench, 128)));
    both!(bench, ibv_post_send(qp, scratch(bench, 64), scratch(bench, 128)));
    both!(bench, ibv_post_recv(qp, scratch(bench, 64), scratch(bench, 128)));
    assert!(bench.called());
}

/// The functions that only compute.
fn pure(bench: &mut Bench) {
    for rkey in [0, 1, 0xfe, 0xff, 0x100, 0x1234_56ff, u32::MAX - 1, u32::MAX] {
        both!(bench, ibv_inc_rkey(rkey));
    }
    // C leaves a shift by more than the width of the word undefined.
    for kind in 0..32 {
        for caps in [0, 1 << kind, !(1 << kind), u32::MAX] {
            both!(bench, ibv_is_qpt_supported(caps, ibv_qp_type(kind)));
        }
    }
    for label in (0..=IB_GRH_FLOWLABEL_MASK).step_by(0x1357).chain([0, 0x3fff, 0x4000, 0xfffff, u32::MAX]) {
        both!(bench, ibv_flow_label_to_udp_sport(label));
    }
}
