//! Tests xsk's frames with random steps on a simulated queue. The test needs no privileges, and also runs under Miri.

#![allow(clippy::unwrap_used, reason = "a test")]

use proptest::prelude::*;
use xsk::{Frame, Umem, simulation};

proptest! {
    /// Checks that free + fill + received + sent + completed frames = all frames, after random steps.
    #[test]
    fn frames_balance_after_any_steps(steps in proptest::collection::vec((0_u8..7, 1_usize..6), 0..60)) {
        let (umem, mut pool) = Umem::builder(16).frame_size(2048).build().unwrap();
        let (mut queue, mut kernel) = simulation::queue(&umem, 4).unwrap();
        let mut held: Vec<Frame> = Vec::new();
        for (step, count) in steps {
            match step {
                0 => drop(queue.fill.refill(&mut pool)),
                1 => drop((0..count).filter(|_| kernel.deliver(&[0; 60])).count()),
                2 => held.extend(queue.rx.batch(count).map(Frame::from)),
                3 => drop(queue.rx.batch(count).forward(&mut queue.tx, |_| {})),
                4 => drop(kernel.transmit(count, |_| {})),
                5 => drop(queue.completion.collect(&mut pool)),
                _ => held.truncate(held.len() / 2),
            }
        }
        // All is sent, received and returned.
        kernel.transmit(64, |_| {});
        while queue.rx.available() != 0 {
            held.extend(queue.rx.batch(64).map(Frame::from));
        }
        while queue.completion.available() != 0 || queue.tx.pending() != 0 {
            queue.completion.collect(&mut pool);
            kernel.transmit(64, |_| {});
        }
        held.clear();
        pool.collect_dropped();
        prop_assert_eq!(pool.len() + queue.fill.pending(), 16);
    }
}
