//! RDMA without a NIC: a first program that runs anywhere, and what a device changes.
//!
//! # What it takes
//!
//! Rust, and Linux. No NIC, no kernel module, no root, no C library: `softrnic` is a NIC in software that lives in the process.
//! Its devices stand in the list beside those of the system, and the program does not know the difference. It depends on two
//! crates, `sideway` and `softrnic`.
//!
//! # The first program
//!
//! Two queue pairs of one process are connected, and one side writes five bytes into memory of the other. On two machines, each
//! runs one half of it.
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
//!     // A device. From the first line on the list has that of softrnic.
//!     softrnic::register()?;
//!     let context = DeviceList::new()?.find("soft0")?.open()?;
//!
//!     // A protection domain: what is in one works together.
//!     let pd = context.alloc_pd()?;
//!
//!     // Memory that the device may access: a send only reads it; memory that a peer writes needs the right to be written.
//!     // Declared before the queue pairs, so it is dropped after them.
//!     let mut source = pd.reg_owned_mr(4096, AccessFlags::empty())?;
//!     let target = pd.reg_owned_mr(4096, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?;
//!     source.write_at(0, b"hello")?;
//!
//!     // A completion queue, and two queue pairs that complete there.
//!     let mut cq = context.create_cq_builder().setup_cqe(16).build_generic()?;
//!     let mut builder = pd.create_qp_builder();
//!     builder.setup_send_cq(&cq).setup_recv_cq(&cq);
//!     let (mut near, far) = (builder.build_generic()?, builder.build_generic()?);
//!
//!     // Each connects to the other's endpoint: number, first packet number and address. Between two machines its bytes travel
//!     // over any channel, such as TCP.
//!     let options = RcOptions::new(); // port 1, and its first GID
//!     let bytes = far.local_endpoint(&options)?.to_bytes();
//!     near.connect_rc(&QueuePairEndpoint::from_bytes(&bytes), &options)?;
//!     far.connect_rc(&near.local_endpoint(&options)?, &options)?;
//!
//!     // A write names the peer's memory by key and address, and that of this side too.
//!     let mut batch = near.start_post_send();
//!     let write = batch.construct_wr(7, WorkRequestFlags::Signaled).setup_write(target.rkey(), target.addr());
//!     // SAFETY: `source` is registered, has 5 bytes, outlives the queue pair, and is not written meanwhile.
//!     unsafe { write.setup_sge(source.lkey(), source.addr(), 5) };
//!     batch.post()?;
//!
//!     // Poll until it completes: one request is outstanding, so there is one completion.
//!     let mut ended = None;
//!     while cq.poll_each(1, |completion| {
//!         ended = Some((completion.wr_id(), completion.status()));
//!         Ok::<_, Box<dyn Error>>(())
//!     })? == 0
//!     {}
//!     assert_eq!(ended, Some((7, WorkCompletionStatus::Success)));
//!
//!     // The peer's processor took no part: the writer notifies it by a message, or by immediate data.
//!     let mut arrived = [0; 5];
//!     target.read_at(0, &mut arrived)?;
//!     assert_eq!(&arrived, b"hello");
//!     Ok(())
//! }
//! ```
//!
//! [`connect_rc`](crate::ibverbs::queue_pair::QueuePair::connect_rc) takes a queue pair through three transitions: to Init, which binds
//! it to a port; to ReadyToReceive, which names its peer; and to ReadyToSend. A program can make each of them by itself, with
//! [`modify`](crate::ibverbs::queue_pair::QueuePair::modify). An error names the transition, and the attribute that is missing or
//! wrong: [`ModifyQueuePairError`](crate::ibverbs::queue_pair::ModifyQueuePairError).
//!
//! # The objects
//!
//! | object | in one sentence |
//! |---|---|
//! | [`DeviceContext`] | an open device |
//! | [`ProtectionDomain`] | a fence: memory, queue pairs and address handles work together within one |
//! | [`OwnedMemoryRegion`], [`MemoryRegion`] | memory that the device may use, and the two keys that name it |
//! | [`GenericCompletionQueue`] | where the device says which requests are done |
//! | [`CompletionChannel`] | a descriptor to sleep on until a completion queue has something |
//! | [`GenericQueuePair`] | a send queue and a receive queue, in which requests are posted; connected, one end of a connection |
//! | [`AddressHandle`] | the way to the receiver of a datagram; a connection has one of its own |
//! | [`SharedReceiveQueue`] | receives that many queue pairs take from |
//! | [`MemoryWindow`] | a key to a part of a region, which a request gives and takes back |
//!
//! A request is one of these:
//!
//! | request | what the device does | the peer's program |
//! |---|---|---|
//! | [send](crate::ibverbs::work_request::WorkRequestHandle::setup_send) | moves bytes into the memory of the peer's next receive | has posted a receive, and polls its completion |
//! | [write](crate::ibverbs::work_request::WorkRequestHandle::setup_write), [read](crate::ibverbs::work_request::WorkRequestHandle::setup_read) | moves bytes to, or from, the memory that a remote key and an address name | takes no notice |
//! | [write with immediate data](crate::ibverbs::work_request::WorkRequestHandle::setup_write_imm) | the same, and uses up a receive of the peer | polls a completion with 4 bytes |
//! | [compare-and-swap](crate::ibverbs::work_request::WorkRequestHandle::setup_atomic_compare_swap), [fetch-and-add](crate::ibverbs::work_request::WorkRequestHandle::setup_atomic_fetch_add) | changes 8 bytes of the peer at once, and brings their old value | takes no notice |
//!
//! # On a device
//!
//! - **The system has the libraries**: libibverbs and the driver of the device (rdma-core; on Debian the packages `libibverbs1`
//!   and `ibverbs-providers`). They are opened when the first verb is called; building needs none of them. The user needs the
//!   right to open `/dev/infiniband/uverbs*`, and to lock as much memory as is registered (`ulimit -l`): see
//!   [`deploying`](super::deploying).
//! - **The device is named otherwise**, such as `mlx5_0`. [`DeviceList::find`] names those that there are when it finds none.
//! - **The port is active**. The path MTU is the smaller one of both ports, unless it is set.
//! - **The GID is chosen**: on Ethernet (RoCE) a port has several, one for each address and protocol;
//!   [`setup_gid_index`](crate::ibverbs::queue_pair::RcOptions::setup_gid_index) takes one. On an InfiniBand subnet packets carry the
//!   peer's [LID](crate::ibverbs::device_context::PortAttr::lid), and need no GID.
//! - **Endpoints are exchanged**: 28 bytes with GID and LID, queue pair number, MTU and first packet number (PSN, 24 bits, random,
//!   so that a late packet of an earlier connection is not accepted); and for writes and reads the address of the memory and its
//!   remote key.
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
//!             println!("{error}"); // such as EACCES: it may not be ours
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
//! Where peers have IP addresses, [`rdmacm`](crate::rdmacm) does all of that: it finds device, port and GID for an address,
//! exchanges the numbers and moves the queue pairs. It works on softrnic as well.
//!
//! A program that registers softrnic where the list has no device with an active port runs on every machine, and takes real
//! devices where there are any. The examples of the repository do so.
//!
//! # What next
//!
//! - [`from_c`](super::from_c), for who knows the verbs in C.
//! - [`memory`](super::memory): what the `unsafe` above promises, and what a peer can do with a key.
//! - [`threads`](super::threads): sleeping until something completes, several threads, async runtimes.
//! - [`hot_path`](super::hot_path): batches, inline data, and what costs time.
//! - [`teardown`](super::teardown): what a time-out does not end.
//! - [`testing`](super::testing): your own tests on softrnic, and [`errors`](super::errors) for what went wrong.
//! - `examples/examples/rc_pingpong_split.rs` in the repository: the program above between two processes, step by step.
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
