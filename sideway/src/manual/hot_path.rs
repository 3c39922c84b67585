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
//! - **Completions** are given to a closure by `poll_each`, up to so many in one poll, or taken one after the other from the poller that
//!   `start_poll` gives. The first leaves nothing to be asked between two completions, and is bounded; the second fits where the program goes
//!   on elsewhere before the poll has ended. See the first example below.
//! - **Either kind**: `GenericQueuePair` chooses by a match per batch, and a `GenericCompletionQueue` by one per poll, with
//!   [`poll_each`](crate::ibverbs::completion::GenericCompletionQueue::poll_each) as with `start_poll` and `next`: the compiler makes a loop
//!   for each kind, unless the loop is large. To take
//!   the choice out of a loop, match once outside ([`queues`](crate::ibverbs::queue_pair::Pair::queues) lends the send queue to match on),
//!   and run the loop on the queues inside, as a function that is generic over
//!   [`SendQueue`](crate::ibverbs::queue_pair::SendQueue) and [`PollCompletions`](crate::ibverbs::completion::PollCompletions): the
//!   compiler makes the loop of each kind. See the second example below.
//! - **A full queue** is refused by the driver with [`NotEnoughResources`](crate::ibverbs::work_request::PostErrorKind::NotEnoughResources),
//!   at no cost here. mlx5's driver does not check on its extended interface: there `build_generic` makes basic queue pairs, unless the
//!   program counts what is outstanding and promises that by the unsafe
//!   [`assume_send_room`](crate::ibverbs::queue_pair::QueuePairBuilder::assume_send_room)
//!   ([`quirks`](super::quirks#send-queues-without-an-overflow-check)).
//! - **Two threads**: `split` a queue pair into its send queue and its receive queue.
//! - **Basic queue pairs** hold as many requests as they were built for, in place; a batch is linked and posted without an
//!   allocation. Batches of one length find the list linked as they left it.
//! - **Prepared lists** cost what a list costs that a C program keeps: it is built once
//!   ([`prepare`](crate::ibverbs::queue_pair::BasicSendQueue::prepare)) and posted many times
//!   ([`post_prepared`](crate::ibverbs::queue_pair::BasicSendQueue::post_prepared)). Between two posts, safe setters change a request's
//!   number, remote address, immediate data and whether it is signaled; an unsafe one changes its local address. The list holds what its
//!   requests borrow, and is of one basic send queue: see the example of
//!   [`PreparedSends`](crate::ibverbs::queue_pair::PreparedSends).
//! - **Inline data** is copied into the queue pair of a basic one before the call returns, 16 to 64 bytes of it in place. Where the
//!   bytes outlive the batch,
//!   [`setup_borrowed_inline_data`](crate::ibverbs::work_request::LocalBufferHandle::setup_borrowed_inline_data) leaves the copy to the
//!   driver, as C does.
//!
//! Receives that have completed are posted again, up to 32 at a time, whatever kind the queue is of:
//!
//! ```
//! use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
//! use sideway::ibverbs::memory_region::LocalKey;
//! use sideway::ibverbs::work_request::ReceiveQueue;
//!
//! /// The receive `n` has the buffer of 4096 bytes that begins at `buffers + 4096 * n`; how many had completed.
//! ///
//! /// # Safety
//! ///
//! /// Nobody else uses the buffers while receives are outstanding.
//! unsafe fn refill(
//!     cq: &mut GenericCompletionQueue,
//!     receives: &mut ReceiveQueue,
//!     (lkey, buffers): (LocalKey, u64),
//! ) -> Result<u32, Box<dyn std::error::Error>> {
//!     let mut guard = receives.start_post_recv();
//!     let taken = cq.poll_each(32, |completion| {
//!         if completion.status() != WorkCompletionStatus::Success {
//!             return Err(format!("receive {}: {}", completion.wr_id(), completion.status()).into());
//!         }
//!         let request = guard.construct_wr(completion.wr_id());
//!         // SAFETY: the device has filled the buffer, and nobody else uses it.
//!         unsafe { request.setup_sge(lkey, buffers + 4096 * completion.wr_id(), 4096) };
//!         Ok::<_, Box<dyn std::error::Error>>(())
//!     })?;
//!     guard.post()?;
//!     Ok(taken)
//! }
//! ```
//!
//! The choice of both queues before the loop:
//!
//! ```
//! use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError, PollCompletions, WorkCompletion};
//! use sideway::ibverbs::queue_pair::{Connected, GenericQueuePair, GenericSendQueue, PostSendGuard, SendQueue};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//!
//! /// Posts a request and waits for it, `rounds` times, on queues of any kind.
//! fn ping(
//!     send: &mut impl SendQueue<Service = Connected>,
//!     cq: &mut impl PollCompletions,
//!     rounds: u64,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     for wr_id in 0..rounds {
//!         let mut guard = send.start_post_send();
//!         guard.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"ping");
//!         guard.post()?;
//!         while cq.poll_each(1, |completion| {
//!             println!("{}: {}", completion.wr_id(), completion.status());
//!             Ok::<_, PollCompletionQueueError>(())
//!         })? == 0
//!         {}
//!     }
//!     Ok(())
//! }
//!
//! fn run(
//!     qp: &mut GenericQueuePair,
//!     cq: &mut GenericCompletionQueue,
//!     rounds: u64,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     match (qp.queues().0, cq) {
//!         (GenericSendQueue::Extended(send), GenericCompletionQueue::Extended(cq)) => ping(send, cq, rounds),
//!         (GenericSendQueue::Extended(send), GenericCompletionQueue::Basic(cq)) => ping(send, cq, rounds),
//!         (GenericSendQueue::Basic(send), GenericCompletionQueue::Extended(cq)) => ping(send, cq, rounds),
//!         (GenericSendQueue::Basic(send), GenericCompletionQueue::Basic(cq)) => ping(send, cq, rounds),
//!     }
//! }
//! ```
//!
//! What all this costs, counted in instructions beside the same loops in C, is in the repository's BENCHMARKING.md ("Zero
//! cost"); a test keeps it so.
