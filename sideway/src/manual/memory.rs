//! Memory and DMA: what is unsafe and why, what a peer can do, and when a program may reuse a buffer.
//!
//! # Why registration is unsafe
//!
//! A device reads and writes memory by address, asynchronously, on behalf of this program or of a peer. The compiler
//! does not know these accesses. It assumes that the bytes of a `&[u8]` do not change, and that nothing else accesses
//! the bytes of a `&mut [u8]`. Two steps therefore carry a contract that the caller must uphold:
//!
//! | step | contract | methods |
//! |---|---|---|
//! | registering the caller's memory | the memory stays mapped, and Rust code makes no access that conflicts with those permitted to the device and to peers | [`reg_mr`] and its variants |
//! | naming registered memory in a request | until the request completes, the memory stays registered, and no code makes a conflicting access | [`setup_sge`], [`setup_sge_list`] |
//!
//! Creating queues, posting inline data, binding windows, polling and teardown are safe. `SAFETY.md` in the repository
//! lists all unsafe calls, including those for rare features such as tag matching.
//!
//! In the examples, `near` and `far` are two queue pairs that are connected with each other. They are created as in
//! [`getting_started`](super::getting_started). Each has a completion queue and a page of memory that its peer may
//! access. `wait` polls until a request completes.
//!
//! # Memory owned by a region
//!
//! [`reg_owned_mr`] allocates pages, registers them, and frees them only after deregistration. The type upholds the
//! first contract; the caller must still uphold the second. Bytes can be copied in and out at any time ([`write_at`],
//! [`read_at`]). Slices are available unless the access of a peer could conflict with them. In that case, the error
//! names the access flag.
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::memory_region::RegionAccessError;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let pd = sides::soft_device()?.alloc_pd()?;
//! let mut private = pd.reg_owned_mr(4096, AccessFlags::LocalWrite)?; // local requests only
//! private.as_mut_slice()?[..5].copy_from_slice(b"hello");
//!
//! let mut shared = pd.reg_owned_mr(4096, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?; // also peers with the key
//! shared.write_at(8, b"hello")?;
//! assert!(matches!(shared.as_slice(), Err(RegionAccessError::PeersMayWrite(_))));
//! let entry = shared.sge(8..13)?; // key, address and length of a range, for a request
//! assert_eq!((entry.addr(), entry.length()), (shared.addr() + 8, 5));
//! # Ok(())
//! # }
//! ```
//!
//! # Memory of the caller
//!
//! [`reg_mr`] registers existing or shared memory. The SAFETY comment must address each point of the contract. In this
//! example, peers change counters with atomics while this side reads them:
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::completion::WorkCompletionStatus;
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # use sides::{two_sides, wait};
//!
//! static COUNTERS: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];
//!
//! # fn main() -> Result<(), sides::Fault> {
//! # let [mut near, far] = two_sides()?;
//! # let pd = far.memory.region().protection_domain();
//! let (address, bytes) = ((&raw const COUNTERS).expose_provenance(), size_of_val(&COUNTERS));
//! // SAFETY:
//! // - The bytes stay mapped: a static is never freed.
//! // - Peers may write: Rust code accesses the bytes only through atomics.
//! // - Peers may not `RemoteRead`; an atomic returns the old value, and no `&mut` to a static exists.
//! // - `MemoryWindowBind` is not set.
//! // - Only one peer receives the remote key, and the program trusts it.
//! let region = unsafe { pd.reg_mr(address, bytes, AccessFlags::LocalWrite | AccessFlags::RemoteAtomic)? };
//!
//! // Code of the peer: the old value is written to its own memory.
//! let mut batch = near.qp.start_post_send();
//! let add = batch.construct_wr(1, WorkRequestFlags::Signaled).setup_atomic_fetch_add(region.rkey(), address as u64, 5);
//! // SAFETY: the 8 bytes are registered, dropped after the queue pair, and not accessed before the completion.
//! unsafe { add.setup_sge(near.memory.lkey(), near.memory.addr(), 8) };
//! batch.post()?;
//! assert_eq!(wait(&mut near.cq)?.status, WorkCompletionStatus::Success);
//! assert_eq!(COUNTERS[0].load(Ordering::Acquire), 5);
//! # Ok(())
//! # }
//! ```
//!
//! A `Vec<u8>` can also be registered, if it is neither dropped nor grown, and if no slice of it exists while the
//! device may write. Using a slice that was created earlier violates the contract, even if the bytes appear to be
//! correct. The same contract holds for memory outside this process ([DMA buffers](#dma-buffers)), and for the whole
//! address space ([on-demand paging](#on-demand-paging)).
//!
//! # Naming memory in a request
//!
//! [`setup_sge`] gives the device access to memory, from the post until the request completes. The following read
//! upholds the contract of `setup_sge`:
//!
//! ```
//! use sideway::ibverbs::completion::WorkCompletionStatus;
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # use sides::{two_sides, wait};
//! # fn main() -> Result<(), sides::Fault> {
//! # let [mut near, mut far] = two_sides()?;
//! # far.memory.write_at(0, b"theirs")?;
//!
//! let mut batch = near.qp.start_post_send();
//! let read = batch.construct_wr(1, WorkRequestFlags::Signaled).setup_read(far.memory.rkey(), far.memory.addr());
//! // SAFETY:
//! // - Allocated and registered until the completion: the region is dropped after the queue pair, which ends any
//! //   outstanding request.
//! // - The device writes the 6 bytes: no code reads, writes or references them before `wait` returns.
//! unsafe { read.setup_sge(near.memory.lkey(), near.memory.addr(), 6) };
//! batch.post()?;
//!
//! let completion = wait(&mut near.cq)?;
//! assert_eq!(completion.status, WorkCompletionStatus::Success);
//! let mut bytes = [0; 6];
//! near.memory.read_at(0, &mut bytes)?; // no longer in use by the device
//! assert_eq!(&bytes, b"theirs");
//! # Ok(())
//! # }
//! ```
//!
//! A queue pair keeps its parents alive, but not the memory of its requests, so the queue pair must be dropped first.
//! Rust drops local variables from last to first, and the fields of a struct from first to last. So declare a local
//! variable for memory before the queue pair that uses it. In a struct, declare the memory after the queue pair.
//!
//! # When memory is free again
//!
//! | memory | when the program may reuse it |
//! |---|---|
//! | of inline data | when `setup_inline_data` returns, because it copies |
//! | of a request in a dropped batch, or of a request that was not posted, if the error of the post states how many were ([`posted`]) | immediately |
//! | after a failed post whose error does not state how many requests were posted ([`posted`] is `None`) | when the queue pair has been drained, reset or destroyed |
//! | of a signaled send or write | when its completion has been polled, with any status |
//! | of a send or write without [`Signaled`] | when a later signaled request of the same queue has completed |
//! | of a read, an atomic, a receive | when its completion has been polled; the bytes are valid only with [`Success`] |
//! | of a receive in a shared receive queue | when its completion has been polled, or the shared receive queue was destroyed |
//! | of any request, after the program's own time-out | **not**: see [`teardown`](super::teardown) |
//!
//! On a reliable connection, the completion of a send or write means that the peer's device has acknowledged it. The
//! peer's program may not have seen the data yet. On other services, the completion means only that the bytes were
//! sent.
//!
//! A write creates no completion at the peer. To notify the peer, write with [immediate
//! data](crate::ibverbs::work_request::WorkRequestHandle::setup_write_imm), or post a send after the write. On a
//! reliable connection, the peer's completion of that message guarantees that all earlier writes are in memory. A
//! program that polls the memory instead must check the device's ordering guarantee
//! ([`query_data_in_order`](crate::ibverbs::queue_pair::QueuePair::query_data_in_order)), use volatile or atomic reads,
//! and be prepared for partial writes.
//!
//! # What a peer can do
//!
//! The device checks three things before a peer can access memory: the access flags of the region, the access flags of
//! the queue pair ([`setup_access_flags`](crate::ibverbs::queue_pair::QueuePairAttribute::setup_access_flags)), and the
//! remote key, which is valid only on queue pairs of its protection domain.
//!
//! | [`AccessFlags`] of the region | a peer with the key can |
//! |---|---|
//! | none, `LocalWrite` | do nothing; the device reads the memory for local requests, and with `LocalWrite` writes it |
//! | `RemoteRead` | read any byte, at any time |
//! | `RemoteWrite`, `RemoteAtomic` (both need `LocalWrite`) | write any byte, or change 8 aligned bytes, at any time and in any order |
//! | `MemoryWindowBind` | do nothing yet; safe code can bind windows for reads and, with `LocalWrite`, writes |
//!
//! - A key covers the whole region, including any bytes outside the intended buffer. Give each peer a separate region,
//!   or a window.
//! - A key has only 32 bits and is not a secret; on some devices it can be guessed. Use separate protection domains for
//!   peers that do not trust each other.
//! - Treat bytes from a peer as untrusted input: copy them once ([`read_at`]), then validate the copy.
//! - The local key is for local requests only; peers do not need it.
//! - Programs may exchange keys and addresses in any format on which they agree. `RemoteKey::raw` is in host byte
//!   order.
//!
//! # Memory windows
//!
//! A [memory window](crate::ibverbs::memory_window) is a key to part of a region. Requests bind and invalidate it,
//! which costs much less than a registration.
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::memory_window::{BindInformation, MemoryWindowType};
//! use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! # use sideway::ibverbs::completion::WorkCompletionStatus;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # use sides::{two_sides, wait};
//! # fn main() -> Result<(), sides::Fault> {
//! # let [mut near, mut far] = two_sides()?;
//! # let pd = far.memory.region().protection_domain();
//!
//! // The owner binds 64 bytes of its region. The new key is the old one with its tag incremented.
//! let mut window = pd.alloc_mw(MemoryWindowType::Type2)?;
//! let key = window.rkey().inc_rkey();
//! let (region, start) = (far.memory.region(), far.memory.addr() + 1024);
//! let part = BindInformation::new(region, start, 64, AccessFlags::RemoteWrite);
//! let mut batch = far.qp.start_post_send();
//! batch.construct_wr(1, WorkRequestFlags::Signaled).setup_bind_mw(&mut window, key, part);
//! batch.post()?;
//! # assert_eq!(wait(&mut far.cq)?.status, WorkCompletionStatus::Success);
//! window.set_rkey(key)?; // once the binding has completed
//!
//! // The peer writes there; one byte further, the request would fail.
//! let mut batch = near.qp.start_post_send();
//! batch.construct_wr(2, WorkRequestFlags::Signaled).setup_write(key, start).setup_inline_data(b"hello");
//! batch.post()?;
//! # assert_eq!(wait(&mut near.cq)?.status, WorkCompletionStatus::Success);
//!
//! // The owner invalidates the key. Later requests with it fail.
//! let mut batch = far.qp.start_post_send();
//! batch.construct_wr(3, WorkRequestFlags::Signaled).setup_local_inv(key);
//! batch.post()?;
//! # assert_eq!(wait(&mut far.cq)?.status, WorkCompletionStatus::Success);
//! # let mut batch = near.qp.start_post_send();
//! # batch.construct_wr(4, WorkRequestFlags::Signaled).setup_write(key, start).setup_inline_data(b"again");
//! # batch.post()?;
//! # assert_eq!(wait(&mut near.cq)?.status, WorkCompletionStatus::RemoteAccessError);
//! # let mut bytes = [0; 5];
//! # far.memory.read_at(1024, &mut bytes)?;
//! # assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! An extended queue pair must be built for the operations on windows of type 2
//! ([`setup_send_ops_flags`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_send_ops_flags)). Destroy windows
//! before their region, because a region with a bound window cannot be deregistered and is leaked. See
//! [`quirks`](super::quirks) for a related fault of a device.
//!
//! # Pages
//!
//! Registration pins memory: the kernel keeps every page at its place, counts the page against `RLIMIT_MEMLOCK`, and
//! enters its address in the tables of the device. Registration is slow, so programs register large regions once and
//! reuse parts of them.
//!
//! ## Huge pages
//!
//! With huge pages, memory needs fewer entries in the device's translation tables, which have a small cache. Drivers
//! detect huge pages of pinned memory.
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::memory_region::HugePages;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let pd = sides::soft_device()?.alloc_pd()?;
//! let region = pd
//!     .create_mr_builder()
//!     .setup_length(4 << 20)
//!     .setup_access(AccessFlags::LocalWrite)
//!     .setup_huge_pages(HugePages::Transparent) // a hint; `Reserved` uses preallocated pages, or fails
//!     .build()?;
//! assert_eq!(region.addr() % (2 << 20), 0);
//! # Ok(())
//! # }
//! ```
//!
//! ## On-demand paging
//!
//! With [`OnDemand`](crate::ibverbs::AccessFlags::OnDemand) the device faults pages in instead of pinning them.
//! Registration is fast, but the first access to a page is slow unless
//! [`advise_mr`](crate::ibverbs::protection_domain::ProtectionDomain::advise_mr) prefetches it. The following program
//! queries whether the device supports it:
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let context = sides::soft_device()?;
//! # let pd = context.alloc_pd()?;
//! let on_demand = context.query_device()?.odp_caps().is_supported();
//! let paging = if on_demand { AccessFlags::OnDemand } else { AccessFlags::empty() };
//! let region = pd.reg_owned_mr(1 << 20, AccessFlags::LocalWrite | paging)?;
//! # assert_eq!(region.len(), 1 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! [`reg_implicit_odp_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_implicit_odp_mr) registers the
//! whole address space as one region, for local requests only.
//!
//! ## DMA buffers
//!
//! The memory of another device, such as a GPU, is registered with its dma-buf file descriptor. No Rust reference to
//! this memory exists, so the contract covers only its lifetime and the use of its key.
//!
//! ```no_run
//! # use std::os::fd::BorrowedFd;
//! # use std::sync::Arc;
//! # use sideway::error::VerbError;
//! # use sideway::ibverbs::AccessFlags;
//! # use sideway::ibverbs::memory_region::MemoryRegion;
//! # use sideway::ibverbs::protection_domain::ProtectionDomain;
//! # fn register(pd: &Arc<ProtectionDomain>, buffer: BorrowedFd<'_>) -> Result<Arc<MemoryRegion>, VerbError> {
//! let (offset, bytes, iova) = (0, 1 << 20, 0);
//! // SAFETY: the registration keeps the dma-buf and its memory alive; no GPU program uses these bytes during a
//! // request; no peer has the key.
//! unsafe { pd.reg_dmabuf_mr(offset, bytes, iova, buffer, AccessFlags::LocalWrite) }
//! # }
//! ```
//!
//! ## After `fork`
//!
//! When the parent writes to a page that it shares with a child, the kernel may give the parent a copy, while the
//! device keeps using the original page. This can happen on Linux before 5.12, unless
//! [`fork_init`](crate::ibverbs::fork::fork_init) was called before a device was opened. A child never gets the pages
//! of an [`OwnedMemoryRegion`](crate::ibverbs::memory_region::OwnedMemoryRegion). A child must not use the objects of
//! its parent. It must open the device again, or call `exec`.
//!
//! # Alignment
//!
//! - Atomics operate on 8 bytes. Their address must be a multiple of 8, both at the peer and for the returned value.
//! - A region that owns its memory starts at a page boundary. `reg_mr` accepts any address, but the kernel always pins
//!   whole pages.
//! - If a program chooses the I/O address
//!   ([`reg_mr_iova`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr_iova)), it must have the same offset
//!   within a page as the memory.
//! - The receive of a datagram needs 40 additional bytes at its start
//!   ([`GlobalRoutingHeader`](crate::ibverbs::address::GlobalRoutingHeader)).
//! - Device memory has the alignment passed to [`alloc_dm`](crate::ibverbs::device_context::DeviceContext::alloc_dm).
//!   Some devices require that the length and the offset of a copy are multiples of 4 bytes.
//!
//! # References
//!
//! [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html),
//! [ibv_bind_mw(3)](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html),
//! [ibv_fork_init(3)](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html); InfiniBand specification, volume 1,
//! section 10.6 (memory management)
//!
//! [`reg_mr`]: crate::ibverbs::protection_domain::ProtectionDomain::reg_mr
//! [`setup_sge`]: crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge
//! [`setup_sge_list`]: crate::ibverbs::work_request::SetScatterGatherEntry::setup_sge_list
//! [`reg_owned_mr`]: crate::ibverbs::protection_domain::ProtectionDomain::reg_owned_mr
//! [`write_at`]: crate::ibverbs::memory_region::OwnedMemoryRegion::write_at
//! [`read_at`]: crate::ibverbs::memory_region::OwnedMemoryRegion::read_at
//! [`posted`]: crate::ibverbs::work_request::PostError::posted
//! [`Signaled`]: crate::ibverbs::work_request::WorkRequestFlags::Signaled
//! [`Success`]: crate::ibverbs::completion::WorkCompletionStatus::Success
//! [`AccessFlags`]: crate::ibverbs::AccessFlags
