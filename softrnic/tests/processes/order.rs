//! The order of completions between two processes: a send is done before the answer to it is received.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rdma_mummy_sys::*;

use crate::common::party::Chance;
use crate::common::{LONG, Side};
use crate::peers::{ECHO, close, connected};

/// Sends without an answer.
const WINDOW: u64 = 32;
const MESSAGES: u64 = 3000;
const LENGTH: u32 = 64;

/// A side that two threads use.
struct Both<'s>(&'s Side);

// SAFETY: the verbs that are called on it may be called by several threads.
unsafe impl Sync for Both<'_> {}

impl Both<'_> {
    /// Posts these sends as one list.
    fn send(&self, first: u64, count: u64) {
        let mut piece = self.0.piece(0, LENGTH);
        // SAFETY: numbers, nullable pointers and unions of these.
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

    /// Polls until all are answered: each send is done before its answer comes.
    fn poll(&self, answered: &AtomicU64) {
        let (mut done, start) = (0, Instant::now());
        while answered.load(Ordering::Relaxed) < MESSAGES {
            let Some(wc) = self.0.poll() else {
                assert!(start.elapsed() < LONG, "{done} are done, {answered:?} answered");
                continue;
            };
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            if wc.wr_id != ECHO {
                assert_eq!(wc.wr_id, done);
                done += 1;
                continue;
            }
            let answer = answered.load(Ordering::Relaxed);
            assert!(answer < done, "the answer to {answer} came when {done} were done");
            self.0.receive(ECHO, &mut [self.0.piece(1 << 20, LENGTH)]);
            answered.store(answer + 1, Ordering::Release);
        }
    }
}

#[test]
fn a_send_is_done_before_its_answer_comes() {
    for seed in 1..=4 {
        let (side, mut other) = connected("rc");
        for _ in 0..2 * WINDOW {
            other.ask(&format!("receive {ECHO} 0 {LENGTH}"));
            side.receive(ECHO, &mut [side.piece(1 << 20, LENGTH)]);
        }
        other.tell(&format!("echo {MESSAGES} {LENGTH}"));
        let (both, answered, mut chance) = (Both(&side), AtomicU64::new(0), Chance(seed * 77));
        thread::scope(|scope| {
            let poller = scope.spawn(|| both.poll(&answered));
            let mut sent = 0;
            while sent < MESSAGES && !poller.is_finished() {
                let room = (WINDOW + answered.load(Ordering::Acquire)).min(MESSAGES) - sent;
                let count = (1 + chance.next(16)).min(room);
                if count == 0 {
                    thread::yield_now();
                    continue;
                }
                both.send(sent, count);
                sent += count;
            }
        });
        assert_eq!(other.hear(), "done");
        close(side);
    }
}

#[test]
fn what_a_peer_has_received_is_done_also_where_the_queue_pair_ends() {
    for round in 0..100 {
        let (side, mut other) = connected("rc");
        other.ask("receive 1 0 64");
        other.tell("wait");
        side.send(ibv_wr_opcode::IBV_WR_SEND, round, &mut [side.piece(0, LENGTH)], |_| {});
        assert_eq!(other.hear(), format!("1 0 {LENGTH} 128"));
        // SAFETY: numbers and nullable pointers.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        assert_eq!(side.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0), 0);
        side.done(round);
        close(side);
    }
}
