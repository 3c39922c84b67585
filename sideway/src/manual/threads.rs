//! Completions and events in threads, and in an async runtime.
//!
//! # What may go where
//!
//! Sharing is settled by the compiler: `Send` and `Sync`, and `&mut` for what one thread at a time does. Posting and
//! polling take no lock of this crate.
//!
//! | types | threads |
//! |---|---|
//! | [`DeviceContext`], [`ProtectionDomain`], [`MemoryRegion`], [`AddressHandle`], [`CompletionChannel`], [`AsyncEventChannel`], and the events taken from them | any, at once: in an `Arc`, or cloned |
//! | [`GenericCompletionQueue`] and its kin, [`GenericQueuePair`] and its kin and their two queues, [`SharedReceiveQueue`], [`MemoryWindow`], [`OwnedMemoryRegion`] | any, one at a time: polling, posting, binding and writing take `&mut` |
//! | pollers of extended queues, completions lent by them, batches that are being built | the one that began; they borrow the queue |
//! | all of [`single_threaded`](crate::ibverbs::single_threaded), [`ThreadDomain`](crate::ibverbs::thread_domain::ThreadDomain) | the one that made them |
//! | [`Identifier`](crate::rdmacm::Identifier), [`EventChannel`](crate::rdmacm::communication_manager::EventChannel) | any, at once: calls on one identifier take turns |
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
//! # A queue for each thread
//!
//! The simplest division: each thread has queue pairs and a completion queue of its own, and no queue is shared. A `Side` is one
//! queue pair with its completion queue and its memory, and `near` and `far` are two that are connected with each other, made as
//! in [`getting_started`](super::getting_started); `wait` polls until a request has completed.
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
//! /// What a thread does with a queue pair, its completion queue and its memory. It gives them back: the peer still writes there.
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
//! - **One queue pair, two threads**: [`split`] gives the send queue to one and the receive queue to another, with no lock between
//!   them; [`queues`] lends both. Each completes on a queue of its own.
//! - **Many threads, one queue pair**: a `Mutex` around it. The driver's own lock is taken as well; threads that often wait for
//!   each other want queue pairs of their own.
//! - **One thread, many queue pairs**: one completion queue for all; [`qp_num`] and `wr_id` tell whose a completion is. It must
//!   hold all that can be outstanding: a queue that overruns is broken for good.
//! - **No lock at all**: [objects of one thread](#objects-of-one-thread).
//!
//! A thread that drops a queue pair while it polls the queue that this completes on waits for itself: note what is to go, and drop
//! it behind the poll ([quirks](super::quirks#all-drivers)).
//!
//! # Objects of one thread
//!
//! A driver locks its queues, also where nobody contends for them. [`single_threaded`](crate::ibverbs::single_threaded) has queues
//! without a lock, which stay with the thread that made them: the compiler sees to it. They are polled, and raise no events.
//!
//! ```
//! use sideway::ibverbs::single_threaded::SingleThreadedDomain;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! let pd = context.alloc_pd()?;
//! let domain = match context.alloc_td() {
//!     Ok(td) => pd.create_parent_domain_builder().build_single_threaded(&td)?,
//!     // Without thread domains, queue pairs keep their lock, and completion queues have none all the same.
//!     Err(error) if error.errno().raw() == libc::EOPNOTSUPP => SingleThreadedDomain::new(&pd),
//!     Err(error) => return Err(error.into()),
//! };
//! let cq = domain.create_cq_builder().setup_cqe(256).build()?;
//! let qp = domain.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_ex()?;
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
//! Memory is registered in the plain domain, and is anybody's. Each thread makes its queues itself.
//!
//! # Sleeping until something completes
//!
//! Polling takes a processor. A [`CompletionChannel`] is a descriptor that becomes readable when a queue that *asked* has a
//! completion. The order is: poll until empty, ask ([`req_notify`]), **poll again**, and only then sleep. What completes between
//! the last poll and the question raises no event; a program that sleeps without the second poll waits for an event that never
//! comes.
//!
//! A completion may be there when the post returns: softrnic completes on the thread that posts. A program that asks after
//! its post, and not before, polls once more for the same reason.
//!
//! ```text
//! poll: empty ─► a completion comes ─► req_notify ─► sleep                    for ever
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
//! /// Sleeps until something has completed, and takes it off the queue.
//! fn sleep(channel: &CompletionChannel, cq: &mut GenericCompletionQueue) -> Result<Vec<CompletionRecord>, Fault> {
//!     let mut records = Vec::new();
//!     loop {
//!         cq.poll_records(&mut records)?;
//!         if !records.is_empty() {
//!             return Ok(records);
//!         }
//!         cq.req_notify(false)?;
//!         cq.poll_records(&mut records)?; // what came before the question
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
//! - A question is answered by one event, and events are acknowledged when they are taken: nothing waits for a program that
//!   keeps one.
//! - An event whose completion was polled already does no harm: the next sleep ends at once.
//! - Many queues on one channel: [`is_of`](crate::ibverbs::completion::CompletionEvent::is_of) and
//!   [`cq_context`](crate::ibverbs::completion::CompletionQueue::cq_context) tell which; the event itself can be asked for the
//!   next one.
//! - Several threads may take events of one channel: each event goes to one of them.
//! - The second argument of [`setup_comp_channel`](crate::ibverbs::completion::CompletionQueueBuilder::setup_comp_channel) chooses
//!   which of the device's interrupts raises the events, and so on which processor: 0 to
//!   [`num_comp_vectors`](crate::ibverbs::device_context::DeviceContext::num_comp_vectors) − 1.
//!
//! ## Fewer events
//!
//! **Solicited events.** `req_notify(true)` asks for an event when the next message comes whose sender set
//! [`Solicited`](crate::ibverbs::work_request::WorkRequestFlags::Solicited), or a request fails. A sender that marks the last message of
//! several wakes the receiver once.
//!
//! **Moderation.** The device holds an event back until so many completions are there, or so much time has passed, whichever is
//! first ([`CompletionModeration`](crate::ibverbs::completion::CompletionModeration)); what it can is in
//! [`cq_mod_caps`](crate::ibverbs::device_context::DeviceAttr::cq_mod_caps).
//!
//! ```
//! use sideway::ibverbs::completion::{CompletionModeration, CompletionQueue};
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! let cq = context.create_cq_builder().build_generic()?;
//! let (can, wish) = (context.query_device()?.cq_mod_caps(), CompletionModeration { count: 16, period_us: 50 });
//! if can.max_cq_count() >= wish.count && can.max_cq_period() >= wish.period_us {
//!     cq.modify(wish)?; // 16 completions, or 50 us after the first of them
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Asynchronous events
//!
//! What happens to the device, its ports and its objects comes on another descriptor. A thread of its own listens, or the loop
//! that waits for everything else. Nobody has to; who does can act before a request fails
//! ([`async_event`](crate::ibverbs::async_event)).
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
//! // A queue pair is asked to finish what it has begun, and to tell when.
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
//! A device context has one queue of such events. All channels of it take from that, and each event goes to one of them. An event
//! holds its object: while it is kept, `close` of the object answers `EBUSY`.
//!
//! # In an async runtime
//!
//! The crate knows of no runtime, and needs none: a channel is a descriptor in non-blocking mode ([`AsRawFd`](std::os::fd::AsRawFd)),
//! which any runtime can watch. With tokio:
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
//! /// Events, and the error by which the kernel tells that the device is gone.
//! const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);
//!
//! async fn next_event(watched: &AsyncFd<Arc<CompletionChannel>>) -> Result<CompletionEvent, Fault> {
//!     loop {
//!         let mut guard = watched.ready(INTEREST).await?;
//!         match guard.get_inner().try_get_cq_event()? {
//!             Some(event) => return Ok(event), // there may be more: the descriptor stays marked as ready
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
//!             side.cq.poll_records(&mut records)?; // the race, as above
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
//!     // SAFETY: the descriptor is the channel's own, which keeps it open and the same as long as it is watched.
//!     let watched = unsafe { AsyncFd::register_with_interest(Arc::clone(&near.channel), INTEREST) }?;
//!     let sending = async {
//!         tokio::task::yield_now().await; // the receiver sleeps by now
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
//! - The [asynchronous events](crate::ibverbs::async_event::AsyncEventChannel) and those of the
//!   [connection manager](crate::rdmacm::communication_manager::EventChannel) are watched in the same way; the examples
//!   `events_tokio` and `cm_tokio` of the repository have all three.
//! - A runtime that does not watch for errors never hears that the device is gone.
//! - **A future that is dropped ends no request.** `select!` and time-outs drop futures; what was posted is still under way, in
//!   memory that must stay. So the memory belongs to what owns the queue pair, as in `Side` here, and not to the future: see
//!   [`teardown`](super::teardown).
//! - Batches that are being built, and pollers, do not go to another thread: a batch is posted, and a poll ended, before an
//!   `await`.
//! - A task that polls in a loop without sleeping takes its thread from all others: either the loop has a thread of its own, or it
//!   yields.
//!
//! # Waiting, and its end
//!
//! Each wait here takes a time-out; `None` is without limit. A signal does not end it. A device that is gone does, with `EIO` or
//! `ENODEV`. That the time of a wait has passed says nothing of the requests: they end by their completions.
//!
//! # References
//!
//! [ibv_get_cq_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html),
//! [ibv_req_notify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html),
//! [ibv_get_async_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html); InfiniBand specification, volume 1,
//! sections 11.4.2 (completion queue operations) and 11.6.3 (asynchronous events)
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
