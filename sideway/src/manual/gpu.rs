//! Registering GPU memory, and what a completion guarantees for data in it.
//!
//! A NIC can read and write GPU memory directly over PCIe, without a copy in host memory. The verbs treat such memory
//! like any other region, with keys, addresses and scatter/gather entries. There are only two differences: it is
//! registered in another way, and the processor cannot access its bytes. sideway does not depend on CUDA: it takes a
//! file descriptor or an address from the program's GPU library.
//!
//! # Two methods
//!
//! | | DMA buffer | peer memory |
//! |---|---|---|
//! | call | [`reg_dmabuf_mr`] with a descriptor from the GPU's driver | [`reg_mr`] with the device pointer |
//! | kernel | Linux 5.12, and a NIC driver with dma-buf support | a module that translates such addresses for NICs: `nvidia_peermem` |
//! | rdma-core | 34 | any |
//! | NVIDIA | CUDA 11.7, the open kernel modules | the module in the driver's package |
//! | works with softrnic | no: its memory cannot be mapped | yes, without any module |
//!
//! DMA buffers are a mechanism of the kernel, and also work with the GPUs of other vendors. Try this method first. If
//! it fails, try to register the address, as `stride-perf` does.
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
//! /// Registers `length` bytes of GPU memory at the device pointer `address`. `dmabuf` is the descriptor that
//! /// `cuMemGetHandleForAddressRange` returned for exactly these bytes, if any.
//! ///
//! /// # Safety
//! ///
//! /// The memory stays allocated until deregistration, and no kernel relies on bytes that a peer may write.
//! unsafe fn register(
//!     pd: &Arc<ProtectionDomain>,
//!     address: u64,
//!     length: usize,
//!     dmabuf: Option<BorrowedFd<'_>>,
//! ) -> Result<Arc<MemoryRegion>, VerbError> {
//!     let access = AccessFlags::LocalWrite | AccessFlags::RemoteWrite;
//!     if let Some(dmabuf) = dmabuf {
//!         // With the device pointer as the I/O address, requests and CUDA use the same addresses.
//!         // SAFETY: the caller upholds the contract.
//!         if let Ok(region) = unsafe { pd.reg_dmabuf_mr(0, length, address, dmabuf, access) } {
//!             return Ok(region);
//!         }
//!     }
//!     // SAFETY: the caller upholds the contract.
//!     unsafe { pd.reg_mr(address as usize, length, access) }
//! }
//! ```
//!
//! - A DMA buffer covers whole host pages, so request an address and a length that are multiples of the page size. GPUs
//!   allocate in pages of 64 KiB, so multiples of 64 KiB always work.
//! - The descriptor may be closed once the memory is registered; the region keeps its own reference to the buffer.
//! - With [`RegistrationAttributes`](crate::ibverbs::memory_region::RegistrationAttributes) the registration can
//!   include a [DMA handle](crate::ibverbs::dma_handle), if library and kernel support it.
//! - At the end, keep this order: wait until all requests have completed, [close the
//!   region](crate::ibverbs::memory_region::MemoryRegion::close), then free the memory. If `close` fails, the device
//!   may still use the region, so do not free the memory then.
//!
//! # Checks before registering
//!
//! | command or setting | what to look for |
//! |---|---|
//! | `modinfo nvidia \| grep license` | `Dual MIT/GPL` identifies the open modules, which export DMA buffers |
//! | `lsmod \| grep nvidia_peermem` | the module for peer memory; load it with `modprobe nvidia_peermem` |
//! | `nvidia-smi topo -m` | a GPU and a NIC under one PCIe switch (`PIX`, `PXB`) are fast; through the processor (`NODE`, `SYS`) slow or impossible |
//! | `nvidia-smi -q -d MEMORY`, BAR1 | the amount that can be registered at once |
//! | PCIe ACS, IOMMU | if enabled, traffic between devices passes through the root complex, or is blocked |
//! | `stride-perf devices` | GPUs, and the NICs near each |
//! | `stride-perf write bw --use-cuda 0 SERVER` | whether it works, how fast, and by which method (`registration`) |
//!
//! # Registration errors
//!
//! | symptom | usual cause |
//! |---|---|
//! | `cuMemGetHandleForAddressRange`: missing, or `CUDA_ERROR_NOT_SUPPORTED` | CUDA before 11.7; the closed kernel modules; an allocation that cannot be exported |
//! | … : `CUDA_ERROR_INVALID_VALUE` | address or length is not a multiple of the page size |
//! | [`reg_dmabuf_mr`]: `EOPNOTSUPP`, `EPROTONOSUPPORT`, `ENOSYS` | rdma-core before 34, Linux before 5.12, or a driver without dma-buf support, such as `rdma_rxe` in most kernels |
//! | [`reg_dmabuf_mr`]: `EBADF`, `EINVAL` | not a dma-buf descriptor; offset and I/O address differ in their offset within a page |
//! | [`reg_mr`]: `EFAULT` | no module for peer memory is loaded, so the kernel cannot resolve the address. With softrnic: the range exceeds its allocation, or the program has not loaded CUDA |
//! | either: `ENOMEM` | BAR1 is full |
//! | a completion with `LocalProtectionError` or `RemoteOperationError` | the memory was freed before deregistration |
//!
//! # Requests
//!
//! - Pass the address and the key to [`setup_sge`](crate::ibverbs::work_request::LocalBufferHandle::setup_sge), as with
//!   host memory. One gather list may contain both GPU and host memory.
//! - The processor copies inline data, so inline data cannot come from a GPU.
//! - The processor must not access GPU addresses.
//!   [`OwnedMemoryRegion`](crate::ibverbs::memory_region::OwnedMemoryRegion) is only for host memory, because slices of
//!   GPU memory are undefined behaviour.
//! - NIC atomics are atomic with other operations of that NIC, but not with GPU kernels.
//!
//! # Ordering guarantees of a completion
//!
//! - **Sending** (the requester's completion of a send, write or atomic): the completion guarantees that the device has
//!   read the memory, so the program may reuse it. The device may start to read as soon as the request is posted. So a
//!   GPU kernel or CUDA copy that fills the memory must have **finished** before the post. Wait for it with
//!   `cuStreamSynchronize` or an event; launching it is not sufficient.
//! - `cuMemcpy` and `cuMemset` may return before the last bytes have arrived in GPU memory. If
//!   `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` is set on a registered allocation, they wait.
//! - **Receiving** (the completion of a receive or of a local read): the completion guarantees that the NIC has passed
//!   the bytes to PCIe. A GPU kernel **launched after** the program has polled the completion reads these bytes if the
//!   GPU preserves the order of such writes. `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING` reports in which
//!   scope the order is preserved. If there is no such scope, call `cuFlushGPUDirectRDMAWrites` before the launch.
//! - If a GPU kernel is **already running** and polls the memory, the verbs guarantee nothing. The bytes of a message
//!   may appear in any order.
//! - A plain write does not notify its receiver, and the processor cannot poll GPU memory. So use a write with
//!   immediate data, or a send after the write.
//! - [`AccessFlags::RelaxedOrdering`](crate::ibverbs::AccessFlags::RelaxedOrdering) gives up the order of writes in
//!   favour of speed. The guarantees of a completion still hold.
//!
//! # softrnic
//!
//! If the program has loaded CUDA, [`reg_mr`] on softrnic accepts device pointers, and softrnic copies through the CUDA
//! driver. Each copy has finished when its request completes. This requires no kernel module and no NIC, so GPU code
//! can be tested on one machine. The copies do not wait for GPU kernels. softrnic treats managed memory and pinned host
//! memory as host memory. A region must lie within one allocation.
//!
//! # What was tested
//!
//! | method | tested with |
//! |---|---|
//! | [`reg_dmabuf_mr`], the call | a driver that records its arguments |
//! | softrnic's copies; `stride-perf --use-cuda` | a simulated CUDA driver that records each call |
//! | softrnic, `trespass-rpc` and `stride-perf` on a GPU | an H100 and an H200; `cargo xtask test --ring gpu` runs `softrnic/tests/cuda`, `trespass-rpc/tests/cuda` and `stride/tests/program/cuda.rs` |
//! | a NIC and a GPU, by DMA buffer or peer memory | not tested: statements about drivers and versions come from the vendors' documentation |
//!
//! [`reg_dmabuf_mr`]: crate::ibverbs::protection_domain::ProtectionDomain::reg_dmabuf_mr
//! [`reg_mr`]: crate::ibverbs::protection_domain::ProtectionDomain::reg_mr
