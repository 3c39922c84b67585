//! Functions that call the extended table, or fall back to the library.

use std::mem::offset_of;
use std::ptr::{null, null_mut};

use rdma_mummy_sys::*;

use super::bench::{Bench, both};
use super::data_path::scratch;
use super::world::World;

/// Compares a call with its operation present, missing, out of bounds, and just in bounds. Other preparations come
/// first.
macro_rules! control {
    ($bench:expr, $op:ident, $prepare:expr, $($call:tt)*) => {{
        let prepare: fn(&mut World) = $prepare;
        $bench.given("the operation there", prepare);
        both!($bench, $($call)*);
        assert!($bench.called(), concat!(stringify!($op), " was not called"));
        $bench.given("no such operation", move |world| {
            prepare(world);
            world.verbs.$op = None;
        });
        both!($bench, $($call)*);
        $bench.given("no extended table", move |world| {
            prepare(world);
            world.verbs.context.abi_compat = null_mut();
        });
        both!($bench, $($call)*);
        for (size, situation) in [(0, "a table that just reaches"), (1, "a table that is a byte too short")] {
            $bench.given(situation, move |world| {
                prepare(world);
                world.verbs.sz = size_of::<verbs_context>() - offset_of!(verbs_context, $op) - size;
            });
            both!($bench, $($call)*);
        }
    }};
    ($bench:expr, $op:ident, $($call:tt)*) => { control!($bench, $op, |_| (), $($call)*) };
}

/// The address of a member of the world, with the type that a function requires.
macro_rules! object {
    ($bench:expr, $($member:ident).+) => {
        $bench.at().wrapping_byte_add(offset_of!(World, $($member).+)).cast()
    };
}

pub(crate) fn compare(bench: &mut Bench) {
    context(bench);
    port_and_address(bench);
    flow_and_counters(bench);
    domains(bench);
    memory(bench);
    window(bench);
    device_memory(bench);
    cq(bench);
    srq(bench);
    qp(bench);
    wq(bench);
}

fn context(bench: &mut Bench) {
    let context = object!(bench, verbs.context);
    bench.given("an extended table", |_| ());
    both!(bench, verbs_get_ctx(context));
    for other in [0, 1, usize::MAX - 1] {
        bench.given("no extended table", move |world| world.verbs.context.abi_compat = other as *mut _);
        both!(bench, verbs_get_ctx(context));
    }

    control!(bench, query_rt_values, ibv_query_rt_values_ex(context, scratch(bench, 64)));

    let input = scratch::<ibv_query_device_ex_input>(bench, 0);
    let empty: fn(&mut World) = |world| world.scratch[..4].fill(0);
    control!(bench, query_device_ex, empty, ibv_query_device_ex(context, input, scratch(bench, 64)));
    control!(bench, query_device_ex, ibv_query_device_ex(context, null(), scratch(bench, 64)));
    control!(bench, query_device_ex, empty, ibv_query_device_ex(context, null(), scratch(bench, 64)));
    bench.given("an undefined mask", |_| ());
    both!(bench, ibv_query_device_ex(context, input, scratch(bench, 64)));
    assert!(!bench.called());
    for code in [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL] {
        bench.given("an operation that writes and then fails", |_| ());
        bench.answering(&[&[code as u64, 0], &[code as u64, 22]]).doing(scribble);
        both!(bench, ibv_query_device_ex(context, null(), scratch(bench, 64)));
    }
}

/// Writes where the attributes are expected.
fn scribble(world: *mut World) {
    // SAFETY: inside the objects, which nothing else uses during the call.
    unsafe { (&raw mut (*world).scratch).cast::<u8>().add(64 + 100).write_bytes(0x3c, 200) };
}

fn port_and_address(bench: &mut Bench) {
    let context = object!(bench, verbs.context);
    control!(bench, query_port, ___ibv_query_port(context, 0xfe, scratch(bench, 64)));
    control!(bench, query_port, ibv_query_port(context, 1, scratch(bench, 64)));
    bench.given("a library that writes", |world| world.verbs.query_port = None).doing(scribble);
    both!(bench, ibv_query_port(context, 1, scratch(bench, 64)));

    bench.given("a library", |_| ());
    both!(bench, ibv_query_gid_ex(context, 0x8000_0001, 0x8000_0002, scratch(bench, 64), 0x8000_0003));
    both!(bench, ibv_query_gid_table(context, scratch(bench, 64), 0x1_0000_0001, 0x8000_0003));
    assert!(bench.called());
}

