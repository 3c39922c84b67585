//! A list for one service cannot be posted to a queue of another.

use sideway::ibverbs::queue_pair::{BasicSendQueue, Connected, Datagram, PreparedSends};

fn send(queue: &mut BasicSendQueue<Datagram>, list: &PreparedSends<'_, Connected>) {
    // SAFETY: the requests name no registered memory.
    unsafe { queue.post_prepared(list).unwrap() };
}

fn main() {}
