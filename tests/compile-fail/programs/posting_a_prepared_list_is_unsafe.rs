//! Each post of a list hands the memory that its requests name to the device anew.

use sideway::ibverbs::queue_pair::{BasicSendQueue, PreparedSends};

fn send(queue: &mut BasicSendQueue, list: &PreparedSends<'_>) {
    queue.post_prepared(list).unwrap();
}

fn main() {}
