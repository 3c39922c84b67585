//! Porting from sideway 0.4 on crates.io, and from the `ibverbs` crate.
//!
//! # From sideway 0.4
//!
//! Modules and most names are unchanged: `ibverbs::device`, `DeviceContext`, `create_qp_builder`, `setup_…`,
//! `start_post_send`, `construct_wr`, `start_poll`. Follow the compiler's messages; the table explains them.
//!
//! The compiler may not report the first three changes.
//!
#![doc = include_str!("porting_0_4.md")]
//!
//! This is how a program polled with sideway 0.4:
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
//! // `build_ex` fails on mlx5, see above.
//! let mut qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_generic()?;
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
//! If several threads poll a queue, put the queue in a mutex. As in 0.4, drop the memory of requests after the queue
//! pair; the fields of a struct are dropped from first to last.
//!
//! ## Changes of `unsafe`
//!
//! | operation | 0.4 | here |
//! |---|---|---|
//! | registering the caller's memory | unsafe | unsafe; registering memory that the region owns is safe |
//! | naming memory in a request (`setup_sge`) | unsafe | unsafe |
//! | inline data | safe | safe |
//! | `Device::new` from a pointer | safe | removed: devices come from a list |
//! | reading a completion field that was not requested | safe, but undefined behaviour | safe, returns an error |
//! | combining objects of two device contexts | safe, but undefined behaviour | an error |
//! | overflowing an extended send queue (mlx5) | safe, but undefined behaviour | extended queue pairs on mlx5 need an unsafe call |
//! | accessing C objects | unsafe | unsafe |
//!
//! # From `ibverbs`
//!
//! This section covers [`ibverbs`](https://docs.rs/ibverbs/0.9.2) up to 0.9. That crate connects queue pairs and posts
//! single sends and receives, with lifetimes between objects. In sideway, objects keep each other alive with `Arc`, and
//! all of libibverbs is available.
//!
//! | `ibverbs` 0.9 | here |
//! |---|---|
//! | links libibverbs; builds rdma-core's headers for bindgen | loads libibverbs at run time |
//! | `ibverbs::devices()?` | [`DeviceList::new()?`](crate::ibverbs::device::DeviceList::new) |
//! | `device.open()?`: a `Context` with lifetimes | returns an `Arc<DeviceContext>` |
//! | `context.create_cq(16, 0)?` | [`create_cq_builder()`](crate::ibverbs::device_context::DeviceContext::create_cq_builder)`.setup_cqe(16).build_generic()?` |
//! | `context.alloc_pd()?` | the same, returns an `Arc` |
//! | `pd.allocate::<u64>(n)?`: a `Vec<T>` with all remote access rights, accessed as a slice | [`reg_owned_mr(bytes, access)?`](crate::ibverbs::protection_domain::ProtectionDomain::reg_owned_mr): bytes with the given access rights; [`read_at`](crate::ibverbs::memory_region::OwnedMemoryRegion::read_at), [`write_at`](crate::ibverbs::memory_region::OwnedMemoryRegion::write_at), and slices if no peer can write |
//! | `pd.create_qp(&cq, &cq, IBV_QPT_RC)` | [`create_qp_builder()`](crate::ibverbs::protection_domain::ProtectionDomain::create_qp_builder)`.setup_send_cq(&cq).setup_recv_cq(&cq)` |
//! | `set_max_send_wr`, `set_max_recv_wr` | `setup_max_send_wr`, `setup_max_recv_wr` |
//! | `set_gid_index`, `set_timeout`, `set_path_mtu`, `allow_remote_rw`, … on the builder | setters of [`RcOptions`](crate::ibverbs::queue_pair::RcOptions) |
//! | `prepared.endpoint()`: number, LID, GID | [`local_endpoint`](crate::ibverbs::queue_pair::QueuePair::local_endpoint), which converts to bytes |
//! | `prepared.handshake(endpoint)?` | [`connect_rc`](crate::ibverbs::queue_pair::QueuePair::connect_rc), or [`rdmacm`](crate::rdmacm) to connect by address |
//! | `unsafe { qp.post_send(&mut mr, 1.., 1)? }` | a batch: `start_post_send`, `construct_wr(1, …)`, `setup_send()`, `unsafe setup_sge(…)`, `post` |
//! | `unsafe { qp.post_receive(&mut mr, ..1, 2)? }` | `start_post_recv`, `construct_wr(2)`, `unsafe setup_sge(…)`, `post` |
//! | `cq.poll(&mut completions)?`: a slice of `ibv_wc` | `start_poll`, and `next` |
//! | `wc.is_valid()`, `wc.error()` | `wc.status()` |
//! | `io::Error` | [`VerbError`](crate::error::VerbError), which `?` converts to an `io::Error` |
//! | panics if a verb fails in `drop` | logs the error and leaks the object; `close` returns the error |
//!
//! This is how a program connected and sent with `ibverbs`:
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
//!     // SAFETY: the memory is registered, dropped after the queue pair, and not written before the completion.
//!     unsafe { request.setup_sge(memory.lkey(), memory.addr() + 8, 8) };
//!     batch.post()?;
//!     Ok(())
//! }
//! ```
//!
//! In `ibverbs`, `post_send` borrows the region only during the call. In both crates, the caller must keep the memory
//! valid until the completion has been polled. In sideway, [`tear_down`](crate::ibverbs::queue_pair::Pair::tear_down)
//! ends a queue pair safely.
//!
//! Versions of `ibverbs` after 0.9 have a different API (typed transports, batches of requests). The statements about
//! objects, memory and completions also apply to these versions, but the calls differ.
