//! Memory for queues from the program's own allocator.

use std::fmt::Debug;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{mem, process};

use libc::c_void;
use rdma_mummy_sys::ibv_pd;

/// `IBV_ALLOCATOR_USE_DEFAULT`: the driver takes memory of its own. All bits set, in the header.
const USE_DEFAULT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// Where a parent domain takes memory from: `alloc` and `free` of `struct ibv_parent_domain_init_attr`.
///
/// A panic in `allocate` is a failure to allocate; one in `free` ends the process, since none may go through C.
///
/// # Safety
///
/// - Memory that `allocate` gives is as large and as aligned as was asked for, can be read and written, and is nobody
///   else's, until `free` is called with it. The device writes to it.
/// - It stays mapped at its address, also while the process forks.
/// - Neither function calls a verb on the device: the driver may hold locks.
///
/// # References
///
/// [ibv_alloc_parent_domain(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html)
pub unsafe trait DomainAllocator: Debug + Send + Sync {
    /// Memory for a queue.
    fn allocate(&self, request: &AllocationRequest) -> Allocation;

    /// Takes back what [`allocate`](Self::allocate) gave.
    ///
    /// # Safety
    ///
    /// - `memory` is what `allocate` of this allocator gave as [`Allocation::Memory`], for this `resource_type`, and was not taken
    ///   back since.
    /// - Neither the device nor the driver uses it any more.
    unsafe fn free(&self, memory: NonNull<u8>, resource_type: u64);
}

/// What a driver asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRequest {
    /// In bytes; at least one.
    pub size: usize,
    /// In bytes, a power of two.
    pub alignment: usize,
    /// What it is for: a number of the vendor's, such as `MLX5DV_RES_TYPE_CQ`.
    pub resource_type: u64,
}

/// What a driver gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// This memory.
    Memory(NonNull<u8>),
    /// `IBV_ALLOCATOR_USE_DEFAULT`: the driver is to allocate as it would without an allocator, and to free it so.
    #[doc(alias = "IBV_ALLOCATOR_USE_DEFAULT")]
    Default,
    /// None: making the object fails with `ENOMEM`.
    Failed,
}

/// The allocator as the driver has it: on the heap, and reached by a pointer alone until it is dropped.
pub(super) struct AllocatorContext(NonNull<Arc<dyn DomainAllocator>>);

// SAFETY: it owns the allocator, which may move and be shared.
unsafe impl Send for AllocatorContext {}
// SAFETY: as for Send.
unsafe impl Sync for AllocatorContext {}

impl AllocatorContext {
    pub(super) fn new(allocator: Arc<dyn DomainAllocator>) -> Self {
        Self(NonNull::from(Box::leak(Box::new(allocator))))
    }

    /// `pd_context`, live as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl Drop for AllocatorContext {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a box, and who drops this says that the driver does not call any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What the driver calls.
///
/// # Safety
///
/// `pd_context` is a live `Arc<dyn DomainAllocator>`.
pub(super) unsafe extern "C" fn allocate(
    _pd: *mut ibv_pd,
    pd_context: *mut c_void,
    size: usize,
    alignment: usize,
    resource_type: u64,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let allocator = unsafe { &*pd_context.cast::<Arc<dyn DomainAllocator>>() };
    // What no allocator can be asked for by a `Layout`, the driver has to find itself.
    if size == 0 || !alignment.is_power_of_two() {
        return USE_DEFAULT;
    }
    let request = AllocationRequest { size, alignment, resource_type };
    match panic::catch_unwind(AssertUnwindSafe(|| allocator.allocate(&request))) {
        Ok(Allocation::Memory(memory)) => memory.as_ptr().cast(),
        Ok(Allocation::Default) => USE_DEFAULT,
        Ok(Allocation::Failed) => out_of_memory(),
        Err(payload) => {
            // Dropping it could panic anew.
            mem::forget(payload);
            out_of_memory()
        }
    }
}

fn out_of_memory() -> *mut c_void {
    // SAFETY: libc gives the address of this thread's errno, valid and aligned as long as the thread runs.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

/// What the driver calls.
///
/// # Safety
///
/// `pd_context` is a live `Arc<dyn DomainAllocator>`, which gave `memory`, and nobody uses that any more.
pub(super) unsafe extern "C" fn free(
    _pd: *mut ibv_pd,
    pd_context: *mut c_void,
    memory: *mut c_void,
    resource_type: u64,
) {
    // SAFETY: the caller's promise.
    let allocator = unsafe { &*pd_context.cast::<Arc<dyn DomainAllocator>>() };
    let Some(memory) = NonNull::new(memory.cast::<u8>()).filter(|memory| memory.as_ptr().cast() != USE_DEFAULT) else {
        return;
    };
    // SAFETY: the caller's promise.
    let freed = panic::catch_unwind(AssertUnwindSafe(|| unsafe { allocator.free(memory, resource_type) }));
    if freed.is_err() {
        log::error!("DomainAllocator::free panicked");
        process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has one place to give, and counts on what it is promised of requests.
    #[derive(Debug)]
    struct Strict;

    // SAFETY: what it gives is never used.
    unsafe impl DomainAllocator for Strict {
        fn allocate(&self, request: &AllocationRequest) -> Allocation {
            assert!(request.size > 0 && request.alignment.is_power_of_two(), "{request:?}");
            Allocation::Memory(NonNull::dangling())
        }

        unsafe fn free(&self, memory: NonNull<u8>, _resource_type: u64) {
            assert_eq!(memory, NonNull::dangling());
        }
    }

    #[test]
    fn an_allocator_is_asked_for_nothing_that_it_cannot_give() {
        let context = AllocatorContext::new(Arc::new(Strict));
        // SAFETY: the context is live.
        let ask = |size, alignment| unsafe { allocate(ptr::null_mut(), context.as_ptr(), size, alignment, 0) };
        for (size, alignment) in [(0, 64), (4096, 0), (4096, 3), (usize::MAX, usize::MAX)] {
            assert_eq!(ask(size, alignment), USE_DEFAULT, "{size} {alignment}");
        }
        let memory = ask(4096, 64);
        assert_eq!(memory, NonNull::<u8>::dangling().as_ptr().cast());
        for back in [memory, USE_DEFAULT, ptr::null_mut()] {
            // SAFETY: the context is live; what was not given is not passed on.
            unsafe { free(ptr::null_mut(), context.as_ptr(), back, 0) };
        }
    }
}
