//! Posts all operations between two processes in random order. Many of them are in flight at the same time.

#![allow(clippy::unwrap_used, reason = "a panic in a helper fails the test")]

use std::thread;
use std::time::Instant;

use fastrand::Rng;
use rdma_mummy_sys::*;

use super::{LONG, Setup, Side};

/// The number of requests in flight per side.
pub(crate) const DEPTH: usize = 16;
pub(crate) const RECEIVES: u64 = 32;
/// The offset of the memory from which data is sent. Peers and receives write to the memory before this offset.
pub(crate) const HALF: usize = 256 << 10;
/// The bit that is set in the IDs of receives.
pub(crate) const RECEIVE: u64 = 1 << 32;

pub(crate) const RC: usize = 0;
pub(crate) const SHARED: usize = 1;
pub(crate) const UC: usize = 2;
pub(crate) const UD: usize = 3;

/// The QPs of a process. There is one of each kind, and one with an SRQ.
pub(crate) struct Party {
    pub(crate) context: *mut ibv_context,
    pub(crate) sides: [Side; 4],
    pub(crate) setups: [Setup; 4],
    pub(crate) srq: *mut ibv_srq,
    pub(crate) address_handle: *mut ibv_ah,
    pub(crate) sent: [usize; 4],
    /// The numbers of completed requests by side.
    pub(crate) done: [usize; 4],
    /// The statuses of failed requests by side.
    pub(crate) ends: [Vec<ibv_wc_status>; 4],
    pub(crate) received: usize,
    pub(crate) random: Rng,
}

/// What one process must know about the other one: the QP number, the key and the address of each side.
pub(crate) type Name = [(u32, u32, u64); 4];

impl Party {
    pub(crate) fn new(context: *mut ibv_context, timeout: u8, retry_cnt: u8, seed: u64) -> Self {
        let kinds =
            [ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_RC, ibv_qp_type::IBV_QPT_UC, ibv_qp_type::IBV_QPT_UD];
        let setups = kinds.map(|kind| Setup { kind, bytes: 2 * HALF, timeout, retry_cnt, ..Setup::default() });
        let mut sides = setups.map(|setup| Side::new(context, setup));
        let srq = sides[SHARED].share(setups[SHARED]);
        let address_handle = sides[UD].address_handle(sides[UD].gid());
        let (ends, random) = (Default::default(), Rng::with_seed(seed));
        let (sent, done) = ([0; 4], [0; 4]);
        Self { context, sides, setups, srq, address_handle, sent, done, ends, received: 0, random }
    }

