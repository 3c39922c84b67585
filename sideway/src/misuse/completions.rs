//! Polling an owned queue, and sharing a channel:
//!
//! ```
//! use sideway::ibverbs::completion::{CompletionChannel, ExtendedCompletionQueue, PollCompletionQueueError};
//! fn poll(cq: &mut ExtendedCompletionQueue) -> u64 {
//!     let mut poller = cq.start_poll().unwrap();
//!     let first = poller.next().unwrap().unwrap().wr_id();
//!     let second = poller.next().unwrap().unwrap().wr_id();
//!     drop(poller);
//!     let _ = cq.poll_each(2, |completion| Ok::<_, PollCompletionQueueError>(drop(completion.wr_id())));
//!     cq.resize(100).unwrap();
//!     first + second
//! }
//! fn share(channel: &std::sync::Arc<CompletionChannel>) -> std::sync::Arc<CompletionChannel> {
//!     channel.clone()
//! }
//! ```
//!
//! Completions of an extended queue share one cursor, so a program cannot hold two at once:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::completion::ExtendedCompletionQueue;
//! fn collect(cq: &mut ExtendedCompletionQueue) {
//!     let mut poller = cq.start_poll().unwrap();
//!     let first = poller.next().unwrap();
//!     let second = poller.next().unwrap();
//!     drop((first, second));
//! }
//! ```
//!
//! Basic queues have the same rule, so that a program works with both kinds:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::completion::BasicCompletionQueue;
//! fn collect(cq: &mut BasicCompletionQueue) {
//!     let mut poller = cq.start_poll().unwrap();
//!     let first = poller.next().unwrap();
//!     let second = poller.next().unwrap();
//!     drop((first, second));
//! }
//! ```
//!
//! Generic queues have the same rule:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::completion::GenericCompletionQueue;
//! fn collect(cq: &mut GenericCompletionQueue) {
//!     let mut poller = cq.start_poll().unwrap();
//!     let mut all = Vec::new();
//!     while let Some(completion) = poller.next().unwrap() {
//!         all.push(completion);
//!     }
//! }
//! ```
//!
//! After the poll, the cursor is invalid:
//!
//! ```compile_fail,E0505
//! use sideway::ibverbs::completion::ExtendedCompletionQueue;
//! fn keep(cq: &mut ExtendedCompletionQueue) -> u64 {
//!     let mut poller = cq.start_poll().unwrap();
//!     let completion = poller.next().unwrap().unwrap();
//!     drop(poller);
//!     completion.wr_id()
//! }
//! ```
//!
//! A completion that is passed to a closure is valid only during the call:
//!
//! ```compile_fail,E0521
//! use sideway::ibverbs::completion::{GenericCompletionQueue, PollCompletionQueueError};
//! fn keep(cq: &mut GenericCompletionQueue) -> u64 {
//!     let mut kept = None;
//!     let _ = cq.poll_each(2, |completion| {
//!         kept = Some(completion);
//!         Ok::<_, PollCompletionQueueError>(())
//!     });
//!     kept.unwrap().wr_id()
//! }
//! ```
//!
//! A closure cannot poll the queue whose completions it receives:
//!
//! ```compile_fail,E0500
//! use sideway::ibverbs::completion::ExtendedCompletionQueue;
//! fn twice(cq: &mut ExtendedCompletionQueue) {
//!     let _ = cq.poll_each(2, |_| cq.start_poll().map(drop));
//! }
//! ```
//!
//! An iterator cannot lend its items, because all items would be the same cursor:
//!
//! ```compile_fail,E0277
//! use sideway::ibverbs::completion::ExtendedPoller;
//! fn iterate(poller: ExtendedPoller<'_>) {
//!     for _ in poller {}
//! }
//! ```
//!
//! A poll ends before its queue is dropped:
//!
//! ```compile_fail,E0505
//! use sideway::ibverbs::completion::ExtendedCompletionQueue;
//! fn keep(mut cq: ExtendedCompletionQueue) {
//!     let poller = cq.start_poll().unwrap();
//!     drop(cq);
//!     drop(poller);
//! }
//! ```
//!
//! While a queue is polled, drivers hold its lock or use none, so a queue has one poll at a time:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::completion::ExtendedCompletionQueue;
//! fn twice(cq: &mut ExtendedCompletionQueue) {
//!     let first = cq.start_poll().unwrap();
//!     let second = cq.start_poll().unwrap();
//!     drop((first, second));
//! }
//! ```
//!
//! The cursor points into the memory that a resize replaces:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::completion::ExtendedCompletionQueue;
//! fn resize(cq: &mut ExtendedCompletionQueue) {
//!     let poller = cq.start_poll().unwrap();
//!     cq.resize(100).unwrap();
//!     drop(poller);
//! }
//! ```
//!
//! A shared queue cannot be polled without a lock of the program:
//!
//! ```compile_fail,E0596
//! use sideway::ibverbs::completion::ExtendedCompletionQueue;
//! fn shared(cq: std::sync::Arc<ExtendedCompletionQueue>) {
//!     drop(cq.start_poll());
//! }
//! ```
//!
//! An event names a completion queue, and only the owner polls it:
//!
//! ```compile_fail,E0599
//! use sideway::ibverbs::async_event::AsyncEventElement;
//! fn named(element: AsyncEventElement) {
//!     if let AsyncEventElement::CompletionQueue(mut cq) = element {
//!         drop(cq.start_poll());
//!     }
//! }
//! ```
//!
//! A copy of a queue would be a second way to poll it:
//!
//! ```compile_fail,E0277
//! fn copy<T: Clone>() {}
//! copy::<sideway::ibverbs::completion::GenericCompletionQueue>();
//! ```
//!
//! A copy would destroy the channel twice. Share the `Arc`:
//!
//! ```compile_fail,E0277
//! fn copy<T: Clone>() {}
//! copy::<sideway::ibverbs::completion::CompletionChannel>();
//! ```
