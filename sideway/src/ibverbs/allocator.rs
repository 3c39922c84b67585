//! Memory for queues from the program's allocator.

use std::fmt::Debug;
use std::panic::{self, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::{mem, process};

use libc::c_void;
use rdma_mummy_sys::ibv_pd;

/// `IBV_ALLOCATOR_USE_DEFAULT`: the driver uses its own memory. The header defines this pointer as all bits set.
const USE_DEFAULT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// The allocator of a parent domain: `alloc` and `free` of `struct ibv_parent_domain_init_attr`.
///
/// A panic in `allocate` is treated as a failed allocation. A panic in `free` aborts the process, because it must not
/// unwind through C code.
///
/// # Safety
///
/// - The memory that `allocate` returns has the requested size and alignment, and can be read and written. No other
///   code uses it until `free` is called with it. The device writes to it.
/// - The memory stays mapped at its address, also while the process forks.
/// - Neither function calls a verb on the device, because the driver may hold locks during the call.
///
/// # References
///
/// [ibv_alloc_parent_domain(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html)
pub unsafe trait DomainAllocator: Debug + Send + Sync {
    /// Allocates memory for a queue.
    fn allocate(&self, request: &AllocationRequest) -> Allocation;

    /// Frees memory that [`allocate`](Self::allocate) returned.
    ///
    /// # Safety
    ///
    /// - `allocate` of this allocator returned `memory` as [`Allocation::Memory`] for this `resource_type`, and it was
    ///   not freed since.
    /// - Neither the device nor the driver uses the memory any more.
    unsafe fn free(&self, memory: NonNull<u8>, resource_type: u64);
}

/// A driver's request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllocationRequest {
    /// The size in bytes; at least one.
    pub size: usize,
    /// The alignment in bytes, a power of two.
    pub alignment: usize,
    /// The purpose: a number defined by the vendor, such as `MLX5DV_RES_TYPE_CQ`.
    pub resource_type: u64,
}

/// The response to a driver's request for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The driver uses this memory.
    Memory(NonNull<u8>),
    /// `IBV_ALLOCATOR_USE_DEFAULT`: the driver allocates and frees the memory as if there were no allocator.
    #[doc(alias = "IBV_ALLOCATOR_USE_DEFAULT")]
    Default,
    /// No memory is available, so creating the object fails with `ENOMEM`.
    Failed,
}

/// The allocator in the form that drivers use. It is on the heap, and is accessed only through a pointer until it is
/// dropped.
pub(in crate::ibverbs) struct AllocatorContext(NonNull<Arc<dyn DomainAllocator>>);

// SAFETY: the context owns the allocator, which is Send and Sync.
unsafe impl Send for AllocatorContext {}
// SAFETY: the reasons given for `Send` apply.
unsafe impl Sync for AllocatorContext {}

impl AllocatorContext {
    pub(in crate::ibverbs) fn new(allocator: Arc<dyn DomainAllocator>) -> Self {
        Self(NonNull::from(Box::leak(Box::new(allocator))))
    }

    /// Returns `pd_context`, which is live as long as `self` lives.
    pub(in crate::ibverbs) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl Drop for AllocatorContext {
    fn drop(&mut self) {
        // SAFETY: the pointer is a box that `new` leaked. `self` is dropped only when the driver no longer calls the
        // allocator.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The allocation function that drivers call.
///
/// # Safety
///
/// `pd_context` is a live `Arc<dyn DomainAllocator>`.
pub(in crate::ibverbs) unsafe extern "C" fn allocate(
    _pd: *mut ibv_pd,
    pd_context: *mut c_void,
    size: usize,
    alignment: usize,
    resource_type: u64,
) -> *mut c_void {
    // SAFETY: the caller upholds the contract of this function.
    let allocator = unsafe { &*pd_context.cast::<Arc<dyn DomainAllocator>>() };
    // A request that no `Layout` can express is left to the driver's own allocator.
    if size == 0 || !alignment.is_power_of_two() {
        return USE_DEFAULT;
    }
    let request = AllocationRequest { size, alignment, resource_type };
    match panic::catch_unwind(AssertUnwindSafe(|| allocator.allocate(&request))) {
        Ok(Allocation::Memory(memory)) => memory.as_ptr().cast(),
        Ok(Allocation::Default) => USE_DEFAULT,
        Ok(Allocation::Failed) => out_of_memory(),
        Err(payload) => {
            // Dropping the payload could panic again.
            mem::forget(payload);
            out_of_memory()
        }
    }
}

fn out_of_memory() -> *mut c_void {
    // SAFETY: libc returns the address of this thread's errno, valid and aligned while the thread runs.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    ptr::null_mut()
}

/// The free function that drivers call.
///
/// # Safety
///
/// `pd_context` is a live `Arc<dyn DomainAllocator>` that allocated `memory`, which is no longer used.
pub(in crate::ibverbs) unsafe extern "C" fn free(
    _pd: *mut ibv_pd,
    pd_context: *mut c_void,
    memory: *mut c_void,
    resource_type: u64,
) {
    // SAFETY: the caller upholds the contract of this function.
    let allocator = unsafe { &*pd_context.cast::<Arc<dyn DomainAllocator>>() };
    let Some(memory) = NonNull::new(memory.cast::<u8>()).filter(|memory| memory.as_ptr().cast() != USE_DEFAULT) else {
        return;
    };
    // SAFETY: the caller upholds the contract of this function.
    let freed = panic::catch_unwind(AssertUnwindSafe(|| unsafe { allocator.free(memory, resource_type) }));
    if freed.is_err() {
        rdma_mummy_sys::log!(error, "DomainAllocator::free panicked");
        process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An allocator that returns one address, and relies on the guarantees for requests.
    #[derive(Debug)]
    struct Strict;

    // SAFETY: the returned memory is never used.
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
    fn allocator_receives_only_valid_requests() {
        let context = AllocatorContext::new(Arc::new(Strict));
        // SAFETY: the context is live.
        let ask = |size, alignment| unsafe { allocate(ptr::null_mut(), context.as_ptr(), size, alignment, 0) };
        for (size, alignment) in [(0, 64), (4096, 0), (4096, 3), (usize::MAX, usize::MAX)] {
            assert_eq!(ask(size, alignment), USE_DEFAULT, "{size} {alignment}");
        }
        let memory = ask(4096, 64);
        assert_eq!(memory, NonNull::<u8>::dangling().as_ptr().cast());
        for back in [memory, USE_DEFAULT, ptr::null_mut()] {
            // SAFETY: the context is live, and memory that the allocator did not allocate is not passed to it.
            unsafe { free(ptr::null_mut(), context.as_ptr(), back, 0) };
        }
    }
}
