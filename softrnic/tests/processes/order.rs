//! Tests the order of completions between two processes. A send must complete before the message with which the peer
//! responds to it is received.

#![expect(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use fastrand::Rng;
use rdma_mummy_sys::*;

use crate::common::{LONG, Side};
use crate::other_process::{ECHO, close, connected};

/// The maximum number of sends for which no response has arrived.
const WINDOW: u64 = 32;
const MESSAGES: u64 = 3000;
const LENGTH: u32 = 64;

/// A side that two threads use.
struct Both<'s>(&'s Side);

// SAFETY: the verbs that the test calls may be called from several threads.
unsafe impl Sync for Both<'_> {}

impl Both<'_> {
    /// Posts sends in one list.
    fn send(&self, first: u64, count: u64) {
        let mut piece = self.0.piece(0, LENGTH);
        // SAFETY: the type has only numbers, nullable pointers and unions of these, for which zero is valid.
        let empty: ibv_send_wr = unsafe { std::mem::zeroed() };
        let mut list: Vec<ibv_send_wr> = (first..first + count)
            .map(|wr_id| ibv_send_wr {
                wr_id,
                opcode: ibv_wr_opcode::IBV_WR_SEND,
                sg_list: &raw mut piece,
                num_sge: 1,
                send_flags: ibv_send_flags::IBV_SEND_SIGNALED.0,
                ..empty
            })
            .collect();
        let mut next = ptr::null_mut();
        for wr in list.iter_mut().rev() {
            wr.next = next;
            next = wr;
        }
        assert_eq!(self.0.post(list.first_mut().unwrap()), 0);
    }

    /// Polls until all responses have arrived. Each send must complete before its response arrives.
    fn poll(&self, responded: &AtomicU64) {
        let (mut done, start) = (0, Instant::now());
        while responded.load(Ordering::Relaxed) < MESSAGES {
            let Some(wc) = self.0.poll() else {
                assert!(start.elapsed() < LONG, "{done} sends completed, {responded:?} responses arrived");
                continue;
            };
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            if wc.wr_id != ECHO {
                assert_eq!(wc.wr_id, done);
                done += 1;
                continue;
            }
            let response = responded.load(Ordering::Relaxed);
            assert!(response < done, "the response to {response} arrived after {done} completions");
            self.0.receive(ECHO, &mut [self.0.piece(1 << 20, LENGTH)]);
            responded.store(response + 1, Ordering::Release);
        }
    }
}

#[test]
fn send_completes_before_its_response_arrives() {
    for seed in 1..=4 {
        let (side, mut other) = connected("rc");
        for _ in 0..2 * WINDOW {
            other.execute(&format!("receive {ECHO} 0 {LENGTH}"));
            side.receive(ECHO, &mut [side.piece(1 << 20, LENGTH)]);
        }
        other.send_command(&format!("echo {MESSAGES} {LENGTH}"));
        let (both, responded, mut random) = (Both(&side), AtomicU64::new(0), Rng::with_seed(seed));
        thread::scope(|scope| {
            let poller = scope.spawn(|| both.poll(&responded));
            let mut sent = 0;
            while sent < MESSAGES && !poller.is_finished() {
                let space = (WINDOW + responded.load(Ordering::Acquire)).min(MESSAGES) - sent;
                let count = (1 + random.u64(..16)).min(space);
                if count == 0 {
                    thread::yield_now();
                    continue;
                }
                both.send(sent, count);
                sent += count;
            }
        });
        assert_eq!(other.read_result(), "done");
        close(side);
    }
}

#[test]
fn received_send_completes_even_if_the_qp_ends() {
    for round in 0..100 {
        let (side, mut other) = connected("rc");
        other.execute("receive 1 0 64");
        other.send_command("wait");
        side.send(ibv_wr_opcode::IBV_WR_SEND, round, &mut [side.piece(0, LENGTH)], |_| {});
        assert_eq!(other.read_result(), format!("1 0 {LENGTH} 128"));
        // SAFETY: the type has only numbers and nullable pointers, for which zero is valid.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        assert_eq!(side.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0), 0);
        side.done(round);
        close(side);
    }
}
