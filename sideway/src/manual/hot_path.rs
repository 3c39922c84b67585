//! Posting and polling.
//!
//! The compiler inlines every call of the hot path down to the call of the driver's function, as in C. For example,
//! posting a write stores `wr_id` and the flags, and calls `wr_rdma_write` and `wr_set_sge`. This library adds no
//! allocation, no lock, and no check of a capability.
//!
//! - **Operations** are fixed when the queue pair is built
//!   ([`setup_send_ops_flags`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_send_ops_flags)). If a request uses
//!   another operation, `post` returns a typed error. This check costs nothing, because the builder replaces the
//!   driver's null function pointers by functions that reject the request.
//! - **The required parts of a request** are part of its type. Examples are the address of a datagram, and the shared
//!   receive queue of an XRC message. A request that lacks a required part does not compile. Only two checks are made
//!   at run time. An address handle must belong to the same device (unless the program uses `setup_ud_addr_unchecked`),
//!   and it must be possible to bind a memory window as requested.
//! - **One thread**: the objects of [`single_threaded`](crate::ibverbs::single_threaded) stay on their thread. They
//!   take no lock if the device supports queues without locks.
//! - **Batches**: a guard can hold several requests, and one `post` rings only one doorbell for all of them.
//! - **Completions**: `poll_each` passes up to N completions of one poll to a closure. `start_poll` returns a poller,
//!   whose `next` returns one completion at a time. `poll_each` takes a maximum number of completions, and makes no
//!   check between two completions. The poller is suitable for programs that do other work before the poll ends.
//! - **Generic objects**: `GenericQueuePair` matches its kind once per batch. `GenericCompletionQueue` matches its kind
//!   once per poll, both in [`poll_each`](crate::ibverbs::completion::GenericCompletionQueue::poll_each) and in
//!   `start_poll` with `next`. The compiler emits a loop for each kind, unless the loop is large. To match before the
//!   loop, borrow the send queue ([`queues`](crate::ibverbs::queue_pair::Pair::queues)), match both queues, and run a
//!   function that is generic over [`SendQueue`](crate::ibverbs::queue_pair::SendQueue) and
//!   [`PollCompletions`](crate::ibverbs::completion::PollCompletions). See the second example below.
//! - **A full queue**: the driver rejects the request with
//!   [`NotEnoughResources`](crate::ibverbs::work_request::PostErrorKind::NotEnoughResources); this crate adds no check.
//!   The extended interface of mlx5's driver does not check for a full queue, so `build_generic` builds basic queue
//!   pairs on mlx5. A program that counts its outstanding requests can guarantee that the queue never overflows, by
//!   calling the unsafe method [`assume_send_room`](crate::ibverbs::queue_pair::QueuePairBuilder::assume_send_room)
//!   ([`quirks`](super::quirks#send-queues-without-an-overflow-check)).
//! - **Two threads**: `split` a queue pair into its send queue and its receive queue.
//! - **Basic queue pairs** allocate their requests when they are built, so a batch is linked and posted without an
//!   allocation. If a batch is as long as the previous one, not even the links between its requests are written.
//! - A **prepared list** costs as much as a list that a C program keeps and posts again. The program builds the list
//!   once ([`prepare`](crate::ibverbs::queue_pair::BasicSendQueue::prepare)) and posts it many times
//!   ([`post_prepared`](crate::ibverbs::queue_pair::BasicSendQueue::post_prepared)). Between two posts, safe setters
//!   change the number, remote address, immediate data and signaling of a request; an unsafe setter changes its local
//!   address. The list borrows the data that its requests borrow, and belongs to one basic send queue.
//!   [`PreparedSends`](crate::ibverbs::queue_pair::PreparedSends) has an example.
//! - **Inline data** is copied into a basic queue pair before the call returns. 16 to 64 bytes are copied without a
//!   function call. If the bytes outlive the batch,
//!   [`setup_borrowed_inline_data`](crate::ibverbs::work_request::LocalBufferHandle::setup_borrowed_inline_data) leaves
//!   the copy to the driver, as C does.
//!
//! This example posts receives again after they complete, up to 32 at a time, on a queue of any kind:
//!
//! ```
//! use sideway::ibverbs::completion::{GenericCompletionQueue, WorkCompletionStatus};
//! use sideway::ibverbs::memory_region::LocalKey;
//! use sideway::ibverbs::work_request::ReceiveQueue;
//!
//! /// Posts completed receives again, and returns their number. Receive N has the 4096 bytes at `buffers + 4096 * N`.
//! ///
//! /// # Safety
//! ///
//! /// Nothing else uses the buffers while receives are outstanding.
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
//!         // SAFETY: the device has filled the buffer, and nothing else uses it.
//!         unsafe { request.setup_sge(lkey, buffers + 4096 * completion.wr_id(), 4096) };
//!         Ok::<_, Box<dyn std::error::Error>>(())
//!     })?;
//!     guard.post()?;
//!     Ok(taken)
//! }
//! ```
//!
//! This example matches on the kind of both queues before the loop:
//!
//! ```
//! use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError, PollCompletions, WorkCompletion};
//! use sideway::ibverbs::queue_pair::{Connected, GenericQueuePair, GenericSendQueue, PostSendGuard, SendQueue};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//!
//! /// Posts a request and waits for its completion, `rounds` times, on queues of any kind.
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
//! The repository's BENCHMARKING.md ("Zero cost") compares the instruction counts with those of the same loops in C. A
//! test checks the ratios.
