//! Tests of several threads that use one device. Both sides of a connection are used at the same time, and objects are
//! destroyed while they are in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Setup, Side, close, open, pair};
use rdma_mummy_sys::*;

/// Objects that several threads share. Any thread may use the QPs, the queues and the memory of the device.
struct Shared<T>(T);

// SAFETY: the verbs can be called from any thread, and one thread at a time accesses each side's buffer.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

#[test]
fn both_sides_send_concurrently() {
    const MESSAGES: u64 = 20_000;
    const WINDOW: u64 = 16;
    let sides = Shared(pair(open(c"soft0"), Setup::default()));
    let exchange = |own: usize| {
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
                assert_eq!(wc.wr_id, received, "messages arrive in order");
                side.receive(received + 2 * WINDOW, &mut [side.piece(0, 8)]);
                received += 1;
            } else {
                assert_eq!(wc.wr_id, sent, "requests complete in order");
                sent += 1;
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| exchange(0));
        scope.spawn(|| exchange(1));
    });
    close(sides.0);
}

/// Posts writes until a request fails, and returns the status of this request.
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
fn deregistered_region_is_not_written() {
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
            // SAFETY: the region is alive. Afterwards, only the device could use the region, and must not.
            assert_eq!(unsafe { ibv_dereg_mr(right.mr) }, 0);
            let target = right.buffer.as_ptr().cast_mut();
            // SAFETY: the side owns the buffer, to which the device no longer has a key.
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
        // SAFETY: the test owns all objects, and destroys them in order.
        unsafe {
            assert_eq!((ibv_destroy_qp(right.qp), ibv_destroy_cq(right.cq), ibv_dealloc_pd(right.pd)), (0, 0, 0));
            assert_eq!(ibv_destroy_comp_channel(right.channel), 0);
            assert_eq!(ibv_close_device(context), 0);
        }
    }
}

#[test]
fn peer_destroyed_during_use_exhausts_retries() {
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
            // SAFETY: the QP is alive, and not used afterwards.
            assert_eq!(unsafe { ibv_destroy_qp(sides.get()[1].qp) }, 0);
            let status = writer.join();
            assert!(matches!(status, Ok(ibv_wc_status::IBV_WC_RETRY_EXC_ERR)), "{status:?}");
        });
        let [left, right] = sides.0;
        let context = left.context;
        left.close();
        // SAFETY: the test owns all objects, and destroys them in order.
        unsafe {
            assert_eq!((ibv_dereg_mr(right.mr), ibv_destroy_cq(right.cq), ibv_dealloc_pd(right.pd)), (0, 0, 0));
            assert_eq!(ibv_destroy_comp_channel(right.channel), 0);
            assert_eq!(ibv_close_device(context), 0);
        }
    }
}

#[test]
fn threads_create_and_destroy_connections() {
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
    // SAFETY: the device has no objects left.
    assert_eq!(unsafe { ibv_close_device(context.0) }, 0);
}