fn flow_and_counters(bench: &mut Bench) {
    let context = object!(bench, verbs.context);
    let (flow, action, counters) = (object!(bench, flow), object!(bench, action), object!(bench, counters));
    control!(bench, ibv_create_flow, ibv_create_flow(object!(bench, qp), scratch(bench, 64)));
    control!(bench, ibv_destroy_flow, ibv_destroy_flow(flow));
    control!(bench, create_flow_action_esp, ibv_create_flow_action_esp(context, scratch(bench, 64)));
    control!(bench, modify_flow_action_esp, ibv_modify_flow_action_esp(action, scratch(bench, 64)));
    control!(bench, destroy_flow_action, ibv_destroy_flow_action(action));

    control!(bench, create_counters, ibv_create_counters(context, scratch(bench, 64)));
    control!(bench, destroy_counters, ibv_destroy_counters(counters));
    control!(
        bench,
        attach_counters_point_flow,
        ibv_attach_counters_point_flow(counters, scratch(bench, 64), object!(bench, flow))
    );
    control!(bench, read_counters, ibv_read_counters(counters, scratch(bench, 64), u32::MAX, 0x8000_0001));
}

fn domains(bench: &mut Bench) {
    let context = object!(bench, verbs.context);
    control!(bench, open_xrcd, ibv_open_xrcd(context, scratch(bench, 64)));
    bench.given("every operation there", |_| ());
    both!(bench, ibv_close_xrcd(object!(bench, xrcd)));
    control!(bench, alloc_td, ibv_alloc_td(context, scratch(bench, 64)));
    control!(bench, dealloc_td, ibv_dealloc_td(object!(bench, td)));
    control!(bench, alloc_parent_domain, ibv_alloc_parent_domain(context, scratch(bench, 64)));
}

fn memory(bench: &mut Bench) {
    let pd = object!(bench, pd);
    let (addr, length, iova) = (scratch(bench, 64), 0x1_0000_0010, 0x8877_6655_4433_2211);
    bench.given("a library", |_| ());
    // No flag, an ordinary flag, all ordinary flags, an optional flag, the last optional flag, both kinds, and invalid
    // flags.
    for access in [0, 1, 0xfffff, 1 << 20, 1 << 29, 1 << 20 | 1, 1 << 30, u32::MAX] {
        for constant in [0, 1, -1] {
            both!(bench, __ibv_reg_mr(pd, addr, length, access, constant));
            both!(bench, __ibv_reg_mr_iova(pd, addr, length, iova, access, constant));
        }
        both!(bench, ibv_reg_mr(pd, addr, length, access as i32));
        both!(bench, ibv_reg_mr_iova(pd, addr, length, iova, access as i32));
        assert!(bench.called());
    }
    let advice = ib_uverbs_advise_mr_advice(0x8000_0002);
    control!(bench, advise_mr, ibv_advise_mr(pd, advice, 0x8000_0001, scratch(bench, 64), u32::MAX));
    control!(bench, alloc_null_mr, ibv_alloc_null_mr(pd));
}

fn window(bench: &mut Bench) {
    let (pd, mw) = (object!(bench, pd), object!(bench, mw));
    bench.given("every operation there", |_| ());
    for kind in [0, 1, 2, 0x8000_0000] {
        both!(bench, ibv_alloc_mw(pd, ibv_mw_type(kind)));
    }
    both!(bench, ibv_dealloc_mw(mw));
    bench.given("no such operation", |world| world.verbs.context.ops.alloc_mw = None);
    both!(bench, ibv_alloc_mw(pd, ibv_mw_type::IBV_MW_TYPE_1));

    // The region (none, one of the window's domain, one of another), the range, and the type of the window.
    for region in 0..3 {
        for (start, length) in [(0, 0), (1, 0), (0, 1), (u64::MAX, u64::MAX)] {
            for kind in 0..4 {
                let situation = format!("region {region}, range {start:#x} + {length:#x}, type {kind}");
                bench.given(&situation, move |world| {
                    world.mw.type_ = ibv_mw_type(kind);
                    if region == 2 {
                        world.mr.pd = &raw mut world.other_pd;
                    }
                    let mr = if region == 0 { null_mut() } else { &raw mut world.mr };
                    let bind = world.scratch.as_mut_ptr().wrapping_add(64).cast::<ibv_mw_bind>();
                    // SAFETY: the address is inside the objects, and aligned.
                    let info = unsafe { &mut (*bind).bind_info };
                    (info.mr, info.addr, info.length) = (mr, start, length);
                });
                both!(bench, ibv_bind_mw(object!(bench, qp), mw, scratch(bench, 64)));
            }
        }
    }
}

