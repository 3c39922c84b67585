//! The device writes the memory after the call has returned. The caller must guarantee that the device may do so.

use sideway::ibverbs::queue_pair::PostRecvGuard;

fn name(mut guard: PostRecvGuard<'_>) {
    guard.construct_wr(1).setup_sge(1, 2, 3);
}

fn main() {}