    pub(crate) fn name(&self) -> String {
        let name = |side: &Side| format!("{} {} {}", side.number(), side.rkey(), side.address());
        self.sides.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn connect(&self, peer: &Name) {
        for kind in [RC, SHARED, UC] {
            self.sides[kind].connect(peer[kind].0, self.setups[kind]);
        }
        self.sides[UD].ready_for_datagrams();
        for index in 0..RECEIVES {
            (0..4).for_each(|kind| self.receive(kind, index | RECEIVE));
        }
    }

    pub(crate) fn receive(&self, kind: usize, wr_id: u64) {
        let pieces = &mut [self.sides[kind].piece(0, HALF as u32)];
        match kind {
            SHARED => self.sides[SHARED].receive_shared(self.srq, wr_id, pieces),
            _ => self.sides[kind].receive(wr_id, pieces),
        }
    }

    pub(crate) fn poll_all(&mut self) {
        for kind in 0..4 {
            while let Some(wc) = self.sides[kind].poll() {
                let is_success = wc.status == ibv_wc_status::IBV_WC_SUCCESS;
                if wc.wr_id & RECEIVE != 0 {
                    self.received += usize::from(is_success);
                    if is_success {
                        self.receive(kind, wc.wr_id);
                    }
                } else {
                    self.sent[kind] -= 1;
                    if is_success { self.done[kind] += 1 } else { self.ends[kind].push(wc.status) }
                }
            }
        }
    }

    /// Posts as many requests as possible.
    pub(crate) fn post(&mut self, peer: &Name) {
        for kind in 0..4 {
            while self.sent[kind] < DEPTH && self.ends[kind].is_empty() {
                self.post_one(kind, peer);
            }
        }
    }

    pub(crate) fn post_one(&mut self, kind: usize, peer: &Name) {
        const LENGTHS: [u32; 8] = [0, 1, 100, 4096, 16_384, 16_385, 100_000, 200_000];
        let length = LENGTHS[self.random.usize(..8)];
        let (number, rkey, address) = peer[kind];
        let side = &self.sides[kind];
        let is_reliable = matches!(kind, RC | SHARED);
        // Atomics require an address that is a multiple of eight.
        let address = address.next_multiple_of(8);
        let wr_id = self.sent[kind] as u64;
        let memory = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: address, rkey };
        let pieces = &mut [side.piece(HALF, length)];
        match self.random.u64(..if is_reliable { 5 } else { 2 }) {
            _ if kind == UD => {
                side.send_datagram(self.address_handle, number, wr_id, &mut [side.piece(HALF, length.min(4096))])
            }
            0 => side.send(ibv_wr_opcode::IBV_WR_SEND, wr_id, pieces, |_| {}),
            1 => side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE, wr_id, pieces, |wr| wr.wr.rdma = memory),
            2 => side.send(ibv_wr_opcode::IBV_WR_RDMA_READ, wr_id, pieces, |wr| wr.wr.rdma = memory),
            3 => side.send(ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM, wr_id, pieces, |wr| wr.wr.rdma = memory),
            _ => {
                let pieces = &mut [side.piece(HALF, 8)];
                side.send(ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, wr_id, pieces, |wr| {
                    wr.wr.atomic =
                        ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr: address, compare_add: 1, swap: 0, rkey };
                });
            }
        }
        self.sent[kind] += 1;
    }

    /// Polls until the condition is true, without posting requests.
    pub(crate) fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            self.poll_all();
            let (sent, ends) = (self.sent, &self.ends);
            assert!(start.elapsed() < LONG, "{what}: {sent:?} are left, {ends:?}");
            thread::yield_now();
        }
    }

    /// Checks that all requests fail as expected after the peer has ended.
    pub(crate) fn check_dead_peer(&mut self, peer: &Name) {
        for kind in [RC, SHARED] {
            if self.ends[kind].is_empty() {
                self.post_one(kind, peer);
            }
        }
        self.until("requests to a dead peer", |party| party.sent == [0; 4]);
        for kind in [RC, SHARED] {
            let [first, rest @ ..] = &self.ends[kind][..] else { panic!("no request to a dead peer fails") };
            assert_eq!(*first, ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
            assert!(rest.iter().all(|&end| end == ibv_wc_status::IBV_WC_WR_FLUSH_ERR), "{rest:?}");
            assert_eq!(self.sides[kind].state(), ibv_qp_state::IBV_QPS_ERR);
        }
        assert!(
            self.ends[UC].is_empty() && self.ends[UD].is_empty(),
            "unreliable requests report no error: {:?}",
            self.ends
        );
    }

    pub(crate) fn close(self) {
        let Self { sides: [rc, shared, uc, ud], srq, address_handle, .. } = self;
        // SAFETY: the handle is no longer used.
        assert_eq!(unsafe { ibv_destroy_ah(address_handle) }, 0);
        [rc, uc, ud].into_iter().for_each(Side::close);
        shared.close_with(srq);
    }
}

pub(crate) fn parse(words: &[&str]) -> Name {
    let word = |place: usize| words[place].parse::<u64>().unwrap();
    std::array::from_fn(|kind| (word(3 * kind) as u32, word(3 * kind + 1) as u32, word(3 * kind + 2)))
}
