//! Tests of QPs that share receive queues or XRC domains, and of threads that post to the same QP.

use std::thread;

use rdma_mummy_sys::{
    ibv_async_event, ibv_event_type, ibv_qp_open_attr, ibv_send_flags as flag, ibv_srq, ibv_srq_init_attr_ex,
    ibv_srq_init_attr_mask as srq_mask, ibv_srq_type, ibv_wc_opcode, ibv_wr_opcode as opcode, ibv_xrcd,
    ibv_xrcd_init_attr,
};

use super::*;
use crate::qp::PairEvent;
use crate::verbs::async_event_verbs::{ack_async_event, get_async_event};
use crate::verbs::shared_receive_queue::{create_srq_ex, destroy_srq, get_srq_num, post_srq_recv};
use crate::verbs::xrc_domain::{close_xrcd, open_xrcd};
use crate::wire::operation::Service;

const SUCCESS: ibv_wc_status = ibv_wc_status::IBV_WC_SUCCESS;

/// Creates the target side of XRC: a domain, a shared receive queue, and a QP. Also returns the number of the queue.
fn target(world: &World) -> (*mut ibv_xrcd, *mut ibv_srq, u32, *mut ibv_qp) {
    // SAFETY: zeros are valid for the attributes; the context and the objects of the attributes are alive.
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
    // SAFETY: the queue and the request are alive.
    assert_eq!(unsafe { post_srq_recv(srq, &raw mut wr, &raw mut bad) }, 0);
}

#[test]
fn xrc_message_uses_the_shared_queue_that_it_names() {
    let world = World::new();
    let (xrcd, srq, number, receiver) = target(&world);
    let sender = world.extended_pair(ibv_qp_type::IBV_QPT_XRC_SEND, operations::of(Service::XrcSend));
    let responder = mask::IBV_QP_MAX_DEST_RD_ATOMIC.0 | mask::IBV_QP_MIN_RNR_TIMER.0;
    let requester = mask::IBV_QP_RETRY_CNT.0 | mask::IBV_QP_RNR_RETRY.0 | mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
    let (peer, running) = required_masks(RC);
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

    // SAFETY: the QP is alive, and has all functions of its service.
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
    // SAFETY: the objects are alive, and not used again.
    unsafe { assert_eq!((destroy_srq(srq), close_xrcd(xrcd)), (0, 0)) };
}

