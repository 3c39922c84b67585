//! The conditions that the simulation checks in every world.

use super::Plan;
use super::node::World;
use super::rng::Rng;

/// The number of ticks after which buffers that were not used are withdrawn.
const PAUSE: u32 = 4;

impl World {
    /// Checks the sum of all leased credits. The simulation calls this function after each step.
    pub(super) fn check(&self) {
        for node in &self.nodes {
            let leased: u32 = node.ends.iter().map(|end| u32::from(end.connection.lease())).sum();
            assert_eq!(leased, node.stock.ledger.leased, "leases and ledger");
            assert!(leased <= node.stock.ledger.total);
            let held: u32 = node.ends.iter().map(|end| end.connection.held() as u32).sum();
            let circulating = (node.posted.len() + node.stock.receives.len()) as u32 + held;
            assert_eq!(circulating, node.stock.ledger.total, "receives that exist");
        }
    }

    /// Lets time pass until all announced buffers are withdrawn.
    pub(super) fn pause(&mut self) {
        (0..PAUSE).for_each(|_| self.pass_time(1));
    }

    /// Runs devices and workers until nothing changes. All programs read, except those of the side `deaf`.
    fn settle(&mut self, deaf: Option<usize>, rng: &mut Rng) {
        for _ in 0..20_000 {
            let mut moved = false;
            for side in 0..2 {
                for pair in 0..self.nodes[side].ends.len() {
                    while deaf != Some(side) && self.receive(side, pair, rng) {
                        moved = true;
                    }
                    self.nodes[side].release();
                    let before = self.progress();
                    self.turn(side, pair);
                    (0..4).for_each(|_| self.execute(side, pair, rng));
                    self.complete(side, pair, 8);
                    moved |= self.progress() != before;
                }
            }
            if !moved {
                return;
            }
        }
        panic!("the world does not become idle: endless announcements");
    }

    /// Returns a number that changes with every step of progress.
    fn progress(&self) -> u64 {
        let counters = self.nodes.iter().flat_map(|node| &node.ends).map(|end| (end.connection.counters(), end.down));
        counters.fold(self.moves, |sum, (counters, down)| {
            sum + counters.sends + counters.receives + counters.rendezvous_received + u64::from(down)
        })
    }

    /// Checks that all accepted messages arrive at each side that reads.
    pub(super) fn drain(&mut self, plan: &Plan, rng: &mut Rng) {
        self.settle(plan.deaf, rng);
        self.expect_complete(plan.deaf);
        self.settle(None, rng);
        self.expect_complete(None);
        self.check();
    }

    fn expect_complete(&self, deaf: Option<usize>) {
        for side in (0..2).filter(|&side| deaf != Some(side)) {
            for (pair, (end, peer)) in self.nodes[side].ends.iter().zip(&self.nodes[1 - side].ends).enumerate() {
                if end.down || peer.down || end.closed {
                    continue;
                }
                let log = &peer.log;
                let (got, all) = (log.received, log.sent);
                assert!(
                    log.is_complete(!end.stream),
                    "side {side}, pair {pair}: {got} of {all} bytes arrived: {:#?}",
                    (&peer.connection, &end.connection)
                );
                assert_eq!(end.reached_end, log.ended, "side {side}, pair {pair}: end");
                assert!(deaf.is_some() || peer.connection.has_sent_all());
            }
        }
    }

    /// Closes all connections, and checks that the links end and that every buffer returns to its pool.
    pub(super) fn end(mut self, rng: &mut Rng) {
        for side in 0..2 {
            for pair in 0..self.nodes[side].ends.len() {
                let node = &mut self.nodes[side];
                node.ends[pair].connection.whole().close(0, "", 0, &mut node.stock);
                node.ends[pair].closed = true;
                node.ends[pair].log.ended = true;
                node.ends[pair].mark(&node.stock);
            }
        }
        self.settle(None, rng);
        for side in 0..2 {
            for pair in 0..self.nodes[side].ends.len() {
                let (down, peer) = (self.nodes[side].ends[pair].down, self.nodes[1 - side].ends[pair].down);
                assert!(down || peer, "side {side}, pair {pair} does not end");
                if !down {
                    self.take_down(side, pair, None);
                }
            }
        }
        self.check();
        for mut node in self.nodes {
            node.release();
            for mut end in node.ends {
                end.connection.whole().forget(&mut node.stock);
            }
            assert_eq!(node.stock.ledger.leased, 0);
            assert_eq!((node.posted.len() + node.stock.receives.len()) as u32, node.stock.ledger.total);
            node.stock.spare.clear();
            assert_eq!(node.stock.pool.outstanding(), node.posted.len() + node.stock.receives.len(), "buffers at home");
        }
    }
}
