//! Posting and polling.
//!
//! Every call of the hot path is made to be inlined down to the driver's function, as in C: posting a write is a store of
//! `wr_id` and flags, a call of `wr_rdma_write` and one of `wr_set_sge`. There is no allocation, no lock of ours, no check of a
//! capability.
//!
//! - **Which operations** a queue pair has is settled when it is built
//!   ([`setup_send_ops_flags`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_send_ops_flags)). An operation that it
//!   has not ends in a typed error at `post`, which costs the others nothing: the driver's empty function pointers are
//!   filled with refusing ones, once.
//! - **What a request must say** is its type: a datagram's address, the shared receive queue of an XRC message. A request that
//!   lacks it does not compile, so that nothing is looked at when it is posted; only the device of an address handle is compared
//!   (`setup_ud_addr_unchecked` leaves that out).
//! - **One thread**: [`single_threaded`](crate::ibverbs::single_threaded) objects stay with their thread and take no lock where
//!   the device has such queues.
//! - **Batches**: build several requests under one guard; one `post` rings one doorbell.
//! - **Either kind**: `GenericQueuePair` and `GenericCompletionQueue` choose by a match per request and per field. To take
//!   the choice out of a loop, match once outside, and run the loop on the queue inside.
//! - **Two threads**: `split` a queue pair into its send queue and its receive queue.
//! - **Basic queue pairs** hold as many requests as they were built for, in place; a batch is linked and posted without an
//!   allocation.
