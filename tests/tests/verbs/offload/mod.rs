//! Device offloads, and the smaller verbs of a queue pair, on the recording device: every struct that C receives, the
//! error of each refusal, and the order of destruction.
#![expect(clippy::unwrap_used, reason = "a test")]

mod control;
mod counters;
mod faults;
mod flows;
mod multicast;
mod specs;
mod work_queues;

use sideway::ibverbs::counters::Counters;
use sideway::ibverbs::flow::{Flow, FlowAction, FlowRule};
use sideway::ibverbs::queue_pair::GenericQueuePair;
use sideway::ibverbs::work_queue::{RssQueuePair, RwqIndirectionTable, WorkQueue};
use sideway_tests::recording::World;

/// A queue pair, with an empty log.
fn queue_pair(world: &World) -> GenericQueuePair {
    let [qp, _] = world.queue_pairs();
    world.recording.calls();
    qp
}

/// Asserts that each type may be created in one thread and used in others.
const _: () = {
    const fn any_thread<T: Send + Sync + 'static>() {}
    any_thread::<WorkQueue>();
    any_thread::<RwqIndirectionTable>();
    any_thread::<RssQueuePair>();
    any_thread::<Flow>();
    any_thread::<FlowRule>();
    any_thread::<FlowAction>();
    any_thread::<Counters>();
};
