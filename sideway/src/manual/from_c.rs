//! From C to this crate, verb by verb, in the order of a typical C program.
//!
//! To find the item for a C function, search for the function's name, which every item has as an alias.
//! [`coverage`](super::coverage) and [`coverage_rdmacm`](super::coverage_rdmacm) have a row for each function. This
//! page shows how the usage differs between C and Rust.
//!
//! In the examples, `near` and `far` are two queue pairs that are connected with each other. They are created as in
//! [`getting_started`](super::getting_started). Each has a completion queue and a page of memory that its peer may
//! access. `sides::wait` polls until a request completes.
//!
//! # General differences
//!
//! | C | Rust |
//! |---|---|
//! | a pointer, and a verb that destroys it; children first | a value or an `Arc`, dropped in any order ([`ownership`](super::ownership)); dropping logs errors, `close` returns them |
//! | null, -1, or an errno value, depending on the verb | `Result`; a [`VerbError`](crate::error::VerbError) has the verb, the errno, and often a hint |
//! | a struct of attributes and a mask | a builder, or a value whose `setup_…` also sets the mask bit |
//! | an unchecked enum | a type that can also hold and print unnamed values; `ibv_…_str` is `Display` |
//! | `void *qp_context`, `cq_context` | a number chosen by the program (`setup_cq_context`), or nothing: an event references the object itself |
//! | big-endian GUIDs and immediate data | host byte order throughout; [`Gid`](crate::ibverbs::address::Gid) and [`Guid`](crate::ibverbs::device_context::Guid) can be printed and parsed |
//! | `uint32_t lkey`, `rkey` | [`LocalKey`](crate::ibverbs::memory_region::LocalKey), [`RemoteKey`](crate::ibverbs::memory_region::RemoteKey) |
//! | `ibv_foo` and `ibv_foo_ex` | `build` and `build_ex`; `build_generic` uses the extended verb if the device supports it and has no known faults in it |
//! | linking with `-libverbs` | nothing: the first verb loads the library |
//!
//! # Devices
//!
//! | C | Rust |
//! |---|---|
//! | `ibv_get_device_list`, `ibv_free_device_list` | [`DeviceList::new`](crate::ibverbs::device::DeviceList::new), and dropping it; open devices stay open |
//! | a loop over names | [`find`](crate::ibverbs::device::DeviceList::find), whose error lists the devices present |
//! | `ibv_open_device`, `ibv_close_device` | [`open`](crate::ibverbs::device::Device::open); dropping the last object made from the device closes it |
//! | `ibv_query_device`, `ibv_query_device_ex` | [`query_device`](crate::ibverbs::device_context::DeviceContext::query_device), which uses the extended verb if the driver has it |
//! | `ibv_query_port`, `ibv_query_gid`, `ibv_query_gid_table`, `ibv_query_pkey` | methods of these names on the [context](crate::ibverbs::device_context) |
//!
//! ```
//! use sideway::ibverbs::device::DeviceList;
//! # use sideway::ibverbs::device_context::PortState;
//!
//! # softrnic::register()?;
//! let context = DeviceList::new()?.find("soft0")?.open()?;
//! let (device, port) = (context.query_device()?, context.query_port(1)?);
//! println!("{} requests in a queue, {}, {}", device.max_qp_wr(), port.port_state(), context.query_gid(1, 0)?);
//! # assert_eq!(port.port_state(), PortState::Active);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Domains and memory
//!
//! | C | Rust |
//! |---|---|
//! | `ibv_alloc_pd`, `ibv_dealloc_pd` | [`alloc_pd`](crate::ibverbs::device_context::DeviceContext::alloc_pd) |
//! | `malloc`, `ibv_reg_mr`, …, `ibv_dereg_mr`, `free` | [`reg_owned_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_owned_mr): allocation and registration in one safe call |
//! | `ibv_reg_mr` of existing memory | [`reg_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr), unsafe: [`memory`](super::memory) explains the contract |
//! | `struct ibv_sge` | [`ScatterGatherEntry`](crate::ibverbs::work_request::ScatterGatherEntry), [`OwnedMemoryRegion::sge`](crate::ibverbs::memory_region::OwnedMemoryRegion::sge) |
//! | `ibv_alloc_td`, `ibv_alloc_parent_domain` | [`thread_domain`](crate::ibverbs::thread_domain), [`parent_domain`](crate::ibverbs::parent_domain); queues confined to one thread have their own types ([`threads`](super::threads)) |
//!
//! # Completion queues
//!
//! | C | Rust |
//! |---|---|
//! | `ibv_create_comp_channel` | [`create_comp_channel`](crate::ibverbs::device_context::DeviceContext::create_comp_channel), always in non-blocking mode |
//! | `ibv_create_cq`, `ibv_create_cq_ex` | [`create_cq_builder`](crate::ibverbs::device_context::DeviceContext::create_cq_builder), `build`, `build_ex` |
//! | `ibv_poll_cq(cq, n, wc)` | [`BasicCompletionQueue::start_poll`](crate::ibverbs::completion::BasicCompletionQueue::start_poll); `n` is set by [`setup_poll_batch`](crate::ibverbs::completion::BasicCompletionQueue::setup_poll_batch), or passed to [`poll_each`](crate::ibverbs::completion::BasicCompletionQueue::poll_each) |
//! | `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll` | [`ExtendedCompletionQueue::start_poll`](crate::ibverbs::completion::ExtendedCompletionQueue::start_poll), the poller's `next`, and dropping it |
//! | both, in generic code | [`PollCompletions`](crate::ibverbs::completion::PollCompletions) |
//! | 0, `ENOENT`: queue empty | the error [`CompletionQueueEmpty`](crate::ibverbs::completion::PollCompletionQueueError::CompletionQueueEmpty), so a poller always has at least one completion |
//! | `wc->…`, `ibv_wc_read_…` | methods of the completion, which is borrowed until `next` |
//! | `ibv_req_notify_cq`, `ibv_get_cq_event`, `ibv_ack_cq_events` | [`req_notify`](crate::ibverbs::completion::CompletionQueue::req_notify), [`get_cq_event`](crate::ibverbs::completion::CompletionChannel::get_cq_event), which acknowledges |
//!
//! ```
//! use sideway::ibverbs::completion::{PollCompletions, WorkCompletion, WorkCompletionStatus};
//!
//! /// Polls all completions of a queue of either kind, and returns their number.
//! fn poll(cq: &mut impl PollCompletions) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
//!     cq.poll_each(u32::MAX, |completion| match completion.status() {
//!         WorkCompletionStatus::Success => Ok(()),
//!         failure => Err(format!("request {}: {failure}", completion.wr_id()).into()),
//!     })
//! }
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let [mut near, _far] = sides::two_sides()?;
//! # assert_eq!(poll(&mut near.cq)?, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Queue pairs and their states
//!
//! | C | Rust |
//! |---|---|
//! | `ibv_create_qp`, `ibv_create_qp_ex` | [`create_qp_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_qp_builder) for RC and UC, [`create_ud_qp_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_ud_qp_builder), [`create_raw_packet_qp_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_raw_packet_qp_builder), [`create_xrc_send_qp_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_xrc_send_qp_builder): the service is in the type |
//! | `send_ops_flags` | [`setup_send_ops_flags`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_send_ops_flags); default: all sends, writes, reads and atomics of the service |
//! | `ibv_modify_qp(qp, &attr, IBV_QP_STATE \| …)` | [`modify`](crate::ibverbs::queue_pair::QueuePair::modify): the mask follows from the attributes set |
//! | INIT, RTR and RTS for a connection | [`connect_rc`](crate::ibverbs::queue_pair::QueuePair::connect_rc), [`connect_uc`](crate::ibverbs::queue_pair::QueuePair::connect_uc) |
//! | `EINVAL` | [`ModifyQueuePairError`](crate::ibverbs::queue_pair::ModifyQueuePairError) names missing and invalid attributes |
//! | one queue pair, two threads | [`split`](crate::ibverbs::queue_pair::Pair::split) into a send queue and a receive queue, without a lock between them |
//! | `ibv_query_qp` | [`query`](crate::ibverbs::queue_pair::QueuePair::query) |
//! | `ibv_destroy_qp` | [`tear_down`](crate::ibverbs::queue_pair::Pair::tear_down) flushes first, and returns the buffers ([`teardown`](super::teardown)) |
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::queue_pair::{QueuePair, QueuePairAttribute, QueuePairState};
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! # let pd = context.alloc_pd()?;
//! let cq = context.create_cq_builder().build_generic()?;
//! let qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_send_wr(64).build_generic()?;
//! let mut init = QueuePairAttribute::new();
//! init.setup_state(QueuePairState::Init).setup_port(1).setup_access_flags(AccessFlags::RemoteRead);
//! let error = qp.modify(&init).unwrap_err();
//! assert!(error.to_string().contains("needs PartitionKeyIndex"), "{error}");
//! qp.modify(init.setup_pkey_index(0))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Posting
//!
//! One expression builds a request. It sets the number and the flags, the operation, the destination if the service
//! needs one, and the data. The last step adds the request to the batch, and `post` submits the batch. The same code
//! compiles to `ibv_post_send` or `ibv_wr_…`, depending on the queue pair's type.
//!
//! | C | Rust |
//! |---|---|
//! | `wr.next = …`, `ibv_post_send(qp, wr, &bad_wr)` | [`start_post_send`](crate::ibverbs::queue_pair::QueuePair::start_post_send), …, [`post`](crate::ibverbs::work_request::PostSendGuard::post) of a [basic queue pair](crate::ibverbs::queue_pair::BasicQueuePair) |
//! | `ibv_wr_start`, …, `ibv_wr_complete` | the same methods of an [extended queue pair](crate::ibverbs::queue_pair::ExtendedQueuePair) |
//! | `ibv_wr_abort` | dropping the guard |
//! | `wr_id`, `send_flags` | [`construct_wr`](crate::ibverbs::work_request::PostSendGuard::construct_wr) |
//! | `wr.opcode`, `ibv_wr_rdma_write(…)`, … | `setup_write` and the other operations of the [handle](crate::ibverbs::work_request::WorkRequestHandle) |
//! | `wr.sg_list`, `ibv_wr_set_sge` | `setup_sge`, `setup_sge_list`: unsafe |
//! | `IBV_SEND_INLINE`, `ibv_wr_set_inline_data` | `setup_inline_data`: safe, and sets the flag |
//! | `bad_wr` | [`failed_request`](crate::ibverbs::work_request::PostError::failed_request), [`posted`](crate::ibverbs::work_request::PostError::posted) |
//! | `ibv_post_recv` | [`start_post_recv`](crate::ibverbs::queue_pair::QueuePair::start_post_recv), …, [`post`](crate::ibverbs::work_request::PostRecvGuard::post) |
//!
//! ```
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let [mut near, mut far] = sides::two_sides()?;
//!
//! // ibv_post_recv
//! let mut receives = far.qp.start_post_recv();
//! let receive = receives.construct_wr(1);
//! // SAFETY: the memory is registered for writing, dropped after the queue pair, and read only after the completion.
//! unsafe { receive.setup_sge(far.memory.lkey(), far.memory.addr(), 64) };
//! receives.post()?;
//!
//! // Two requests in one batch, with one doorbell: an unsignaled write, then a send with immediate data.
//! let mut batch = near.qp.start_post_send();
//! let write = batch.construct_wr(2, WorkRequestFlags::empty()).setup_write(far.memory.rkey(), far.memory.addr() + 1024);
//! // SAFETY: as above; the memory is not written before the completion.
//! unsafe { write.setup_sge_list(&[near.memory.sge(..100)?]) };
//! batch.construct_wr(3, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"written");
//! batch.post()?;
//!
//! let completion = sides::wait(&mut far.cq)?;
//! assert_eq!((completion.wr_id, completion.byte_len), (1, 7));
//! # assert_eq!(sides::wait(&mut near.cq)?.wr_id, 3);
//! # Ok(())
//! # }
//! ```
//!
//! Some errors that C reports at run time are compile errors in Rust. Examples are a datagram without an address, an
//! atomic on a UD queue pair, and inline data in a read.
//!
//! # Datagrams
//!
//! | C | Rust |
//! |---|---|
//! | `struct ibv_ah_attr` | [`AddressHandleAttribute`](crate::ibverbs::address::AddressHandleAttribute), also for `attr.ah_attr` of a connection |
//! | `ibv_create_ah` | [`create_ah`](crate::ibverbs::protection_domain::ProtectionDomain::create_ah) |
//! | `ibv_create_ah_from_wc` | [`create_ah_from_wc`](crate::ibverbs::protection_domain::ProtectionDomain::create_ah_from_wc) |
//! | `wr.wr.ud`, `ibv_wr_set_ud_addr` | [`setup_ud_addr`](crate::ibverbs::work_request::LocalBufferHandle::setup_ud_addr), which borrows the handle |
//! | `ibv_attach_mcast` | [`attach_mcast`](crate::ibverbs::queue_pair::QueuePair::attach_mcast) |
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::address::{AddressHandleAttribute, GlobalRoutingHeader};
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//!
//! const Q_KEY: u32 = 0x1111_1111;
//!
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! # let pd = context.alloc_pd()?;
//! let memory = pd.reg_owned_mr(4096, AccessFlags::LocalWrite)?;
//! let (mut sends, mut receives) = (context.create_cq_builder().build_generic()?, context.create_cq_builder().build_generic()?);
//! let mut builder = pd.create_ud_qp_builder();
//! builder.setup_send_cq(&sends).setup_recv_cq(&receives).setup_max_inline_data(64);
//! let mut qp = builder.build_generic()?;
//! let mut attributes = QueuePairAttribute::new();
//! attributes.setup_state(QueuePairState::Init).setup_port(1).setup_pkey_index(0).setup_qkey(Q_KEY);
//! qp.modify(&attributes)?;
//! qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToReceive))?;
//! qp.modify(QueuePairAttribute::new().setup_state(QueuePairState::ReadyToSend).setup_sq_psn(0))?;
//!
//! let mut way = AddressHandleAttribute::new();
//! way.setup_port(1).setup_grh(&context.query_gid(1, 0)?, 0, 0, 64, 0);
//! let to_itself = pd.create_ah(&way)?;
//! let number = qp.qp_number();
//!
//! // The datagram's data follows 40 bytes of header.
//! let mut batch = qp.start_post_recv();
//! // SAFETY: the memory is registered for writing, and dropped after the queue pair.
//! unsafe { batch.construct_wr(1).setup_sge(memory.lkey(), memory.addr(), 4096) };
//! batch.post()?;
//! let mut batch = qp.start_post_send();
//! let request = batch.construct_wr(2, WorkRequestFlags::Signaled).setup_send().setup_ud_addr(&to_itself, number, Q_KEY);
//! request.setup_inline_data(b"hello");
//! batch.post()?;
//! # sides::wait(&mut sends)?;
//!
//! let completion = sides::wait(&mut receives)?;
//! assert_eq!(completion.byte_len as usize, GlobalRoutingHeader::LENGTH + 5);
//! # Ok(())
//! # }
//! ```
//!
//! # Shared receive queues and XRC
//!
//! | C | Rust |
//! |---|---|
//! | `ibv_create_srq`, `ibv_create_srq_ex` | [`create_srq_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_srq_builder); attach queue pairs with [`setup_srq`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_srq) |
//! | `ibv_post_srq_recv` | [`start_post_recv`](crate::ibverbs::shared_receive_queue::SharedReceiveQueue::start_post_recv) |
//! | `ibv_modify_srq(srq, …, IBV_SRQ_LIMIT)` | [`arm_limit`](crate::ibverbs::shared_receive_queue::SharedReceiveQueue::arm_limit); the event references the queue |
//! | `ibv_post_srq_ops` | [`start_post_ops`](crate::ibverbs::shared_receive_queue::SharedReceiveQueue::start_post_ops), for tag matching |
//! | `ibv_open_xrcd` | [`open_xrcd`](crate::ibverbs::device_context::DeviceContext::open_xrcd) |
//! | `IBV_QPT_XRC_SEND` | [`create_xrc_send_qp_builder`](crate::ibverbs::protection_domain::ProtectionDomain::create_xrc_send_qp_builder); each request names its queue with [`setup_xrc_srqn`](crate::ibverbs::work_request::LocalBufferHandle::setup_xrc_srqn) |
//! | `IBV_QPT_XRC_RECV`, `ibv_open_qp` | [`create_recv_qp`](crate::ibverbs::xrc_domain::XrcDomain::create_recv_qp), [`open_qp`](crate::ibverbs::xrc_domain::XrcDomain::open_qp) |
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::xrc_domain::XrcDomainFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! # let pd = context.alloc_pd()?;
//! let memory = pd.reg_owned_mr(8192, AccessFlags::LocalWrite)?;
//! let cq = context.create_cq_builder().build_generic()?;
//!
//! // Two queue pairs share the receives of one queue.
//! let mut shared = pd.create_srq_builder().setup_max_wr(128).build()?;
//! let mut builder = pd.create_qp_builder();
//! builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_srq(&shared);
//! let pairs = [builder.build_generic()?, builder.build_generic()?];
//! let mut batch = shared.start_post_recv();
//! for (wr_id, offset) in [(1, 0), (2, 4096)] {
//!     // SAFETY: the memory is registered for writing, and dropped after the queue and its queue pairs.
//!     unsafe { batch.construct_wr(wr_id).setup_sge(memory.lkey(), memory.addr() + offset, 4096) };
//! }
//! batch.post()?;
//!
//! // XRC: senders address the queue by its number, through any receiving queue pair of the domain.
//! let xrcd = context.open_xrcd(None, XrcDomainFlags::Create)?;
//! let named = pd.create_srq_builder().setup_xrc(&xrcd, &cq).build_ex()?;
//! let receiving = xrcd.create_recv_qp()?; // connected by `modify`, like other queue pairs
//! println!("number for the senders: {:#x}", named.srq_number()?);
//! # drop((pairs, receiving));
//! # Ok(())
//! # }
//! ```
//!
//! # Memory windows and device memory
//!
//! | C | Rust |
//! |---|---|
//! | `ibv_alloc_mw`, `ibv_dealloc_mw` | [`alloc_mw`](crate::ibverbs::protection_domain::ProtectionDomain::alloc_mw) |
//! | `ibv_bind_mw` (type 1) | [`MemoryWindow::bind_mw`](crate::ibverbs::memory_window::MemoryWindow::bind_mw), which returns the new key |
//! | `IBV_WR_BIND_MW`, `ibv_wr_bind_mw` (type 2) | [`setup_bind_mw`](crate::ibverbs::work_request::WorkRequestHandle::setup_bind_mw); example in [`memory`](super::memory#memory-windows) |
//! | `ibv_wr_local_inv`, `ibv_wr_send_inv` | [`setup_local_inv`](crate::ibverbs::work_request::WorkRequestHandle::setup_local_inv), [`setup_send_inv`](crate::ibverbs::work_request::WorkRequestHandle::setup_send_inv) |
//! | `ibv_alloc_dm`, `ibv_memcpy_to_dm`, `ibv_memcpy_from_dm` | [`alloc_dm`](crate::ibverbs::device_context::DeviceContext::alloc_dm), and the copy methods of [`DeviceMemory`](crate::ibverbs::device_memory::DeviceMemory) |
//! | `ibv_reg_dm_mr` | [`reg_dm_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_dm_mr): safe, because the memory is not part of the process |
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! # let pd = context.alloc_pd()?;
//! let on_device = context.alloc_dm(64, 3)?; // 64 bytes, aligned to 2^3
//! on_device.memcpy_to_dm(8, &42_u64.to_ne_bytes())?;
//! let region = pd.reg_dm_mr(&on_device, 0, 64, AccessFlags::LocalWrite | AccessFlags::RemoteAtomic)?;
//! assert_eq!(region.iova(), Some(0)); // addresses start at 0
//! # let mut bytes = [0; 8];
//! # on_device.memcpy_from_dm(8, &mut bytes)?;
//! # assert_eq!(u64::from_ne_bytes(bytes), 42);
//! # Ok(())
//! # }
//! ```
//!
//! # Asynchronous events
//!
//! | C | Rust |
//! |---|---|
//! | `fcntl(context->async_fd, …)`, `ibv_get_async_event`, `ibv_ack_async_event` | [`async_events`](crate::ibverbs::device_context::DeviceContext::async_events), [`get_async_event`](crate::ibverbs::async_event::AsyncEventChannel::get_async_event), which acknowledges |
//! | `event.element.qp` | [`element`](crate::ibverbs::async_event::AsyncEvent::element): the object itself, kept alive by the event |
//! | destroying an object waits for its unacknowledged events | destroying an object does not wait |
//!
//! [`threads`](super::threads) covers threads, channels and async runtimes.
//!
//! # Flow steering and counters
//!
//! | C | Rust |
//! |---|---|
//! | `struct ibv_flow_attr` with specifications packed after it | [`FlowRule`](crate::ibverbs::flow::FlowRule), [`FlowSpec`](crate::ibverbs::flow::FlowSpec), in host byte order |
//! | `ibv_create_flow`, `ibv_destroy_flow` | [`create_flow`](crate::ibverbs::queue_pair::QueuePair::create_flow), and dropping the [`Flow`](crate::ibverbs::flow::Flow) |
//! | `ibv_create_counters`, `ibv_attach_counters_point_flow`, `ibv_read_counters` | [`counters`](crate::ibverbs::counters) |
//! | `ibv_create_wq`, `ibv_create_rwq_ind_table`, RSS | [`work_queue`](crate::ibverbs::work_queue) |
//!
//! ```no_run
//! use std::net::Ipv4Addr;
//!
//! use sideway::ibverbs::counters::{CounterDescription, ReadCountersFlags};
//! use sideway::ibverbs::flow::{FlowRule, FlowSpec, FlowType, Ipv4Filter};
//! # use std::sync::Arc;
//! # use sideway::ibverbs::device_context::DeviceContext;
//! # use sideway::ibverbs::queue_pair::{QueuePair, RawPacket};
//! # fn count(context: &Arc<DeviceContext>, qp: &impl QueuePair<Service = RawPacket>) -> Result<(), sideway::error::VerbError> {
//! let counters = context.create_counters()?;
//! counters.attach(CounterDescription::Packets, 0)?; // the first value of the set
//! let all = Ipv4Filter { src_ip: Ipv4Addr::BROADCAST, dst_ip: Ipv4Addr::UNSPECIFIED };
//! let from = Ipv4Filter { src_ip: Ipv4Addr::new(192, 0, 2, 7), dst_ip: Ipv4Addr::UNSPECIFIED };
//! let mut rule = FlowRule::new(FlowType::Normal, 1);
//! rule.setup_match(FlowSpec::Ipv4 { value: from, mask: all }).setup_counters(&counters);
//! let flow = qp.create_flow(&rule)?; // until it is dropped, packets from 192.0.2.7 arrive here
//! let mut packets = [0];
//! counters.read(&mut packets, ReadCountersFlags::empty())?;
//! # drop(flow);
//! # Ok(())
//! # }
//! ```
//!
//! # Connections by address
//!
//! | C | Rust |
//! |---|---|
//! | `rdma_create_event_channel`, `rdma_get_cm_event`, `rdma_ack_cm_event` | [`EventChannel`](crate::rdmacm::EventChannel); an event owns its data, and is acknowledged when taken |
//! | `rdma_create_id`, `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_connect` | methods of [`Identifier`](crate::rdmacm::Identifier), or [`Connector`](crate::rdmacm::Connector), which waits for all steps with one deadline |
//! | `rdma_bind_addr`, `rdma_listen`, `rdma_accept` | methods of `Identifier`, or [`Listener`](crate::rdmacm::Listener) and [`Request`](crate::rdmacm::Request) |
//! | `rdma_create_qp` | [`create_qp_generic`](crate::rdmacm::Identifier::create_qp_generic) and its variants, which take a builder and return an ordinary queue pair |
//! | `conn_param.private_data` | [`setup_private_data`](crate::rdmacm::ConnectionParameter::setup_private_data), [`PrivateData`](crate::rdmacm::PrivateData) |
//! | `rdma_post_send`, `rdma_get_send_comp` | post and poll as above |
//!
//! ```
//! use std::error::Error;
//! use std::net::SocketAddr;
//! use std::sync::Arc;
//! use std::thread;
//! use std::time::Duration;
//!
//! use sideway::ibverbs::queue_pair::GenericQueuePair;
//! use sideway::rdmacm::{ConnectionParameter, Connector, Identifier, Listener};
//!
//! const WITHIN: Option<Duration> = Some(Duration::from_secs(10));
//!
//! // rdma_create_qp
//! fn queue_pair(id: &Arc<Identifier>) -> Result<GenericQueuePair, Box<dyn Error>> {
//!     let device = id.get_device_context().ok_or("the address is resolved to no device")?;
//!     let (pd, cq) = (device.alloc_pd()?, device.create_cq_builder().build_generic()?);
//!     Ok(id.create_qp_generic(pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq))?)
//! }
//!
//! fn client(server: SocketAddr) -> Result<(), Box<dyn Error>> {
//!     let resolved = Connector::new().resolve(server)?; // rdma_resolve_addr, rdma_resolve_route
//!     let qp = queue_pair(resolved.identifier())?;
//!     let connection = resolved.connect(&ConnectionParameter::default())?; // rdma_connect: `qp` is ready to send
//!     connection.disconnect(WITHIN)?; // rdma_disconnect, then wait for the peer
//!     drop(qp);
//!     Ok(())
//! }
//!
//! fn serve(listener: &Listener) -> Result<(), Box<dyn Error>> {
//!     let request = listener.accept(WITHIN)?; // rdma_get_cm_event
//!     let qp = queue_pair(request.identifier())?;
//!     let connection = request.accept(&ConnectionParameter::default())?; // rdma_accept
//!     connection.wait(WITHIN)?; // until the peer disconnects
//!     connection.disconnect(WITHIN)?;
//!     drop(qp);
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn Error>> {
//! # softrnic::register()?;
//! # use rdma_mummy_sys::load::{provider::ProviderId, rdmacm};
//! # rdmacm::choose(rdmacm::Choice::Provider(ProviderId::by_name("softrnic").ok_or("no softrnic")?));
//! let listener = Listener::bind("127.0.0.1:0")?; // rdma_bind_addr, rdma_listen
//! let address = listener.local_address();
//! let client = thread::spawn(move || client(address).map_err(|error| error.to_string()));
//! serve(&listener)?;
//! # client.join().map_err(|_| "the client has panicked")??;
//! # Ok(())
//! # }
//! ```
//!
//! # Calling C directly
//!
//! Unsafe methods return the C pointers of objects ([`qp()`](crate::ibverbs::queue_pair::QueuePair::qp),
//! [`cq()`](crate::ibverbs::completion::CompletionQueue::cq), …). Functions that this crate does not wrap can be called
//! through `rdma-mummy-sys`, which has every function and struct of the C API.
