//! One batch at a time on each queue, and a single-threaded queue in its thread:
//!
//! ```
//! use sideway::ibverbs::queue_pair::{ExtendedQueuePair, QueuePair};
//! use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueAttribute};
//! use sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue;
//! use sideway::ibverbs::work_queue::{WorkQueue, WorkQueueAttribute};
//! fn send(mut qp: ExtendedQueuePair) {
//!     drop(qp.start_post_send());
//!     drop(qp.start_post_send());
//!     drop(qp);
//! }
//! fn receive(srq: &mut SharedReceiveQueue, wq: &mut WorkQueue) {
//!     drop(srq.start_post_recv());
//!     drop(srq.modify(SharedReceiveQueueAttribute::new().setup_max_wr(9)));
//!     drop(wq.start_post_recv());
//!     drop(wq.start_post_recv());
//!     let _ = wq.modify(&WorkQueueAttribute::new());
//! }
//! fn poll(cq: &mut SingleThreadedCompletionQueue) {
//!     drop(cq.start_poll().unwrap().next());
//! }
//! ```
//!
//! A queue pair has one batch at a time, because the driver would write two batches to the same place:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::queue_pair::{ExtendedQueuePair, QueuePair};
//! fn twice(qp: &mut ExtendedQueuePair) {
//!     let first = qp.start_post_send();
//!     let second = qp.start_post_send();
//!     drop((first, second));
//! }
//! ```
//!
//! A batch ends before its queue pair is dropped:
//!
//! ```compile_fail,E0505
//! use sideway::ibverbs::queue_pair::{ExtendedQueuePair, QueuePair};
//! fn keep(mut qp: ExtendedQueuePair) {
//!     let guard = qp.start_post_send();
//!     drop(qp);
//!     drop(guard);
//! }
//! ```
//!
//! An event names a queue pair, and only the owners of its queues post to it:
//!
//! ```compile_fail,E0599
//! use sideway::ibverbs::async_event::AsyncEventElement;
//! fn named(element: AsyncEventElement) {
//!     if let AsyncEventElement::QueuePair(mut qp) = element {
//!         drop(qp.start_post_send());
//!     }
//! }
//! ```
//!
//! A copy of a queue pair would be a second way to post:
//!
//! ```compile_fail,E0277
//! fn copy<T: Clone>() {}
//! copy::<sideway::ibverbs::queue_pair::BasicQueuePair>();
//! ```
//!
//! A copy of a shared receive queue would be a second way to post:
//!
//! ```compile_fail,E0277
//! fn copy<T: Clone>() {}
//! copy::<sideway::ibverbs::shared_receive_queue::SharedReceiveQueue>();
//! ```
//!
//! A shared receive queue cannot be posted to without a lock of the program:
//!
//! ```compile_fail,E0596
//! use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
//! fn shared(srq: std::sync::Arc<SharedReceiveQueue>) {
//!     drop(srq.start_post_recv());
//! }
//! ```
//!
//! A resize replaces the requests in which a batch is built:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueAttribute};
//! fn resize(mut srq: SharedReceiveQueue) {
//!     let guard = srq.start_post_recv();
//!     drop(srq.modify(SharedReceiveQueueAttribute::new().setup_max_wr(9)));
//!     drop(guard);
//! }
//! ```
//!
//! A work queue has one batch at a time:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::work_queue::WorkQueue;
//! fn twice(queue: &mut WorkQueue) {
//!     let first = queue.start_post_recv();
//!     let second = queue.start_post_recv();
//!     drop((first, second));
//! }
//! ```
//!
//! A work queue keeps its state during a batch:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::work_queue::{WorkQueue, WorkQueueAttribute};
//! fn change(queue: &mut WorkQueue) {
//!     let batch = queue.start_post_recv();
//!     let _ = queue.modify(&WorkQueueAttribute::new());
//!     drop(batch);
//! }
//! ```
//!
//! The driver takes no lock for a single-threaded queue:
//!
//! ```compile_fail,E0277
//! fn goes_elsewhere<T: Send>() {}
//! goes_elsewhere::<sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue>();
//! ```
//!
//! Destroying a queue pair accesses its completion queue, which has no lock:
//!
//! ```compile_fail,E0277
//! use sideway::ibverbs::queue_pair::ExtendedQueuePair;
//! use sideway::ibverbs::single_threaded::SingleThreadedQueuePair;
//! fn goes_elsewhere<T: Send>() {}
//! goes_elsewhere::<SingleThreadedQueuePair<ExtendedQueuePair>>();
//! ```
//!
//! A poll uses its single-threaded queue until it ends:
//!
//! ```compile_fail,E0277
//! use sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue;
//! fn poll(cq: &mut SingleThreadedCompletionQueue) {
//!     let mut poller = cq.start_poll().unwrap();
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| poller.next().map(drop));
//!     });
//! }
//! ```
//!
//! A queue pair of another kind could be destroyed on another thread, which accesses the queue:
//!
//! ```compile_fail,E0277
//! use sideway::ibverbs::queue_pair::QueuePairBuilder;
//! use sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue;
//! fn lend(builder: &mut QueuePairBuilder, cq: &SingleThreadedCompletionQueue) {
//!     builder.setup_send_cq(cq);
//! }
//! ```
//!
//! A domain created from a thread domain on another thread would share its doorbell:
//!
//! ```compile_fail,E0277
//! fn is_shared<T: Sync>() {}
//! is_shared::<sideway::ibverbs::thread_domain::ThreadDomain>();
//! ```
//!
//! Queue pairs accept only the queues of this crate, because the items that a `CompletionQueue` needs are private:
//!
//! ```compile_fail,E0603
//! use sideway::ibverbs::completion::queue::AsCore;
//! ```
//!
//! Only this crate defines services, operations and addresses, because the items that their traits need are private:
//!
//! ```compile_fail,E0603
//! use sideway::ffi::Sealed;
//! ```
