//! Creates thousands of QPs on one device, and uses and destroys all of them.

use std::mem::zeroed;
use std::thread;

use crate::common::{Setup, Side, open};
use rdma_mummy_sys::*;

/// Creates an end of a connection that shares the completion queue and the memory of `side`.
fn end(side: &Side) -> Side {
    // SAFETY: the objects of the attributes are alive; zeros are valid for the rest.
    let qp = unsafe {
        let mut attr: ibv_qp_init_attr = zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (side.cq, side.cq, ibv_qp_type::IBV_QPT_RC);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge, attr.cap.max_recv_sge) = (2, 2, 1, 1);
        ibv_create_qp(side.pd, &raw mut attr)
    };
    assert!(!qp.is_null());
    Side { qp, buffer: Vec::new(), ..*side }
}

/// Creates connections, sends messages on each of them in both directions, and destroys them.
fn use_many(context: *mut ibv_context, connections: usize) {
    let side = Side::new(context, Setup::default());
    let (setup, address) = (Setup::default(), side.address());
    let ends: Vec<[Side; 2]> = (0..connections)
        .map(|_| {
            let ends = [end(&side), end(&side)];
            ends[0].connect(ends[1].number(), setup);
            ends[1].connect(ends[0].number(), setup);
            ends
        })
        .collect();
    // SAFETY: the region is alive.
    let lkey = unsafe { (*side.mr).lkey };
    let piece = |offset: u64| ibv_sge { addr: address + offset, length: 8, lkey };
    for (number, [left, right]) in (0..).zip(&ends) {
        for (from, to) in [(left, right), (right, left)] {
            to.receive(2 * number, &mut [piece(64)]);
            from.send(ibv_wr_opcode::IBV_WR_SEND, 2 * number + 1, &mut [piece(0)], |_| {});
            let mut done = [side.wait(), side.wait()].map(|wc| (wc.wr_id, wc.status, wc.qp_num));
            done.sort_unstable_by_key(|(wr_id, ..)| *wr_id);
            let success = ibv_wc_status::IBV_WC_SUCCESS;
            let expected = [(2 * number, success, to.number()), (2 * number + 1, success, from.number())];
            assert_eq!(done, expected);
        }
    }
    let mut numbers: Vec<u32> = ends.iter().flatten().map(Side::number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 2 * connections, "each QP has its own number");
    for end in ends.iter().flatten() {
        // SAFETY: the QP is no longer used.
        assert_eq!(unsafe { ibv_destroy_qp(end.qp) }, 0);
    }
    assert!(side.poll().is_none());
    side.close();
}

#[test]
fn device_supports_thousands_of_qps() {
    let context = open(c"soft0");
    use_many(context, 3000);
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context) }, 0);
}

/// A context that other threads use too.
#[derive(Clone, Copy)]
struct Shared(*mut ibv_context);

// SAFETY: verbs on a context may be called from any thread.
unsafe impl Send for Shared {}

impl Shared {
    fn get(self) -> *mut ibv_context {
        self.0
    }
}

#[test]
fn threads_create_and_destroy_qps_concurrently() {
    let context = Shared(open(c"soft0"));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || (0..3).for_each(|_| use_many(context.get(), 200)));
        }
    });
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context.get()) }, 0);
}