fn device_memory(bench: &mut Bench) {
    let dm = object!(bench, dm);
    let (offset, length) = (0x8877_6655_4433_2211, usize::MAX - 1);
    control!(bench, alloc_dm, ibv_alloc_dm(object!(bench, verbs.context), scratch(bench, 64)));
    control!(bench, free_dm, ibv_free_dm(dm));
    bench.given("every operation there", |_| ());
    both!(bench, ibv_memcpy_to_dm(dm, offset, scratch(bench, 64), length));
    both!(bench, ibv_memcpy_from_dm(scratch(bench, 64), dm, offset, length));
    control!(bench, reg_dm_mr, ibv_reg_dm_mr(object!(bench, pd), dm, offset, length, u32::MAX));
}

fn cq(bench: &mut Bench) {
    control!(bench, create_cq_ex, ibv_create_cq_ex(object!(bench, verbs.context), scratch(bench, 64)));
    control!(bench, modify_cq, ibv_modify_cq(object!(bench, cq), scratch(bench, 64)));
}

fn srq(bench: &mut Bench) {
    let (context, srq) = (object!(bench, verbs.context), object!(bench, srq));
    // Every mask of what the attributes may hold and of what they may not, with every type.
    for mask in (0..=0x3f).chain([1 << 31, 1 << 31 | 3]) {
        for kind in [0, 1, 2, 0x8000_0000] {
            let situation = format!("mask {mask:#x}, type {kind}");
            for there in [true, false] {
                bench.given(&situation, move |world| {
                    if !there {
                        world.verbs.create_srq_ex = None;
                    }
                    let pd = &raw mut world.pd;
                    let attr = world.scratch.as_mut_ptr().wrapping_add(64).cast::<ibv_srq_init_attr_ex>();
                    // SAFETY: the address is inside the objects, and aligned.
                    let attr = unsafe { &mut *attr };
                    (attr.comp_mask, attr.srq_type, attr.pd) = (mask, ibv_srq_type(kind), pd);
                });
                both!(bench, ibv_create_srq_ex(context, scratch(bench, 64)));
            }
        }
    }
    control!(bench, create_srq_ex, ibv_create_srq_ex(context, scratch(bench, 64)));
    control!(bench, get_srq_num, ibv_get_srq_num(srq, scratch(bench, 64)));
    control!(bench, post_srq_ops, ibv_post_srq_ops(srq, scratch(bench, 64), scratch(bench, 128)));
}

fn qp(bench: &mut Bench) {
    let (context, qp) = (object!(bench, verbs.context), object!(bench, qp));
    for mask in (0..=0x7f).chain([1 << 31, 1 << 31 | 1]) {
        for there in [true, false] {
            bench.given(&format!("mask {mask:#x}"), move |world| {
                if !there {
                    world.verbs.create_qp_ex = None;
                }
                let pd = &raw mut world.pd;
                let attr = world.scratch.as_mut_ptr().wrapping_add(64).cast::<ibv_qp_init_attr_ex>();
                // SAFETY: the address is inside the objects, and aligned.
                let attr = unsafe { &mut *attr };
                (attr.comp_mask, attr.pd) = (mask, pd);
            });
            both!(bench, ibv_create_qp_ex(context, scratch(bench, 64)));
        }
    }
    control!(bench, create_qp_ex, ibv_create_qp_ex(context, scratch(bench, 64)));
    control!(bench, open_qp, ibv_open_qp(context, scratch(bench, 64)));
    control!(bench, modify_qp_rate_limit, ibv_modify_qp_rate_limit(qp, scratch(bench, 64)));
}

fn wq(bench: &mut Bench) {
    let (context, wq, table) = (object!(bench, verbs.context), object!(bench, wq), object!(bench, table));
    let made: *mut ibv_wq = wq;
    // The returned queue is written to, so it must be one.
    for (situation, there) in [("the operation there", true), ("no such operation", false)] {
        bench.given(situation, move |world| {
            world.scratch[64..72].fill(0x3c);
            if !there {
                world.verbs.create_wq = None;
            }
        });
        bench.answering(&[&[0], &[made.expose_provenance() as u64]]);
        both!(bench, ibv_create_wq(context, scratch(bench, 64)));
    }
    for short in [0, 1] {
        bench.given("a table that just reaches, or not", move |world| {
            world.verbs.sz = size_of::<verbs_context>() - offset_of!(verbs_context, create_wq) - short;
        });
        bench.answering(&[&[0], &[made.expose_provenance() as u64]]);
        both!(bench, ibv_create_wq(context, scratch(bench, 64)));
    }
    control!(bench, modify_wq, ibv_modify_wq(wq, scratch(bench, 64)));
    control!(bench, destroy_wq, ibv_destroy_wq(wq));
    control!(bench, create_rwq_ind_table, ibv_create_rwq_ind_table(context, scratch(bench, 64)));
    control!(bench, destroy_rwq_ind_table, ibv_destroy_rwq_ind_table(table));
}
