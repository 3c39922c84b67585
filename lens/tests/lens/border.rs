//! The border itself: programs get what they would get without a lens.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, ptr, thread};

use rdma_lens::{Format, What};
use rdma_mummy_sys as ffi;
use sideway::ibverbs::queue_pair::{BasicQueuePair, ExtendedQueuePair, QueuePair};
use sideway_tests::loopback::{Loopback, QueueKind};

use crate::support::Session;

/// A request with more segments than the driver accepts, of which only one exists.
#[test]
fn segments_that_the_driver_refuses_are_not_read() {
    let session = Session::new(Format::Json, rdma_lens::Builder::count);
    let pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    // SAFETY: the queue pair is live, the requests are live during the calls, and the driver refuses them.
    unsafe {
        let qp = pair.near.qp.qp().as_ptr();
        let mut segment = ffi::ibv_sge { addr: 0, length: 8, lkey: 0 };
        let mut send: ffi::ibv_send_wr = mem::zeroed();
        (send.sg_list, send.num_sge) = (&raw mut segment, 1 << 20);
        let mut bad = ptr::null_mut();
        assert_ne!(ffi::ibv_post_send(qp, &raw mut send, &raw mut bad), 0);
        assert!(ptr::eq(bad, &raw const send));
        let mut receive: ffi::ibv_recv_wr = mem::zeroed();
        (receive.sg_list, receive.num_sge) = (&raw mut segment, 1 << 20);
        let mut bad = ptr::null_mut();
        assert_ne!(ffi::ibv_post_recv(qp, &raw mut receive, &raw mut bad), 0);
        assert!(ptr::eq(bad, &raw const receive));
    }
    drop(pair);
    let records = session.records();
    let refused = records.iter().filter(|record| matches!(record.what, What::Refused { requests: 1, .. }));
    assert_eq!(refused.count(), 2);
}

/// A list whose end leads back to its start.
#[test]
fn list_without_an_end_is_read_up_to_the_limit() {
    let session = Session::new(Format::Json, |builder| builder);
    let pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    // SAFETY: as above; the driver stops when its queue is full.
    unsafe {
        let mut receive: ffi::ibv_recv_wr = mem::zeroed();
        receive.next = &raw mut receive;
        let mut bad = ptr::null_mut();
        assert_ne!(ffi::ibv_post_recv(pair.near.qp.qp().as_ptr(), &raw mut receive, &raw mut bad), 0);
    }
    drop(pair);
    assert!(session.records().iter().any(|record| matches!(record.what, What::Refused { is_receive: true, .. })));
}

/// Threads that get one queue pair at the same time: the first request reaches the driver, which refuses it because the
/// queue pair is not connected.
#[test]
fn queue_pair_that_several_threads_get_reaches_its_driver() {
    let session = Session::new(Format::Text, |builder| builder);
    let pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    // SAFETY: the objects are live until the end, and the attributes are plain numbers and pointers to them.
    unsafe {
        let near = pair.near.qp.qp().as_ptr();
        let mut attr: ffi::ibv_qp_init_attr_ex = mem::zeroed();
        (attr.qp_type, attr.pd) = (ffi::ibv_qp_type::IBV_QPT_RC, (*near).pd);
        (attr.send_cq, attr.recv_cq) = ((*near).send_cq, (*near).recv_cq);
        (attr.cap.max_send_wr, attr.cap.max_send_sge) = (1, 1);
        attr.comp_mask = ffi::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0
            | ffi::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
        attr.send_ops_flags = u64::from(ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0);
        for _ in 0..500 {
            let qp = ffi::ibv_create_qp_ex((*near).context, &raw mut attr);
            assert!(!qp.is_null());
            let address = qp.expose_provenance();
            let barrier = Barrier::new(3);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        barrier.wait();
                        ffi::ibv_qp_to_qp_ex(ptr::with_exposed_provenance_mut(address));
                    });
                }
            });
            let qp_ex = ffi::ibv_qp_to_qp_ex(qp);
            ffi::ibv_wr_start(qp_ex);
            (*qp_ex).wr_flags = 0;
            ffi::ibv_wr_send(qp_ex);
            ffi::ibv_wr_set_sge(qp_ex, 0, 0, 0);
            assert_eq!(ffi::ibv_wr_complete(qp_ex), libc::EINVAL);
            assert_eq!(ffi::ibv_destroy_qp(qp), 0);
        }
    }
    drop((pair, session));
}

/// A thread posts while another one cannot destroy the queue pair.
#[test]
fn queue_pair_that_is_not_destroyed_stays_usable() {
    let session = Session::new(Format::Text, |builder| {
        builder.faults("each call of ibv_destroy_qp: fail with EBUSY".parse().unwrap(), 1)
    });
    let pair = Loopback::<ExtendedQueuePair>::new(QueueKind::Basic);
    let is_over = AtomicBool::new(false);
    // SAFETY: the queue pair is live, because it is not destroyed; a batch without requests changes nothing.
    unsafe {
        let address = pair.near.qp.qp().as_ptr().expose_provenance();
        let qp = || ptr::with_exposed_provenance_mut::<ffi::ibv_qp>(address);
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2000 {
                    assert_eq!(ffi::ibv_destroy_qp(qp()), libc::EBUSY);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let qp_ex = ffi::ibv_qp_to_qp_ex(qp());
            while !is_over.load(Ordering::Relaxed) {
                ffi::ibv_wr_start(qp_ex);
                assert_eq!(ffi::ibv_wr_complete(qp_ex), 0);
            }
        });
    }
    drop((session, pair));
}