/// Opens an unnamed file, which identifies an XRC domain.
fn file() -> std::os::fd::OwnedFd {
    // SAFETY: the name is a C string; the descriptor is new, and this function alone owns it.
    unsafe {
        let fd = libc::memfd_create(c"domain".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        std::os::fd::FromRawFd::from_raw_fd(fd)
    }
}

fn open_target(xrcd: *mut ibv_xrcd, number: u32, change: impl FnOnce(&mut ibv_qp_open_attr)) -> *mut ibv_qp {
    let mut attr = ibv_qp_open_attr {
        comp_mask: 0xf,
        qp_num: number,
        xrcd,
        qp_context: ptr::without_provenance_mut(0x77),
        qp_type: ibv_qp_type::IBV_QPT_XRC_RECV,
    };
    change(&mut attr);
    // SAFETY: the domain and its context are alive.
    unsafe { open_qp((*xrcd).context, &raw mut attr) }
}

/// Takes the next event of a context without blocking, and acknowledges it.
fn event(context: *mut ibv_context) -> Option<(ibv_event_type, *mut ibv_qp)> {
    let mut event = MaybeUninit::uninit();
    // SAFETY: the context is open, and the event is read after it was written: it is a QP event.
    unsafe {
        libc::fcntl((*context).async_fd, libc::F_SETFL, libc::O_NONBLOCK);
        (get_async_event(context, event.as_mut_ptr()) == 0).then(|| {
            let mut event: ibv_async_event = event.assume_init();
            let told = (event.event_type, event.element.qp);
            ack_async_event(&raw mut event);
            told
        })
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn xrc_target_lives_until_its_last_handle_is_destroyed() {
    let worlds = [World::new(), World::new()];
    let file = file();
    // SAFETY: the contexts are alive, and all objects are destroyed at the end in order.
    unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let attr = ibv_xrcd_init_attr { comp_mask: 3, fd, oflags: libc::O_CREAT };
        let xrcds = worlds.each_ref().map(|world| open_xrcd(world.context, &mut { attr }));
        let mut init: ibv_qp_init_attr_ex = zeroed();
        (init.qp_type, init.xrcd) = (ibv_qp_type::IBV_QPT_XRC_RECV, xrcds[0]);
        init.comp_mask = init_mask::IBV_QP_INIT_ATTR_XRCD.0;
        let made = create_qp_ex(worlds[0].context, &raw mut init);
        let number = (*made).qp_num;
        to_init(made);

        let opened = open_target(xrcds[1], number, |_| {});
        assert!(!opened.is_null());
        assert_eq!(((*opened).qp_num, (*opened).qp_type), (number, ibv_qp_type::IBV_QPT_XRC_RECV));
        assert_eq!(((*opened).context, (*opened).qp_context.addr()), (worlds[1].context, 0x77));
        assert_eq!(((*opened).state, (*opened).pd.is_null()), (state::IBV_QPS_INIT, true));
        // A change through one handle is visible through the other, and both receive events.
        let attr = ibv_qp_attr { qp_state: state::IBV_QPS_RTR, ..connection(made) };
        let (peer, _) = required_masks(RC);
        assert_eq!(modify(opened, &attr, mask::IBV_QP_STATE.0 | peer), 0);
        assert_eq!(query(made).0.qp_state, state::IBV_QPS_RTR);
        Pair::qp(made).parts().events.happened(PairEvent::Established);
        assert_eq!(event(worlds[0].context), Some((ibv_event_type::IBV_EVENT_COMM_EST, made)));
        assert_eq!(event(worlds[1].context), Some((ibv_event_type::IBV_EVENT_COMM_EST, opened)));

        assert_eq!(close_xrcd(xrcds[1]), libc::EBUSY);
        destroy([made]);
        Pair::qp(opened).parts().events.happened(PairEvent::AccessError);
        assert_eq!(event(worlds[0].context), None);
        assert_eq!(event(worlds[1].context), Some((ibv_event_type::IBV_EVENT_QP_ACCESS_ERR, opened)));
        assert_eq!(query(opened).0.qp_state, state::IBV_QPS_RTR, "the QP is still alive");
        let again = open_target(xrcds[0], number, |attr| attr.comp_mask &= !4);
        assert!((*again).qp_context.is_null(), "the context is not in the mask");
        destroy([opened, again]);
        assert!(open_target(xrcds[0], number, |_| {}).is_null(), "the QP is destroyed");
        assert_eq!(xrcds.map(|xrcd| close_xrcd(xrcd)), [0, 0]);
    }
}

#[test]
fn only_targets_of_the_domain_can_be_opened() {
    let world = World::new();
    let (xrcd, srq, _, qp) = target(&world);
    let (other, other_srq, _, other_qp) = target(&world);
    let connected = world.pair(RC);
    // SAFETY: all objects are alive, and are destroyed in order at the end.
    unsafe {
        let refused = |xrcd, number, change: &dyn Fn(&mut ibv_qp_open_attr)| {
            let qp = open_target(xrcd, number, change);
            qp.is_null() && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
        };
        let number = (*qp).qp_num;
        assert!(refused(other, number, &|_| {}));
        assert!(refused(xrcd, (*other_qp).qp_num, &|_| {}));
        assert!(refused(xrcd, (*connected).qp_num, &|_| {}));
        assert!(refused(xrcd, 0, &|_| {}));
        assert!(refused(xrcd, number, &|attr| attr.qp_type = RC));
        assert!(refused(xrcd, number, &|attr| attr.xrcd = ptr::null_mut()));
        for given in [0, 0x3, 0x9, 0xa, 0x1f] {
            assert!(refused(xrcd, number, &|attr| attr.comp_mask = given), "{given:#x}");
        }
        destroy([qp, other_qp, connected]);
        assert_eq!([srq, other_srq].map(|srq| destroy_srq(srq)), [0, 0]);
        assert_eq!([xrcd, other].map(|xrcd| close_xrcd(xrcd)), [0, 0]);
    }
}

#[test]
fn sq_sig_all_signals_all_requests() {
    let world = World::new();
    // SAFETY: the domain and the objects of the attributes are alive.
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

/// A QP that is passed to another thread.
#[derive(Clone, Copy)]
pub(super) struct Shared(pub(super) *mut ibv_qp);

// SAFETY: QPs can be used by all threads.
unsafe impl Send for Shared {}

impl Shared {
    pub(super) fn get(self) -> *mut ibv_qp {
        self.0
    }
}

#[test]
fn batches_and_lists_of_threads_exclude_each_other() {
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
            // SAFETY: the QP is alive and has all functions of its service; this thread alone builds batches.
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
        assert!(of_one.is_sorted(), "requests of a thread keep their order");
        assert_eq!(of_one.len() as u64, EACH);
    }
    destroy(both);
}
