//! Ending things: time-outs, dead peers, and memory that a device may still write.
//!
//! # The bug
//!
//! A program posts a read into a buffer, waits a second, gives up, and frees the buffer. The device has not given up. The answer
//! comes, and is written into whatever the allocator has put there by then. A time-out of the program's own says nothing about a
//! request: it ends when its **completion has been polled**, or when its queue pair has been **reset or destroyed**.
//!
//! # The order
//!
//! 1. Move the queue pair to the error state: everything outstanding is flushed, in order, on both queues.
//! 2. Poll until the flush has been seen to its end. A request without [`Signaled`] is flushed aloud as well.
//! 3. Destroy the queue pair.
//! 4. Deregister the memory, then free it.
//!
//! [`Pair::tear_down`] is the first three: it takes whatever owns the buffers, and gives it back when nothing can use them any
//! more. [`Pair::drain`] is the first two, for a queue pair that is to be connected anew. An
//! [`OwnedMemoryRegion`](crate::ibverbs::memory_region::OwnedMemoryRegion) does the fourth by itself.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use sideway::ibverbs::completion::GenericCompletionQueue;
//! # use sideway::ibverbs::memory_region::OwnedMemoryRegion;
//! # use sideway::ibverbs::queue_pair::GenericQueuePair;
//! # fn end(qp: GenericQueuePair, mut cq: GenericCompletionQueue, buffer: OwnedMemoryRegion) {
//! let result = qp.tear_down(&mut [&mut cq], Duration::from_secs(1), buffer, |completion| {
//!     println!("request {}: {}", completion.wr_id, completion.status);
//! });
//! match result {
//!     Ok(torn_down) => drop(torn_down.buffers),
//!     Err(error) => eprintln!("{error}"), // the buffers are leaked: the device may still use them
//! }
//! # }
//! ```
//!
//! # With a connection
//!
//! Of a queue pair that was made through an identifier, the [`Connection`](crate::rdmacm::Connection) ends first:
//!
//! 1. [`disconnect`](crate::rdmacm::Connection::disconnect) tells the peer, and moves the queue pair to the error state: what is
//!    outstanding is flushed. What is to arrive has completed before.
//! 2. [`Pair::tear_down`] polls the flush to its end, destroys the queue pair and gives the buffers back.
//! 3. The connection is dropped. It and the queue pair both hold the identifier, so the order of these two does not matter to memory.
//!
//! If the queue pair ends first, the peer learns of it only when the connection is dropped; until then its requests are retried, and
//! fail with [`RetryCounterExceededError`].
//!
//! # What ends when
//!
//! | event | what the program sees |
//! |---|---|
//! | the peer dies, or the path is cut | [`RetryCounterExceededError`] on the oldest request after `retry_cnt` + 1 times the time-out of the queue pair (4.096 us × 2^`timeout` each, at least), then [`WorkRequestFlushedError`] for all others |
//! | the peer posts no receive | [`ResponderNotReadyRetryCounterExceededError`] after `rnr_retry` + 1 attempts; never with 7 |
//! | the peer's key is wrong, or was invalidated | [`RemoteAccessError`] |
//! | a completion queue overruns | an [asynchronous event](crate::ibverbs::async_event), and an error from polling where the driver says so: the queue pairs on it cannot be flushed, and `drain` resets them |
//! | the device is unplugged | verbs fail with `EIO` or `ENODEV`; teardown cannot end by flushing, and says so |
//!
//! # Shared receive queues
//!
//! Receives of a shared receive queue belong to no queue pair until a message takes them. `drain` sees the end of the sends,
//! then waits until the completion queue has been silent for a while, and resets the queue pair: from then on it takes no buffer
//! of the shared queue. The buffers that are posted there stay posted until other queue pairs take them, or the shared queue
//! is destroyed: when its owner, the last of its queue pairs and, for a queue of XRC or with tag matching, its completion queue
//! have gone.
//!
//! # Other things
//!
//! - Drop never waits and never panics. It logs what a verb refuses, and leaks the object then; `close` reports.
//! - Dropping a poller ends its poll: on many drivers that gives a lock back which destroying a queue pair needs.
//! - Children keep their parents: dropping a device context first is as good as dropping it last.
//!
//! [`Signaled`]: crate::ibverbs::work_request::WorkRequestFlags::Signaled
//! [`Pair::tear_down`]: crate::ibverbs::queue_pair::Pair::tear_down
//! [`Pair::drain`]: crate::ibverbs::queue_pair::Pair::drain
//! [`RetryCounterExceededError`]: crate::ibverbs::completion::WorkCompletionStatus::RetryCounterExceededError
//! [`WorkRequestFlushedError`]: crate::ibverbs::completion::WorkCompletionStatus::WorkRequestFlushedError
//! [`ResponderNotReadyRetryCounterExceededError`]: crate::ibverbs::completion::WorkCompletionStatus::ResponderNotReadyRetryCounterExceededError
//! [`RemoteAccessError`]: crate::ibverbs::completion::WorkCompletionStatus::RemoteAccessError
