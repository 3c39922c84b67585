//! The short verbs of rdma_verbs.h. The two sides have their work requests on their own stacks, so the tests compare
//! the contents.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::null_mut;

use rdma_mummy_sys::*;

use super::bench::{Bench, both};
use super::data_path::scratch;
use super::record::note;
use super::world::World;

const REMOTE: u64 = 0xfedc_ba98_7654_3210;
const KEY: u32 = 0x8765_4321;
const FLAGS: i32 = 0x4000_000a;

pub(crate) fn compare(bench: &mut Bench) {
    errno(bench);
    addresses(bench);
    registration(bench);
    posting(bench);
    completion(bench);
}

fn errno(bench: &mut Bench) {
    bench.given("any value", |_| ());
    for code in [0, 1, 22, 95, -1, i32::MIN, i32::MAX] {
        both!(bench, rdma_seterrno(code));
    }
}

fn addresses(bench: &mut Bench) {
    let id = bench.at().wrapping_byte_add(offset_of!(World, id)).cast::<rdma_cm_id>();
    both!(bench, rdma_get_local_addr(id));
    both!(bench, rdma_get_peer_addr(id));

    let (one, other) = (scratch::<ib_addr>(bench, 64), scratch::<ib_addr>(bench, 128));
    both!(bench, ib_addr_set(one, 0x0102_0304, 0x8000_0001, u32::MAX, 7));
    for byte in [None, Some(0), Some(7), Some(8), Some(11), Some(12), Some(15)] {
        for value in [1, 0x80, 0xff] {
            bench.given(&format!("{value:#x} at byte {byte:?}"), move |world| {
                world.scratch[64..80].fill(0);
                if let Some(byte) = byte {
                    world.scratch[64 + byte] = value;
                }
                world.scratch[128..144].fill(0x11);
            });
            both!(bench, ib_addr_any(one));
            both!(bench, ib_addr_loopback(one));
            both!(bench, ib_addr_cmp(one, other));
            both!(bench, ib_addr_cmp(other, one));
            both!(bench, ib_addr_cmp(one, one));
        }
    }
}

fn registration(bench: &mut Bench) {
    let id = bench.at().wrapping_byte_add(offset_of!(World, id)).cast::<rdma_cm_id>();
    let mr = bench.at().wrapping_byte_add(offset_of!(World, mr)).cast::<ibv_mr>();
    bench.given("a library", |_| ());
    both!(bench, rdma_reg_msgs(id, scratch(bench, 64), 0x1_0000_0001));
    both!(bench, rdma_reg_read(id, scratch(bench, 64), 0x1_0000_0001));
    both!(bench, rdma_reg_write(id, scratch(bench, 64), 0x1_0000_0001));
    assert!(bench.called());
    both!(bench, rdma_dereg_mr(mr));
    assert!(bench.called());
}

fn posting(bench: &mut Bench) {
    let at = bench.at();
    let id = at.wrapping_byte_add(offset_of!(World, id)).cast::<rdma_cm_id>();
    let mr = at.wrapping_byte_add(offset_of!(World, mr)).cast::<ibv_mr>();
    let context: *mut c_void = scratch(bench, 256);
    let (buffer, sgl) = (scratch(bench, 64), scratch::<ibv_sge>(bench, 1024));
    let handle = scratch(bench, 512);
    for shared in [true, false] {
        bench.given(if shared { "a shared receive queue" } else { "no shared receive queue" }, move |world| {
            note_contents(world);
            if !shared {
                world.id.srq = null_mut();
            }
        });
        both!(bench, rdma_post_recvv(id, context, sgl, 3));
        both!(bench, rdma_post_recvv(id, context, sgl, 0));
        both!(bench, rdma_post_recv(id, context, buffer, 0x123, mr));
        assert!(bench.called());
    }
    bench.given("a queue pair", note_contents);
    both!(bench, rdma_post_sendv(id, context, sgl, 3, FLAGS));
    both!(bench, rdma_post_readv(id, context, sgl, 3, FLAGS, REMOTE, KEY));
    both!(bench, rdma_post_writev(id, context, sgl, 3, -1, REMOTE, KEY));
    both!(bench, rdma_post_read(id, context, buffer, 0x1_0000_0123, mr, FLAGS, REMOTE, KEY));
    for mr in [mr, null_mut()] {
        both!(bench, rdma_post_send(id, context, buffer, 0x1_0000_0123, mr, FLAGS));
        both!(bench, rdma_post_write(id, context, buffer, 0x1_0000_0123, mr, FLAGS, REMOTE, KEY));
    }
    bench.given("a datagram queue pair", |world| {
        note_contents(world);
        world.qp.qp_base.qp_type = ibv_qp_type::IBV_QPT_UD;
    });
    for mr in [mr, null_mut()] {
        both!(bench, rdma_post_ud_send(id, context, buffer, 0x1_0000_0123, mr, FLAGS, handle, 0x80ff_ee11));
    }
    assert!(bench.called());
}

