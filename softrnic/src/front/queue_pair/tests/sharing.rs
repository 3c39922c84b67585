//! Queue pairs that share: receives, XRC, and threads that post together.

use std::thread;

use rdma_mummy_sys::{
    ibv_send_flags as flag, ibv_srq, ibv_srq_init_attr_ex, ibv_srq_init_attr_mask as srq_mask, ibv_srq_type,
    ibv_wc_opcode, ibv_wr_opcode as opcode, ibv_xrcd, ibv_xrcd_init_attr,
};

use super::*;
use crate::engine::queue_pair::Service;
use crate::front::shared_receive_queue::{create_srq_ex, destroy_srq, get_srq_num, post_srq_recv};
use crate::front::xrc_domain::{close_xrcd, open_xrcd};

const SUCCESS: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;

/// The target's side of XRC: a domain, a shared receive queue and its number, and a queue pair.
fn target(world: &World) -> (*mut ibv_xrcd, *mut ibv_srq, u32, *mut ibv_qp) {
    // SAFETY: zeros are a value of the attributes; the context is there, and what they name.
    unsafe {
        let xrcd = open_xrcd(world.context, &mut ibv_xrcd_init_attr { comp_mask: 3, fd: -1, oflags: libc::O_CREAT });
        let mut shared: ibv_srq_init_attr_ex = zeroed();
        shared.comp_mask = srq_mask::IBV_SRQ_INIT_ATTR_TYPE.0
            | srq_mask::IBV_SRQ_INIT_ATTR_PD.0
            | srq_mask::IBV_SRQ_INIT_ATTR_XRCD.0
            | srq_mask::IBV_SRQ_INIT_ATTR_CQ.0;
        (shared.srq_type, shared.pd) = (ibv_srq_type::IBV_SRQT_XRC, world.pd);
        (shared.xrcd, shared.cq, shared.attr.max_wr, shared.attr.max_sge) = (xrcd, world.cq, 4, 1);
        let srq = create_srq_ex(world.context, &raw mut shared);
        let mut number = 0;
        assert_eq!(get_srq_num(srq, &raw mut number), 0);
        let mut init: ibv_qp_init_attr_ex = zeroed();
        (init.qp_type, init.xrcd) = (ibv_qp_type::IBV_QPT_XRC_RECV, xrcd);
        init.comp_mask = init_mask::IBV_QP_INIT_ATTR_XRCD.0;
        let qp = create_qp_ex(world.context, &raw mut init);
        assert!(!qp.is_null());
        (xrcd, srq, number, qp)
    }
}

fn receive(world: &World, srq: *mut ibv_srq, wr_id: u64, word: usize) {
    let mut piece = world.piece(word, 1);
    let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut piece, num_sge: 1 };
    let mut bad = ptr::null_mut();
    // SAFETY: the queue and the request are there.
    assert_eq!(unsafe { post_srq_recv(srq, &raw mut wr, &raw mut bad) }, 0);
}

#[test]
fn xrc_comes_to_the_shared_queue_that_it_names() {
    let world = World::new();
    let (xrcd, srq, number, receiver) = target(&world);
    let sender = world.extended_pair(ibv_qp_type::IBV_QPT_XRC_SEND, operations::of(Service::XrcSend));
    let responder = mask::IBV_QP_MAX_DEST_RD_ATOMIC.0 | mask::IBV_QP_MIN_RNR_TIMER.0;
    let requester = mask::IBV_QP_RETRY_CNT.0 | mask::IBV_QP_RNR_RETRY.0 | mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
    let (peer, running) = needs(RC);
    for (qp, other, without) in [(sender, receiver, responder), (receiver, sender, requester)] {
        to_init(qp);
        let attr = ibv_qp_attr { qp_state: state::IBV_QPS_RTR, ..connection(other) };
        assert_eq!(modify(qp, &attr, mask::IBV_QP_STATE.0 | peer & !without), 0);
        let attr = ibv_qp_attr { qp_state: state::IBV_QPS_RTS, ..connection(other) };
        assert_eq!(modify(qp, &attr, mask::IBV_QP_STATE.0 | running & !without), 0);
    }
    receive(&world, srq, 50, 100);
    receive(&world, srq, 51, 101);

    world.set(0, 5);
    let mut piece = world.piece(0, 1);
    let mut wr = request(1, opcode::IBV_WR_SEND, flag::IBV_SEND_SIGNALED.0);
    (wr.sg_list, wr.num_sge) = (&raw mut piece, 1);
    wr.qp_type.xrc.remote_srqn = number;
    assert_eq!(post(sender, &mut [wr]), Ok(()));
    let mut both = [world.wait(), world.wait()].map(|wc| (wc.wr_id, wc.status, wc.opcode));
    both.sort_by_key(|(wr_id, ..)| *wr_id);
    let expected = [(1, SUCCESS, ibv_wc_opcode::IBV_WC_SEND), (50, SUCCESS, ibv_wc_opcode::IBV_WC_RECV)];
    assert_eq!((both, world.word(100)), (expected, 5));

    // SAFETY: the queue pair is there, and has all functions of its service.
    unsafe {
        let qp = qp_to_qp_ex(sender);
        let start = (*qp).wr_start.unwrap();
        let (send, data) = ((*qp).wr_send.unwrap(), (*qp).wr_set_sge.unwrap());
        let (address, complete) = ((*qp).wr_set_xrc_srqn.unwrap(), (*qp).wr_complete.unwrap());
        (*qp).wr_flags = flag::IBV_SEND_SIGNALED.0;
        start(qp);
        send(qp);
        assert_eq!(complete(qp), libc::EINVAL, "without a number");
        start(qp);
        send(qp);
        address(qp, number);
        data(qp, world.lkey(), world.address(0), 8);
        assert_eq!(complete(qp), 0);
    }
    assert_eq!([world.wait().status, world.wait().status], [SUCCESS; 2]);
    assert_eq!(world.word(101), 5);
    destroy([sender, receiver]);
    // SAFETY: they are there, and not used again.
    unsafe { assert_eq!((destroy_srq(srq), close_xrcd(xrcd)), (0, 0)) };
}

