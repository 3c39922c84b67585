//! Batches of requests, posted once, before what they point to is dropped:
//!
//! ```
//! use sideway::ibverbs::address::AddressHandle;
//! use sideway::ibverbs::queue_pair::{BasicQueuePair, BasicSendQueue, Datagram, PostSendGuard, QueuePair, RawPacket};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn send(qp: &mut BasicQueuePair<Datagram>, queue: &mut BasicSendQueue<Datagram>, ah: &AddressHandle) {
//!     let mut guard = qp.start_post_send();
//!     guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_ud_addr(ah, 2, 3).setup_inline_data(b"x");
//!     drop(guard.post());
//!     let mut list = queue.prepare(1).unwrap();
//!     let mut guard = list.build();
//!     guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_ud_addr(ah, 2, 3).setup_inline_data(b"x");
//!     guard.finish().unwrap();
//!     // SAFETY: the request names no registered memory.
//!     unsafe { queue.post_prepared(&list).unwrap() };
//! }
//! fn borrow(connected: &mut BasicQueuePair, raw: &mut BasicQueuePair<RawPacket>, bytes: &[u8]) {
//!     let mut guard = connected.start_post_send();
//!     guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_borrowed_inline_data(bytes);
//!     drop(guard.post());
//!     let mut guard = raw.start_post_send();
//!     guard.construct_wr(1, WorkRequestFlags::empty()).setup_send_tso(bytes, 1000).setup_no_data();
//!     drop(guard.post());
//! }
//! ```
//!
//! Posting consumes the batch:
//!
//! ```compile_fail,E0382
//! use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};
//! fn twice(guard: BasicPostSendGuard<'_>) {
//!     drop(guard.post());
//!     drop(guard.post());
//! }
//! ```
//!
//! A half-built request prevents posting:
//!
//! ```compile_fail,E0505
//! use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn early(mut guard: BasicPostSendGuard<'_>) {
//!     let request = guard.construct_wr(1, WorkRequestFlags::empty()).setup_send();
//!     drop(guard.post());
//!     request.setup_no_data();
//! }
//! ```
//!
//! A request is finished, or dropped, before the next begins:
//!
//! ```compile_fail,E0499
//! use sideway::ibverbs::queue_pair::{ExtendedPostSendGuard, PostSendGuard};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn twice(mut guard: ExtendedPostSendGuard<'_>) {
//!     let first = guard.construct_wr(1, WorkRequestFlags::empty());
//!     let second = guard.construct_wr(2, WorkRequestFlags::empty());
//!     drop((first, second));
//! }
//! ```
//!
//! An unposted batch points to the address handles of its datagrams:
//!
//! ```compile_fail,E0597
//! use sideway::ibverbs::address::AddressHandle;
//! use sideway::ibverbs::queue_pair::{BasicQueuePair, Datagram, PostSendGuard, QueuePair};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn send(qp: &mut BasicQueuePair<Datagram>, make: fn() -> AddressHandle) {
//!     let mut guard = qp.start_post_send();
//!     {
//!         let ah = make();
//!         guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_ud_addr(&ah, 2, 3).setup_no_data();
//!     }
//!     drop(guard.post());
//! }
//! ```
//!
//! A list that can be posted again points to the address handles of its datagrams, long after it was built:
//!
//! ```compile_fail,E0597
//! use sideway::ibverbs::address::AddressHandle;
//! use sideway::ibverbs::queue_pair::{BasicSendQueue, Datagram, PostSendGuard};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn send(queue: &mut BasicSendQueue<Datagram>, make: fn() -> AddressHandle) {
//!     let mut list = queue.prepare(1).unwrap();
//!     {
//!         let ah = make();
//!         let mut guard = list.build();
//!         guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_ud_addr(&ah, 2, 3).setup_no_data();
//!         guard.finish().unwrap();
//!     }
//!     // SAFETY: the request names no registered memory.
//!     unsafe { queue.post_prepared(&list).unwrap() };
//! }
//! ```
//!
//! A datagram has one destination:
//!
//! ```compile_fail,E0277
//! use sideway::ibverbs::address::AddressHandle;
//! use sideway::ibverbs::queue_pair::{BasicPostSendGuard, Datagram, PostSendGuard};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn send<'q>(mut guard: BasicPostSendGuard<'q, Datagram>, one: &'q AddressHandle, two: &'q AddressHandle) {
//!     let request = guard.construct_wr(1, WorkRequestFlags::empty()).setup_send();
//!     request.setup_ud_addr(one, 2, 3).setup_ud_addr(two, 2, 3).setup_no_data();
//! }
//! ```
//!
//! An unposted batch points to the inline data that it borrows:
//!
//! ```compile_fail,E0597
//! use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn send(qp: &mut BasicQueuePair) {
//!     let mut guard = qp.start_post_send();
//!     {
//!         let bytes = vec![1_u8; 8];
//!         guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_borrowed_inline_data(&bytes);
//!     }
//!     drop(guard.post());
//! }
//! ```
//!
//! An unposted batch points to the headers of its segmented packets:
//!
//! ```compile_fail,E0597
//! use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair, RawPacket};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn send(qp: &mut BasicQueuePair<RawPacket>) {
//!     let mut guard = qp.start_post_send();
//!     {
//!         let header = vec![0; 54];
//!         guard.construct_wr(1, WorkRequestFlags::empty()).setup_send_tso(&header, 1000).setup_no_data();
//!     }
//!     drop(guard.post());
//! }
//! ```
//!
//! Each post of a list hands the memory that its requests name to the device anew:
//!
//! ```compile_fail,E0133
//! use sideway::ibverbs::queue_pair::{BasicSendQueue, PreparedSends};
//! fn send(queue: &mut BasicSendQueue, list: &PreparedSends<'_>) {
//!     queue.post_prepared(list).unwrap();
//! }
//! ```
//!
//! A list under construction has no end yet:
//!
//! ```compile_fail,E0502
//! use sideway::ibverbs::queue_pair::{BasicSendQueue, PostSendGuard, PreparedSends};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn send(queue: &mut BasicSendQueue, list: &mut PreparedSends<'_>) {
//!     let mut guard = list.build();
//!     guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"x");
//!     // SAFETY: the request names no registered memory.
//!     unsafe { queue.post_prepared(list).unwrap() };
//!     guard.finish().unwrap();
//! }
//! ```
//!
//! A list for one service cannot be posted to a queue of another:
//!
//! ```compile_fail,E0308
//! use sideway::ibverbs::queue_pair::{BasicSendQueue, Connected, Datagram, PreparedSends};
//! fn send(queue: &mut BasicSendQueue<Datagram>, list: &PreparedSends<'_, Connected>) {
//!     // SAFETY: the requests name no registered memory.
//!     unsafe { queue.post_prepared(list).unwrap() };
//! }
//! ```
