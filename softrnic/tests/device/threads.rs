//! Several threads on one device: each side of a connection has its own, and what one takes away while the other uses it is gone at
//! once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Setup, Side, close, open, pair};
use rdma_mummy_sys::*;

/// What two threads share: the queue pairs, queues and memory are the device's, which any thread may use.
struct Shared<T>(T);

// SAFETY: the verbs may be called from any thread, and each side's buffer is touched by one thread at a time.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

#[test]
fn both_sides_send_at_the_same_time() {
    const MESSAGES: u64 = 20_000;
    const WINDOW: u64 = 16;
    let sides = Shared(pair(open(c"soft0"), Setup::default()));
    let talk = |own: usize| {
        let side = &sides.get()[own];
        let (mut received, mut sent, mut posted) = (0, 0, 0);
        for wr_id in 0..2 * WINDOW {
            side.receive(wr_id, &mut [side.piece(0, 8)]);
        }
        while received < MESSAGES || sent < MESSAGES {
            while posted < MESSAGES && posted - sent < WINDOW {
                side.send(ibv_wr_opcode::IBV_WR_SEND, posted, &mut [side.piece(64, 8)], |_| {});
                posted += 1;
            }
            let wc = side.wait();
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            if wc.opcode == ibv_wc_opcode::IBV_WC_RECV {
                assert_eq!(wc.wr_id, received, "messages come in order");
                side.receive(received + 2 * WINDOW, &mut [side.piece(0, 8)]);
                received += 1;
            } else {
                assert_eq!(wc.wr_id, sent, "requests complete in order");
                sent += 1;
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| talk(0));
        scope.spawn(|| talk(1));
    });
    close(sides.0);
}

/// Writes ones until something fails; gives the status of that.
fn write_on(side: &Side, remote_addr: u64, rkey: u32, started: &AtomicBool) -> ibv_wc_status {
    loop {
        side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, 1, &mut [side.piece(0, 4096)], |wr| {
            wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
        });
        let status = side.wait().status;
        started.store(true, Ordering::Release);
        if status != ibv_wc_status::IBV_WC_SUCCESS {
            return status;
        }
    }
}

#[test]
fn nothing_is_written_once_a_region_is_gone() {
    for _ in 0..50 {
        let mut sides = pair(open(c"soft0"), Setup::default());
        sides[0].buffer.fill(1);
        let (remote_addr, rkey) = (sides[1].address(), sides[1].rkey());
        let started = AtomicBool::new(false);
        let sides = Shared(sides);
        thread::scope(|scope| {
            let writer = scope.spawn(|| write_on(&sides.get()[0], remote_addr, rkey, &started));
            while !started.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let right = &sides.get()[1];
            // SAFETY: the region is live, and nobody uses it after this but the device, which must not.
            assert_eq!(unsafe { ibv_dereg_mr(right.mr) }, 0);
            let target = right.buffer.as_ptr().cast_mut();
            // SAFETY: the buffer is the side's own, and the device has no key to it any more.
            let seen = unsafe {
                target.write_bytes(7, 4096);
                let status = writer.join();
                assert!(matches!(status, Ok(ibv_wc_status::IBV_WC_REM_ACCESS_ERR)), "{status:?}");
                std::slice::from_raw_parts(target, 4096)
            };
            assert!(seen.iter().all(|&byte| byte == 7));
        });
        let [left, right] = sides.0;
        let context = left.context;
        left.close();
        // SAFETY: everything is the test's own and goes in its order.
        unsafe {
            assert_eq!((ibv_destroy_qp(right.qp), ibv_destroy_cq(right.cq), ibv_dealloc_pd(right.pd)), (0, 0, 0));
            assert_eq!(ibv_destroy_comp_channel(right.channel), 0);
            assert_eq!(ibv_close_device(context), 0);
        }
    }
}

#[test]
fn a_peer_that_goes_in_the_middle_is_missed() {
    for _ in 0..20 {
        let setup = Setup { timeout: 1, retry_cnt: 1, ..Setup::default() };
        let sides = pair(open(c"soft0"), setup);
        let (remote_addr, rkey) = (sides[1].address(), sides[1].rkey());
        let started = AtomicBool::new(false);
        let sides = Shared(sides);
        thread::scope(|scope| {
            let writer = scope.spawn(|| write_on(&sides.get()[0], remote_addr, rkey, &started));
            while !started.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // SAFETY: the queue pair is live, and nobody uses it after this.
            assert_eq!(unsafe { ibv_destroy_qp(sides.get()[1].qp) }, 0);
            let status = writer.join();
            assert!(matches!(status, Ok(ibv_wc_status::IBV_WC_RETRY_EXC_ERR)), "{status:?}");
        });
        let [left, right] = sides.0;
        let context = left.context;
        left.close();
        // SAFETY: everything is the test's own and goes in its order.
        unsafe {
            assert_eq!((ibv_dereg_mr(right.mr), ibv_destroy_cq(right.cq), ibv_dealloc_pd(right.pd)), (0, 0, 0));
            assert_eq!(ibv_destroy_comp_channel(right.channel), 0);
            assert_eq!(ibv_close_device(context), 0);
        }
    }
}

#[test]
fn queue_pairs_come_and_go_on_all_threads() {
    let context = Shared(open(c"soft0"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..100 {
                    let setup = Setup { bytes: 4096, ..Setup::default() };
                    let sides = pair(*context.get(), setup);
                    let [left, right] = &sides;
                    right.receive(round, &mut [right.piece(0, 64)]);
                    left.send(ibv_wr_opcode::IBV_WR_SEND, round, &mut [left.piece(0, 64)], |_| {});
                    left.done(round);
                    right.done(round);
                    sides.into_iter().for_each(Side::close);
                }
            });
        }
    });
    // SAFETY: nothing is on it any more.
    assert_eq!(unsafe { ibv_close_device(context.0) }, 0);
}
