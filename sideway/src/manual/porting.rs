//! Porting a program: from sideway 0.4 of crates.io, and from the crate `ibverbs`.
//!
//! # From sideway 0.4
//!
//! Modules and most names are the same: `ibverbs::device`, `DeviceContext`, `create_qp_builder`, `setup_…`, `start_post_send`,
//! `construct_wr`, `start_poll`. A port is a matter of the compiler's messages. These are behind them:
//!
//! The first three are those that the compiler may not see.
//!
#![doc = include_str!("porting_0_4.md")]
//!
//! Polling, before:
//!
//! ```text
//! let cq = context.create_cq_builder().setup_cqe(16).build_ex()?;          // an Arc
//! let mut qp = pd.create_qp_builder()
//!     .setup_send_cq(GenericCompletionQueue::from(Arc::clone(&cq)))
//!     .setup_recv_cq(GenericCompletionQueue::from(Arc::clone(&cq)))
//!     .build_ex()?;
//! if let Ok(mut poller) = cq.start_poll() {
//!     while let Some(wc) = poller.next() {
//!         assert_eq!(wc.status(), WorkCompletionStatus::Success as u32);
//!     }
//! }
//! ```
//!
//! and after:
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use sideway::ibverbs::completion::{PollCompletionQueueError, WorkCompletionStatus};
//! # use sideway::ibverbs::device_context::DeviceContext;
//! # use sideway::ibverbs::protection_domain::ProtectionDomain;
//! # fn poll(context: &Arc<DeviceContext>, pd: &Arc<ProtectionDomain>) -> Result<(), Box<dyn std::error::Error>> {
//! let mut cq = context.create_cq_builder().setup_cqe(16).build_ex()?;
//! let mut qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_ex()?;
//! match cq.start_poll() {
//!     Ok(mut poller) => {
//!         while let Some(wc) = poller.next()? {
//!             assert_eq!(wc.status(), WorkCompletionStatus::Success, "{}", wc.status());
//!         }
//!     }
//!     Err(PollCompletionQueueError::CompletionQueueEmpty) => {}
//!     Err(error) => return Err(error.into()),
//! }
//! # let _ = &mut qp;
//! # Ok(())
//! # }
//! ```
//!
//! A queue that several threads poll in turn goes into a mutex. What holds the memory of requests is dropped behind the queue pair, as
//! before: fields of a struct go first to last.
//!
//! ## What is unsafe now, and what no longer
//!
//! | | 0.4 | here |
//! |---|---|---|
//! | registering memory of the caller's | unsafe | unsafe; memory that the region owns: safe |
//! | giving memory to a request (`setup_sge`) | unsafe | unsafe |
//! | inline data | safe | safe |
//! | `Device::new` from a pointer | safe | gone: devices come from a list |
//! | reading a field of a completion that was not asked for | safe, and undefined | safe, an error |
//! | objects of two device contexts together | safe, and undefined | an error |
//! | more requests than an extended send queue has room for (mlx5) | safe, and undefined | refused; extended objects there need an unsafe promise |
//! | accessors of C objects | unsafe | unsafe |
//!
//! # From `ibverbs`
//!
//! Of the releases up to 0.9 of [`ibverbs`](https://docs.rs/ibverbs/0.9.2). It connects queue pairs and posts sends and receives, one
//! at a time, with lifetimes between the objects. Here objects hold each other by `Arc`, and all of libibverbs is there.
//!
//! | `ibverbs` 0.9 | here |
//! |---|---|
//! | links libibverbs; builds rdma-core's headers for bindgen | opens libibverbs at run time |
//! | `ibverbs::devices()?` | [`DeviceList::new()?`](crate::ibverbs::device::DeviceList::new) |
//! | `device.open()?`: a `Context` with lifetimes | an `Arc<DeviceContext>` |
//! | `context.create_cq(16, 0)?` | [`create_cq_builder()`](crate::ibverbs::device_context::DeviceContext::create_cq_builder)`.setup_cqe(16).build_generic()?` |
//! | `context.alloc_pd()?` | the same, an `Arc` |
//! | `pd.allocate::<u64>(n)?`: a `Vec<T>` with all remote rights, read and written as a slice | [`reg_owned_mr(bytes, access)?`](crate::ibverbs::protection_domain::ProtectionDomain::reg_owned_mr): bytes, with the rights that are named; [`read_at`](crate::ibverbs::memory_region::OwnedMemoryRegion::read_at), [`write_at`](crate::ibverbs::memory_region::OwnedMemoryRegion::write_at), slices where no peer can write |
//! | `pd.create_qp(&cq, &cq, IBV_QPT_RC)` | [`create_qp_builder()`](crate::ibverbs::protection_domain::ProtectionDomain::create_qp_builder)`.setup_send_cq(&cq).setup_recv_cq(&cq)` |
//! | `set_max_send_wr`, `set_max_recv_wr` | `setup_max_send_wr`, `setup_max_recv_wr` |
//! | `set_gid_index`, `set_timeout`, `set_path_mtu`, `allow_remote_rw`, … on the builder | setters of [`RcOptions`](crate::ibverbs::queue_pair::RcOptions) |
//! | `prepared.endpoint()`: number, LID, GID | [`local_endpoint`](crate::ibverbs::queue_pair::QueuePair::local_endpoint), with its fixed form in bytes |
//! | `prepared.handshake(endpoint)?` | [`connect_rc`](crate::ibverbs::queue_pair::QueuePair::connect_rc); or [`rdmacm`](crate::rdmacm), which connects by address |
//! | `unsafe { qp.post_send(&mut mr, 1.., 1)? }` | a batch: `start_post_send`, `construct_wr(1, …)`, `setup_send()`, `unsafe setup_sge(…)`, `post` |
//! | `unsafe { qp.post_receive(&mut mr, ..1, 2)? }` | `start_post_recv`, `construct_wr(2)`, `unsafe setup_sge(…)`, `post` |
//! | `cq.poll(&mut completions)?`: a slice of `ibv_wc` | `start_poll`, and `next` |
//! | `wc.is_valid()`, `wc.error()` | `wc.status()` |
//! | `io::Error` | [`VerbError`](crate::error::VerbError), into an `io::Error` by `?` |
//! | a verb that fails in `drop` panics | it is logged, the object leaked; `close` reports |
//!
//! Before, the whole of connecting and sending:
//!
//! ```text
//! let mut qp = pd.create_qp(&cq, &cq, IBV_QPT_RC).set_gid_index(1).build()?;
//! let mine = qp.endpoint();                                     // to the peer, and theirs from there
//! let mut qp = qp.handshake(theirs)?;
//! let mut mr = pd.allocate::<u64>(2)?;
//! unsafe { qp.post_send(&mut mr, 1.., 1) }?;
//! ```
//!
//! and after:
//!
//! ```no_run
//! use std::error::Error;
//! use std::sync::Arc;
//!
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::completion::GenericCompletionQueue;
//! use sideway::ibverbs::memory_region::OwnedMemoryRegion;
//! use sideway::ibverbs::protection_domain::ProtectionDomain;
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair, QueuePairEndpoint, RcOptions};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//!
//! fn send(
//!     pd: &Arc<ProtectionDomain>,
//!     cq: &GenericCompletionQueue,
//!     exchange: impl FnOnce(QueuePairEndpoint) -> QueuePairEndpoint,
//! ) -> Result<(), Box<dyn Error>> {
//!     // Declared before the queue pair, so it is dropped after it.
//!     let memory: OwnedMemoryRegion = pd.reg_owned_mr(16, AccessFlags::LocalWrite)?;
//!     let mut qp = pd.create_qp_builder().setup_send_cq(cq).setup_recv_cq(cq).build_generic()?;
//!     let mut options = RcOptions::new();
//!     options.setup_gid_index(1);
//!     let theirs = exchange(qp.local_endpoint(&options)?);
//!     qp.connect_rc(&theirs, &options)?;
//!     let mut batch = qp.start_post_send();
//!     let request = batch.construct_wr(1, WorkRequestFlags::Signaled).setup_send();
//!     // SAFETY: the memory is registered, goes after the queue pair, and nobody writes it meanwhile.
//!     unsafe { request.setup_sge(memory.lkey(), memory.addr() + 8, 8) };
//!     batch.post()?;
//!     Ok(())
//! }
//! ```
//!
//! `post_send` borrowed the region for the call alone, and both crates leave the rest to the caller: the memory stays until the
//! completion has been polled. [`tear_down`](crate::ibverbs::queue_pair::Pair::tear_down) is for the end.
//!
//! Versions of `ibverbs` after 0.9 have other shapes (typed transports, batches of requests); what is said of objects, memory and
//! completions holds for them too, the calls are others.
