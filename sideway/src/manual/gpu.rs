//! Memory of GPUs: how it is registered, and what a completion means for it.
//!
//! A NIC can read and write the memory of a GPU over PCIe, without the host's memory in between. To verbs such memory is a region
//! like any other: keys, addresses, scatter-gather entries. Only registering differs, and that the processor cannot look at it.
//! sideway knows nothing of CUDA: it takes a descriptor or an address, from whatever library the program has for its GPU.
//!
//! # Two ways
//!
//! | | DMA buffer | peer memory |
//! |---|---|---|
//! | call | [`reg_dmabuf_mr`] with a descriptor of the GPU's driver | [`reg_mr`] with the device pointer |
//! | kernel | Linux 5.12, and a driver of the NIC that takes them | a module that explains such addresses to NICs: `nvidia_peermem` |
//! | rdma-core | 34 | any |
//! | NVIDIA | CUDA 11.7, the open kernel modules | the module of the driver's own package |
//! | works with softrnic | no: its memory cannot be mapped | yes, without any module |
//!
//! A DMA buffer is the way of the kernel itself, and that of other vendors' GPUs too. Try it first, and the address when it is
//! refused; that is what `stride-perf` does.
//!
//! ```no_run
//! use std::os::fd::BorrowedFd;
//! use std::sync::Arc;
//!
//! use sideway::error::VerbError;
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::memory_region::MemoryRegion;
//! use sideway::ibverbs::protection_domain::ProtectionDomain;
//!
//! /// Registers `length` bytes of a GPU's memory at the device pointer `address`; `dmabuf` is what
//! /// `cuMemGetHandleForAddressRange` has given for exactly these bytes, if it has.
//! ///
//! /// # Safety
//! ///
//! /// The memory stays allocated until the registration has ended, and no kernel counts on bytes that a peer may write.
//! unsafe fn register(
//!     pd: &Arc<ProtectionDomain>,
//!     address: u64,
//!     length: usize,
//!     dmabuf: Option<BorrowedFd<'_>>,
//! ) -> Result<Arc<MemoryRegion>, VerbError> {
//!     let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
//!     if let Some(dmabuf) = dmabuf {
//!         // With the device pointer as the I/O address, requests name the bytes as CUDA does.
//!         // SAFETY: the caller's promise.
//!         if let Ok(region) = unsafe { pd.reg_dmabuf_mr(0, length, address, dmabuf, access) } {
//!             return Ok(region);
//!         }
//!     }
//!     // SAFETY: the caller's promise.
//!     unsafe { pd.reg_mr(address as usize, length, access) }
//! }
//! ```
//!
//! - A DMA buffer is of whole pages of the host: ask CUDA for an address and a length that are multiples of the page size (GPUs give
//!   memory away in pages of 64 KiB, so multiples of that do everywhere).
//! - The descriptor may be closed once the memory is registered; the region keeps what it needs.
//! - With [`RegistrationAttributes`](crate::ibverbs::memory_region::RegistrationAttributes) a
//!   [DMA handle](crate::ibverbs::dma_handle) can be given along, on new versions.
//! - Keep the order at the end: requests done, [region closed](crate::ibverbs::memory_region::MemoryRegion::close), memory freed. A
//!   region whose `close` fails is still known to the device: leave the memory allocated then.
//!
//! # What to check first
//!
//! | look at | for |
//! |---|---|
//! | `modinfo nvidia \| grep license` | `Dual MIT/GPL` are the open modules, which export DMA buffers |
//! | `lsmod \| grep nvidia_peermem` | the other way; `modprobe nvidia_peermem` |
//! | `nvidia-smi topo -m` | a GPU and a NIC under one PCIe switch (`PIX`, `PXB`) are fast, over the processor (`NODE`, `SYS`) slow or impossible |
//! | `nvidia-smi -q -d MEMORY`, BAR1 | how much can be registered at once |
//! | PCIe ACS, IOMMU | with them on, traffic between devices goes by the root complex, or is refused |
//! | `stride-perf devices` | GPUs, and which are near which NIC |
//! | `stride-perf write bw --use-cuda 0 SERVER` | whether it works, how fast, and by which way (`registration`) |
//!
//! # When it does not register
//!
//! | symptom | usual cause |
//! |---|---|
//! | `cuMemGetHandleForAddressRange`: not there, or `CUDA_ERROR_NOT_SUPPORTED` | CUDA before 11.7; the closed kernel modules; an allocation that cannot be exported |
//! | … : `CUDA_ERROR_INVALID_VALUE` | address or length are no multiples of the page size |
//! | [`reg_dmabuf_mr`]: `EOPNOTSUPP`, `EPROTONOSUPPORT`, `ENOSYS` | rdma-core before 34, Linux before 5.12, or a driver without it, such as `rdma_rxe` of most kernels |
//! | [`reg_dmabuf_mr`]: `EBADF`, `EINVAL` | no descriptor of a DMA buffer; offset and I/O address with different places in a page |
//! | [`reg_mr`]: `EFAULT` | no module for peer memory is loaded: to the kernel the address is nothing. With softrnic: the range goes beyond its allocation, or the program has not loaded CUDA |
//! | either: `ENOMEM` | BAR1 is full |
//! | a completion with `LocalProtectionError` or `RemoteOperationError` | the memory was freed while it was registered |
//!
//! # Requests
//!
//! - Address and key go into [`setup_sge`](crate::ibverbs::work_request::LocalBufferHandle::setup_sge) as with host memory. One list
//!   may mix both.
//! - Inline data is copied by the processor: not from a GPU.
//! - The processor must not follow such an address. [`OwnedMemoryRegion`](crate::ibverbs::memory_region::OwnedMemoryRegion) is for
//!   host memory; slices of a GPU's memory are undefined behaviour.
//! - Atomics of a NIC are atomic with its own, and not with kernels of the GPU.
//!
//! # Order: what a completion means
//!
//! - **Sending** (the requester's completion of a send, write or atomic): the device has read the memory, which may be used anew. It
//!   reads what is in the memory when the request is posted or later: a kernel, or a copy of CUDA's, that fills it must have **ended**
//!   before the post, by `cuStreamSynchronize` or an event, and not only have been launched.
//! - `cuMemcpy` and `cuMemset` between host and device may return before their last bytes are there.
//!   `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` on the allocation has them wait; set it on memory that is registered.
//! - **Receiving** (the completion of a receive, or of this side's read): the NIC has handed the bytes to PCIe. A kernel that is
//!   **launched after** the program has seen the completion reads them, where the GPU keeps the order of such writes:
//!   `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING` says for whom. Where it says none,
//!   `cuFlushGPUDirectRDMAWrites` comes before the launch.
//! - A kernel that **runs already** and polls the memory is promised nothing by verbs, and bytes of one message may show in any order.
//! - A plain write tells its receiver nothing, and the processor cannot watch the memory: use a write with immediate data, or a send
//!   behind it.
//! - With [`AccessFlags::RelaxedOrdering`](crate::ibverbs::AccessFlags::RelaxedOrdering) order among writes is given up for speed;
//!   what a completion says still holds.
//!
//! # softrnic
//!
//! Where the program has loaded CUDA, softrnic takes device pointers by [`reg_mr`] and has the driver make the copies, each of which has
//! ended when its request completes. It needs no module and no NIC, so that code with GPUs can be tried in one machine. Copies wait
//! for no kernel; managed memory and pinned memory of the host are host addresses to it. A region lies within one allocation.
//!
//! # What was tried
//!
//! | path | tried with |
//! |---|---|
//! | [`reg_dmabuf_mr`], the call | a driver that records what it is given |
//! | softrnic's copies; `stride-perf --use-cuda` | a stand-in for the CUDA driver, call by call |
//! | the same on a GPU | tests are there (`SOFTRNIC_TEST_CUDA=1 cargo test -p softrnic --test cuda`, `STRIDE_TEST_CUDA=1 cargo test -p stride-perf --test cuda`); they have not been run on one |
//! | a NIC and a GPU, by DMA buffer or peer memory | not tried: what stands here of drivers and their versions is their vendors' documentation |
//!
//! [`reg_dmabuf_mr`]: crate::ibverbs::protection_domain::ProtectionDomain::reg_dmabuf_mr
//! [`reg_mr`]: crate::ibverbs::protection_domain::ProtectionDomain::reg_mr
