//! Thread domains, and parent domains with the program's allocator.

use libc::c_void;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::ibv_parent_domain_init_attr_mask as mask;

use super::device::state_of;
use super::failure::set_errno;
use super::state::Inner;
use super::stub::{endings, stubs};

/// The bytes that a completion queue in a parent domain takes from the allocator.
const SIZE: usize = 4096;
const ALIGNMENT: usize = 256;
/// A stand-in for a vendor's resource type.
const RESOURCE_TYPE: u64 = 0x7_0000_0001;

type Alloc = unsafe extern "C" fn(*mut ffi::ibv_pd, *mut c_void, usize, usize, u64) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut ffi::ibv_pd, *mut c_void, *mut c_void, u64);

/// The program's allocator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocator {
    alloc: Alloc,
    free: Free,
    pd: *mut ffi::ibv_pd,
    pd_context: *mut c_void,
}

stubs! {
    fn alloc_td(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_td_init_attr) -> *mut ffi::ibv_td
        [; @attr: comp_mask] |inner|
    {
        inner.create(context, &[context.addr()])
    }

    fn alloc_parent_domain(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_parent_domain_init_attr)
        -> *mut ffi::ibv_pd [; @attr: pd, td, comp_mask] |inner|
    {
        let attr = &*attr;
        let mut parents = vec![attr.pd.addr(), attr.td.addr()];
        parents.retain(|&parent| parent != 0);
        for &parent in &parents {
            inner.exists(parent, "alloc_parent_domain");
        }
        let pd = inner.create::<ffi::ibv_pd>(context, &parents);
        (*pd).handle = (*attr.pd).handle;
        let both = mask::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS.0 | mask::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT.0;
        if let (Some(alloc), Some(free)) = (attr.alloc, attr.free)
            && attr.comp_mask & both == both
        {
            inner.allocators.insert(pd.addr(), Allocator { alloc, free, pd, pd_context: attr.pd_context });
        }
        pd
    }
}

endings! {
    dealloc_td(ffi::ibv_td);
}

/// The allocator of a parent domain.
pub(super) fn allocator_of(inner: &Inner, pd: *mut ffi::ibv_pd) -> Option<Allocator> {
    inner.allocators.get(&pd.addr()).copied()
}

/// Allocates memory for a completion queue, and writes to it as a device would; returns whether there was any.
///
/// # Safety
///
/// The allocator is that of a live domain, and `context` one of this provider's.
pub(super) unsafe fn take_memory(allocator: Allocator, cq: usize, context: *mut ffi::ibv_context) -> bool {
    // SAFETY: the allocator is live, and its memory has the requested size.
    unsafe {
        set_errno(0);
        let memory = (allocator.alloc)(allocator.pd, allocator.pd_context, SIZE, ALIGNMENT, RESOURCE_TYPE);
        let state = state_of(context);
        match memory.addr() {
            0 => return false,
            usize::MAX => {}
            address if address % ALIGNMENT != 0 => state.lock().violation("memory of an allocator is not aligned"),
            _ => {
                memory.cast::<u8>().write_bytes(0xa5, SIZE);
                state.lock().memory.insert(cq, (allocator, memory.expose_provenance()));
            }
        }
    }
    true
}

/// Frees memory.
///
/// # Safety
///
/// The memory came from this allocator, whose domain is live.
pub(super) unsafe fn give_back(allocator: Allocator, memory: usize) {
    let memory = std::ptr::with_exposed_provenance_mut(memory);
    // SAFETY: guaranteed by the caller.
    unsafe { (allocator.free)(allocator.pd, allocator.pd_context, memory, RESOURCE_TYPE) };
}
