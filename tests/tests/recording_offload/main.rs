//! What the device does with packets by itself, and the smaller verbs of a queue pair: every struct that C gets, what is
//! said of a refusal, and that nothing is destroyed before what it is made from. On the recording device: no hardware.
#![expect(clippy::unwrap_used, reason = "a test")]

mod control;
mod counters;
mod faults;
mod flows;
mod multicast;
mod specs;
mod work_queues;

use sideway::ibverbs::queue_pair::GenericQueuePair;
use sideway_tests::recording::World;

/// A queue pair, and no calls that it took.
fn queue_pair(world: &World) -> GenericQueuePair {
    let [qp, _] = world.queue_pairs();
    world.recording.calls();
    qp
}