#[test]
fn all_requests_are_signaled_where_the_queue_pair_says_so() {
    let world = World::new();
    // SAFETY: the domain is there, and what the attributes name.
    let signaling = unsafe { create_qp(world.pd, &mut ibv_qp_init_attr { sq_sig_all: 1, ..world.init(RC) }) };
    let both = [signaling, world.pair(RC)];
    connect(both);
    let mut wr = request(1, opcode::IBV_WR_RDMA_WRITE, 0);
    (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (world.address(0), world.rkey());
    assert_eq!(post(both[1], &mut [wr]), Ok(()));
    wr.wr_id = 2;
    assert_eq!(post(both[0], &mut [wr]), Ok(()));
    assert_eq!(world.statuses(), [(2, SUCCESS)]);
    assert_eq!((query(both[0]).1.sq_sig_all, query(both[1]).1.sq_sig_all), (1, 0));
    destroy(both);
}

/// A queue pair for another thread.
#[derive(Clone, Copy)]
struct Shared(*mut ibv_qp);

// SAFETY: queue pairs are for all threads.
unsafe impl Send for Shared {}

impl Shared {
    fn get(self) -> *mut ibv_qp {
        self.0
    }
}

#[test]
fn batches_and_lists_of_threads_take_turns() {
    const EACH: u64 = if cfg!(miri) { 5 } else { 2000 };
    let world = World::new();
    let both = [0; 2].map(|_| world.extended_pair(RC, operations::of(Service::ReliableConnection)));
    connect(both);
    let (address, rkey) = (world.address(0), world.rkey());
    let qp = Shared(both[0]);
    let add = move |wr_id, send_flags| {
        let mut wr = request(wr_id, opcode::IBV_WR_RDMA_WRITE, send_flags);
        (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey) = (address, rkey);
        wr
    };
    let mut seen = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            for wr_id in 0..EACH {
                while let Err((code, _)) = post(qp.get(), &mut [add(2 * wr_id, flag::IBV_SEND_SIGNALED.0)]) {
                    assert_eq!(code, libc::ENOMEM);
                    thread::yield_now();
                }
            }
        });
        scope.spawn(move || {
            // SAFETY: the queue pair is there, and has all functions of its service; this is the one thread that builds batches.
            unsafe {
                let qp = qp_to_qp_ex(qp.get());
                (*qp).wr_flags = flag::IBV_SEND_SIGNALED.0;
                for wr_id in 0..EACH {
                    let mut code = libc::ENOMEM;
                    while code == libc::ENOMEM {
                        (*qp).wr_start.unwrap()(qp);
                        (*qp).wr_id = 2 * wr_id + 1;
                        (*qp).wr_rdma_write.unwrap()(qp, rkey, address);
                        code = (*qp).wr_complete.unwrap()(qp);
                        thread::yield_now();
                    }
                    assert_eq!(code, 0);
                }
            }
        });
        while seen.len() < 2 * EACH as usize {
            let wc = world.wait();
            assert_eq!(wc.status, SUCCESS);
            seen.push(wc.wr_id);
        }
    });
    for remainder in [0, 1] {
        let of_one: Vec<u64> = seen.iter().copied().filter(|wr_id| wr_id % 2 == remainder).collect();
        assert!(of_one.is_sorted(), "each thread's come in its order");
        assert_eq!(of_one.len() as u64, EACH);
    }
    destroy(both);
}
