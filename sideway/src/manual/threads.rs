//! Completions and events in threads and async runtimes.
//!
//! # Sharing objects
//!
//! The compiler enforces sharing rules through `Send`, `Sync` and `&mut`. For posting and polling, this crate takes no
//! lock.
//!
//! | types | used by |
//! |---|---|
//! | [`DeviceContext`], [`ProtectionDomain`], [`MemoryRegion`], [`AddressHandle`], [`CompletionChannel`], [`AsyncEventChannel`], and their events | any number of threads at once, in an `Arc` or cloned |
//! | [`GenericCompletionQueue`] and its variants, [`GenericQueuePair`] with its variants and halves, [`SharedReceiveQueue`], [`MemoryWindow`], [`OwnedMemoryRegion`] | one thread at a time: polling, posting, binding and writing take `&mut` |
//! | pollers of extended queues, completions borrowed from them, batches being built | the thread that created them; they borrow the queue |
//! | all of [`single_threaded`](crate::ibverbs::single_threaded), [`ThreadDomain`](crate::ibverbs::thread_domain::ThreadDomain) | the thread that created them |
//! | [`Identifier`](crate::rdmacm::Identifier), [`EventChannel`](crate::rdmacm::communication_manager::EventChannel) | any number of threads at once; calls on one identifier are serialized |
//!
//! ```
//! # use sideway::ibverbs::address::AddressHandle;
//! # use sideway::ibverbs::async_event::{AsyncEvent, AsyncEventChannel};
//! # use sideway::ibverbs::completion::*;
//! # use sideway::ibverbs::device_context::DeviceContext;
//! # use sideway::ibverbs::memory_region::{MemoryRegion, OwnedMemoryRegion};
//! # use sideway::ibverbs::memory_window::MemoryWindow;
//! # use sideway::ibverbs::protection_domain::ProtectionDomain;
//! # use sideway::ibverbs::queue_pair::*;
//! # use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
//! # use sideway::rdmacm::{Identifier, communication_manager::EventChannel};
//! fn goes_anywhere<T: Send + Sync + 'static>() {}
//!
//! goes_anywhere::<DeviceContext>();
//! # goes_anywhere::<(ProtectionDomain, MemoryRegion, AddressHandle, CompletionChannel, AsyncEventChannel)>();
//! # goes_anywhere::<(AsyncEvent, CompletionEvent)>();
//! # goes_anywhere::<(BasicCompletionQueue, ExtendedCompletionQueue, SharedReceiveQueue, MemoryWindow, OwnedMemoryRegion)>();
//! # goes_anywhere::<(BasicQueuePair, ExtendedQueuePair, GenericQueuePair<Datagram>, GenericSendQueue, ReceiveQueue)>();
//! # goes_anywhere::<(Identifier, EventChannel)>();
//! goes_anywhere::<GenericCompletionQueue>();
//! goes_anywhere::<GenericQueuePair>();
//! ```
//!
//! # One queue per thread
//!
//! In the simplest design, each thread has its own queue pairs and completion queue. In the examples, a `Side` is a
//! queue pair with its completion queue and memory. `near` and `far` are two sides that are connected with each other.
//! They are created as in [`getting_started`](super::getting_started). `wait` polls until a request completes.
//!
//! ```
//! use std::thread;
//!
//! use sideway::ibverbs::completion::WorkCompletionStatus;
//! use sideway::ibverbs::memory_region::RemoteKey;
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # use sides::{Side, two_sides, wait};
//!
//! type Fault = Box<dyn std::error::Error + Send + Sync>;
//!
//! /// Uses the queue pair, completion queue and memory of a `Side`, then returns it, because the peer still writes to
//! /// its memory.
//! fn work(mut side: Side, key: RemoteKey, address: u64) -> Result<Side, Fault> {
//!     for wr_id in 0..1000 {
//!         let mut batch = side.qp.start_post_send();
//!         batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_write(key, address).setup_inline_data(b"hello");
//!         batch.post()?;
//!         let completion = wait(&mut side.cq)?;
//!         assert_eq!((completion.wr_id, completion.status), (wr_id, WorkCompletionStatus::Success));
//!     }
//!     Ok(side)
//! }
//!
//! # fn main() -> Result<(), sides::Fault> {
//! # let [near, far] = two_sides()?;
//! let (near_memory, far_memory) = ((near.memory.rkey(), near.memory.addr()), (far.memory.rkey(), far.memory.addr()));
//! let one = thread::spawn(move || work(near, far_memory.0, far_memory.1));
//! let other = thread::spawn(move || work(far, near_memory.0, near_memory.1));
//! let sides = [one.join(), other.join()].map(|side| side.expect("no thread panics"));
//! # for side in sides { side?; }
//! # Ok(())
//! # }
//! ```
//!
//! - **One queue pair, two threads**: [`split`] moves the send queue to one thread and the receive queue to another,
//!   without a lock between them. [`queues`] borrows both queues at once. Each half can have its own completion queue.
//! - **Many threads, one queue pair**: put the queue pair in a `Mutex`. The driver also takes its own lock. If there is
//!   contention, give each thread its own queue pair.
//! - **One thread, many queue pairs**: use one completion queue for all queue pairs. [`qp_num`] and `wr_id` identify
//!   the request of each completion. The completion queue needs an entry for each outstanding request, because it is
//!   unusable after an overrun.
//! - **Without locks**: use the [objects of one thread](#objects-of-one-thread).
//!
//! Do not drop a queue pair while the same thread polls its completion queue, because this can deadlock. Drop it after
//! the poll ([quirks](super::quirks#all-drivers)).
//!
//! # Objects of one thread
//!
//! Drivers lock their queues even without contention. The queues in
//! [`single_threaded`](crate::ibverbs::single_threaded) have no lock, and the compiler confines them to the thread that
//! created them. They support polling but no events.
//!
//! ```
//! use sideway::ibverbs::single_threaded::SingleThreadedDomain;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! let pd = context.alloc_pd()?;
//! let domain = match context.alloc_td() {
//!     Ok(td) => pd.create_parent_domain_builder().build_single_threaded(&td)?,
//!     // Without thread domains, queue pairs keep their lock; completion queues still have none.
//!     Err(error) if error.errno().raw() == libc::EOPNOTSUPP => SingleThreadedDomain::new(&pd),
//!     Err(error) => return Err(error.into()),
//! };
//! let cq = domain.create_cq_builder().setup_cqe(256).build()?;
//! let qp = domain.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_generic()?;
//! # drop(qp);
//! # Ok(())
//! # }
//! ```
//!
//! ```compile_fail,E0277
//! fn goes_elsewhere<T: Send>() {}
//!
//! goes_elsewhere::<sideway::ibverbs::single_threaded::SingleThreadedCompletionQueue>();
//! ```
//!
//! Memory is registered in the protection domain, and any thread may use it. Each thread creates its own queues.
//!
//! # Sleeping until a completion
//!
//! Polling occupies a processor. A [`CompletionChannel`] is a file descriptor that becomes readable when an *armed*
//! queue has a completion. Poll until the queue is empty, arm it ([`req_notify`]), **poll again**, then sleep.
//! On many devices, completions that arrive between the first poll and the arming raise no event. So a program that
//! omits the second poll may sleep forever.
//!
//! A completion may already exist when the post returns. For example, softrnic completes requests on the thread that
//! posts them. So if you arm the queue after posting, poll once more before sleeping.
//!
//! ```text
//! poll: empty ─► a completion comes ─► req_notify ─► sleep                    forever
//! poll: empty ─► a completion comes ─► req_notify ─► poll: there it is        right
//! poll: empty ─► req_notify ─► a completion comes ─► poll: there it is        right; the event wakes in vain
//! ```
//!
//! ```
//! use std::error::Error;
//! use std::time::Duration;
//!
//! use sideway::ibverbs::completion::{
//!     CompletionChannel, CompletionQueue, CompletionRecord, GenericCompletionQueue, PollCompletions,
//! };
//! # use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
//! # use sideway::ibverbs::work_request::WorkRequestFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//!
//! type Fault = Box<dyn Error + Send + Sync>;
//!
//! /// Sleeps until a request completes, and polls its completion.
//! fn sleep(channel: &CompletionChannel, cq: &mut GenericCompletionQueue) -> Result<Vec<CompletionRecord>, Fault> {
//!     let mut records = Vec::new();
//!     loop {
//!         cq.poll_records(&mut records)?;
//!         if !records.is_empty() {
//!             return Ok(records);
//!         }
//!         cq.req_notify(false)?;
//!         cq.poll_records(&mut records)?; // completions before arming
//!         if !records.is_empty() {
//!             return Ok(records);
//!         }
//!         channel.get_cq_event(Some(Duration::from_secs(60)))?; // acknowledged when taken
//!     }
//! }
//! # fn main() -> Result<(), sides::Fault> {
//! # let [mut near, mut far] = sides::two_sides()?;
//! # let channel = near.channel.clone();
//! # let waiting = std::thread::spawn(move || sleep(&channel, &mut near.cq).map(|records| records.len()));
//! # let mut receives = near.qp.start_post_recv();
//! # receives.construct_wr(1).setup_no_data();
//! # receives.post()?;
//! # let mut batch = far.qp.start_post_send();
//! # batch.construct_wr(1, WorkRequestFlags::Signaled).setup_send().setup_no_data();
//! # batch.post()?;
//! # assert_eq!(waiting.join().expect("it waits")?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! - Each arming causes one event. Events are acknowledged when they are taken, so keeping an event does not block any
//!   other call.
//! - An event for a completion that was already polled is harmless. It only makes the next sleep return immediately.
//! - If several queues share one channel, [`is_of`](crate::ibverbs::completion::CompletionEvent::is_of) and
//!   [`cq_context`](crate::ibverbs::completion::CompletionQueue::cq_context) identify the queue of an event. The event
//!   itself can arm the queue again.
//! - Several threads may take events from one channel: each event goes to one of them.
//! - The second argument of
//!   [`setup_comp_channel`](crate::ibverbs::completion::CompletionQueueBuilder::setup_comp_channel) selects the
//!   completion vector, which determines the interrupt and thereby the processor. It is a number from 0 to
//!   [`num_comp_vectors`](crate::ibverbs::device_context::DeviceContext::num_comp_vectors) − 1.
//!
//! ## Reducing events
//!
//! **Solicited events.** `req_notify(true)` requests an event for the next message sent with
//! [`Solicited`](crate::ibverbs::work_request::WorkRequestFlags::Solicited), or the next failed request. A sender that
//! sets the flag on the last of several messages wakes the receiver once.
//!
//! **Moderation.** The device delays an event until N completions are queued or a period has passed, whichever is first
//! ([`CompletionModeration`](crate::ibverbs::completion::CompletionModeration)).
//! [`cq_mod_caps`](crate::ibverbs::device_context::DeviceAttr::cq_mod_caps) reports the device's limits.
//!
//! ```
//! use sideway::ibverbs::completion::{CompletionModeration, CompletionQueue};
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! let cq = context.create_cq_builder().build_generic()?;
//! let (limits, moderation) = (context.query_device()?.cq_mod_caps(), CompletionModeration { count: 16, period_us: 50 });
//! if limits.max_cq_count() >= moderation.count && limits.max_cq_period() >= moderation.period_us {
//!     cq.modify(moderation)?; // 16 completions, or 50 us after the first of them
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Asynchronous events
//!
//! A second file descriptor reports events of the device, its ports and its objects. Read the events in a dedicated
//! thread or in the program's event loop. This is optional, but with these events a program can react before requests
//! fail ([`async_event`](crate::ibverbs::async_event)).
//!
//! ```
//! use std::time::Duration;
//!
//! use sideway::ibverbs::async_event::{AsyncEventElement, AsyncEventType};
//! use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairState};
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let [near, _far] = sides::two_sides()?;
//! # let context = near.memory.region().protection_domain().device_context();
//! let events = context.async_events()?;
//!
//! // Request an event when the send queue has drained.
//! let mut drain = QueuePairAttribute::new();
//! near.qp.modify(drain.setup_state(QueuePairState::SendQueueDrain).setup_sqd_async_notify(true))?;
//!
//! let event = events.get_async_event(Some(Duration::from_secs(60)))?;
//! match (event.event_type(), event.element()) {
//!     (AsyncEventType::SendQueueDrained, AsyncEventElement::QueuePair(qp)) => assert!(qp.is_of(&near.qp)),
//!     _ => println!("{event}"),
//! }
//! # assert_eq!(event.event_type(), AsyncEventType::SendQueueDrained);
//! # Ok(())
//! # }
//! ```
//!
//! A device context has one event queue. All its channels read from that queue, and each event goes to one of them. An
//! event holds a reference to its object. Until the event is dropped, `close` of the object returns `EBUSY`.
//!
//! # In an async runtime
//!
//! The crate works with any runtime: a channel is a non-blocking file descriptor ([`AsRawFd`](std::os::fd::AsRawFd))
//! that the runtime can watch. With tokio:
//!
//! ```
//! use std::error::Error;
//! use std::sync::Arc;
//!
//! use sideway::ibverbs::completion::{CompletionChannel, CompletionEvent, CompletionQueue, PollCompletions};
//! use tokio::io::Interest;
//! use tokio::io::unix::AsyncFd;
//! # use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
//! # use sideway::ibverbs::work_request::WorkRequestFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # use sides::Side;
//!
//! type Fault = Box<dyn Error + Send + Sync>;
//!
//! /// Watch for events, and for the error that reports device removal.
//! const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);
//!
//! async fn next_event(watched: &AsyncFd<Arc<CompletionChannel>>) -> Result<CompletionEvent, Fault> {
//!     loop {
//!         let mut guard = watched.ready(INTEREST).await?;
//!         match guard.get_inner().try_get_cq_event()? {
//!             Some(event) => return Ok(event), // the descriptor stays ready, as there may be more
//!             None => guard.clear_ready(),     // from here on the next change counts
//!         }
//!     }
//! }
//!
//! async fn receive(side: &mut Side, watched: &AsyncFd<Arc<CompletionChannel>>) -> Result<usize, Fault> {
//!     let mut records = Vec::new();
//!     loop {
//!         side.cq.poll_records(&mut records)?;
//!         if records.is_empty() {
//!             side.cq.req_notify(false)?;
//!             side.cq.poll_records(&mut records)?; // completions before arming, as above
//!         }
//!         if !records.is_empty() {
//!             return Ok(records.len());
//!         }
//!         next_event(watched).await?;
//!     }
//! }
//!
//! # fn main() -> Result<(), sides::Fault> {
//! # let [mut near, mut far] = sides::two_sides()?;
//! # let mut receives = near.qp.start_post_recv();
//! # receives.construct_wr(1).setup_no_data();
//! # receives.post()?;
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! let received = runtime.block_on(async {
//!     // SAFETY: the channel owns the descriptor, which stays open and unchanged while it is watched.
//!     let watched = unsafe { AsyncFd::register_with_interest(Arc::clone(&near.channel), INTEREST) }?;
//!     let sending = async {
//!         tokio::task::yield_now().await; // let the receiver go to sleep first
//!         let mut batch = far.qp.start_post_send();
//!         batch.construct_wr(1, WorkRequestFlags::Signaled).setup_send().setup_no_data();
//!         batch.post().map_err(Fault::from)
//!     };
//!     let (received, _) = tokio::try_join!(receive(&mut near, &watched), sending)?;
//!     Ok::<_, Fault>(received)
//! })?;
//! assert_eq!(received, 1);
//! # Ok(())
//! # }
//! ```
//!
//! - Watch the descriptors of [asynchronous events](crate::ibverbs::async_event::AsyncEventChannel) and the [connection
//!   manager](crate::rdmacm::communication_manager::EventChannel) in the same way. The examples `events_tokio` and
//!   `cm_tokio` in the repository show all three descriptors.
//! - The runtime must also watch for errors. Otherwise, the program does not detect device removal.
//! - **Dropping a future cancels no request.** `select!` and time-outs drop futures, but posted requests stay
//!   outstanding, and their memory must stay valid. So store the memory together with the queue pair, as `Side` does,
//!   and not in the future. See [`teardown`](super::teardown).
//! - Batches and pollers are not `Send`, so post the batch or end the poll before an `await`.
//! - A task that polls in a loop without sleeping starves other tasks. Run such a loop in its own thread, or yield in
//!   it.
//!
//! # Time-outs
//!
//! Each call that waits takes a time-out. `None` means that there is no limit. A signal does not interrupt the wait.
//! Device removal ends it with `EIO` or `ENODEV`. A time-out does not end a request; see [`teardown`](super::teardown).
//!
//! # References
//!
//! [ibv_get_cq_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html),
//! [ibv_req_notify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html),
//! [ibv_get_async_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html); InfiniBand
//! specification, volume 1, sections 11.4.2 (completion queue operations) and 11.6.3 (asynchronous events)
//!
//! [`DeviceContext`]: crate::ibverbs::device_context::DeviceContext
//! [`ProtectionDomain`]: crate::ibverbs::protection_domain::ProtectionDomain
//! [`MemoryRegion`]: crate::ibverbs::memory_region::MemoryRegion
//! [`OwnedMemoryRegion`]: crate::ibverbs::memory_region::OwnedMemoryRegion
//! [`AddressHandle`]: crate::ibverbs::address::AddressHandle
//! [`CompletionChannel`]: crate::ibverbs::completion::CompletionChannel
//! [`AsyncEventChannel`]: crate::ibverbs::async_event::AsyncEventChannel
//! [`GenericCompletionQueue`]: crate::ibverbs::completion::GenericCompletionQueue
//! [`GenericQueuePair`]: crate::ibverbs::queue_pair::GenericQueuePair
//! [`SharedReceiveQueue`]: crate::ibverbs::shared_receive_queue::SharedReceiveQueue
//! [`MemoryWindow`]: crate::ibverbs::memory_window::MemoryWindow
//! [`split`]: crate::ibverbs::queue_pair::Pair::split
//! [`queues`]: crate::ibverbs::queue_pair::Pair::queues
//! [`qp_num`]: crate::ibverbs::completion::GenericWorkCompletion::qp_num
//! [`req_notify`]: crate::ibverbs::completion::CompletionQueue::req_notify
