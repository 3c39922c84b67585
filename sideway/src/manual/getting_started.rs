//! A first program that runs without a NIC, and what changes on a device.
//!
//! # Requirements
//!
//! Rust and Linux. No NIC, kernel module, root access or C library is needed: `softrnic` is a software NIC that runs
//! inside the process. `ibv_get_device_list` returns the devices of softrnic together with those of the system, and a
//! program uses both in the same way. The program depends on two crates, `sideway` and `softrnic`.
//!
//! # The first program
//!
//! The program connects two queue pairs in one process, and one of them writes five bytes into the memory of the other.
//! On two machines, each machine would run one half of this program.
//!
//! ```
//! use std::error::Error;
//!
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::completion::WorkCompletionStatus;
//! use sideway::ibverbs::device::DeviceList;
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair, QueuePairEndpoint, RcOptions};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     // Choose a device. After the first line, the list includes softrnic's device.
//!     softrnic::register()?;
//!     let context = DeviceList::new()?.find("soft0")?.open()?;
//!
//!     // Allocate a protection domain: objects of one domain work together.
//!     let pd = context.alloc_pd()?;
//!
//!     // Register memory. The device only reads the memory of a send; for writes by the peer, the region needs that
//!     // access right. Declared before the queue pairs, so it is dropped after them.
//!     let mut source = pd.reg_owned_mr(4096, AccessFlags::empty())?;
//!     let target = pd.reg_owned_mr(4096, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?;
//!     source.write_at(0, b"hello")?;
//!
//!     // Create a completion queue, and two queue pairs that report to it.
//!     let mut cq = context.create_cq_builder().setup_cqe(16).build_generic()?;
//!     let mut builder = pd.create_qp_builder();
//!     builder.setup_send_cq(&cq).setup_recv_cq(&cq);
//!     let (mut near, far) = (builder.build_generic()?, builder.build_generic()?);
//!
//!     // Connect each to the other's endpoint: number, first packet number and address. Two machines exchange these
//!     // bytes over any channel, such as TCP.
//!     let options = RcOptions::new(); // port 1, and its first GID
//!     let bytes = far.local_endpoint(&options)?.to_bytes();
//!     near.connect_rc(&QueuePairEndpoint::from_bytes(&bytes), &options)?;
//!     far.connect_rc(&near.local_endpoint(&options)?, &options)?;
//!
//!     // A write names local memory and the peer's memory, each by key and address.
//!     let mut batch = near.start_post_send();
//!     let write = batch.construct_wr(7, WorkRequestFlags::Signaled).setup_write(target.rkey(), target.addr());
//!     // SAFETY: `source` is registered and 5 bytes long, outlives the queue pair, and is not written until the
//!     // completion.
//!     unsafe { write.setup_sge(source.lkey(), source.addr(), 5) };
//!     batch.post()?;
//!
//!     // Poll until the request completes: one is outstanding, so there is one completion.
//!     let mut ended = None;
//!     while cq.poll_each(1, |completion| {
//!         ended = Some((completion.wr_id(), completion.status()));
//!         Ok::<_, Box<dyn Error>>(())
//!     })? == 0
//!     {}
//!     assert_eq!(ended, Some((7, WorkCompletionStatus::Success)));
//!
//!     // The write does not notify the peer's program. Use a message or immediate data for that.
//!     let mut arrived = [0; 5];
//!     target.read_at(0, &mut arrived)?;
//!     assert_eq!(&arrived, b"hello");
//!     Ok(())
//! }
//! ```
//!
//! [`connect_rc`](crate::ibverbs::queue_pair::QueuePair::connect_rc) makes three transitions. The transition to Init
//! binds the queue pair to a port, the transition to ReadyToReceive names its peer, and the last transition leads to
//! ReadyToSend. With [`modify`](crate::ibverbs::queue_pair::QueuePair::modify), a program makes each transition
//! separately. If one fails, [`ModifyQueuePairError`](crate::ibverbs::queue_pair::ModifyQueuePairError) names the
//! transition and the missing or wrong attribute.
//!
//! # The objects
//!
//! | object | purpose |
//! |---|---|
//! | [`DeviceContext`] | an open device |
//! | [`ProtectionDomain`] | groups memory, queue pairs and address handles; only objects of the same domain can be used together |
//! | [`OwnedMemoryRegion`], [`MemoryRegion`] | registered memory and its two keys |
//! | [`GenericCompletionQueue`] | reports which requests have completed |
//! | [`CompletionChannel`] | a descriptor that becomes readable when an armed completion queue has a completion |
//! | [`GenericQueuePair`] | a send queue and a receive queue; once connected, one end of a connection |
//! | [`AddressHandle`] | the route to the receiver of a datagram; connected queue pairs need none |
//! | [`SharedReceiveQueue`] | receives shared by several queue pairs |
//! | [`MemoryWindow`] | a key to part of a region, granted and revoked by a request |
//!
//! Requests:
//!
//! | request | action of the device | the peer's program |
//! |---|---|---|
//! | [send](crate::ibverbs::work_request::WorkRequestHandle::setup_send) | transfers bytes into the memory of the peer's next receive | has posted a receive, and polls its completion |
//! | [write](crate::ibverbs::work_request::WorkRequestHandle::setup_write), [read](crate::ibverbs::work_request::WorkRequestHandle::setup_read) | transfers bytes to or from the peer's memory, which a remote key and an address identify | is not notified |
//! | [write with immediate data](crate::ibverbs::work_request::WorkRequestHandle::setup_write_imm) | like a write, but also consumes a receive of the peer | polls a completion with 4 bytes |
//! | [compare-and-swap](crate::ibverbs::work_request::WorkRequestHandle::setup_atomic_compare_swap), [fetch-and-add](crate::ibverbs::work_request::WorkRequestHandle::setup_atomic_fetch_add) | changes 8 bytes of the peer atomically, and returns their old value | is not notified |
//!
//! # On a device
//!
//! - **Libraries**: libibverbs and the device's driver from rdma-core (on Debian the packages `libibverbs1` and
//!   `ibverbs-providers`). The first verb loads these libraries; building does not require them. The user needs access
//!   to `/dev/infiniband/uverbs*`, and a limit of locked memory (`ulimit -l`) that covers all registered memory. See
//!   [`deploying`](super::deploying).
//! - **Device name**: for example `mlx5_0`. If no device has the given name, the error of [`DeviceList::find`] lists
//!   the devices that are present.
//! - **Port**: the port must be active. The default path MTU is the smaller MTU of the two ports.
//! - **GID**: on Ethernet (RoCE), a port has several GIDs, one for each address and protocol.
//!   [`setup_gid_index`](crate::ibverbs::queue_pair::RcOptions::setup_gid_index) selects one of them. Within an
//!   InfiniBand subnet, packets carry the peer's [LID](crate::ibverbs::device_context::PortAttr::lid) and need no GID.
//! - **Endpoints**: each peer sends 28 bytes to the other. They contain the GID, the LID, the queue pair number, the
//!   MTU and the first packet sequence number (PSN). The PSN has 24 random bits, so that late packets of an earlier
//!   connection are rejected. For writes and reads, also send the memory's address and remote key.
//!
//! ```
//! use sideway::ibverbs::address::GidType;
//! use sideway::ibverbs::device::{DeviceInfo, DeviceList};
//! use sideway::ibverbs::device_context::PortState;
//!
//! # softrnic::register()?;
//! # let mut found = 0;
//! for device in &DeviceList::new()? {
//!     let context = match device.open() {
//!         Ok(context) => context,
//!         Err(error) => {
//!             println!("{error}"); // such as EACCES: no permission
//!             continue;
//!         }
//!     };
//!     for port in 1..=u8::try_from(context.query_device()?.phys_port_cnt())? {
//!         let attributes = context.query_port(port)?;
//!         if attributes.port_state() != PortState::Active {
//!             continue;
//!         }
//!         println!("{} port {port}: LID {}, MTU {}", context.name(), attributes.lid(), attributes.active_mtu());
//!         for entry in context.query_gid_table()? {
//!             if entry.port_num() == u32::from(port) && entry.gid_type() == GidType::RoceV2 {
//!                 println!("  GID index {}: {}", entry.gid_index(), entry.gid());
//! #               found += 1;
//!             }
//!         }
//!     }
//! }
//! # assert!(found > 0, "softrnic has an active port with GIDs");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! If the peers have IP addresses, [`rdmacm`](crate::rdmacm) does all of this. It finds the device, port and GID for an
//! address, exchanges the endpoints and modifies the queue pairs. It also works with softrnic.
//!
//! If a program registers softrnic only when no device has an active port, it runs on every machine and uses real
//! devices if there are any. The examples in the repository do this.
//!
//! # Next steps
//!
//! - [`from_c`](super::from_c): which item of this crate replaces each function of the C API.
//! - [`memory`](super::memory): what a program guarantees with the `unsafe` blocks above, and what a peer can do with a
//!   key.
//! - [`threads`](super::threads): sleeping until a request completes, using several threads, and async runtimes.
//! - [`hot_path`](super::hot_path): batches, inline data, and the cost of each step.
//! - [`teardown`](super::teardown): why a time-out does not end a request.
//! - [`testing`](super::testing): tests on softrnic; [`errors`](super::errors): causes and remedies.
//! - `examples/examples/rc_pingpong_split.rs` in the repository: the program above, between two processes, step by
//!   step.
//!
//! [`DeviceContext`]: crate::ibverbs::device_context::DeviceContext
//! [`ProtectionDomain`]: crate::ibverbs::protection_domain::ProtectionDomain
//! [`OwnedMemoryRegion`]: crate::ibverbs::memory_region::OwnedMemoryRegion
//! [`MemoryRegion`]: crate::ibverbs::memory_region::MemoryRegion
//! [`GenericCompletionQueue`]: crate::ibverbs::completion::GenericCompletionQueue
//! [`CompletionChannel`]: crate::ibverbs::completion::CompletionChannel
//! [`GenericQueuePair`]: crate::ibverbs::queue_pair::GenericQueuePair
//! [`AddressHandle`]: crate::ibverbs::address::AddressHandle
//! [`SharedReceiveQueue`]: crate::ibverbs::shared_receive_queue::SharedReceiveQueue
//! [`MemoryWindow`]: crate::ibverbs::memory_window::MemoryWindow
//! [`DeviceList::find`]: crate::ibverbs::device::DeviceList::find
