//! Memory and DMA: what is unsafe and why, what a peer can do, and when memory may be touched again.
//!
//! # Why it is unsafe
//!
//! A device reads and writes memory by address, later, on its own or on behalf of a peer. The compiler knows nothing of that.
//! Where it sees a `&[u8]` it takes the bytes to stay as they are; where it sees a `&mut [u8]`, that nobody else looks. So two
//! things are promised rather than checked:
//!
//! | step | what is promised | asked by |
//! |---|---|---|
//! | registering memory of the caller | it stays mapped, and Rust code goes by what device and peers may do there | [`reg_mr`] and its kin |
//! | naming registered memory in a request | it stays while the device may use it, and nobody touches it against the device | [`setup_sge`], [`setup_sge_list`] |
//!
//! Making queues, posting inline data, binding windows, polling and ending are safe. The list of all unsafe calls, of which a few more
//! are for rare things such as tag matching, is in `SAFETY.md` of the repository.
//!
//! In the examples `near` and `far` are two queue pairs that are connected with each other, each with a completion queue and a page
//! of memory that its peer may use, made as in [`getting_started`](super::getting_started); `wait` polls until a request has
//! completed.
//!
//! # Memory that a region owns
//!
//! [`reg_owned_mr`] allocates pages, registers them, and gives them back only when the registration has ended. That is the first
//! promise kept by the type; the second is left. Bytes are copied in and out at any moment ([`write_at`], [`read_at`]); slices
//! are given where no peer can write, or read, against them, and else an error that says why.
//!
//! ```
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::memory_region::RegionAccessError;
//! # mod sides { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/manual/two_sides.rs")); }
//! # fn main() -> Result<(), sides::Fault> {
//! # let pd = sides::soft_device()?.alloc_pd()?;
//! let mut private = pd.reg_owned_mr(4096, AccessFlags::LocalWrite)?; // requests of this side alone
//! private.as_mut_slice()?[..5].copy_from_slice(b"hello");
//!
//! let mut shared = pd.reg_owned_mr(4096, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?; // and peers that have the key
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
//! What is there already, or is shared in another way, is registered by [`reg_mr`]. Its contract is ticked off point by point.
//! Here counters that peers change by atomics, while this side looks:
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
//! // - Peers may write: all access of Rust code goes through atomics.
//! // - Peers may not read by `RemoteRead`; an atomic brings them the old value, and there is no `&mut` to a static.
//! // - `MemoryWindowBind` is not given.
//! // - The remote key is told to one peer, which is trusted to count.
//! let region = unsafe { pd.reg_mr(address, bytes, AccessFlags::LocalWrite | AccessFlags::RemoteAtomic)? };
//!
//! // The peer's part: the old value arrives in its own memory.
//! let mut batch = near.qp.start_post_send();
//! let add = batch.construct_wr(1, WorkRequestFlags::Signaled).setup_atomic_fetch_add(region.rkey(), address as u64, 5);
//! // SAFETY: the 8 bytes are registered and dropped behind the queue pair, and nobody looks at them before the completion.
//! unsafe { add.setup_sge(near.memory.lkey(), near.memory.addr(), 8) };
//! batch.post()?;
//! assert_eq!(wait(&mut near.cq)?.status, WorkCompletionStatus::Success);
//! assert_eq!(COUNTERS[0].load(Ordering::Acquire), 5);
//! # Ok(())
//! # }
//! ```
//!
//! A `Vec<u8>` does as well, as long as it is neither dropped nor grown, and nobody has a slice of it while the device may
//! write: a slice that was taken before, and is used after, is a promise broken even if the bytes look right. Of memory that is
//! not of this process ([a DMA buffer](#dma-buffers)), or of all of it ([on-demand paging](#on-demand-paging)), the same is
//! promised.
//!
//! # Naming memory in a request
//!
//! [`setup_sge`] begins a loan to the device: from the post until the request has completed. Its contract, ticked off for a read
//! that brings the peer's bytes here:
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
//! // - Allocated and registered until the completion: the region is dropped behind the queue pair, which ends what is left.
//! // - The device writes the 6 bytes: nobody reads or writes them, or has a reference to them, before `wait` returns.
//! unsafe { read.setup_sge(near.memory.lkey(), near.memory.addr(), 6) };
//! batch.post()?;
//!
//! let completion = wait(&mut near.cq)?;
//! assert_eq!(completion.status, WorkCompletionStatus::Success);
//! let mut bytes = [0; 6];
//! near.memory.read_at(0, &mut bytes)?; // ours again
//! assert_eq!(&bytes, b"theirs");
//! # Ok(())
//! # }
//! ```
//!
//! Local variables are dropped last to first, and the fields of a struct first to last. So memory is made before its queue
//! pair, and in a struct stands behind it. A queue pair keeps alive what it was made from, and not the memory of its requests.
//!
//! # When memory may be touched again
//!
//! | memory | is the program's again |
//! |---|---|
//! | of inline data | when `setup_inline_data` returns: it was copied |
//! | of a request in a batch that was dropped, or whose post failed and says how many it posted | at once, for those not posted |
//! | of a post that failed and does not say so ([`posted`] is `None`) | when the queue pair has been drained, reset or destroyed |
//! | of a signaled send or write | when its completion has been polled; with any status |
//! | of one without [`Signaled`] | when a later signaled one of the same queue has completed |
//! | of a read, an atomic, a receive | when its completion has been polled; the bytes mean something with [`Success`] alone |
//! | of a receive in a shared queue | when its completion has been polled, or the shared queue is destroyed |
//! | of anything, after the program's own time-out | **not**: see [`teardown`](super::teardown) |
//!
//! The completion of a send or write on a reliable connection says that the peer's device has taken it. It does not say that the
//! peer's program has seen it. On the other services it says that the bytes have been sent.
//!
//! The other side of a write has no completion. It learns of the bytes by a write with
//! [immediate data](crate::ibverbs::work_request::WorkRequestHandle::setup_write_imm) or by a send behind the write: on a
//! reliable connection, their completion there says that what went before is in memory. A program that watches the memory instead asks whether
//! the device promises an order ([`query_data_in_order`](crate::ibverbs::queue_pair::QueuePair::query_data_in_order)), reads by
//! volatile or atomic accesses, and takes what it reads for bytes that may be half written.
//!
//! # What a peer can do
//!
//! Three locks are on the door: the region's access flags, those of the queue pair
//! ([`setup_access_flags`](crate::ibverbs::queue_pair::QueuePairAttribute::setup_access_flags)), and the remote key, which counts
//! for queue pairs of its protection domain alone.
//!
//! | [`AccessFlags`] of the region | who has the key can |
//! |---|---|
//! | none, `LocalWrite` | nothing; the device uses it for requests of this side: to read, and with `LocalWrite` to write |
//! | `RemoteRead` | read any byte, at any moment |
//! | `RemoteWrite`, `RemoteAtomic` (both need `LocalWrite`) | write any byte; change 8 aligned bytes; at any moment, in any order |
//! | `MemoryWindowBind` | nothing yet; but safe code can bind windows that give reading, and with `LocalWrite` writing |
//!
//! - The key is for the whole region. What is in it beside the buffer that was meant is given too: give a peer a region of its
//!   own, or a window.
//! - A key is 32 bits, and no secret: of some devices it can be guessed. Peers that do not trust each other have protection
//!   domains apart.
//! - What came from a peer is input: copy it once ([`read_at`]), and check the copy.
//! - The local key is for requests of this side; no peer needs it.
//! - A key and an address are told to the peer in whatever bytes both programs agree on: `RemoteKey::raw` is in host order.
//!
//! # Windows
//!
//! A [memory window](crate::ibverbs::memory_window) is a key to a part of a region, made by a request and taken back by one:
//! much cheaper than registering.
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
//! // The owner binds 64 bytes of its region. The next key is the last one with a tag that is one more.
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
//! // The peer writes there; a byte further, its request would fail.
//! let mut batch = near.qp.start_post_send();
//! batch.construct_wr(2, WorkRequestFlags::Signaled).setup_write(key, start).setup_inline_data(b"hello");
//! batch.post()?;
//! # assert_eq!(wait(&mut near.cq)?.status, WorkCompletionStatus::Success);
//!
//! // The owner takes the key back. What names it from then on is refused.
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
//! An extended queue pair is built for these operations
//! ([`setup_send_ops_flags`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_send_ops_flags)). Windows go before their
//! regions: a region with a window bound to it is not deregistered, and leaked. One more fault of a device is in the
//! [quirks](super::quirks).
//!
//! # Pages
//!
//! Registering pins: the kernel keeps every page where it is, counts it against `RLIMIT_MEMLOCK`, and tells the device. It is
//! slow, so that programs register large regions once, and lend parts of them.
//!
//! ## Huge pages
//!
//! Larger pages are fewer entries in the tables of the device, which has few of them at hand. Of pinned memory drivers find out
//! by themselves.
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
//!     .setup_huge_pages(HugePages::Transparent) // a wish; `Reserved` takes those that are set apart, or fails
//!     .build()?;
//! assert_eq!(region.addr() % (2 << 20), 0);
//! # Ok(())
//! # }
//! ```
//!
//! ## On-demand paging
//!
//! With [`OnDemand`](crate::ibverbs::AccessFlags::OnDemand) nothing is pinned: the device faults pages in. Registering is quick,
//! and the first access to a page slow, unless [`advise_mr`](crate::ibverbs::protection_domain::ProtectionDomain::advise_mr)
//! brings it in before. A device says what it can do so; a program that can do without asks it:
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
//! [`reg_implicit_odp_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_implicit_odp_mr) is one region that is the
//! whole process, for requests of this side.
//!
//! ## DMA buffers
//!
//! Memory of another device, such as a GPU, is registered by the descriptor of its dma-buf. There is no reference to it to begin
//! with; what is promised is that it stays, and who has the key.
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
//! // SAFETY: the dma-buf keeps its memory as long as the registration holds the buffer; no program on the GPU uses these bytes
//! // while a request does; no peer has the key.
//! unsafe { pd.reg_dmabuf_mr(offset, bytes, iova, buffer, AccessFlags::LocalWrite) }
//! # }
//! ```
//!
//! ## After `fork`
//!
//! A page that a child shares can be copied when the parent writes to it, and the device goes on with the other copy: on Linux
//! before 5.12, unless [`fork_init`](crate::ibverbs::fork::fork_init) was called before a device was opened. Pages of an
//! [`OwnedMemoryRegion`](crate::ibverbs::memory_region::OwnedMemoryRegion) are kept from children in any case. A child uses none
//! of its parent's objects: it opens the device anew, or calls `exec`.
//!
//! # Alignment
//!
//! - Atomics need 8 bytes at a multiple of 8, at the peer and where the old value arrives.
//! - Memory that a region owns begins at a page. `reg_mr` takes any address; the kernel pins whole pages all the same.
//! - An I/O address of one's own ([`reg_mr_iova`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr_iova)) stands at
//!   the same place within a page as the memory.
//! - A receive for datagrams has 40 bytes more at its start
//!   ([`GlobalRoutingHeader`](crate::ibverbs::address::GlobalRoutingHeader)).
//! - Device memory is aligned as [`alloc_dm`](crate::ibverbs::device_context::DeviceContext::alloc_dm) is told, and copied to
//!   and from by multiples of 4 bytes at such offsets where the device wants it.
//!
//! # References
//!
//! [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html),
//! [ibv_bind_mw(3)](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html),
//! [ibv_fork_init(3)](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html); InfiniBand specification, volume 1, section
//! 10.6 (memory management)
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
