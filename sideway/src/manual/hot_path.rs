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
//!   lacks it does not compile, so that little is looked at when it is posted: the device of an address handle is compared
//!   (`setup_ud_addr_unchecked` leaves that out), and what a memory window is bound to.
//! - **One thread**: [`single_threaded`](crate::ibverbs::single_threaded) objects stay with their thread and take no lock where
//!   the device has such queues.
//! - **Batches**: build several requests under one guard; one `post` rings one doorbell.
//! - **Either kind**: `GenericQueuePair` and `GenericCompletionQueue` choose by a match per request and per field. To take
//!   the choice out of a loop, match once outside ([`queues`](crate::ibverbs::queue_pair::Pair::queues) lends the send queue to match on),
//!   and run the loop on the queues inside: it is the loop of that kind, and costs as much. See the example below.
//! - **No more than fits**: who posts to an extended send queue counts what is outstanding, and posts no more than
//!   [`setup_max_send_wr`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_max_send_wr) said. That a queue is full is not
//!   looked at here, and mlx5 damages the last request when it is ([`quirks`](super::quirks#all-drivers)). A loop that rather
//!   posts until the error comes takes a basic queue pair.
//! - **Two threads**: `split` a queue pair into its send queue and its receive queue.
//! - **Basic queue pairs** hold as many requests as they were built for, in place; a batch is linked and posted without an
//!   allocation. Batches of one length find the list linked as they left it.
//! - **Inline data** is copied into the queue pair of a basic one before the call returns. Where the bytes outlive the batch,
//!   [`setup_borrowed_inline_data`](crate::ibverbs::work_request::LocalBufferHandle::setup_borrowed_inline_data) leaves the copy to the
//!   driver, as C does.
//!
//! ```
//! use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError};
//! use sideway::ibverbs::queue_pair::{GenericQueuePair, GenericSendQueue, PostSendGuard, SendQueue};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//!
//! /// Posts a request and waits for it, `rounds` times. Posting is generic over the send queue; the kinds of completion queue have
//! /// methods of the same names, and share the text of the loop by a macro.
//! macro_rules! ping {
//!     ($send:expr, $cq:expr, $rounds:expr) => {{
//!         for wr_id in 0..$rounds {
//!             let mut guard = $send.start_post_send();
//!             guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"ping");
//!             guard.post()?;
//!             loop {
//!                 match $cq.start_poll() {
//!                     Ok(mut poller) => {
//!                         while let Some(completion) = poller.next()? {
//!                             println!("{}: {}", completion.wr_id(), completion.status());
//!                         }
//!                         break;
//!                     }
//!                     Err(PollCompletionQueueError::CompletionQueueEmpty) => continue,
//!                     Err(error) => return Err(error.into()),
//!                 }
//!             }
//!         }
//!         Ok(())
//!     }};
//! }
//!
//! fn run(
//!     qp: &mut GenericQueuePair,
//!     cq: &mut GenericCompletionQueue,
//!     rounds: u64,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     match (qp.queues().0, cq) {
//!         (GenericSendQueue::Extended(send), GenericCompletionQueue::Extended(cq)) => ping!(send, cq, rounds),
//!         (GenericSendQueue::Extended(send), GenericCompletionQueue::Basic(cq)) => ping!(send, cq, rounds),
//!         (GenericSendQueue::Basic(send), GenericCompletionQueue::Extended(cq)) => ping!(send, cq, rounds),
//!         (GenericSendQueue::Basic(send), GenericCompletionQueue::Basic(cq)) => ping!(send, cq, rounds),
//!     }
//! }
//! ```
//!
//! What all this costs, counted in instructions beside the same loops in C, is in the repository's BENCHMARKING.md ("Zero
//! cost"); a test keeps it so.
