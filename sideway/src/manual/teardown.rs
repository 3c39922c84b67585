//! Time-outs, dead peers, and memory that the device may still write.
//!
//! # A common bug
//!
//! A program posts a read into a buffer, waits one second, gives up, and frees the buffer. The request is still
//! outstanding. When the response arrives, the device overwrites the data for which the allocator has reused the
//! memory. A time-out in the program does not end the request. A request ends when its **completion has been polled**,
//! or when its queue pair has been **reset or destroyed**.
//!
//! # The sequence
//!
//! 1. Move the queue pair to the Error state. The device then flushes all outstanding requests, in order, on both
//!    queues.
//! 2. Poll until all flushed requests have completed. Requests without [`Signaled`] also produce a completion when
//!    flushed.
//! 3. Destroy the queue pair.
//! 4. Deregister the memory, then free it.
//!
//! [`Pair::tear_down`] does the first three steps. It takes ownership of the buffers, and returns them when no request
//! can use them any more. [`Pair::drain`] does the first two steps, for a queue pair that will be connected again.
//! Dropping an [`OwnedMemoryRegion`](crate::ibverbs::memory_region::OwnedMemoryRegion) does the fourth step.
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
//! # With rdmacm
//!
//! If the queue pair was created through an identifier, end the [`Connection`](crate::rdmacm::Connection) first:
//!
//! 1. [`disconnect`](crate::rdmacm::Connection::disconnect) notifies the peer and moves the queue pair to the Error
//!    state, which flushes outstanding requests. If data must be delivered, wait for the completions of its requests
//!    before this step.
//! 2. [`Pair::tear_down`] polls the flushed requests, destroys the queue pair and returns the buffers.
//! 3. Drop the connection. The connection and the queue pair both hold a reference to the identifier, so steps 2 and 3
//!    may be swapped.
//!
//! If the queue pair is destroyed first, the peer is notified only when the connection is dropped. Until then, the peer
//! retries its requests, which finally fail with [`RetryCounterExceededError`].
//!
//! # Events and their effects
//!
//! | event | effect on the program |
//! |---|---|
//! | the peer dies, or the path is cut | [`RetryCounterExceededError`] on the oldest request after `retry_cnt` + 1 times the queue pair's time-out (at least 4.096 us × 2^`timeout` each), then [`WorkRequestFlushedError`] on all others |
//! | the peer posts no receive | [`ResponderNotReadyRetryCounterExceededError`] after `rnr_retry` + 1 attempts; never if it is 7 |
//! | the peer's key is wrong, or was invalidated | [`RemoteAccessError`] |
//! | a completion queue overruns | an [asynchronous event](crate::ibverbs::async_event), and with some drivers an error from polling; the device cannot flush its queue pairs, so `drain` resets them |
//! | the device is removed | verbs fail with `EIO` or `ENODEV`; teardown cannot flush, and returns an error |
//!
//! # Shared receive queues
//!
//! Receives in a shared receive queue belong to no queue pair until a message consumes them. `drain` waits for the last
//! send, and then until the completion queue has delivered no completions for some time. It then resets the queue pair,
//! which consumes no more shared receives after that. Receives stay posted until other queue pairs consume them or the
//! shared receive queue is destroyed. The shared receive queue is destroyed after its owner and its last queue pair
//! were dropped. With XRC or tag matching, its completion queue must also be dropped before.
//!
//! # Notes
//!
//! - `Drop` never waits and never panics. If a verb fails, `Drop` logs the error and leaks the object; `close` returns
//!   the error.
//! - Dropping a poller ends its poll. With many drivers, this releases a lock that is also needed to destroy a queue
//!   pair.
//! - Children keep their parents alive, so a device context may be dropped before or after them.
//!
//! [`Signaled`]: crate::ibverbs::work_request::WorkRequestFlags::Signaled
//! [`Pair::tear_down`]: crate::ibverbs::queue_pair::Pair::tear_down
//! [`Pair::drain`]: crate::ibverbs::queue_pair::Pair::drain
//! [`RetryCounterExceededError`]: crate::ibverbs::completion::WorkCompletionStatus::RetryCounterExceededError
//! [`WorkRequestFlushedError`]: crate::ibverbs::completion::WorkCompletionStatus::WorkRequestFlushedError
//! [`ResponderNotReadyRetryCounterExceededError`]: crate::ibverbs::completion::WorkCompletionStatus::ResponderNotReadyRetryCounterExceededError
//! [`RemoteAccessError`]: crate::ibverbs::completion::WorkCompletionStatus::RemoteAccessError
