//! The inlines of mlx5dv.h.

use std::mem::offset_of;

use rdma_mummy_sys::bindings::mlx5dv::{mlx5_cqe64, mlx5dv_clock_info, mlx5dv_qp_ex};
use rdma_mummy_sys::ibv_context;
use rdma_mummy_sys::inline::mlx5dv::*;

use super::bench::{Bench, both};
use super::data_path::scratch;
use super::world::World;

const KEY: u32 = 0x8765_4321;
const ADDRESS: u64 = 0xfedc_ba98_7654_3210;

pub(crate) fn compare(bench: &mut Bench) {
    bench.given("every operation there", |_| ());
    send_wr(bench);
    completion_entry(bench);
    segments(bench);
    clock(bench);
    devx(bench);
}

fn send_wr(bench: &mut Bench) {
    let qp = bench.at().wrapping_byte_add(offset_of!(World, mlx5_qp)).cast::<mlx5dv_qp_ex>();
    both!(bench, mlx5dv_wr_set_dc_addr(qp, scratch(bench, 64), KEY, ADDRESS));
    both!(bench, mlx5dv_wr_set_dc_addr_stream(qp, scratch(bench, 64), KEY, ADDRESS, 0xfedc));
    both!(bench, mlx5dv_wr_mr_interleaved(qp, scratch(bench, 64), KEY, !KEY, 0xfedc, scratch(bench, 128)));
    both!(bench, mlx5dv_wr_mr_list(qp, scratch(bench, 64), KEY, 0xfedc, scratch(bench, 128)));
    both!(bench, mlx5dv_wr_mkey_configure(qp, scratch(bench, 64), 0xfe, scratch(bench, 128)));
    both!(bench, mlx5dv_wr_set_mkey_access_flags(qp, KEY));
    both!(bench, mlx5dv_wr_set_mkey_layout_list(qp, 0xfedc, scratch(bench, 128)));
    both!(bench, mlx5dv_wr_set_mkey_layout_interleaved(qp, KEY, 0xfedc, scratch(bench, 128)));
    both!(bench, mlx5dv_wr_set_mkey_sig_block(qp, scratch(bench, 128)));
    both!(bench, mlx5dv_wr_set_mkey_crypto(qp, scratch(bench, 128)));
    both!(bench, mlx5dv_wr_memcpy(qp, KEY, ADDRESS, !KEY, !ADDRESS, usize::MAX - 1));
    both!(bench, mlx5dv_wr_raw_wqe(qp, scratch(bench, 128)));
    assert!(bench.called());
    both!(bench, mlx5dv_mkey_check(scratch(bench, 64), scratch(bench, 128)));
    assert!(bench.called());
    let context: *mut ibv_context = bench.at().wrapping_byte_add(offset_of!(World, verbs.context)).cast();
    both!(bench, mlx5dv_query_port(context, KEY, scratch(bench, 128)));
    assert!(bench.called());
}

fn completion_entry(bench: &mut Bench) {
    let entry = scratch::<mlx5_cqe64>(bench, 64);
    for last in 0..=u8::MAX {
        bench.given(&format!("{last:#x} at the end"), move |world| {
            world.scratch[64 + offset_of!(mlx5_cqe64, op_own)] = last;
        });
        bench.answering(&[&[0]]);
        both!(bench, mlx5dv_get_cqe_owner(entry));
        both!(bench, mlx5dv_set_cqe_owner(entry, !last));
        both!(bench, mlx5dv_get_cqe_se(entry));
        both!(bench, mlx5dv_get_cqe_format(entry));
        both!(bench, mlx5dv_get_cqe_opcode(entry));
    }
}

fn segments(bench: &mut Bench) {
    bench.given("any memory", |_| ()).answering(&[&[0]]);
    let (mac, gid) = (scratch(bench, 512), scratch(bench, 576));
    for flip in [0, u64::MAX, 0x00ff_00ff_00ff_00ff] {
        let long = ADDRESS ^ flip;
        let word = KEY ^ flip as u32;
        let half = 0xfe12 ^ flip as u16;
        let [a, b, c, d, e, f, ..] = (0x81_42_93_a4_c5_76u64 ^ flip).to_le_bytes();
        both!(bench, mlx5dv_set_ctrl_seg(scratch(bench, 64), half, a, b, word, c, d, e, !word));
        both!(bench, mlx5dv_set_dgram_seg(scratch(bench, 64), long, word, a, b, c, half, mac, d, e, !word, gid));
        both!(bench, mlx5dv_set_dgram_seg(scratch(bench, 64), long, word, f & 1, b, c, half, mac, d, e, !word, gid));
        both!(bench, mlx5dv_set_data_seg(scratch(bench, 64), word, !word, long as usize));
        for size in [0, 1, 2, 18, 90] {
            both!(bench, mlx5dv_set_eth_seg(scratch(bench, 64), a, half, size, mac));
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("ssse3") {
            both!(bench, mlx5dv_x86_set_ctrl_seg(scratch(bench, 64), half, a, b, word, c, d, e, !word));
            both!(bench, mlx5dv_x86_set_data_seg(scratch(bench, 64), word, !word, long as usize));
        }
    }
}

fn clock(bench: &mut Bench) {
    let clock = scratch::<mlx5dv_clock_info>(bench, 64);
    for (last_cycles, frac) in [(0, 0), (1000, 12345), (u64::MAX - 5, u64::MAX), (ADDRESS, ADDRESS)] {
        for (mult, shift, mask) in
            [(1, 0, u64::MAX), (0x0199_9999, 24, (1 << 41) - 1), (u32::MAX, 31, (1 << 48) - 1), (7, 63, 0xffff)]
        {
            bench.given("a clock", move |world| {
                let clock = world.scratch.as_mut_ptr().wrapping_add(64).cast::<mlx5dv_clock_info>();
                let nsec = 1_700_000_000_000_000_000;
                // SAFETY: inside the objects, and aligned; the structure has no padding.
                unsafe { clock.write(mlx5dv_clock_info { nsec, last_cycles, frac, mult, shift, mask }) };
            });
            bench.answering(&[&[0]]);
            for delta in [0, 1, 999, mask / 2, mask / 2 + 1, mask, u64::MAX - 1, u64::MAX - 999] {
                both!(bench, mlx5dv_ts_to_ns(clock, last_cycles.wrapping_add(delta)));
            }
        }
    }
}

fn devx(bench: &mut Bench) {
    let command = scratch(bench, 64);
    bench.given("any memory", |_| ()).answering(&[&[0]]);
    for size in [1, 2, 3, 8, 16, 24, 31, 32] {
        for offset in (0..=32 - size).chain((0..=32 - size).map(|offset| offset + 96)) {
            for value in [0, 1, KEY, u32::MAX] {
                both!(bench, _devx_set(command, value, offset, size));
            }
            both!(bench, _devx_get(command, offset, size));
        }
    }
    for offset in [0, 64, 640] {
        both!(bench, _devx_set64(command, ADDRESS, offset));
        both!(bench, _devx_get64(command, offset));
    }
}
