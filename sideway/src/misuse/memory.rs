//! Memory that the caller lends to the device in unsafe code, and owned memory that needs none:
//!
//! ```
//! use std::sync::Arc;
//!
//! use sideway::ibverbs::AccessFlags;
//! use sideway::ibverbs::device::DeviceList;
//! use sideway::ibverbs::memory_region::{MemoryRegion, OwnedMemoryRegion};
//! use sideway::ibverbs::memory_window::BindInformation;
//! use sideway::ibverbs::protection_domain::ProtectionDomain;
//! use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostRecvGuard, PostSendGuard, SetScatterGatherEntry};
//! use sideway::ibverbs::shared_receive_queue::{PostTagOperationsGuard, Tag, TagMatchingOperationFlags};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! // SAFETY: the caller lends the memory that the numbers name.
//! unsafe fn lend(pd: &Arc<ProtectionDomain>, mut send: BasicPostSendGuard<'_>, mut receive: PostRecvGuard<'_>) {
//!     unsafe { send.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_sge(1, 2, 3) };
//!     unsafe { receive.construct_wr(1).setup_sge(1, 2, 3) };
//!     drop(unsafe { pd.reg_mr(4096, 1, AccessFlags::LocalWrite) });
//!     drop(unsafe { pd.import_mr(1) });
//! }
//! // SAFETY: as above.
//! unsafe fn tag(mut guard: PostTagOperationsGuard<'_>, tag: Tag) {
//!     unsafe { guard.construct_op(1, TagMatchingOperationFlags::Signaled).setup_add(2, 3, 4).setup_sge(1, 2, 3) };
//!     unsafe { guard.construct_op(1, TagMatchingOperationFlags::Signaled).setup_delete(tag) };
//! }
//! fn own(region: &mut OwnedMemoryRegion) -> u8 {
//!     let _ = region.write_at(0, b"new");
//!     region.as_slice().map_or(0, |slice| slice[0])
//! }
//! fn bind(region: &MemoryRegion) -> BindInformation<'_> {
//!     BindInformation::new(region, 0, 1, AccessFlags::RemoteRead)
//! }
//! fn open(list: DeviceList) {
//!     drop(list.get(0).unwrap().open());
//! }
//! ```
//!
//! The device accesses the memory after the call has returned. The caller must guarantee that the device may do so:
//!
//! ```compile_fail,E0133
//! use sideway::ibverbs::queue_pair::{BasicPostSendGuard, PostSendGuard};
//! use sideway::ibverbs::work_request::WorkRequestFlags;
//! fn name(mut guard: BasicPostSendGuard<'_>) {
//!     guard.construct_wr(1, WorkRequestFlags::empty()).setup_send().setup_sge(1, 2, 3);
//! }
//! ```
//!
//! A receive has the same rule:
//!
//! ```compile_fail,E0133
//! use sideway::ibverbs::queue_pair::PostRecvGuard;
//! fn name(mut guard: PostRecvGuard<'_>) {
//!     guard.construct_wr(1).setup_sge(1, 2, 3);
//! }
//! ```
//!
//! The receive of a tag has the same rule:
//!
//! ```compile_fail,E0133
//! use sideway::ibverbs::queue_pair::SetScatterGatherEntry;
//! use sideway::ibverbs::shared_receive_queue::{PostTagOperationsGuard, TagMatchingOperationFlags};
//! fn name(mut guard: PostTagOperationsGuard<'_>) {
//!     guard.construct_op(1, TagMatchingOperationFlags::Signaled).setup_add(2, 3, 4).setup_sge(1, 2, 3);
//! }
//! ```
//!
//! A driver does not check that a tag is in its list, so the caller must guarantee it:
//!
//! ```compile_fail,E0133
//! use sideway::ibverbs::shared_receive_queue::{PostTagOperationsGuard, Tag, TagMatchingOperationFlags};
//! fn delete(mut guard: PostTagOperationsGuard<'_>, tag: Tag) {
//!     guard.construct_op(1, TagMatchingOperationFlags::Signaled).setup_delete(tag);
//! }
//! ```
//!
//! The device and peers access registered memory. The caller must guarantee that they may do so:
//!
//! ```compile_fail,E0133
//! use sideway::ibverbs::{AccessFlags, protection_domain::ProtectionDomain};
//! fn register(pd: &std::sync::Arc<ProtectionDomain>) {
//!     drop(pd.reg_mr(4096, 1, AccessFlags::LocalWrite));
//! }
//! ```
//!
//! An import returns the keys of memory that another process registered. The caller must guarantee that it may use
//! them:
//!
//! ```compile_fail,E0133
//! use sideway::ibverbs::protection_domain::ProtectionDomain;
//! fn keys(pd: &std::sync::Arc<ProtectionDomain>) {
//!     drop(pd.import_mr(1));
//! }
//! ```
//!
//! The device writes to the memory of an allocator, so its trait is unsafe:
//!
//! ```compile_fail,E0200
//! use std::ptr::NonNull;
//! use sideway::ibverbs::parent_domain::{Allocation, AllocationRequest, DomainAllocator};
//! #[derive(Debug)]
//! struct Careless;
//! impl DomainAllocator for Careless {
//!     fn allocate(&self, _request: &AllocationRequest) -> Allocation {
//!         Allocation::Memory(NonNull::dangling())
//!     }
//!     unsafe fn free(&self, _memory: NonNull<u8>, _resource_type: u64) {}
//! }
//! ```
//!
//! A binding names a region by its C object:
//!
//! ```compile_fail,E0515
//! use sideway::ibverbs::{AccessFlags, memory_region::MemoryRegion, memory_window::BindInformation};
//! fn bind(region: std::sync::Arc<MemoryRegion>) -> BindInformation<'static> {
//!     let all = BindInformation::new(&region, 0, 1, AccessFlags::RemoteRead);
//!     all
//! }
//! ```
//!
//! The memory of an owned region is freed with the region:
//!
//! ```compile_fail,E0505
//! use sideway::ibverbs::memory_region::OwnedMemoryRegion;
//! fn first(region: OwnedMemoryRegion) -> u8 {
//!     let Ok(slice) = region.as_slice() else { return 0 };
//!     drop(region);
//!     slice[0]
//! }
//! ```
//!
//! A slice of an owned region borrows it, so the program cannot write those bytes:
//!
//! ```compile_fail,E0502
//! use sideway::ibverbs::memory_region::OwnedMemoryRegion;
//! fn write(region: &mut OwnedMemoryRegion) {
//!     let Ok(slice) = region.as_slice() else { return };
//!     let _ = region.write_at(0, b"new");
//!     drop(slice[0]);
//! }
//! ```
//!
//! A shared reference to an owned region cannot write it:
//!
//! ```compile_fail,E0596
//! use sideway::ibverbs::memory_region::OwnedMemoryRegion;
//! fn write(region: std::sync::Arc<OwnedMemoryRegion>) {
//!     let _ = region.write_at(0, b"new");
//! }
//! ```
//!
//! A region changes its keys only while it has one owner:
//!
//! ```compile_fail,E0596
//! use sideway::ibverbs::memory_region::MemoryRegion;
//! fn change(region: &std::sync::Arc<MemoryRegion>) {
//!     let _ = unsafe { region.rereg_mr(None, Some((4096, 1)), None) };
//! }
//! ```
//!
//! Devices that are not open are freed with the list:
//!
//! ```compile_fail,E0505
//! use sideway::ibverbs::device::DeviceList;
//! fn keep(list: DeviceList) {
//!     let device = list.get(0).unwrap();
//!     drop(list);
//!     drop(device.open());
//! }
//! ```
//!
//! A device comes only from a list:
//!
//! ```compile_fail,E0599
//! use sideway::ibverbs::device::{Device, DeviceList};
//! fn make(list: &DeviceList) -> Device<'_> {
//!     Device::new(std::ptr::null_mut(), list)
//! }
//! ```