fn completion(bench: &mut Bench) {
    let at = bench.at();
    let id = at.wrapping_byte_add(offset_of!(World, id)).cast::<rdma_cm_id>();
    let wc = scratch::<ibv_wc>(bench, 64);
    bench.deliver(at.wrapping_byte_add(offset_of!(World, cq)).cast(), id.cast());
    let failed = u64::MAX;
    // The queue is polled, armed, polled, waited for, and acknowledged, repeatedly.
    let stories: &[&[u64]] = &[
        &[1],
        &[failed],
        &[0, 22],
        &[0, 0, 1],
        &[0, 0, failed],
        &[0, 0, 0, failed],
        &[0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 0, 0, failed],
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    ];
    bench.given("completion queues", |_| ()).answering(stories);
    both!(bench, rdma_get_send_comp(id, wc));
    both!(bench, rdma_get_recv_comp(id, wc));
    assert!(bench.called());
}

/// Makes the posting operations record the contents of a request instead of its address.
fn note_contents(world: &mut World) {
    let ops = &mut world.verbs.context.ops;
    ops.post_send = Some(post_send);
    ops.post_recv = Some(post_recv);
    ops.post_srq_recv = Some(post_srq_recv);
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> i32 {
    let mut words = vec![qp.addr() as u64, u64::from(bad.is_null())];
    // SAFETY: a request with the stated number of buffers; the fields of its opcode are set.
    unsafe {
        let wr = &*wr;
        words.extend([wr.wr_id, wr.next.addr() as u64, u64::from(wr.opcode.0), u64::from(wr.send_flags)]);
        buffers(&mut words, wr.sg_list, wr.num_sge);
        match wr.opcode {
            ibv_wr_opcode::IBV_WR_RDMA_READ | ibv_wr_opcode::IBV_WR_RDMA_WRITE => {
                words.extend([wr.wr.rdma.remote_addr, u64::from(wr.wr.rdma.rkey)]);
            }
            _ if (*qp).qp_type == ibv_qp_type::IBV_QPT_UD => {
                let ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey } = wr.wr.ud;
                words.extend([ah.addr() as u64, remote_qpn.into(), remote_qkey.into()]);
            }
            _ => (),
        }
    }
    note("post_send", &words) as i32
}

unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
    // SAFETY: a request with the stated number of buffers.
    unsafe { note_receive("post_recv", qp.addr(), wr, bad) }
}

unsafe extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
    // SAFETY: a request with the stated number of buffers.
    unsafe { note_receive("post_srq_recv", srq.addr(), wr, bad) }
}

unsafe fn note_receive(name: &str, queue: usize, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> i32 {
    // SAFETY: by contract.
    let wr = unsafe { &*wr };
    let mut words = vec![queue as u64, u64::from(bad.is_null()), wr.wr_id, wr.next.addr() as u64];
    // SAFETY: by contract.
    unsafe { buffers(&mut words, wr.sg_list, wr.num_sge) };
    note(name, &words) as i32
}

/// Appends the list of a request.
unsafe fn buffers(words: &mut Vec<u64>, list: *const ibv_sge, count: i32) {
    words.push(count as u64);
    for index in 0..count as usize {
        // SAFETY: by contract there are as many.
        let ibv_sge { addr, length, lkey } = unsafe { *list.add(index) };
        words.extend([addr, length.into(), lkey.into()]);
    }
}
